"""A checkpoint that is cut, flipped, or something else altogether: said loudly, and as good as none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug import ContainerResponse
from devplug.kubelet import checkpoint
from devplug.kubelet.checkpoint import Checkpoint, CheckpointEntry, CheckpointError
from devplug.kubelet.folder import CHECKPOINT_NAME, DAMAGED_NAME
from devplug.kubelet.manager import Kubelet
from devplug.wire.messages import CONTAINER_RESPONSE
from torture.catalogue import case
from torture.fuzzing.corpus import Entry, entries
from torture.fuzzing.hunting import replayed
from torture.fuzzing.mutating import mutated
from torture.held import nothing_kept

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from torture.catalogue import Trial

WHOLE_STARTS: Final = 100
"""Every so many damaged files one is given to a whole kubelet; the rest to what reads it there."""


def _written() -> bytes:
    """Return the file of a kubelet with ten containers that hold devices of two resources."""
    response = CONTAINER_RESPONSE.encode(ContainerResponse(device_nodes=["/dev/d0"], envs={"A": "1"}))
    held = tuple(
        CheckpointEntry(f"uid-{number}", "main", "example.com/a", {0: (f"d{number}",), -1: ()}, response)
        for number in range(10)
    )
    registered = {"example.com/a": tuple(f"d{number}" for number in range(10)), "example.com/b": None}
    return checkpoint.encode(Checkpoint(held, registered))


WHOLE: Final = _written()
TRUTH: Final = checkpoint.decode(WHOLE)


@case(
    "checkpoint-damage",
    fault="X37",
    promise="A damaged checkpoint is an error that is told, no devices, and a file that is kept aside",
    count=15_000,
    unit="files",
    invariants="I3 I4",
)
async def checkpoint_damage(trial: Trial) -> None:
    """Cut a real one at each byte, flip each of its bits, then change it by chance."""
    replayed(trial, [Entry("checkpoint", "whole", WHOLE), *entries("checkpoints")], _fault)
    await _starts_with_anything_else(trial)
    folder = trial.folder / "k"
    async with nothing_kept(trial):
        for turn in trial.rounds():
            content = _damaged(turn.number, turn.random)
            if found := _fault(Entry("checkpoint", "", content)):
                trial.broke(f"{found}: {content[:300]!r}", turn.number)
            if not turn.number % WHOLE_STARTS:
                await _start(trial, folder, content, turn.number)
    trial.figure("whole kubelets started", trial.count // WHOLE_STARTS)


def _damaged(number: int, chance: Random) -> bytes:
    """Return the file cut at each of its bytes, then with each of its bits flipped, then changed anyhow."""
    if number < len(WHOLE):
        return WHOLE[:number]
    number -= len(WHOLE)
    if number < 8 * len(WHOLE):
        at, bit = divmod(number, 8)
        return WHOLE[:at] + bytes([WHOLE[at] ^ 1 << bit]) + WHOLE[at + 1 :]
    return mutated(WHOLE, chance)


def _fault(entry: Entry) -> str:
    """Return what is wrong about how a file is read; what it says may only be what was written."""
    try:
        read = checkpoint.decode(entry.content)
    except CheckpointError:
        return ""
    except Exception as error:  # noqa: BLE001 -- any other ends the kubelet
        return f"I4: decode raises {type(error).__name__}: {error}"
    if entry.of == "checkpoint" and read not in (TRUTH, Checkpoint((), {})):
        return f"I4: it is believed, and says {read}"
    return ""


async def _start(trial: Trial, folder: Path, content: bytes, number: int) -> None:
    """Start a whole kubelet on a file, and look at what it makes of that."""
    folder.mkdir(exist_ok=True)
    path, aside = folder / CHECKPOINT_NAME, folder / DAMAGED_NAME
    path.write_bytes(content)
    aside.unlink(missing_ok=True)
    kubelet = Kubelet(folder)
    async with kubelet.running(orderly=True):
        error = kubelet.device_manager.checkpoint_error
        trial.check(not sum(kubelet.allocatable().values()), "I4: devices that nobody lists", number)
        if error is not None:
            trial.check(not kubelet.allocations(), "I4: allocations out of a damaged file", number)
            trial.check(aside.is_file() and aside.read_bytes() == content, "I4: not kept aside", number)


def _gigabyte(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 30)


async def _starts_with_anything_else(trial: Trial) -> None:
    """Start kubelets where the checkpoint is no file at all, or not one that can be read."""
    made: dict[str, Callable[[Path], object]] = {
        "a folder": Path.mkdir,
        "a pipe": os.mkfifo,
        "a link to nowhere": lambda path: path.symlink_to("nowhere"),
        "a link to itself": lambda path: path.symlink_to(CHECKPOINT_NAME),
        "a link to a device": lambda path: path.symlink_to("/dev/zero"),
        "a gigabyte of nothing": _gigabyte,
        "empty": Path.touch,
        "forbidden": lambda path: path.touch(mode=0),
    }
    for number, (what, make) in enumerate(made.items()):
        folder = trial.folder / f"odd{number}"
        folder.mkdir()
        make(folder / CHECKPOINT_NAME)
        kubelet = Kubelet(folder)
        async with kubelet.running(orderly=True):
            trial.check(not kubelet.allocatable(), f"I4: {what} has devices")
            is_told = kubelet.device_manager.checkpoint_error is not None
            is_none = what == "a link to nowhere"
            is_open = what == "forbidden"  # root reads it, and finds it empty
            trial.check(is_told != is_none or is_open, f"I4: {what} is taken without a word")
