"""A day of a node in a minute: flapping health, pods, restarts, upgrades, reloads, reboots, unplugs."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from array import array
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from devplug import Device, Health, serve
from devplug.daemon.config.loader import load
from devplug.daemon.service import serve_config
from devplug.devices import HEALTHY
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod, PodPhase
from torture.catalogue import case
from torture.daemons import config_text
from torture.footprint import nothing_kept
from torture.testbed import RESOURCE, Bed, Fed, within

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from torture.catalogue import Round, Trial

IDS: Final = tuple(f"d{number:02}" for number in range(16))
CONFIGURED: Final = "example.com/configured"
"""What the daemon serves beside, from a file that is edited."""

PODS: Final = 8
EDGES: Final = 30
"""Changes of health in five minutes: 8,640 in a day."""

CALLS: Final = 20
"""Allocates in five minutes whose time is measured, besides those of the pods."""

TRUTH_SECONDS: Final = 3.0
SICK: Final = Health.unhealthy("it flaps")

ALLOCATE_SECONDS: Final = 0.05
"""I6: p99 of Allocate under load."""

EVENTS: Final = EDGES + PODS + CALLS
"""What happens in five minutes, at least."""

HOUR: Final = 12
SLOPE_BLOCKS: Final = 90
"""What Python may have in use more after 1,000 events: it comes and goes by twenty, and whoever keeps one
object of each pod needs 138."""

WARM_UP: Final = 24


@case(
    "a-day",
    fault="X42",
    promise="A day's 8,640 health edges, 2,304 pods, 24 kubelet restarts, 12 upgrades, 4 config reloads, "
    "2 reboots and 100 unplugs leave nothing behind, and the last Allocate is as quick as the first",
    count=288,
    unit="five minutes",
    invariants="I1 I2 I3 I6 I8 I12",
)
async def a_day(trial: Trial) -> None:
    """Play five minutes after five minutes; what comes only now and then comes in every so many of them."""
    day = Day(trial)
    async with day.kubelet.running():
        await day.upgrade()
        for number in range(min(WARM_UP, trial.count)):
            await day.churn(f"w{number}")
            await day.ask()
        day.pods, day.calls = array("d"), array("d")
        blocks = []
        async with nothing_kept(trial):
            for turn in trial.rounds():
                await day.five_minutes(turn)
                if turn.number % HOUR == HOUR - 1:
                    blocks.append(_blocks())
        await day.close()
    _check_slope(trial, blocks)
    _check_stable(trial, "pod admitted", day.pods)
    _check_stable(trial, "Allocate", day.calls)
    trial.times("Allocate", list(day.calls), p99_within=ALLOCATE_SECONDS)


def _blocks() -> int:
    """Return how many blocks of memory Python has in use: nothing of the C library's mood is in it."""
    gc.collect()
    return sys.getallocatedblocks()


def _check_slope(trial: Trial, blocks: Sequence[int]) -> None:
    """Hold what Python has in use in the last quarter of a day against the quarter before."""
    quarter = len(blocks) // 4
    if not quarter:
        return
    before, after = (sum(part) / quarter for part in (blocks[-2 * quarter : -quarter], blocks[-quarter:]))
    slope = 1_000 * (after - before) / (quarter * HOUR * EVENTS)
    trial.figure("blocks of memory for 1,000 events", f"{slope:+.0f}")
    trial.check(slope <= SLOPE_BLOCKS, f"I3: {slope:.0f} blocks of memory for 1,000 events")


