"""Signals to the plugin's process: to end, to read its file again, to stop for a while.

It is stopped as by a debugger, a freezer or a machine that swaps.
"""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.errors import KubeletError
from torture.catalogue import case
from torture.daemons import config_text, node, pod_of, until

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from torture.catalogue import Round, Trial
    from torture.daemons import Daemon, Node

A: Final = "example.com/a"
B: Final = "example.com/b"
A_IDS: Final = tuple(f"a{number}" for number in range(8))
SIGNALS_EACH: Final = 500
END_SECONDS: Final = 1.0
TRUTH_SECONDS: Final = 2.0
BAD: Final = (
    "",
    "version: 1\nresources: [",
    config_text("{name: example.com/a, discover: {static: {ids: [a0]}}, colour: red}"),
    config_text("{name: example.com/a, discover: {path: dev/x}}"),
)

REFUSED: Final = "reload failed: the file has mistakes"
APPLIED: Final = "configuration reloaded"
MOST_REGISTRATIONS: Final = 3
"""Of one resource with one kubelet: a call that the stop made fail may have been one, too."""

MOMENTS: Final = ("nothing", "Allocate", "restart", "two restarts", "lost stream", "unplug", "edit")
"""What happens while it is stopped."""


# ── to end, and to reload ──


def _config(b_count: int) -> str:
    """Return a configuration in which one resource is always the same, and the other has so many devices."""
    ids = ", ".join(f"b{number}" for number in range(b_count))
    return config_text(
        f"{{name: {A}, discover: {{static: {{ids: [{', '.join(A_IDS)}]}}}}}}",
        f"{{name: {B}, discover: {{static: {{ids: [{ids}]}}}}}}",
    )


# ── floods ────────────────────────────────────────────────────────────────────────────────────────


@case(
    "plugin-signals",
    fault="X14",
    promise="A flood of 500 signals to each of many daemons under load breaks no call; the last good file is "
    "served, and SIGTERM or SIGINT is an end with exit code 0 that leaves nothing",
    count=20,
    unit="daemons",
    invariants="I2 I4 I5 I6 I10",
    limit_seconds=200,
)
async def plugin_signals(trial: Trial) -> None:
    """Start a daemon, flood it with SIGHUP while its file is edited, and have it end in one of four ways."""
    sent = pods = 0
    ends: list[float] = []
    async with node(trial.folder, _config(1)) as stage:
        for turn in trial.rounds():
            stage.file.write_text(_config(1))
            daemon = stage.start()
            await stage.until_listed({A: len(A_IDS), B: 1}, daemon=daemon)
            await stage.until_registered(daemon, A, B)
            # What the one before may have left, if it was ended at once.
            trial.check(len(stage.sockets()) == 2, f"I5: {stage.sockets()} for two resources", turn.number)
            async with _load(stage, f"load-{turn.number}") as load:
                edits = await _flood(stage, daemon, turn.random)
            pods += load.pods
            trial.check(not load.refusals, f"I6: {load.refusals[:2]}", turn.number)
            _check_lines(trial, daemon, edits, turn.number)
            sent += SIGNALS_EACH
            ends += await _end(trial, stage, daemon, turn)
    trial.figure("signals", f"{sent:,}")
    trial.figure("pods meanwhile", f"{pods:,}")
    if ends:
        trial.times("signal → end", ends, p99_within=END_SECONDS)


@dataclass(slots=True)
class _Edits:
    """What was done to the file, and what of it must be served."""

    good: int = 0
    bad: int = 0
    served: int = 1
    """How many devices of B the last good file has."""


async def _flood(stage: Node, daemon: Daemon, chance: random.Random) -> _Edits:
    """Send signals in bursts while the file is edited: some edits are overtaken, some are bad, one stays."""
    edits = _Edits()
    left = SIGNALS_EACH
    while left:
        for _ in range(burst := min(left, chance.randint(1, 60))):
            daemon.send(signal.SIGHUP)
        left -= burst
        await asyncio.sleep(chance.uniform(0, 0.005))
        if chance.random() < 0.1:
            for _ in range(chance.randint(0, 3)):
                _edit(stage, edits, chance.choice((*BAD, _config(chance.randint(1, 3)))))
                await asyncio.sleep(chance.uniform(0, 0.01))
            edits.served = 9 - edits.served
            _edit(stage, edits, _config(edits.served))
            await stage.until_listed({A: len(A_IDS), B: edits.served}, TRUTH_SECONDS, daemon)
    bad_before = daemon.said().count(REFUSED)
    _edit(stage, edits, chance.choice(BAD))
    daemon.send(signal.SIGHUP)
    await until(
        lambda: daemon.said().count(REFUSED) > bad_before,
        TRUTH_SECONDS,
        lambda: f"I10: nothing is told of a bad file: {daemon.last_words()}",
    )
    await stage.until_listed({A: len(A_IDS), B: edits.served}, TRUTH_SECONDS, daemon)
    return edits


