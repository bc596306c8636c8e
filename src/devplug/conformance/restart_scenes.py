"""The faults that several checks share: each is made once in a run, and its result kept.

A scene fails no check: if a plugin does not register again the scene ends, with the reason in its `trouble`.
"""

from __future__ import annotations

import asyncio
import socket
import stat
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.conformance.rules import is_calm
from devplug.conformance.testbed import once_in_a_run
from devplug.conformance.verdicts import FailedError, SkippedError
from devplug.kubelet_dir import KUBELET_SOCKET

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from devplug.conformance.figures import Figures
    from devplug.conformance.testbed import TestBed

LOSSES: Final = 5
"""How many streams are lost one after the other."""


@dataclass(frozen=True, slots=True)
class Restart:
    """One restart of the kubelet: all sockets are removed, then there is a new kubelet.sock."""

    trouble: str
    """Why the plugin was not back; empty if it was."""
    seconds: float
    """How long after the new kubelet.sock it called Register."""
    ids_before: Collection[str]
    ids_after: Collection[str]


@dataclass(frozen=True, slots=True)
class Losses:
    """Streams that ended one after the other, each as soon as it had brought a list."""

    trouble: str
    """Why the plugin was not back after the last of them; empty if it was."""
    seconds: Sequence[float]
    """How long after each loss it called Register, of those after which it did."""
    sockets_before: Collection[str]
    sockets_after: Collection[str]


@dataclass(frozen=True, slots=True)
class Absence:
    """A kubelet that stays away for a while, and leaves no socket in the folder."""

    trouble: str
    """Why the plugin was not registered when the kubelet was there again; empty if it was."""
    processor_share: float | None
    """How much of a processor the plugin took in the later half of the wait; None if it ended."""


@dataclass(frozen=True, slots=True)
class Row:
    """Restarts that follow each other as soon as the plugin is back."""

    trouble: str
    """Why the plugin was not back after the last of them; empty if it was."""
    seconds: float
    """How long they took in all."""
    figures: Sequence[Figures]
    """What the plugin took before, after each of them, and at last when it had settled."""

    @property
    def restarts(self) -> int:
        """The number of restarts after which it registered again."""
        return len(self.figures) - 1


# ── the scenes ──


async def plain_restart(bed: TestBed) -> Restart:
    """Restart the kubelet once."""
    return await once_in_a_run(bed, _plain_restart)


async def losses(bed: TestBed) -> Losses:
    """End the stream again and again, while the kubelet and both sockets stay."""
    return await once_in_a_run(bed, _losses)


async def absence(bed: TestBed) -> Absence:
    """Stop the kubelet, remove all sockets, and start it again later."""
    return await once_in_a_run(bed, _absence)


async def restarts_in_a_row(bed: TestBed) -> Row:
    """Restart the kubelet many times."""
    return await once_in_a_run(bed, _restarts_in_a_row)


async def expect_restart_survived(bed: TestBed) -> None:
    """Raise `SkippedError` for a plugin that is not even back after a single restart."""
    if (await plain_restart(bed)).trouble:
        raise SkippedError("the plugin registers after no restart of the kubelet (RES01)")


async def expect_loss_survived(bed: TestBed) -> Losses:
    """Return what came of the lost streams; raises `SkippedError` if the plugin did not survive the first."""
    seen = await losses(bed)
    if not seen.seconds:
        raise SkippedError("the plugin does not register after a lost stream (RES04)")
    return seen


async def _plain_restart(bed: TestBed) -> Restart:
    ids = ids_of(bed)
    moment = await bed.kubelet.restart()
    try:
        await bed.wait_back(moment, bed.times.return_seconds, "after a restart of the kubelet no list came")
    except FailedError as error:
        return Restart(str(error), 0.0, ids, ())
    seconds = bed.kubelet.attempts_since(moment)[0].started_at - moment
    return Restart("", seconds, ids, await to_same_ids(bed, ids))


