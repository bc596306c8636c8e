"""Kills of the plugin's process: at any moment, and the next one finds what it has left."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from torture.catalogue import BrokenError, case
from torture.daemons import config_text, node, pod_of, until
from torture.foreign_files import Strangers

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from torture.catalogue import Trial
    from torture.daemons import Node

A: Final = "example.com/a"
B: Final = "example.com/b"
IDS: Final = {A: [f"n{number}" for number in range(4)], B: ["b0", "b1"]}
COUNTS: Final = {name: len(ids) for name, ids in IDS.items()}

TRUTH_SECONDS: Final = 2.0

MOMENTS: Final = ("start", "registration", "idle", "Allocate", "edit", "unplug", "end")
"""What is going on when it is killed; before the first two there is a new process."""


@case(
    "plugin-killed",
    fault="X13",
    promise="A daemon that is killed at any moment leaves nothing that its successor does not clean up; "
    "device IDs and pods stay as they are",
    count=40,
    unit="kills",
    invariants="I1 I2 I5 I6 I9",
    limit_seconds=240,
)
async def plugin_killed(trial: Trial) -> None:
    """Kill a daemon and look at what the next one serves, which is the victim of the round after."""
    devices = trial.folder / "dev"
    devices.mkdir()
    times = []
    async with node(trial.folder, _config(devices)) as stage:
        strangers = Strangers(stage.plugin_dir)
        strangers.settle(A)
        scene = _Scene(stage, devices)
        for turn in trial.rounds():
            moment = turn.random.choice(MOMENTS)
            held = await scene.play(moment, turn.random)
            dead = scene.sockets() - strangers.names()
            scene.restore()
            scene.victim = stage.start()
            times.append(await stage.until_listed(COUNTS, daemon=scene.victim))
            await stage.until_registered(scene.victim, *IDS)
            left = (scene.sockets() - strangers.names()) & dead
            trial.check(not left, f"I5: {moment}: {sorted(left)} of the dead one are left", turn.number)
            gone = strangers.missing()
            trial.check(not gone, f"I5: {moment}: {gone} of others were removed", turn.number)
            for name, ids in IDS.items():
                listed = [device.id for device in stage.kubelet.devices(name)]
                trial.check(listed == ids, f"I9: {moment}: {name} lists {listed}", turn.number)
            now = scene.held()
            trial.check(held <= now, f"I9: {moment}: {held - now} is held no longer", turn.number)
            phase = await scene.run_pod()
            trial.check(phase == "Running", f"I6: {moment}: {phase}", turn.number)
            scene.remove_old_pods()
        code, _ = await scene.victim.stop()
        trial.check(code == 0, f"I5: the last one ended with {code}: {scene.victim.last_words()}")
        strangers.end()
        left_over = [name for name in stage.remains() if name != ".devplug"]
        trial.check(not left_over, f"I5: {left_over} is left")
    trial.times("start of a process → whole lists", times)


def _config(devices: Path, colour: str = "red") -> str:
    return config_text(
        f'{{name: {A}, discover: {{path: "{devices}/n*"}}, onRelease: {{exec: {{command: [/bin/true]}}}}}}',
        f"{{name: {B}, discover: {{static: {{ids: [{', '.join(IDS[B])}]}}}}, "
        f"expose: {{env: {{COLOUR: {colour}}}}}}}",
    )


class _Scene:
    """What goes on around a daemon while it is killed."""

    def __init__(self, stage: Node, devices: Path) -> None:
        self._stage = stage
        self._devices = devices
        self._count = 0
        self._pods: list[str] = []
        """Those that run, oldest first."""
        self.victim = stage.start()
        self.restore()

    async def play(self, moment: str, chance: random.Random) -> frozenset[tuple[str, str]]:
        """Kill the victim at a moment; return what was held then, as (pod UID, device ID)."""
        kubelet = self._stage.kubelet
        await self._stage.until_listed(COUNTS, daemon=self.victim)
        held = self.held()
        if moment in {"start", "registration"}:
            self.victim.kill()
            seen = kubelet.registrations(A)
            self.victim = self._stage.start()
            if moment == "start":
                await asyncio.sleep(chance.uniform(0, 0.5))
            else:
                await until(lambda: kubelet.registrations(A) > seen, 20, self.victim.last_words)
        elif moment == "Allocate":
            await self._kill_in_allocate(chance)
        elif moment == "edit":
            self._stage.file.write_text(_config(self._devices, chance.choice(("green", "blue"))))
            await asyncio.sleep(chance.uniform(0.09, 0.13))
        elif moment == "unplug":
            for number in chance.sample(range(len(IDS[A])), 2):
                (self._devices / f"n{number}").unlink()
            (self._devices / "n9").symlink_to("/dev/null")
            await asyncio.sleep(chance.uniform(0, 0.01))
        elif moment == "end":
            self.victim.send(signal.SIGTERM)
            await asyncio.sleep(chance.uniform(0, 0.12))
        self.victim.kill()
        await self._stage.until_listed(dict.fromkeys(COUNTS, 0), TRUTH_SECONDS)
        return held

    async def _kill_in_allocate(self, chance: random.Random) -> None:
        """Kill it while the kubelet waits for an answer, which then never comes; the pod may fail."""

        async def kill_soon() -> None:
            await asyncio.sleep(chance.uniform(0, 0.004))
            self.victim.kill()

        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(kill_soon())
            group.create_task(self.run_pod())

    def restore(self) -> None:
        """Bring file and devices back to what is expected."""
        self._stage.file.write_text(_config(self._devices))
        for path in self._devices.iterdir():
            if path.name not in IDS[A]:
                path.unlink()
        for name in IDS[A]:
            with suppress(FileExistsError):
                (self._devices / name).symlink_to("/dev/null")

    def held(self) -> frozenset[tuple[str, str]]:
        """Return what running pods hold, as (pod UID, device ID); raises `BrokenError` if two do."""
        allocations = [one for one in self._stage.kubelet.allocations() if one.pod_uid in self._pods]
        pairs = [(one.pod_uid, id_) for one in allocations for id_ in one.device_ids]
        ids = [id_ for _, id_ in pairs]
        if len(ids) != len(set(ids)):
            raise BrokenError(f"I1: {sorted(pairs)}")
        return frozenset(pairs)

    def sockets(self) -> frozenset[str]:
        """Return the names of all sockets of our kind that are there now."""
        return frozenset(self._stage.sockets())

    async def run_pod(self) -> str:
        """Run one more pod; return its phase, with the reason if it failed."""
        self._count += 1
        pod = pod_of(f"pod-{self._count}", A)
        async with asyncio.timeout(20):
            status = await self._stage.kubelet.run_pod(pod)
        if status.phase != "Running":
            return f"{status.phase}: {status.message}"
        self._pods.append(pod.uid)
        return status.phase

    def remove_old_pods(self) -> None:
        """Remove all pods but the newest, so that there are free devices for the next."""
        while len(self._pods) > 1:
            self._stage.kubelet.remove_pod(self._pods.pop(0))
