"""Allocate: ten million requests of the pure core, and 200,000 over the wire."""

from __future__ import annotations

import asyncio
import time
from array import array
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug import ContainerResponse
from devplug.errors import AllocationError, RemoteError
from devplug.plugin.inventory import Inventory
from devplug.plugin.requests import check_containers
from devplug.plugin.service import PluginService
from devplug.plugin.tally import Tally
from devplug.wire.methods import ALLOCATE
from devplug.wire.sockets import connected
from torture.asking import MOST, Granted, Requests, states
from torture.beds import RESOURCE, Fed, bed
from torture.catalogue import Round, case
from torture.held import nothing_kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from devplug.wire.sockets import Peer
    from torture.asking import Request
    from torture.catalogue import Trial

_Times: TypeAlias = "tuple[int, array[float]]"
"""How many calls were open at a time, and how long each took."""

AT_A_TIME: Final = 50_000
"""Requests of one round."""

DIFFERENT: Final = 500
"""How many of them differ; each is made again and again, in any order."""

WARM_UP: Final = 10_000


class _Pool:
    """10,000 devices, of which others are ill in each round."""

    def __init__(self) -> None:
        self.inventory = Inventory(RESOURCE)
        self._states = states(MOST + 100)

    async def requests(self, chance: Random) -> list[Request]:
        """Make some devices ill, and return different requests."""
        sick = chance.sample([*self._states], 100)
        devices = {id_: well for id_, (well, _) in self._states.items()}
        devices |= {id_: self._states[id_][1] for id_ in sick}
        await self.inventory.replace([*devices.values()])
        requests = Requests(devices, sick)
        return [*requests.largest(chance), *(requests.draw(chance) for _ in range(DIFFERENT))]


