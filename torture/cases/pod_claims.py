"""Claims of pods: a daemon prepares them while it, the kubelet and the API server come and go."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from devplug.driver.publisher import RECOVERIES_AT_ONCE, RECOVERIES_PER_SECOND
from torture.catalogue import PATIENCE, BrokenError, case
from torture.claims import DRIVER, NODE
from torture.claims_node import claims_node
from torture.daemons import until
from torture.footprint import GROWTH_LIMIT_BYTES, holdings_of

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from torture.catalogue import Trial
    from torture.claims_node import ClaimsNode, RunningPod
    from torture.daemons import Daemon

IDS: Final = tuple(f"n{number}" for number in range(6))
TRUTH_SECONDS: Final = 1.0
"""I15: how long after the last change, and the last failure, slices may differ from the machine."""

GONE_SECONDS: Final = 10.0
"""How long a kubelet may take to call the next driver, whose sockets have the names of the last one's."""

CLEANED_SECONDS: Final = 10.0
"""How long the clean-up of devices may take that are plugged in again."""

WARM_UP: Final = 20
"""After so many restarts what is loaded once is loaded."""


# ── what pods do ──


def _drawn(node: ClaimsNode, chance: random.Random) -> tuple[list[RunningPod], list[RunningPod]]:
    """Draw some pods that end, and make some that begin: on free devices, or on those that are just freed."""
    ending = chance.sample(node.pods, chance.randint(0, min(2, len(node.pods))))
    held = {id_ for one in node.pods for id_ in one.device_ids}
    free = [id_ for id_ in node.present() if id_ not in held]
    if ending and chance.random() < 0.3:
        # Deleted by force: the claim is gone, and its devices are another's, before it is unprepared (D28).
        node.forget(ending[0])
        free += (id_ for id_ in ending[0].device_ids if id_ in node.present())
    chance.shuffle(free)
    beginning: list[RunningPod] = []
    while free and len(beginning) < 2 and (chance.random() < 0.6 or not (beginning or ending)):
        beginning.append(node.allocate(*(free.pop() for _ in range(min(len(free), chance.randint(1, 2))))))
    return beginning, ending


async def _settled(
    trial: Trial, number: int, node: ClaimsNode, ending: Sequence[RunningPod], seconds: float = 0.0
) -> None:
    """Have all pods run and those end that should, within some seconds; hold that nothing is wrong then.

    A kubelet calls a driver that is gone, or closes its connection, up to a second after its end (D10).
    """
    deadline = time.monotonic() + seconds
    while True:
        left = [one for one in ending if one in node.pods]
        faults = await node.settle([one for one in node.pods if one not in ending], left)
        if not faults or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.1)
    for fault in faults:
        trial.broke(f"I13: {fault}", number)
    for fault in node.claim_faults():
        trial.broke(fault, number)


async def _all_ended(trial: Trial, node: ClaimsNode, daemon: Daemon, repeats: Counter[str]) -> None:
    """End all pods and the daemon, and hold that nothing of either is left.

    A device that was unplugged when its claim ended is cleaned up once it is plugged in again.
    """
    for id_ in repeats.keys() | node.uses_ended.keys():
        node.plug(id_)
    for fault in await node.settle([], [*node.pods]):
        trial.broke(f"I13: {fault}")
    with suppress(BrokenError):
        await until(lambda: not node.release_faults(repeats), CLEANED_SECONDS, lambda: "I14")
    code, _ = await daemon.stop()
    for fault in node.release_faults(repeats):
        trial.broke(fault)
    trial.check(code == 0, f"I13: the last one ended with {code}: {daemon.last_words()}")
    trial.check(not node.files.remains(), f"I13: {node.files.remains()} are left")


# ── the driver is killed ──


@case(
    "driver-killed-with-pods",
    fault="D24",
    promise="A daemon that is killed while claims are prepared and released is followed by one that goes on; "
    "every pod gets its devices, and every device one clean-up for each use",
    count=60,
    unit="kills",
    invariants="I1 I13 I14 I15",
    limit_seconds=400,
)
async def driver_killed_with_pods(trial: Trial) -> None:
    """Kill a daemon at any moment of calls for several pods; the next one is the victim after it."""
    repeats: Counter[str] = Counter()
    times = []
    async with claims_node(trial.folder, *IDS) as node:
        daemon = node.start()
        await node.until_registered(daemon)
        took_seconds = 0.1
        for turn in trial.rounds():
            beginning, ending = _drawn(node, turn.random)
            repeats.update(id_ for one in ending for id_ in one.device_ids)
            async with asyncio.TaskGroup() as group:
                group.create_task(node.settle(beginning, ending))
                await asyncio.sleep(turn.random.uniform(0, took_seconds))
                daemon.kill()
            await until(
                lambda: not node.kubelet.dra.has_driver(DRIVER), 10, lambda: "I2: the dead one is connected"
            )
            daemon = node.start()
            times.append(await node.until_registered(daemon))
            begun = time.monotonic()
            await _settled(trial, turn.number, node, ending, GONE_SECONDS * PATIENCE.get())
            took_seconds = time.monotonic() - begun
            await node.until_published(TRUTH_SECONDS, "after a kill")
            for fault in node.release_faults(repeats):
                trial.broke(fault, turn.number)
        await _all_ended(trial, node, daemon, repeats)
    trial.times("start of a process → registered", times)