def _edit(stage: Node, edits: _Edits, content: str) -> None:
    stage.file.write_text(content)
    if content in BAD:
        edits.bad += 1
    else:
        edits.good += 1


def _check_lines(trial: Trial, daemon: Daemon, edits: _Edits, number: int) -> None:
    """Hold the log against what was done: nothing is told twice, whatever the number of signals."""
    said = daemon.said()
    applied, refused = said.count(APPLIED), said.count(REFUSED)
    trial.check(applied <= edits.good, f"I10: {applied} reloads of {edits.good} edits", number)
    trial.check(refused <= edits.bad, f"I10: {refused} refusals of {edits.bad} bad edits", number)
    trial.check("Traceback" not in said, f"I4: {daemon.last_words()}", number)


@dataclass(slots=True)
class _Load:
    """Pods that come and go."""

    pods: int = 0
    refusals: list[str] = field(default_factory=list)


@asynccontextmanager
async def _load(stage: Node, name: str) -> AsyncIterator[_Load]:
    """Have pods come and go for a block, one at a time."""
    load = _Load()
    is_over = False

    async def work() -> None:
        while not is_over:
            load.pods += 1
            pod = pod_of(f"{name}-{load.pods}", A, 2)
            status = await stage.kubelet.run_pod(pod)
            if status.phase != "Running":
                load.refusals.append(f"{status.reason}: {status.message}")
            stage.kubelet.remove_pod(pod.uid)
            await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        try:
            yield load
        finally:
            is_over = True


async def _end(trial: Trial, stage: Node, daemon: Daemon, turn: Round) -> list[float]:
    """Have a daemon end by one signal, or by more than that; return the seconds if it was left in peace."""
    number = turn.random.choice([signal.SIGTERM, signal.SIGINT])
    way = turn.random.choice(["one", "one", "hang-ups", "two"])
    started = time.monotonic()
    daemon.send(number)
    if way == "two":
        await asyncio.sleep(turn.random.uniform(0, 0.05))
        daemon.send(turn.random.choice([signal.SIGTERM, signal.SIGINT]))
        code, _ = await daemon.ended()
        # The second one is for those who will not wait: it ends at once, or in order if that was faster.
        trial.check(code in {0, 130, -signal.SIGTERM, -signal.SIGINT}, f"I4: twice: {code}", turn.number)
    else:
        while way == "hang-ups" and daemon.exit_code is None:
            daemon.send(signal.SIGHUP)
            await asyncio.sleep(0)
        code, _ = await daemon.ended()
        trial.check(
            code == 0, f"I5: {way} {number.name}: exit code {code}: {daemon.last_words()}", turn.number
        )
        trial.check(not (left := _left(stage)), f"I5: {way} {number.name}: {left} is left", turn.number)
    await stage.until_listed({A: 0, B: 0}, TRUTH_SECONDS)
    return [time.monotonic() - started] if way == "one" else []


def _left(stage: Node) -> list[str]:
    """Return what an end should not have left: all but what the next daemon has to know of held devices."""
    inner = stage.plugin_dir / ".devplug"
    names = [path.name for path in inner.iterdir()] if inner.exists() else []
    others = [name for name in stage.remains() if name != inner.name]
    return others + [name for name in names if not name.startswith(("held-", "dirty-"))]


# ── to stop ──


