"""Kills of the kubelet: at each step of what it does with a plugin, connections are gone without a word."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from devplug import ContainerResponse, serve
from devplug.errors import KubeletError, RemoteError
from devplug.kubelet.pods import Container, ContainerState, Pod
from devplug.wire import deviceplugin
from devplug.wire.values import PreferenceRequest
from torture.catalogue import case
from torture.footprint import nothing_kept
from torture.raw_kubelet import HandKubelet, Phase, hand_kubelet
from torture.testbed import RESOURCE, Fed, bed, within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug import Device
    from torture.catalogue import Round, Trial
    from torture.raw_grpc import Exchange
    from torture.testbed import Bed

IDS: Final = [f"d{number}" for number in range(8)]
PHASES: Final = list(Phase)
CALLS: Final = (Phase.PREFERENCE, Phase.ALLOCATE, Phase.PRE_START)
WARM_UP: Final = 200
LATER_SECONDS: Final = 0.002
"""The kill comes at the step itself, or up to this much later."""


class Held(Fed):
    """A plugin whose calls last until they are cancelled, while it `holds`."""

    def __init__(self, *ids: str) -> None:
        super().__init__(*ids)
        self.holds: Phase | None = None
        self.entered = asyncio.Event()
        self.inside = 0

    async def _call(self, phase: Phase) -> None:
        if phase is not self.holds:
            return
        self.entered.set()
        self.inside += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.inside -= 1

    async def prefer(
        self, available: Sequence[Device], must_include: Sequence[Device], size: int, /
    ) -> Sequence[Device]:
        del must_include, size
        await self._call(Phase.PREFERENCE)
        return available

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        await self._call(Phase.ALLOCATE)
        return ContainerResponse.of(devices)

    async def pre_start(self, devices: Sequence[Device], /) -> None:
        del devices
        await self._call(Phase.PRE_START)

    def armed(self, phase: Phase | None) -> None:
        """Hold the calls of `phase` from now on, and no others."""
        self.holds = phase
        self.entered.clear()


@case(
    "kubelet-killed",
    fault="X02",
    promise="A kubelet killed at any step leaves nothing half done: the next one has one Register and all",
    count=2_000,
    unit="kills",
    invariants="I2 I3 I4 I7 I9",
    limit_seconds=200,
    brief=True,
)
async def kubelet_killed(trial: Trial) -> None:
    """Kill the kubelet at each of its steps in turn, at once or a little later."""
    plugin = Held(*IDS)
    times: list[float] = []
    async with hand_kubelet(trial.folder) as kubelet:
        kubelet.start()
        async with serve(plugin, plugin_dir=trial.folder, registration="socket"):
            await within(5, kubelet.until_listed(IDS), lambda: "I2: not registered at first")
            for number in range(min(WARM_UP, trial.count)):
                await _killed(kubelet, plugin, PHASES[number % len(PHASES)], 0.0)
            async with nothing_kept(trial):
                for turn in trial.rounds():
                    phase = PHASES[turn.number % len(PHASES)]
                    later = turn.random.choice([0.0, turn.random.uniform(0, LATER_SECONDS)])
                    times.append(await _killed(kubelet, plugin, phase, later))
                    _check_life(trial, turn, kubelet, phase)
                    await _check_call(trial, turn, kubelet, phase)
    trial.times("start → whole list", times, p99_within=1.0)


async def _killed(kubelet: HandKubelet, plugin: Held, phase: Phase, later_seconds: float) -> float:
    """Have a kubelet killed at this step and the next one started; return how long the list took then."""
    loop = asyncio.get_running_loop()
    reached = asyncio.Event()

    def kill() -> None:
        if later_seconds:
            loop.call_later(later_seconds, reached.set)
        else:
            kubelet.kill()
            reached.set()

    if phase in CALLS:
        plugin.armed(phase)
        _begun(kubelet, phase)
        await within(2, plugin.entered.wait(), lambda: f"I6: no call came through {phase}")
        kill()
    else:
        # What lives from the round before ends first: this one dies while it comes up.
        kubelet.kill()
        kubelet.on_phase = lambda reached_phase: kill() if reached_phase is phase else None
        kubelet.start()
    await within(2, reached.wait(), lambda: f"I2: the step was not reached within 2 s: {phase}")
    kubelet.on_phase = lambda _: None
    plugin.armed(None)
    kubelet.kill()
    kubelet.start()
    took = await within(
        2, kubelet.until_listed(IDS), lambda: f"I2: no whole list within 2 s of the start after: {phase}"
    )
    await within(2, kubelet.until_answered(), lambda: f"I7: Register is open after: {phase}")
    await within(2, kubelet.until_listed(IDS), lambda: f"I2: the list was lost again after: {phase}")
    return took


def _begun(kubelet: HandKubelet, phase: Phase) -> Exchange:
    connection = kubelet.life.clients[RESOURCE].connection
    if phase is Phase.PREFERENCE:
        return connection.send(deviceplugin.GET_PREFERRED_ALLOCATION, [PreferenceRequest(tuple(IDS), (), 2)])
    if phase is Phase.ALLOCATE:
        return connection.send(deviceplugin.ALLOCATE, [(IDS[0],)])
    return connection.send(deviceplugin.PRE_START_CONTAINER, (IDS[0],))


def _check_life(trial: Trial, turn: Round, kubelet: HandKubelet, phase: Phase) -> None:
    attempts = kubelet.life.attempts
    # Two, where the one before was replaced while it was being called: who answered is not known then.
    is_few = len(attempts) <= 2 and not any(attempt.overlapping for attempt in attempts)
    trial.check(is_few, f"I7: {len(attempts)} × Register for one start after: {phase}", turn.number)
    listed = kubelet.life.clients[RESOURCE].ids
    trial.check(listed == IDS, f"I9: {listed} were {IDS}", turn.number)


async def _check_call(trial: Trial, turn: Round, kubelet: HandKubelet, phase: Phase) -> None:
    """Hold that the next kubelet gets the answer that the last one did not live to see."""
    if phase in CALLS:
        try:
            await kubelet.life.clients[RESOURCE].connection.call(
                deviceplugin.ALLOCATE, [(IDS[0],)], seconds=1
            )
        except (RemoteError, TimeoutError) as error:
            trial.broke(f"I6: Allocate after a kill {phase}: {error!r}", turn.number)


@case(
    "kubelet-killed-in-calls",
    fault="X02",
    promise="What a kubelet was killed in ends with it: no hook of the plugin runs on, whoever waits gets in",
    count=300,
    unit="kills",
    invariants="I3 I4 I6",
)
async def kubelet_killed_in_calls(trial: Trial) -> None:
    """Kill the kubelet while several of its calls are inside the plugin's code, or wait for their turn."""
    plugin = Held(*IDS)
    async with hand_kubelet(trial.folder) as kubelet:
        kubelet.start()
        async with serve(plugin, plugin_dir=trial.folder, registration="socket"):
            await within(5, kubelet.until_listed(IDS), lambda: "I2: not registered at first")
            async with nothing_kept(trial):
                for turn in trial.rounds():
                    plugin.armed(CALLS[turn.number % len(CALLS)])
                    for _ in range(turn.random.randint(1, 12)):
                        _begun(kubelet, turn.random.choice(CALLS))
                    _begun(kubelet, CALLS[turn.number % len(CALLS)])
                    await within(2, plugin.entered.wait(), lambda: "I6: no call came through")
                    kubelet.kill()
                    await within(1, _emptied(plugin), lambda: f"I6: {plugin.inside} hooks run on after it")
                    plugin.armed(None)
                    kubelet.start()
                    await within(2, kubelet.until_listed(IDS), lambda: "I2: no whole list within 2 s")
                    await kubelet.until_answered()
                    await _check_call(trial, turn, kubelet, Phase.ALLOCATE)