def _fifth(times: Sequence[float]) -> int:
    return max(1, len(times) // 5)


def _check_stable(trial: Trial, name: str, times: Sequence[float]) -> None:
    """Hold the last fifth of some times against the first, by half of them and by p99."""
    first, last = (sorted(part) for part in (times[: _fifth(times)], times[-_fifth(times) :]))
    trial.times(f"{name}, first fifth", first)
    trial.times(f"{name}, last fifth", last)
    for share, slack in ((0.5, 0.01), (0.99, 0.03)):
        before, after = (part[int(len(part) * share)] for part in (first, last))
        trial.check(
            after <= 2 * before + slack,
            f"I6: {name}: {100 * share:.0f} % took {1000 * before:.1f} ms, and take {1000 * after:.1f} ms",
        )


class Day:
    """A kubelet, and what is served to it, now by this program, now by its next version."""

    def __init__(self, trial: Trial) -> None:
        self.kubelet = Kubelet(trial.folder)
        self.plugin = Fed(*IDS)
        # Not lists: each number in those is one more block of memory, which would be taken for a leak.
        self.pods, self.calls = array("d"), array("d")
        self._trial = trial
        self._file = trial.folder / "devplug.yaml"
        self._edition = 0
        self._file.write_text(self._config())
        self._stack = AsyncExitStack()
        self._bed: Bed | None = None

    async def upgrade(self) -> None:
        """End what is served, and serve it anew."""
        await self._stack.aclose()
        self.plugin = Fed(*IDS)
        folder = self._trial.folder
        serving = await self._stack.enter_async_context(
            serve(self.plugin, plugin_dir=folder, registration="socket")
        )
        daemon = await self._stack.enter_async_context(
            serve_config(load(self._config(), str(self._file)), plugin_dir=folder, file=self._file)
        )
        self._bed = Bed(self.kubelet, serving)
        await self._until_right()
        async with asyncio.timeout(TRUTH_SECONDS):
            await serving.wait_registered()
            await daemon.wait_registered()

    async def close(self) -> None:
        """End what is served."""
        await self._stack.aclose()

    async def five_minutes(self, turn: Round) -> None:
        """Play what happens in five minutes of a day; the first of them have one of each."""
        self._flap(turn.random)
        if turn.number % 3 == 0:
            await self._unplug(turn)
        if turn.number % HOUR == 1:
            await self._restart(turn, reboot=turn.number % (12 * HOUR) == 1)
        if turn.number % (2 * HOUR) == 2:
            await self.upgrade()
        if turn.number % (6 * HOUR) == 3:
            await self._reload(turn)
        await self._until_right()
        await self.churn(f"u{turn.number}")
        await self.ask()

    def _flap(self, chance: Random) -> None:
        for id_ in chance.choices(IDS, k=EDGES // 2):
            self.plugin.feed.put(Device(id_, health=SICK))
            self.plugin.feed.put(Device(id_))

    async def _unplug(self, turn: Round) -> None:
        """Pull one out that a pod holds, and plug it in again: it must not leave the list meanwhile."""
        await self._run(_pod("held"), turn)
        held = {id_ for one in self.kubelet.allocations() for id_ in one.device_ids}
        id_ = turn.random.choice(sorted(held) or IDS)
        self.plugin.feed.remove(id_)
        await asyncio.sleep(turn.random.random() / 100)
        listed = {device.id for device in self.kubelet.devices(RESOURCE)}
        self._trial.check(held <= listed, f"I12: {sorted(held - listed)} left the list", turn.number)
        self.plugin.feed.put(Device(id_))
        self._end("held")

    async def _reload(self, turn: Round) -> None:
        """Edit the daemon's file while a pod holds what it no longer names; that must stay in the list."""
        await self._run(_pod("configured", CONFIGURED), turn)
        held = {id_ for one in self.kubelet.allocations() for id_ in one.device_ids}
        self._edition += 1
        self._file.write_text(self._config())
        await self._until_right()
        listed = {device.id for device in self.kubelet.devices(CONFIGURED)}
        self._trial.check(held <= listed, f"I12: {sorted(held - listed)} left the list", turn.number)
        self._end("configured")

    async def _restart(self, turn: Round, *, reboot: bool) -> None:
        await self.kubelet.restart(orderly=turn.random.random() < 0.5, reboot=reboot)
        await self._until_right()

    async def _until_right(self) -> None:
        assert self._bed is not None
        await self._bed.until_allocatable(len(IDS), TRUTH_SECONDS)
        wanted = {*self._configured_ids()}

        def is_served() -> bool:
            return {one.id for one in self.kubelet.devices(CONFIGURED) if one.health == HEALTHY} == wanted

        text = f"I8: {CONFIGURED} is not {sorted(wanted)} after {TRUTH_SECONDS:g} s"
        await within(TRUTH_SECONDS, self.kubelet.wait(is_served), lambda: text)

    def _configured_ids(self) -> list[str]:
        """Return what the file names; no two editions have a device in common."""
        return [f"e{self._edition}-{number}" for number in range(4)]

    def _config(self) -> str:
        ids = ", ".join(self._configured_ids())
        return config_text(f"{{name: {CONFIGURED}, discover: {{static: {{ids: [{ids}]}}}}}}")

    # ── pods and calls ──

    async def churn(self, name: str) -> None:
        """Run some pods side by side, look who holds what, and end them."""
        uids = [f"{name}-{number}" for number in range(PODS)]
        for uid in uids:
            started = time.perf_counter()
            await self._run(_pod(uid))
            self.pods.append(time.perf_counter() - started)
        held = [id_ for one in self.kubelet.allocations() for id_ in one.device_ids if one.pod_uid in uids]
        self._trial.check(len(held) == len({*held}) == PODS, f"I1: {sorted(held)} are held")
        for uid in uids:
            self._end(uid)

    async def ask(self) -> None:
        """Call Allocate as the kubelet does, one after the other, and note how long each takes."""
        endpoint = self.kubelet.device_manager.endpoints[RESOURCE]
        for number in range(CALLS):
            started = time.perf_counter()
            await endpoint.allocate([IDS[number % len(IDS)]])
            self.calls.append(time.perf_counter() - started)

    async def _run(self, pod: Pod, turn: Round | None = None) -> None:
        status = await self.kubelet.run_pod(pod)
        number = None if turn is None else turn.number
        self._trial.check(status.phase is PodPhase.RUNNING, f"I6: {pod.name}: {status.message}", number)

    def _end(self, uid: str) -> None:
        self.kubelet.end_pod(uid)
        self.kubelet.remove_pod(uid)


def _pod(uid: str, resource_name: str = RESOURCE) -> Pod:
    return Pod(uid, uid, containers=(Container("c", {resource_name: 1}),))
