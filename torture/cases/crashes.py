"""Crashes: a process is killed while it writes a file that outlives it; it is the old one or the new one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from devplug.cdi.spec import CdiDevice, CdiNode, CdiSpec, parse
from devplug.daemon.cdi.spec_files import CdiFolder, file_name
from devplug.holds.held_device import Remembered
from devplug.holds.ledger_store import LedgerFile
from devplug.k8s.objects import text, with_part
from devplug.kubelet.checkpoint import Checkpoint, CheckpointEntry, decode, encode
from devplug.kubelet.pluginfolder import PluginFolder
from devplug.sandbox.registry import NODES, Registry
from devplug.sandbox.statefile import opened
from torture.catalogue import case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devplug.sandbox.statefile import StateFile
    from torture.catalogue import Trial

KIND: Final = "devplug.example.com/aa"
STEPS: Final = 120
"""A writer is killed at one of so many last calls into C; what comes before only makes the text."""

STATE_NAMES: Final = [f"node-{number:02}" for number in range(40)]
STATE_SECONDS: Final = 0.06
"""How long it takes at most to open the sandbox's file and to write it."""


@case(
    "crash-while-writing",
    fault="X38",
    promise="A file that is being written when its process is killed says what it said before, or all of the "
    "new",
    count=1_000,
    unit="kills",
    invariants="I3",
)
async def crash_while_writing(trial: Trial) -> None:
    """Kill a forked writer at one of its calls into C, or at any moment where one call does all; a writer
    that comes to its end was killed too late.
    """
    killed = 0
    for turn in trial.rounds():
        folder = trial.folder / f"r{turn.number}"
        folder.mkdir()
        kind = turn.random.choice((*_KINDS, "state"))
        write, read = _KINDS.get(kind, (_write_state, _read_state))
        old, new = turn.random.randint(1, 50), turn.random.randint(51, 100)
        write(folder, old)
        if kind == "state":
            killed += _killed_after(_change_state, folder, new, turn.random.uniform(0, STATE_SECONDS))
        else:
            last = max(1, _calls(write, trial.folder / "whole", new) - 2)
            killed += _killed(write, folder, new, last - turn.random.randrange(min(STEPS, last)))
        said = read(folder)
        trial.check(said in {old, new}, f"I3: {kind} says {said}, and not {old} or {new}", turn.number)
        # What was left behind is no hindrance.
        write(folder, old)
        trial.check(read(folder) == old, f"I3: {kind} cannot be written any more", turn.number)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    trial.figure("killed on the way", killed)
    trial.check(killed > trial.done // 10, f"I3: only {killed} of {trial.done} were killed on the way")


def _calls(write: Callable[[Path, int], None], folder: Path, value: int) -> int:
    """Return how many calls into C a whole write makes, each with its return."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    write(folder, 1)
    calls = 0

    def count(_frame: object, event: str, _argument: Any) -> None:  # noqa: ANN401 -- as sys wants it
        nonlocal calls
        calls += event in {"c_call", "c_return"}

    sys.setprofile(count)
    try:
        write(folder, value)
    finally:
        sys.setprofile(None)
    return calls


def _killed(write: Callable[[Path, int], None], folder: Path, value: int, step: int) -> bool:
    """Write in a forked process that kills itself at its `step`-th call into C; return whether it did."""
    child = os.fork()
    if not child:
        left = step

        def count(_frame: object, event: str, _argument: Any) -> None:  # noqa: ANN401 -- as sys wants it
            nonlocal left
            if event in {"c_call", "c_return"}:
                left -= 1
                if left <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(count)
        try:
            write(folder, value)
        finally:
            sys.setprofile(None)
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def _killed_after(write: Callable[[Path, int], None], folder: Path, value: int, seconds: float) -> bool:
    """Write in a forked process that is killed so long after it has begun; return whether it was."""
    begun, telling = os.pipe()
    child = os.fork()
    if not child:
        os.write(telling, b".")
        write(folder, value)
        os._exit(0)
    os.read(begun, 1)
    os.close(begun)
    os.close(telling)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


# ── files: each says one number, and is long enough for several writes ──


def _names(value: int) -> list[str]:
    return [f"{value:03}-{number:04}" for number in range(value * 20)]


def _write_checkpoint(folder: Path, value: int) -> None:
    entry = CheckpointEntry("u", "c", "example.com/a", {-1: tuple(_names(value))}, b"x")
    PluginFolder(folder).write_checkpoint(encode(Checkpoint((entry,), {})))


def _read_checkpoint(folder: Path) -> int | None:
    entries = decode(PluginFolder(folder).read_checkpoint() or b"").entries
    return _value_of(list(((entries or ())[0].device_ids or {})[-1] or ()))


def _write_cdi(folder: Path, value: int) -> None:
    devices = tuple(CdiDevice(f"d{name}", (CdiNode("/dev/x", "/dev/x"),)) for name in _names(value))
    cdi = CdiFolder(folder)
    cdi.write(CdiSpec(KIND, devices))
    cdi.close()


def _read_cdi(folder: Path) -> int | None:
    spec = parse((folder / file_name(KIND)).read_bytes())
    return None if spec is None else _value_of([one.name[1:] for one in spec.devices])


def _write_held(folder: Path, value: int) -> None:
    memory = {name: Remembered() for name in _names(value)}
    LedgerFile(folder, "example.com/a").write(1, lambda: memory)


def _read_held(folder: Path) -> int | None:
    memory = LedgerFile(folder, "example.com/a").read()
    return None if memory is None else _value_of([*memory])


def _write_state(folder: Path, value: int) -> None:
    """Write to the end, in a process that has no loop yet."""
    child = os.fork()
    if not child:
        _change_state(folder, value)
        os._exit(0)
    os.waitpid(child, 0)


def _change_state(folder: Path, value: int) -> None:
    with opened(folder / "state") as file:
        registry = Registry(file.contents, file.version)
        labels = {"value": f"{value}"}
        for name in STATE_NAMES:
            if registry.find(NODES, "", name) is None:
                registry.create(NODES, "", {"metadata": {"name": name, "labels": labels}})
            else:
                registry.update(NODES, "", name, lambda one: with_part(one, labels, "metadata", "labels"))
        asyncio.run(_keep(file, registry))


async def _keep(file: StateFile, registry: Registry) -> None:
    """Have a file keep what a registry has, as at the end of a sandbox."""
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(file.run(registry))
        await asyncio.sleep(0)
        keeping.cancel()


def _read_state(folder: Path) -> int | None:
    with opened(folder / "state") as file:
        said = {
            (text(one, "metadata", "name"), text(one, "metadata", "labels", "value"))
            for _, one in file.contents
        }
    values = {value for _, value in said}
    is_whole = sorted(name for name, _ in said) == STATE_NAMES and len(values) == 1
    return int(*values) if is_whole else None


def _value_of(names: list[str]) -> int | None:
    """Return the number that a file says, if it has all that belongs to it."""
    value = int(names[0][:3]) if names else 0
    return value if sorted(names) == _names(value) else None


_KINDS: Final[dict[str, tuple[Callable[[Path, int], None], Callable[[Path], int | None]]]] = {
    "checkpoint": (_write_checkpoint, _read_checkpoint),
    "cdi": (_write_cdi, _read_cdi),
    "held": (_write_held, _read_held),
}