@case(
    "ten-million-allocates",
    fault="X34",
    promise="Each of ten million requests gets exactly its devices, or is refused with its own code and text",
    count=10_000_000,
    unit="requests",
    invariants="I3 I11",
    limit_seconds=600,
)
async def ten_million_allocates(trial: Trial) -> None:
    """Ask the pure core: the check of a request, the look for its devices, the response.

    Of each round's different requests all go through the whole service once, too, without a socket.
    """
    pool = _Pool()
    service = PluginService(Fed("a"), pool.inventory, Tally(), lambda: None)
    core_seconds, granted = 0.0, 0
    rounds = max(1, trial.count // AT_A_TIME)
    try:
        # Not one of the rounds, so that the first of those is counted whole.
        warm_up = Round(-1, Random(trial.seed))
        _ask_core(trial, warm_up, pool.inventory, await pool.requests(warm_up.random))
        async with nothing_kept(trial):
            for turn in trial.rounds(rounds):
                requests = await pool.requests(turn.random)
                # Each call's deadline leaves a timer behind that the loop removes at its next turn.
                await asyncio.sleep(0)
                for request in requests:
                    if wrong := _wrong(request, await _served(service, request)):
                        trial.broke(wrong, turn.number)
                # The two largest once only: they are as much work as thousands of others.
                order = turn.random.choices(requests[2:], k=AT_A_TIME - 2) + requests[:2]
                started = time.process_time()
                granted += _ask_core(trial, turn, pool.inventory, order)
                core_seconds += time.process_time() - started
                trial.done += AT_A_TIME - 1
    finally:
        service.close()
    trial.figure("granted", f"{granted:,}")
    trial.figure("one request", f"{1_000_000 * core_seconds / (rounds * AT_A_TIME):.1f} µs")


def _ask_core(trial: Trial, turn: Round, inventory: Inventory, requests: Sequence[Request]) -> int:
    """Make requests, one after the other; return how many were granted."""
    granted = 0
    for request in requests:
        outcome: list[ContainerResponse] | AllocationError
        try:
            check_containers(request.containers)
            outcome = [ContainerResponse.of(inventory.find_healthy(ids)) for ids in request.containers]
            granted += 1
        except AllocationError as error:
            outcome = error
        if wrong := _wrong(request, outcome):
            trial.broke(wrong, turn.number)
    return granted


async def _served(service: PluginService, request: Request) -> Sequence[ContainerResponse] | AllocationError:
    try:
        return await service.allocate(request.containers)
    except AllocationError as error:
        return error


def _wrong(request: Request, came: Sequence[ContainerResponse] | AllocationError) -> str:
    """Return what is wrong with an outcome, or ""."""
    want = request.outcome
    if isinstance(want, Granted):
        if not isinstance(came, AllocationError) and [one.device_nodes for one in came] == want.nodes:
            return ""
    elif type(came) is want.kind and str(came) in {want.text, want.told}:
        return ""
    return f"I11: {str(request.containers)[:200]}: {str(came)[:200]} and not {str(want)[:200]}"


# ── over the wire ──

CALLS: Final = 1_000
"""Calls of one round."""

AT_ONCE: Final = (1, 4, 16, 64, 256)
"""How many calls are open at a time, by turns, so that each fifth of the case has the same mix."""

DEADLINE_SECONDS: Final = 5.0
SLACK: Final = 1.5
"""By how much p99 may differ from the first fifth to the last."""


@case(
    "allocates-over-the-wire",
    fault="X34",
    promise="Up to 256 Allocates at once are each answered in time and rightly, as quickly at the end as at "
    "the beginning",
    count=200_000,
    unit="Allocates",
    invariants="I3 I6 I11",
    limit_seconds=600,
)
async def allocates_over_the_wire(trial: Trial) -> None:
    """Call a plugin of ours as the kubelet does, from one connection, a different number of calls at once."""
    all_states = states(256)
    plugin = Fed()
    rounds = max(1, trial.count // CALLS)
    fifth = max(1, rounds // 5)
    first: list[_Times] = []
    last: list[_Times] = []
    async with bed(trial.folder, plugin) as stage:
        (path,) = trial.folder.glob("devplug-*.sock")
        sick = [*all_states][::16]
        devices = {id_: both[id_ in sick] for id_, both in all_states.items()}
        plugin.feed.replace(devices.values())
        await stage.until_allocatable(len(devices) - len(sick))
        requests = Requests(devices, sick)
        async with connected(path) as peer:
            caller = _Caller(trial, peer)
            for open_calls in AT_ONCE:
                warm = [requests.draw(Random(number)) for number in range(min(2_000, trial.count // 20))]
                await caller.call(warm, open_calls, 0)
            async with nothing_kept(trial):
                for turn in trial.rounds(rounds):
                    drawn = [requests.draw(turn.random) for _ in range(CALLS)]
                    open_calls = AT_ONCE[turn.number % len(AT_ONCE)]
                    times = await caller.call(drawn, open_calls, turn.number)
                    if len(first) < fifth:
                        first.append((open_calls, array("d", times)))
                    if turn.number - trial.first >= rounds - fifth:
                        last.append((open_calls, array("d", times)))
                    trial.done += CALLS - 1
    _compare(trial, first, last)


class _Caller:
    """One connection, over which many calls are made at once."""

    def __init__(self, trial: Trial, peer: Peer) -> None:
        self._trial = trial
        self._peer = peer

    async def call(self, requests: Sequence[Request], at_once: int, number: int) -> list[float]:
        """Make all calls, so many at a time; return how long each took."""
        left = iter(requests)
        times: list[float] = []
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(self._work(left, times, number))
        return times

    async def _work(self, left: Iterator[Request], times: list[float], number: int) -> None:
        for request in left:
            started = time.perf_counter()
            came: Sequence[ContainerResponse] | RemoteError
            try:
                came = await self._peer.call(ALLOCATE, request.containers, timeout_seconds=DEADLINE_SECONDS)
            except RemoteError as error:
                came = error
            times.append(time.perf_counter() - started)
            if wrong := _wrong_answer(request, came):
                self._trial.broke(wrong, number)


def _wrong_answer(request: Request, came: Sequence[ContainerResponse] | RemoteError) -> str:
    want = request.outcome
    if isinstance(want, Granted):
        if not isinstance(came, RemoteError) and [one.device_nodes for one in came] == want.nodes:
            return ""
    elif isinstance(came, RemoteError) and (came.status, came.text) == (want.status, want.told):
        return ""
    name = "I6" if isinstance(came, RemoteError) and came.status == "DeadlineExceeded" else "I11"
    return f"{name}: {str(request.containers)[:200]}: {str(came)[:200]} and not {str(want)[:200]}"


def _compare(trial: Trial, first: Sequence[_Times], last: Sequence[_Times]) -> None:
    """Hold the last fifth of all rounds against the first one, at each number of calls at once by itself.

    Of each fifth the best round counts: what else the machine does makes rounds slower, never quicker.
    """
    for name, part in (("first fifth", first), ("last fifth", last)):
        trial.times(name, [seconds for _, times in part for seconds in times])
    for at_once in AT_ONCE:
        if at_once in dict(first) and at_once in dict(last):
            was, is_now = (
                min(_p99(times) for one, times in part if one == at_once) for part in (first, last)
            )
            text = f"I6: p99 of {at_once} at once was {1000 * was:.0f} ms and is {1000 * is_now:.0f} ms"
            # One round is no measure of anything.
            trial.check(len(first) < 5 * len(AT_ONCE) or is_now <= SLACK * was + 0.01, text)


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[len(seconds) * 99 // 100]
