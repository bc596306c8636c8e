"""Restarts of the kubelet: in order, killed, in quick succession, with impostors or nobody at its socket."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from devplug import serve
from torture.catalogue import case
from torture.footprint import nothing_kept, told
from torture.raw_grpc import listening_socket
from torture.raw_kubelet import hand_kubelet
from torture.relays import Leaps
from torture.testbed import RESOURCE, Fed, bed, within

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devplug import Serving
    from torture.catalogue import Round, Trial
    from torture.raw_kubelet import HandKubelet
    from torture.testbed import Bed

WARM_UP_RESTARTS = 200
"""Restarts until the C library has the memory that it keeps."""

IDS: Final = [f"d{number}" for number in range(8)]
WARM_UP: Final = 50
APART_SECONDS: Final = 0.05
ARRIVALS: Final = ("bound here", "renamed to here", "linked to here")
ABSENCES: Final = ("its socket refuses", "its socket is gone", "its folder is gone")
LONG_SECONDS: Final = (600.0, 3_600.0)
LEAP_SECONDS: Final = 1.0
BACKED_OFF_SECONDS: Final = 60.0
PER_MINUTE: Final = 12
LINES: Final = 3
"""What may be said of one absence: that the stream ended, that nobody is there, that the socket was lost."""


# ── one after the other ──


@case(
    "kubelet-restarts",
    fault="X01",
    promise="Each clean restart of the kubelet brings one registration, the same IDs, and the whole list",
    count=1_000,
    unit="restarts",
    invariants="I2 I3 I7 I9",
)
async def kubelet_restarts(trial: Trial) -> None:
    """Restart an idle kubelet in order, again and again."""
    ids = [f"d{number}" for number in range(8)]
    async with bed(trial.folder, Fed(*ids)) as stage:
        for _ in range(WARM_UP_RESTARTS):
            await _restarted(stage, len(ids))
        times = []
        async with nothing_kept(trial):
            for turn in trial.rounds():
                times.append(await _restarted(stage, len(ids)))
                listed = [device.id for device in stage.kubelet.devices(RESOURCE)]
                trial.check(listed == ids, f"I9: {listed} were {ids}", turn.number)
                count = stage.kubelet.registrations(RESOURCE)
                trial.check(count == 1, f"I7: {count} registrations after one restart", turn.number)
    trial.times("restart → whole list", times, p99_within=1.0)


async def _restarted(stage: Bed, count: int) -> float:
    """Restart the kubelet; return the seconds from its socket's return to the whole list."""
    await stage.kubelet.restart(orderly=True)
    # Or the next restart would end a registration that is not over: another fault, tried elsewhere.
    took = await stage.until_allocatable(count)
    await asyncio.wait_for(stage.serving.wait_registered(), 2)
    return took


# ── what stands at kubelet.sock ──


@case(
    "kubelet-restart-pairs",
    fault="X03",
    promise="Two restarts within 50 ms are survived as one: no event is lost, the last kubelet has the list",
    count=500,
    unit="pairs",
    invariants="I2 I3 I7 I9",
)
async def kubelet_restart_pairs(trial: Trial) -> None:
    """Restart the kubelet twice, each time killed or in order, by chance."""
    times: list[float] = []
    async with hand_kubelet(trial.folder) as kubelet:
        kubelet.start()
        async with serve(Fed(*IDS), plugin_dir=trial.folder, registration="socket"):
            await within(5, kubelet.until_listed(IDS), lambda: "I2: not registered at first")
            for _ in range(min(WARM_UP, trial.count)):
                kubelet.kill()
                kubelet.start()
                await within(2, kubelet.until_listed(IDS), lambda: "I2: no whole list within 2 s")
            async with nothing_kept(trial):
                for turn in trial.rounds():
                    for pause_seconds in (turn.random.uniform(0, APART_SECONDS), 0.0):
                        kubelet.kill()
                        if turn.random.random() < 0.5:
                            kubelet.path.unlink()
                            await asyncio.sleep(turn.random.uniform(0, 0.01))
                        kubelet.start()
                        await asyncio.sleep(pause_seconds)
                    times.append(await _taken_over(trial, turn, kubelet))
    trial.times("second start → whole list", times, p99_within=1.0)


async def _taken_over(trial: Trial, turn: Round, kubelet: HandKubelet) -> float:
    """Wait until the kubelet has the list, and hold how it came to it; return how long it took."""
    took = await within(2, kubelet.until_listed(IDS), lambda: "I2: no whole list within 2 s of the start")
    await within(2, kubelet.until_answered(), lambda: "I7: Register is still open")
    client = await within(2, kubelet.until_listed(IDS), lambda: "I2: the list was lost again")
    del client
    attempts = kubelet.life.attempts
    is_few = len(attempts) <= 2 and not any(attempt.overlapping for attempt in attempts)
    trial.check(is_few, f"I7: {len(attempts)} × Register for one start", turn.number)
    return took


# ── impostors ──


def _by_rename(path: Path, _: ExitStack) -> None:
    aside = path.with_name("aside")
    aside.touch()
    aside.rename(path)


def _link_to_nowhere(path: Path, _: ExitStack) -> None:
    path.symlink_to("nowhere.sock")


def _file(path: Path, _: ExitStack) -> None:
    path.write_text("no socket")


def _fifo(path: Path, _: ExitStack) -> None:
    os.mkfifo(path)


def _folder(path: Path, _: ExitStack) -> None:
    path.mkdir()


def _bound(path: Path, kept: ExitStack) -> None:
    kept.enter_context(listening_socket(path, backlog=None))


