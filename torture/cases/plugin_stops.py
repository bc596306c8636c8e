"""The plugin's process is stopped for a while, as by a debugger, a freezer or a machine that swaps."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from devplug.errors import KubeletError
from torture.catalogue import case
from torture.daemons import config_text, node, pod_of

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping
    from pathlib import Path

    from torture.catalogue import Trial
    from torture.daemons import Daemon, Node

A: Final = "example.com/a"
B: Final = "example.com/b"
TRUTH_SECONDS: Final = 2.0
MOST_REGISTRATIONS: Final = 3
"""Of one resource with one kubelet: a call that the stop made fail may have been one, too."""

MOMENTS: Final = ("nothing", "Allocate", "restart", "two restarts", "lost stream", "unplug", "edit")
"""What happens while it is stopped."""


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
    async with node(trial.folder, _config(devices, 2)) as stage:
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
            stage.file.write_text(_config(devices, count_b))
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


def _config(devices: Path, b_count: int) -> str:
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