# ── the kubelet restarts ──


@case(
    "kubelet-restarts-with-claims",
    fault="D12 D24",
    promise="After a restart of the kubelet the driver is registered again, its slices are back within a "
    "second, and pods that run keep their devices: the second prepare changes nothing",
    count=400,
    unit="restarts",
    invariants="I1 I3 I4 I13 I14 I15",
    limit_seconds=400,
)
async def kubelet_restarts_with_claims(trial: Trial) -> None:
    """Restart the kubelet, which removes all slices, while devices come and go and pods run."""
    published, registered = [], []
    nothing: Counter[str] = Counter()
    async with claims_node(trial.folder, *IDS) as node:
        daemon = node.start()
        await node.until_registered(daemon)
        before = holdings_of(daemon.pid)
        for turn in trial.rounds():
            if turn.number - trial.first == WARM_UP:
                before = holdings_of(daemon.pid)
            _, ending = _drawn(node, turn.random)
            await _settled(trial, turn.number, node, ending)
            files = node.files.prepared()  # what they say of the host goes with devices that come and go
            _shuffle_devices(node, turn.random, ())
            wipes = len(node.cluster.wipes)
            await node.kubelet.restart(orderly=turn.random.random() < 0.5)
            registered.append(await node.until_registered(daemon))
            await until(lambda: len(node.cluster.wipes) > wipes, 5, lambda: "I15: nothing was removed")  # noqa: B023
            published.append(await node.until_published(TRUTH_SECONDS, "after a restart of the kubelet"))
            await _settled(trial, turn.number, node, ())
            now = node.files.prepared()
            trial.check(now == files, f"I13: {sorted(now)} were {sorted(files)}", turn.number)
            trial.check(daemon.exit_code is None, f"I4: {daemon.last_words()}", turn.number)
        after = holdings_of(daemon.pid)
        if trial.count > 2 * WARM_UP:
            grown = after.resident_bytes - before.resident_bytes
            trial.check(grown <= GROWTH_LIMIT_BYTES, f"I3: the daemon has grown by {grown >> 10} KiB")
            trial.check(
                after.descriptors <= before.descriptors + len(IDS),
                f"I3: {before.descriptors} descriptors of the daemon are {after.descriptors}",
            )
            trial.figure("growth of the daemon", f"{grown / 1024 / 1024:+.1f} MiB")
        await _all_ended(trial, node, daemon, nothing)
    trial.times("kubelet is back → driver registered", registered)
    trial.times("registered → slices right", published)


def _shuffle_devices(node: ClaimsNode, chance: random.Random, beginning: Sequence[RunningPod]) -> None:
    """Plug some devices in, and some out, but for those of pods that wait for them."""
    waited_for = {id_ for one in beginning for id_ in one.device_ids}
    for id_ in chance.sample(IDS, 2):
        if id_ not in waited_for:
            (node.plug if chance.random() < 0.6 else node.unplug)(id_)


# ── the API server ──

BACK_SECONDS: Final = 8.0
"""How long after so short a fault slices may be wrong: the driver looks again more and more slowly."""

FAULTS: Final = ("away", "slow", "429", "500", "403", "compacted")