@case(
    "plugin-stopped",
    fault="X15",
    promise="A daemon that is stopped for a while, in a call or while the kubelet restarts, goes on where it "
    "was: no call is lost that the kubelet still waits for, and nobody has to start it again",
    count=60,
    unit="stops",
    invariants="I1 I2 I4 I6 I7",
    limit_seconds=200,
)
async def plugin_stopped(trial: Trial) -> None:
    """Stop one daemon again and again; a round begins with what the one before has left, which is nothing."""
    devices = trial.folder / "dev"
    devices.mkdir()
    times = []
    async with node(trial.folder, _found_config(devices, 2)) as stage:
        daemon = stage.start()
        _plug(devices, 4)
        await stage.until_listed({A: 4, B: 2}, daemon=daemon)
        await stage.until_registered(daemon, A, B)
        for turn in trial.rounds():
            moment = turn.random.choice(MOMENTS)
            truth = await _stopped(trial, stage, daemon, moment, devices, turn.number, turn.random)
            times.append(await stage.until_listed(truth, TRUTH_SECONDS, daemon))
            for name in (A, B):
                count = stage.kubelet.registrations(name)
                is_new = "restart" in moment
                trial.check(count <= MOST_REGISTRATIONS or not is_new, f"I7: {moment}: {count}", turn.number)
            pod = pod_of(f"after-{turn.number}", A)
            async with asyncio.timeout(10):
                status = await stage.kubelet.run_pod(pod)
            trial.check(status.phase == "Running", f"I6: after {moment}: {status.message}", turn.number)
            stage.kubelet.remove_pod(pod.uid)
            trial.check(len(stage.sockets()) == 2, f"I5: {moment}: {stage.sockets()}", turn.number)
        code, _ = await daemon.stop()
        trial.check(code == 0, f"I4: exit code {code}: {daemon.last_words()}")
    trial.times("SIGCONT → whole list", times)


async def _stopped(
    trial: Trial,
    stage: Node,
    daemon: Daemon,
    moment: str,
    devices: Path,
    number: int,
    chance: random.Random,
) -> Mapping[str, int]:
    """Stop a daemon while something happens, and have it go on; return what the kubelet must see then."""
    seconds = 1.0 if chance.random() < 0.05 else chance.uniform(0.005, 0.15)
    if moment == "Allocate":
        await _stop_in_allocate(trial, stage, daemon, number, seconds, chance)
        return {}
    count_a, count_b = stage.allocatable(A), stage.allocatable(B)
    daemon.send(signal.SIGSTOP)
    try:
        if moment in {"restart", "two restarts"}:
            await stage.kubelet.restart()
            if moment == "two restarts":
                await asyncio.sleep(chance.uniform(0, 0.05))
                await stage.kubelet.restart()
        elif moment == "lost stream":
            with suppress(KubeletError):
                stage.kubelet.drop_stream(A)
        elif moment == "unplug":
            count_a = chance.choice([3, 5])
            _plug(devices, count_a)
        elif moment == "edit":
            count_b = 5 - count_b
            stage.file.write_text(_found_config(devices, count_b))
        await asyncio.sleep(seconds)
    finally:
        daemon.send(signal.SIGCONT)
    return {A: count_a, B: count_b}


async def _stop_in_allocate(
    trial: Trial, stage: Node, daemon: Daemon, number: int, seconds: float, chance: random.Random
) -> None:
    """Stop a daemon while a pod is admitted: the kubelet waits for as long as it takes."""
    pod = pod_of(f"in-{number}", A)

    async def stop() -> None:
        await asyncio.sleep(chance.uniform(0, 0.004))
        daemon.send(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        daemon.send(signal.SIGCONT)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(stop())
        status = await stage.kubelet.run_pod(pod)
    trial.check(status.phase == "Running", f"I6: stopped in Allocate: {status.message}", number)
    stage.kubelet.remove_pod(pod.uid)


def _found_config(devices: Path, b_count: int) -> str:
    ids = ", ".join(f"b{number}" for number in range(b_count))
    return config_text(
        f'{{name: {A}, discover: {{path: "{devices}/n*"}}, whenUnplugged: {{keepUnhealthyFor: 0s}}}}',
        f"{{name: {B}, discover: {{static: {{ids: [{ids}]}}}}}}",
    )


def _plug(devices: Path, count: int) -> None:
    """Have so many devices, and no others."""
    wanted = {f"n{number}" for number in range(count)}
    there = {path.name for path in devices.iterdir()}
    for name in there - wanted:
        (devices / name).unlink()
    for name in wanted - there:
        (devices / name).symlink_to("/dev/null")
