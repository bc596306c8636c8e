"""Two plugins of one name: what others have left, a twin that waits, an upgrade that rolls over a node."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from devplug import serve
from devplug.kubelet.kubelet import Kubelet
from devplug.plugin.resource_lock import new_socket_name
from torture.catalogue import BrokenError, case
from torture.daemons import config_text, node, pod_of
from torture.foreign_files import Strangers
from torture.testbed import RESOURCE, Fed, within

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from devplug import Serving
    from torture.catalogue import Round, Trial
    from torture.daemons import Daemon, Node

IDS: Final = tuple(f"d{number}" for number in range(4))
TRUTH_SECONDS: Final = 2.0
GAP_SECONDS: Final = 2.0
"""How long no plugin may serve a name at a hand-over: whoever waits looks at the lock every second."""


def _served(folder: Path) -> AbstractAsyncContextManager[Serving]:
    return serve(Fed(*IDS), plugin_dir=folder, registration="socket")


async def _listed(kubelet: Kubelet, count: int, seconds: float = TRUTH_SECONDS) -> float:
    return await within(
        seconds,
        kubelet.wait(lambda: kubelet.allocatable().get(RESOURCE, 0) == count),
        lambda: f"I2: {dict(kubelet.allocatable())}, not {count}",
    )


# ── what others have left ─────────────────────────────────────────────────────────────────────────


@case(
    "strangers",
    fault="X20",
    promise="A start among sockets of the dead, of the living and of others removes its own dead ones alone, "
    "and its end leaves all of others",
    count=300,
    unit="starts",
    invariants="I2 I5",
)
async def strangers(trial: Trial) -> None:
    """Start among many odd files, end, look at what is left."""
    kubelet = Kubelet(trial.folder)
    async with kubelet.running():
        for turn in trial.rounds():
            others, own_dead = Strangers(trial.folder), Strangers(trial.folder)
            others.settle(RESOURCE)
            for _ in range(turn.random.randint(0, 5)):
                own_dead.dead(new_socket_name(RESOURCE))
            for _ in range(turn.random.randint(0, 2)):
                own_dead.dead(f".{new_socket_name(RESOURCE)[:-5]}")
            async with _served(trial.folder) as serving:
                await _listed(kubelet, len(IDS), 5)
                async with asyncio.timeout(5):
                    await serving.wait_registered()
                left = sorted(own_dead.names() - set(own_dead.missing()))
                trial.check(not left, f"I5: {left} of dead owners are left", turn.number)
                gone = others.missing()
                trial.check(not gone, f"I5: {gone} of others were removed at the start", turn.number)
            gone = others.missing()
            trial.check(not gone, f"I5: {gone} of others were removed at the end", turn.number)
            names = {path.name for path in trial.folder.iterdir() if not path.name.startswith("kubelet")}
            rest = names - others.names()
            trial.check(not rest, f"I5: {rest} is left", turn.number)
            others.end()
            own_dead.end()


# ── twins ─────────────────────────────────────────────────────────────────────────────────────────


@case(
    "twins",
    fault="X20",
    promise="Of two daemons with one resource the second waits and says for whom; it serves within two "
    "seconds of the first one's end, however that came",
    count=16,
    unit="pairs",
    invariants="I2 I5 I9",
    limit_seconds=120,
)
async def twins(trial: Trial) -> None:
    """Start two processes with one file; end or kill the first; the second is the first of the next round."""
    text = config_text(f"{{name: {RESOURCE}, discover: {{static: {{ids: [{', '.join(IDS)}]}}}}}}")
    gaps = []
    async with node(trial.folder, text) as stage:
        first = stage.start()
        await stage.until_listed({RESOURCE: len(IDS)}, daemon=first)
        await stage.until_registered(first, RESOURCE)
        for turn in trial.rounds():
            second = stage.start()
            words = f"{RESOURCE} is served by process {first.pid} on this node; waiting until it ends"
            await second.says(words)
            await asyncio.sleep(turn.random.uniform(0, 1.2))
            registrations = stage.kubelet.registrations(RESOURCE)
            trial.check(len(stage.sockets()) == 1, f"I5: {stage.sockets()} while one waits", turn.number)
            trial.check(second.said().count(words) == 1, "I10: it says so again and again", turn.number)
            if turn.random.random() < 0.5:
                first.kill()
            else:
                code, _ = await first.stop()
                trial.check(code == 0, f"I4: exit code {code}", turn.number)
            gaps.append(await _taken_over(stage, registrations, second))
            await stage.until_registered(second, RESOURCE)
            trial.check(len(stage.sockets()) == 1, f"I5: {stage.sockets()} after it", turn.number)
            first = second
    trial.times("end of the first → list of the second", gaps)


async def _taken_over(stage: Node, registrations: int, second: Daemon) -> float:
    """Wait until the second has registered and is listed; return the seconds."""
    loop = asyncio.get_running_loop()
    ended = loop.time()
    await within(
        GAP_SECONDS,
        stage.kubelet.wait(lambda: stage.kubelet.registrations(RESOURCE) > registrations),
        lambda: f"I2: the second does not register: {second.last_words()}",
    )
    await stage.until_listed({RESOURCE: len(IDS)}, TRUTH_SECONDS, second)
    return loop.time() - ended


# ── upgrades ──────────────────────────────────────────────────────────────────────────────────────


@case(
    "plugin-upgrades",
    fault="X21",
    promise="A rolling upgrade under allocation, the new one before the old one's end or after it, keeps all "
    "pods and IDs; each pod that is admitted has devices of its own",
    count=100,
    unit="upgrades",
    invariants="I1 I2 I5 I9",
    limit_seconds=200,
)
async def plugin_upgrades(trial: Trial) -> None:
    """Exchange plugins while pods come and go; the new one of a round is the old one of the next."""
    kubelet = Kubelet(trial.folder)
    gaps: list[float] = []
    async with kubelet.running(), asyncio.TaskGroup() as watchers, AsyncExitStack() as stack:
        old = await stack.enter_async_context(AsyncExitStack())
        await old.enter_async_context(_served(trial.folder))
        await _listed(kubelet, len(IDS), 5)
        await kubelet.run_pod(pod_of("stays", RESOURCE))
        kept = [one.device_ids for one in kubelet.allocations() if one.pod_uid == "stays"]
        pods = _Pods(kubelet)
        measuring = watchers.create_task(_measure(kubelet, gaps))
        for turn in trial.rounds():
            new = await stack.enter_async_context(AsyncExitStack())
            async with asyncio.TaskGroup() as group:
                coming = group.create_task(pods.come_and_go(turn))
                await _upgrade(kubelet, old, new, turn)
                coming.cancel()
            old = new
            listed = [one.id for one in kubelet.devices(RESOURCE)]
            trial.check(listed == list(IDS), f"I9: {listed}", turn.number)
            now = [one.device_ids for one in kubelet.allocations() if one.pod_uid == "stays"]
            trial.check(now == kept, f"I9: a pod that stays has {now}, not {kept}", turn.number)
            ours = sorted(path.name for path in trial.folder.glob("devplug-*.sock"))
            trial.check(len(ours) == 1, f"I5: {ours}", turn.number)
        measuring.cancel()
    trial.figure("pods", f"{pods.run} ran, {pods.refused} came while nobody served")
    trial.times("nobody serves", gaps)


async def _upgrade(kubelet: Kubelet, old: AsyncExitStack, new: AsyncExitStack, turn: Round) -> None:
    """End one plugin and start the next, in one order or the other; return when that serves."""
    registrations = kubelet.registrations(RESOURCE)
    if turn.random.random() < 0.5:
        await new.enter_async_context(_served(kubelet.plugin_dir))
        await asyncio.sleep(turn.random.uniform(0, 0.05))
        await old.aclose()
    else:
        await old.aclose()
        await asyncio.sleep(turn.random.choice([0, 0, turn.random.uniform(0, 0.05)]))
        await new.enter_async_context(_served(kubelet.plugin_dir))
    await within(
        GAP_SECONDS,
        kubelet.wait(lambda: kubelet.registrations(RESOURCE) > registrations),
        lambda: "I2: the new one does not register",
    )
    await _listed(kubelet, len(IDS), GAP_SECONDS)


async def _measure(kubelet: Kubelet, gaps: list[float]) -> None:
    """Note how long the kubelet has no healthy device, each time."""
    gone_at: float | None = None
    loop = asyncio.get_running_loop()
    with kubelet.changes() as changes:
        async for _ in changes:
            is_there = kubelet.allocatable().get(RESOURCE, 0) > 0
            if not is_there and gone_at is None:
                gone_at = loop.time()
            elif is_there and gone_at is not None:
                gaps.append(loop.time() - gone_at)
                gone_at = None


class _Pods:
    """Pods that come and go, and the books of who has what."""

    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet
        self.run = self.refused = 0

    async def come_and_go(self, turn: Round) -> None:
        """Run one pod after the other, and remove it; raises `BrokenError` if two have one device."""
        for number in range(10_000):
            pod = pod_of(f"pod-{turn.number}-{number}", RESOURCE, turn.random.randint(1, 2))
            try:
                status = await self._kubelet.run_pod(pod)
                if status.phase == "Running":
                    self.run += 1
                else:
                    self.refused += 1
                ids = [id_ for one in self._kubelet.allocations() for id_ in one.device_ids]
                if len(ids) != len(set(ids)):
                    raise BrokenError(f"I1: {ids}")
            finally:
                self._kubelet.remove_pod(pod.uid)
            await asyncio.sleep(turn.random.uniform(0, 0.2))