@case(
    "api-server-away-from-claims",
    fault="D18",
    promise="An API server that is away, slow, refuses or forgets its changes costs claims their time and "
    "slices their freshness, nothing else: both are right with the first look after it is back",
    count=24,
    unit="faults",
    invariants="I1 I4 I13 I14 I15",
    limit_seconds=600,
    brief=True,
)
async def api_server_away_from_claims(trial: Trial) -> None:
    """Have the API server misbehave while devices come and go, and pods too."""
    nothing: Counter[str] = Counter()
    back, right = [], []
    async with claims_node(trial.folder, *IDS) as node:
        daemon = node.start()
        await node.until_registered(daemon)
        await node.until_published(20, "at first")
        for turn in trial.rounds():
            fault = FAULTS[turn.number % len(FAULTS)]
            beginning, ending = _drawn(node, turn.random)
            await _begin(node, fault, turn.random)
            async with asyncio.TaskGroup() as group:
                work = group.create_task(_settled_meanwhile(node, ending))
                for _ in range(3):
                    _shuffle_devices(node, turn.random, beginning)
                    await asyncio.sleep(turn.random.uniform(0.05, 0.4))
                waited_for = {id_ for one in beginning for id_ in one.device_ids}
                node.unplug(turn.random.choice([id_ for id_ in IDS if id_ not in waited_for]))
                await _end(node, fault)
                ended = time.monotonic()
            faults = work.result() if fault != "403" else []
            trial.check(not faults, f"I13: while it was {fault}: {faults}", turn.number)
            await node.until_published(BACK_SECONDS, f"after the API server was {fault}")
            back.append(time.monotonic() - ended)
            answers = (one for one in node.api.requests if one.at >= ended and one.code < 300)
            # Others list slices, too, to learn the version; the publisher asks for its Node as well.
            looks = (one.at for one in answers if one.path.endswith(f"/nodes/{NODE}"))
            reached = min(looks, default=ended)
            right.append(time.monotonic() - reached)
            node.api.requests.clear()
            for id_ in IDS:
                node.plug(id_)
            await _settled(trial, turn.number, node, ending)
            await node.until_published(TRUTH_SECONDS, "after all are plugged in")
            trial.check(daemon.exit_code is None, f"I4: {daemon.last_words()}", turn.number)
            if turn.number - trial.first >= RECOVERIES_AT_ONCE:
                # One that is ill again and again is looked at more and more slowly.
                await asyncio.sleep(1 / RECOVERIES_PER_SECOND)
        await _all_ended(trial, node, daemon, nothing)
    trial.times("API server is back → slices right", back, p99_within=BACK_SECONDS)
    trial.times("next look at slices → right", right, p99_within=TRUTH_SECONDS)


async def _settled_meanwhile(node: ClaimsNode, ending: Sequence[RunningPod]) -> list[str]:
    return await node.settle([one for one in node.pods if one not in ending], ending)


async def _begin(node: ClaimsNode, fault: str, chance: random.Random) -> None:
    match fault:
        case "away":
            await node.api.stop()
        case "slow":
            node.api.delay_seconds = chance.uniform(0.1, 0.6)
        case "compacted":
            node.api.compact()
        case code:
            node.api.refuse_code = int(code)


async def _end(node: ClaimsNode, fault: str) -> None:
    # What was held back is still on its way for as long.
    late_seconds, node.api.delay_seconds, node.api.refuse_code = node.api.delay_seconds, 0.0, 0
    await asyncio.sleep(late_seconds)
    if fault == "away":
        await node.api.start()


# ── many devices ──

MANY: Final = 10_000
MANY_SECONDS: Final = 30.0
"""How long it may take until so many devices are published anew; the API server is busy as long, too."""


@case(
    "ten-thousand-claimed-devices",
    fault="D12 D42",
    promise="10,000 devices are published in slices that are never wrong, and again after each loss of them; "
    "a change of a few writes a few slices",
    count=20,
    unit="rounds",
    invariants="I3 I4 I13 I15",
    limit_seconds=300,
)
async def ten_thousand_claimed_devices(trial: Trial) -> None:
    """Plug devices in and out, remove slices, and have pods get devices, of very many."""
    first, changed, wiped = [], [], []
    ids = [f"n{number}" for number in range(MANY)]
    async with claims_node(trial.folder, *ids) as node:
        daemon = node.start()
        await node.until_registered(daemon)
        first.append(await node.until_published(60, "at first"))
        slices = len(node.api.slices())
        for turn in trial.rounds():
            some = turn.random.sample(ids, turn.random.choice((1, 5)))
            node.api.requests.clear()
            for id_ in some:
                (node.unplug if id_ in node.present() else node.plug)(id_)
            changed.append(await node.until_published(MANY_SECONDS, "after a change"))
            writes = sum(one.method in {"POST", "PUT", "DELETE"} for one in node.api.requests)
            trial.check(writes <= 2 * len(some), f"I15: {writes} writes for {len(some)} changes", turn.number)
            pod = node.allocate(*turn.random.sample(node.present(), 2))
            for fault in await node.settle([pod], []):
                trial.broke(f"I13: {fault}", turn.number)
            await node.cluster.remove_slices(DRIVER)
            wiped.append(await node.until_published(MANY_SECONDS, "after all slices were removed"))
            for fault in [*node.claim_faults(), *await node.settle([], [pod])]:
                trial.broke(f"I13: {fault}", turn.number)
            trial.check(len(node.api.slices()) <= 2 * slices, f"I15: {len(node.api.slices())} slices")
            trial.check(daemon.exit_code is None, f"I4: {daemon.last_words()}", turn.number)
        await _all_ended(trial, node, daemon, Counter())
    trial.times("registered → all published", first)
    trial.times("a change → published", changed)
    trial.times("all slices removed → published again", wiped)