def _deaf(path: Path, kept: ExitStack) -> None:
    """It listens, and accepts nobody."""
    kept.enter_context(listening_socket(path, backlog=8))


def _datagrams(path: Path, kept: ExitStack) -> None:
    other = kept.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    other.bind(str(path))


IMPOSTORS: Final[tuple[Callable[[Path, ExitStack], None], ...]] = (
    _by_rename,
    _link_to_nowhere,
    _file,
    _fifo,
    _folder,
    _bound,
    _deaf,
    _datagrams,
)


@case(
    "kubelet-socket-impostors",
    fault="X06",
    promise="Whatever stands at kubelet.sock that is no kubelet is waited out; a real one is found at once",
    count=800,
    unit="impostors",
    invariants="I2 I3 I4 I7",
)
async def kubelet_socket_impostors(trial: Trial) -> None:
    """Put an impostor at kubelet.sock, then a real kubelet that arrives in one of three ways."""
    async with hand_kubelet(trial.folder) as kubelet:
        kubelet.start()
        async with serve(Fed(*IDS), plugin_dir=trial.folder, registration="socket"):
            await within(5, kubelet.until_listed(IDS), lambda: "I2: not registered at first")
            async with nothing_kept(trial):
                times = [await _posed(trial, turn, kubelet) for turn in trial.rounds()]
    trial.times("real start → whole list", times, p99_within=1.0)


async def _posed(trial: Trial, turn: Round, kubelet: HandKubelet) -> float:
    with ExitStack() as kept:
        kubelet.kill()
        kubelet.path.unlink(missing_ok=True)
        impostor = IMPOSTORS[turn.number % len(IMPOSTORS)]
        impostor(kubelet.path, kept)
        await asyncio.sleep(turn.random.choice([0.0, 0.002, 0.02]))
        # A process that is deaf hangs on beside the real one; the others end first.
        if impostor is not _deaf:
            kept.close()
        arrival = ARRIVALS[turn.number // len(IMPOSTORS) % len(ARRIVALS)]
        aside = trial.folder / "real.sock"
        if kubelet.path.is_dir():
            kubelet.path.rmdir()
        if arrival == "bound here":
            kubelet.path.unlink(missing_ok=True)
            kubelet.start()
        elif arrival == "renamed to here":
            kubelet.start(aside)
            # What the start has swept away is made again by then; now the name alone tells.
            await asyncio.sleep(0.005)
            aside.rename(kubelet.path)
        else:
            kubelet.path.unlink(missing_ok=True)
            kubelet.start(aside)
            kubelet.path.symlink_to(aside.name)
        return await _taken_over(trial, turn, kubelet)


# ── nobody for long ──


@case(
    "kubelet-absent",
    fault="X07",
    promise="A kubelet that is away for ten minutes or an hour is waited for quietly, and found at once",
    count=12,
    unit="absences",
    invariants="I2 I7 I10",
    limit_seconds=150,
)
async def kubelet_absent(trial: Trial) -> None:
    """Keep the kubelet away for long by a clock that leaps, in one of three ways; then let it come."""
    folder = trial.folder / "device-plugins"
    folder.mkdir()
    leaps = Leaps()
    most = 0
    async with hand_kubelet(folder) as kubelet:
        kubelet.start()
        with told() as lines:
            async with serve(Fed(*IDS), plugin_dir=folder, registration="socket") as serving:
                await within(5, kubelet.until_listed(IDS), lambda: "I2: not registered at first")
                for turn in trial.rounds():
                    way = ABSENCES[turn.number % len(ABSENCES)]
                    before, said = _tried(serving), lines.total
                    kubelet.kill()
                    if way == "its socket is gone":
                        kubelet.path.unlink()
                    if way == "its folder is gone":
                        folder.rename(trial.folder / "away")
                    minutes = await _waited(leaps, serving, LONG_SECONDS[turn.number % len(LONG_SECONDS)])
                    most = max(most, *minutes)
                    trial.check(
                        max(minutes) <= PER_MINUTE,
                        f"I7: {max(minutes)} attempts in one minute while {way}",
                        turn.number,
                    )
                    if way != "its socket refuses":
                        count = _tried(serving) - before
                        trial.check(not count, f"I7: {count} attempts while {way}", turn.number)
                    count = lines.total - said
                    trial.check(
                        count <= LINES, f"I10: {count} lines while {way}: {lines.counts}", turn.number
                    )
                    if way == "its folder is gone":
                        (trial.folder / "away").rename(folder)
                    kubelet.start()
                    await _taken_over(trial, turn, kubelet)
                    await within(2, serving.wait_registered(), lambda: "I2: not registered by its own word")
    trial.figure("attempts in a minute, at most", most)


def _tried(serving: Serving) -> int:
    """Return how many Registers have ended, by the plugin's own count."""
    return int(sum(sample.value for sample in serving.counters_of(RESOURCE).registrations.samples()))


async def _waited(leaps: Leaps, serving: Serving, seconds: float) -> list[int]:
    """Let so much time pass; return how many attempts ended in each minute after the first."""
    minutes: list[int] = []
    passed, counted = 0.0, 0
    while passed < seconds:
        leaps.forward(LEAP_SECONDS)
        passed += LEAP_SECONDS
        for _ in range(20):
            await asyncio.sleep(0)
        if passed % BACKED_OFF_SECONDS == 0:
            now = _tried(serving)
            if passed > BACKED_OFF_SECONDS:
                minutes.append(now - counted)
            counted = now
    return minutes