async def _losses(bed: TestBed) -> Losses:
    before = sockets(bed.folder)
    begun = time.monotonic()
    seconds: list[float] = []
    trouble = ""
    # One whose pauses grow from loss to loss may take its time, and two losses are all that it has to bear.
    while len(seconds) < LOSSES and (len(seconds) < 2 or time.monotonic() - begun < bed.times.return_seconds):
        moment = time.monotonic()
        await bed.kubelet.drop(bed.client)
        words = f"after lost stream {len(seconds) + 1} no new registration came"
        try:
            await bed.wait_back(moment, bed.times.return_seconds, words)
        except FailedError as error:
            trouble = str(error)
            break
        seconds.append(bed.kubelet.attempts_since(moment)[0].started_at - moment)
    return Losses(trouble, seconds, before, sockets(bed.folder))


async def _absence(bed: TestBed) -> Absence:
    await bed.kubelet.stop()
    bed.kubelet.folder.prepare()
    # What it does at the loss is its affair; measured is how it waits.
    await bed.kubelet.until(lambda: not bed.is_alive(), bed.times.down_seconds / 2)
    share = None
    if bed.is_alive():
        begun, before = time.monotonic(), bed.program.figures()
        await bed.kubelet.until(lambda: not bed.is_alive(), bed.times.down_seconds / 2)
        if bed.is_alive():
            share = bed.program.figures().processor_share_since(before, time.monotonic() - begun)
    await bed.kubelet.start()
    words = f"the kubelet was away for {bed.times.down_seconds:g} s, and after that no list came"
    try:
        await bed.wait_back(bed.kubelet.started_at, bed.times.return_seconds, words)
    except FailedError as error:
        return Absence(str(error), share)
    return Absence("", share)


async def _restarts_in_a_row(bed: TestBed) -> Row:
    times = bed.times
    figures = [bed.program.figures()]
    begun = time.monotonic()
    # A plugin that takes seconds each time is not held up for minutes: fewer restarts show the same.
    while len(figures) <= times.restarts and time.monotonic() - begun < times.check_seconds / 2:
        moment = await bed.kubelet.restart()
        try:
            await bed.wait_back(moment, times.return_seconds, f"after restart {len(figures)} no list came")
        except FailedError as error:
            return Row(str(error), time.monotonic() - begun, figures)
        figures.append(bed.program.figures())
    took_seconds = time.monotonic() - begun
    deadline = time.monotonic() + 5 * times.settle_seconds
    await asyncio.sleep(times.settle_seconds)
    while True:
        figures[-1] = bed.program.figures()
        if is_calm(figures) or time.monotonic() > deadline:
            return Row("", took_seconds, figures)
        await asyncio.sleep(times.settle_seconds / 5)


# ── what is looked at ──


def ids_of(bed: TestBed) -> Collection[str]:
    """Return the IDs of the current list."""
    return {device.id for device in bed.devices}


async def to_same_ids(bed: TestBed, ids: Collection[str]) -> Collection[str]:
    """Return the IDs of the current list, or of one that comes soon and has exactly `ids`."""

    def are_same() -> bool:
        client = bed.kubelet.client
        return client is not None and {device.id for device in client.devices} == ids

    await bed.kubelet.until(are_same, bed.times.settle_seconds)
    return ids_of(bed)


def sockets(folder: Path) -> Collection[str]:
    """Return the names of all sockets in the folder but the kubelet's."""
    return {path.name for path in folder.iterdir() if path.name != KUBELET_SOCKET and _is_socket(path)}


def dead_sockets(folder: Path) -> Collection[str]:
    """Return the names of those of them on which nobody listens."""
    return {name for name in sockets(folder) if not is_listening(folder / name)}


def is_listening(path: Path) -> bool:
    """Whether somebody accepts connections at `path`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
        end.settimeout(0)
        try:
            end.connect(str(path))
        except BlockingIOError:
            return True  # its queue is full, so there is one
        except OSError:
            return False
    return True


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return False  # removed since the folder was read