async def _emptied(plugin: Held) -> None:
    while plugin.inside:
        await asyncio.sleep(0.001)


# ── with pods, against the emulator, whose books show who holds what ──


@case(
    "kubelet-killed-with-pods",
    fault="X02",
    promise="A kubelet killed while it admits or starts pods gives no device to two containers that run",
    count=500,
    unit="kills",
    invariants="I1 I2 I4 I6",
)
async def kubelet_killed_with_pods(trial: Trial) -> None:
    """Kill the emulated kubelet in its calls for pods; the next one takes the pods over, early or late."""
    plugin = Held(*IDS)
    async with bed(trial.folder, plugin) as stage:
        await stage.until_allocatable(len(IDS))
        for turn in trial.rounds():
            phase = turn.random.choice(CALLS)
            plugin.armed(phase)
            pods = [_pod(turn, number) for number in range(turn.random.randint(1, 3))]
            async with asyncio.TaskGroup() as group:
                for pod in pods:
                    group.create_task(_run_through(stage, pod))
                await within(5, plugin.entered.wait(), lambda: f"I6: no call came through: {phase}")  # noqa: B023
                plugin.holds = None
                is_early = turn.random.random() < 0.5
                await stage.kubelet.restart(with_pods=is_early)
            await stage.until_allocatable(len(IDS))
            if not is_early:
                await stage.kubelet.readmit()
            for pod in pods:
                await _run_through(stage, pod)
            _check_books(trial, turn, stage)
            for pod in pods:
                with suppress(KubeletError):
                    stage.kubelet.remove_pod(pod.uid)


def _pod(turn: Round, number: int) -> Pod:
    uid = f"{turn.number}-{number}"
    return Pod(uid, uid, containers=(Container("c", {RESOURCE: turn.random.randint(1, 3)}),))


async def _run_through(stage: Bed, pod: Pod) -> None:
    """Admit a pod if nobody did, and start its container, unless the kubelet ends meanwhile."""
    with suppress(KubeletError):
        try:
            status = stage.kubelet.pod(pod.uid)
        except KubeletError:
            status = await stage.kubelet.admit(pod)
        if not status.is_terminal:
            await stage.kubelet.start_container(pod.uid, "c")


def _check_books(trial: Trial, turn: Round, stage: Bed) -> None:
    holders: dict[str, list[str]] = {}
    for allocation in stage.kubelet.allocations():
        try:
            status = stage.kubelet.pod(allocation.pod_uid)
        except KubeletError:
            continue
        if status.is_terminal or status.container("c").state is not ContainerState.RUNNING:
            continue
        for id_ in allocation.device_ids:
            holders.setdefault(id_, []).append(allocation.pod_uid)
    doubly = {id_: uids for id_, uids in holders.items() if len(uids) > 1}
    trial.check(not doubly, f"I1: in two containers: {doubly}", turn.number)
