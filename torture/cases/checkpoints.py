"""The kubelet's checkpoint: damaged files, and its accounts beside a naive model.

A file is cut, flipped, or something else altogether: that is said loudly, and as good as none. The histories
are random ones, and every short one of a small node.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug import ContainerResponse
from devplug.devices import HEALTHY, UNHEALTHY
from devplug.errors import AllocationError
from devplug.kubelet import checkpoint, resources
from devplug.kubelet.allocation import DeviceAllocations, Need
from devplug.kubelet.checkpoint import Checkpoint, CheckpointEntry, CheckpointError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pluginfolder import DAMAGED_NAME
from devplug.kubelet_dir import CHECKPOINT_NAME
from devplug.wire.deviceplugin import CONTAINER_RESPONSE
from devplug.wire.values import AdvertisedDevice
from torture.catalogue import case
from torture.footprint import nothing_kept
from torture.fuzzing.hunt import Entry, entries, mutated, replayed

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from torture.catalogue import Trial

WHOLE_STARTS: Final = 100
"""Every so many damaged files one is given to a whole kubelet; the rest to what reads it there."""

RESOURCE: Final = "example.com/a"
PODS: Final = ("p0", "p1")
IDS: Final = ("a", "b", "c")
RESPONSE: Final = ContainerResponse()
OPERATIONS: Final = (
    *((verb, pod, count) for verb in ("allocate", "refuse") for pod in PODS for count in (1, 2)),
    *(("end", pod, 0) for pod in PODS),
    *(("ill", id_, 0) for id_ in IDS[:2]),
    *(("well", id_, 0) for id_ in IDS[:1]),
    ("lost", "", 0),
    ("restart", "", 0),
)
"""All that happens to the small node: 15 operations."""

DEPTH: Final = 4
HISTORY_LENGTH: Final = 40


# ── damaged files ──


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


# ── histories ──


class Small:
    """The real ledger of one resource, and beside it a dictionary of who holds what."""

    def __init__(self) -> None:
        self.ledger = DeviceAllocations()
        self.held: dict[str, tuple[str, ...]] = {}
        self.health = dict.fromkeys(IDS, HEALTHY)
        self.is_lost = False
        self._list()

    def _list(self) -> None:
        listed = [AdvertisedDevice(id_, health) for id_, health in self.health.items()]
        self.ledger.update(RESOURCE, resources.listed(self.ledger.state(RESOURCE), listed))
        self.is_lost = False

    def do(self, verb: str, name: str, count: int) -> str:
        """Do one thing to both; return what does not hold then, or nothing."""
        if verb in {"allocate", "refuse"}:
            return self._allocate(name, count, is_refused=verb == "refuse") or self.fault()
        if verb == "end":
            self.held.pop(name, None)
            self.ledger.free_inactive([*self.held])
        elif verb in {"ill", "well"}:
            self.health[name] = HEALTHY if verb == "well" else UNHEALTHY
            self._list()
        elif verb == "lost":
            self.is_lost = True
            state = resources.disconnected(self.ledger.state(RESOURCE))
            self.ledger.update(RESOURCE, state)
        else:
            kept = self.ledger.assignments
            self.ledger = DeviceAllocations()
            self.ledger.restore(kept)
            self._list()
        return self.fault()

    def _allocate(self, pod: str, count: int, *, is_refused: bool) -> str:
        need = Need(pod, "c", RESOURCE, count)
        healthy = set() if self.is_lost else {id_ for id_ in IDS if self.health[id_] == HEALTHY}
        free = healthy - self._taken()
        mine = self.held.get(pod)
        possible = bool(healthy) and (
            len(free) >= count if mine is None else len(mine) == count and healthy.issuperset(mine)
        )
        self.ledger.begin_container(pod)
        steps = self.ledger.pick(need, was_running=False)
        try:
            next(steps)
            steps.send(())
        except StopIteration as chosen:
            picked: tuple[str, ...] = tuple(chosen.value)
        except AllocationError:
            self.ledger.release_unassigned()
            return "a pod is refused that could have devices" if possible else ""
        else:
            return "asked twice"
        if not possible:
            return f"{pod} gets {picked}, which should be refused"
        if not picked:
            return "" if mine is not None else f"{pod} gets nothing"
        if is_refused:
            self.ledger.release_unassigned()
            return ""
        if not free.issuperset(picked) or len(picked) != count:
            return f"I1: {pod} gets {picked} of {sorted(free)}"
        self.ledger.assign(need, picked, RESPONSE, compat=True)
        self.ledger.end_container(pod, "c", runs_to_its_end=False, compat=True)
        self.held[pod] = picked
        return ""

    def _taken(self) -> set[str]:
        return {id_ for ids in self.held.values() for id_ in ids}

    def fault(self) -> str:
        """Return what does not hold between the ledger and the dictionary."""
        booked = {one.allocation.pod_uid: one.allocation.device_ids for one in self.ledger.assignments}
        if booked != self.held:
            return f"I12: the books have {booked}, held are {self.held}"
        ids = [id_ for held in booked.values() for id_ in held]
        if len(ids) != len(set(ids)):
            return f"I1: {booked}"
        if self.ledger.state(RESOURCE).available & self._taken():
            return "I1: what is held is available"
        if (self.ledger.state(RESOURCE).allocated or frozenset()) != self._taken():
            return f"marked {self.ledger.state(RESOURCE).allocated}, held {self._taken()}"
        return ""


@case(
    "ledger-histories",
    fault="X43",
    promise="After any history of pods, refusals, losses and restarts the books are those of a naive model",
    count=30_000,
    unit="histories",
    invariants="I1 I12",
    brief=True,
)
async def ledger_histories(trial: Trial) -> None:
    """Play random histories of forty operations."""
    for turn in trial.rounds():
        small = Small()
        done = []
        for _ in range(HISTORY_LENGTH):
            done.append(turn.random.choice(OPERATIONS))
            if why := small.do(*done[-1]):
                trial.broke(f"{why}: {done}", turn.number)
                break


@case(
    "ledger-every-history",
    fault="X43",
    promise="All 15^4 histories of four operations on two pods and three devices keep the books right",
    count=len(OPERATIONS) ** DEPTH,
    unit="histories",
    invariants="I1 I12",
)
async def ledger_every_history(trial: Trial) -> None:
    """Play every history, each by its number."""
    for turn in trial.rounds():
        small = Small()
        history = _history(turn.number)
        for operation in history:
            if why := small.do(*operation):
                trial.broke(f"{why}: {history}", turn.number)
                break


def _history(number: int) -> list[tuple[str, str, int]]:
    """Return one of all histories; a prime step makes also a part of the numbers go through all kinds."""
    index = number * 7919 % len(OPERATIONS) ** DEPTH
    history = []
    for _ in range(DEPTH):
        index, operation = divmod(index, len(OPERATIONS))
        history.append(OPERATIONS[operation])
    return history
