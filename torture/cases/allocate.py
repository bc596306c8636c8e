"""Allocate: ten million requests of the pure core, and 200,000 over the wire.

The answer to each request is known beforehand: there are good ones, and each kind of bad one.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug import ContainerResponse, Device, Health
from devplug.errors import (
    AllocationError,
    InvalidRequestError,
    LimitError,
    RemoteError,
    UnhealthyDeviceError,
    UnknownDeviceError,
)
from devplug.plugin.inventory import Inventory
from devplug.plugin.service import PluginService, check_containers
from devplug.wire.deviceplugin import ALLOCATE
from devplug.wire.sockets import connected
from torture.catalogue import Round, case
from torture.footprint import nothing_kept
from torture.testbed import RESOURCE, Fed, bed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from devplug.devices import DeviceNode
    from devplug.wire.sockets import Peer
    from torture.catalogue import Trial

MOST: Final = 10_000
"""How many devices one call may ask for."""

REASON: Final = "it is broken"
_ADVICE: Final = "delete and recreate the pod to get another device"

AT_A_TIME: Final = 50_000
"""Requests of one round."""

DIFFERENT: Final = 500
"""How many of them differ; each is made again and again, in any order."""

WARM_UP: Final = 10_000
CALLS: Final = 1_000
"""Calls of one round."""

AT_ONCE: Final = (1, 4, 16, 64, 256)
"""How many calls are open at a time, by turns, so that each fifth of the case has the same mix."""

DEADLINE_SECONDS: Final = 5.0
SLACK: Final = 1.5
"""By how much p99 may differ from the first fifth to the last."""


# ── requests ──


@dataclass(frozen=True, slots=True)
class Granted:
    """What each container gets."""

    nodes: list[tuple[DeviceNode, ...]]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is no answer, as the code says it and as the kubelet is told."""

    kind: type[AllocationError]
    text: str
    status: str
    told: str


@dataclass(frozen=True, slots=True)
class Request:
    """What containers ask for, and what must come of it."""

    containers: list[tuple[str, ...]]
    outcome: Granted | Refused


def states(count: int) -> dict[str, tuple[Device, Device]]:
    """Return devices by ID, each healthy and not."""
    return {
        id_: (
            Device(id_, device_nodes=[f"/dev/{id_}"]),
            Device(id_, device_nodes=[f"/dev/{id_}"], health=Health.unhealthy(REASON)),
        )
        for id_ in (f"d{number:05}" for number in range(count))
    }


class Requests:
    """Draws requests for a list of devices; lives as long as that list."""

    def __init__(self, devices: Mapping[str, Device], sick: Sequence[str]) -> None:
        self._devices = devices
        self._sick = sick
        is_sick = set(sick)
        self._well = [id_ for id_ in devices if id_ not in is_sick]

    def draw(self, chance: Random) -> Request:
        """Return one of any kind, nearly always a small one."""
        faults: tuple[Callable[[Random, list[str]], Request], ...] = (
            self._unknown,
            self._unhealthy,
            self._twice,
            self._without_ids,
        )
        size = chance.choices((1, chance.randint(2, 8), chance.randint(9, 100)), (85, 14, 1))[0]
        ids = chance.sample(self._well, min(size, len(self._well)))
        return chance.choice(faults)(chance, ids) if chance.random() < 0.3 else self._good(chance, ids)

    def largest(self, chance: Random) -> list[Request]:
        """Return one for as many devices as a call may ask for, and one for one more."""
        ids = chance.sample(self._well, min(MOST, len(self._well)))
        many = ids + [f"x{number}" for number in range(MOST + 1 - len(ids))]
        text = f"{MOST + 1} devices are asked for; at most {MOST} in one call"
        return [
            self._good(chance, ids),
            Request([tuple(many)], _refused(LimitError, text, "ResourceExhausted")),
        ]

    def _good(self, chance: Random, ids: list[str]) -> Request:
        containers = _split(chance, ids)
        nodes = [
            tuple(node for id_ in sorted(part) for node in self._devices[id_].device_nodes)
            for part in containers
        ]
        return Request(containers, Granted(nodes))

    def _unknown(self, chance: Random, ids: list[str]) -> Request:
        # None that is known comes after it: of two faults the first one is told.
        stranger = chance.choice(("d", "a b", "\u2028", "d00000 ", "../d00000"))
        text = f"device {_quoted(stranger)} is not known to {RESOURCE}"
        return Request(_split(chance, [*ids, stranger]), _refused(UnknownDeviceError, text, "NotFound"))

    def _unhealthy(self, chance: Random, ids: list[str]) -> Request:
        if not self._sick:
            return self._unknown(chance, ids)
        sick = chance.choice(self._sick)
        text = f'device "{sick}" is unhealthy ({REASON})'
        refused = _refused(UnhealthyDeviceError, text, "FailedPrecondition", f"; {_ADVICE}")
        return Request(_split(chance, [*ids, sick]), refused)

    def _twice(self, chance: Random, ids: list[str]) -> Request:
        twice = chance.choice(ids)
        text = f'device "{twice}" is asked for twice'
        return Request(_split(chance, [*ids, twice]), _refused(InvalidRequestError, text, "InvalidArgument"))

    def _without_ids(self, chance: Random, ids: list[str]) -> Request:
        long = "x" * chance.randint(64, 300)
        containers, text = chance.choice(
            [
                ([], "no container requests"),
                ([tuple(ids), ()], "container 1 asks for no devices"),
                ([(*ids, "")], "a device ID is empty"),
                (
                    [(long, *ids)],
                    f"device ID {_quoted(long)} is {len(long)} characters long; at most 63 fit",
                ),
            ]
        )
        return Request(containers, _refused(InvalidRequestError, text, "InvalidArgument"))


def _split(chance: Random, ids: list[str]) -> list[tuple[str, ...]]:
    """Return IDs in any order, for one container or two."""
    ids = chance.sample(ids, len(ids))
    if len(ids) == 1 or chance.random() < 0.7:
        return [tuple(ids)]
    at = chance.randint(1, len(ids) - 1)
    return [tuple(ids[:at]), tuple(ids[at:])]


def _refused(kind: type[AllocationError], text: str, status: str, advice: str = "") -> Refused:
    return Refused(kind, text, status, f"allocate: {text}{advice}")


def _quoted(text: str) -> str:
    """Return a text as errors show it: escaped as in JSON, and cut to 64 characters."""
    shown = '"' + "".join(one if " " <= one <= "~" else f"\\u{ord(one):04x}" for one in text) + '"'
    return shown if len(shown) <= 64 else f'{shown[:60]}..."'


# ── cases ──

_Times: TypeAlias = "tuple[int, array[float]]"
"""How many calls were open at a time, and how long each took."""


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
    service = PluginService(Fed("a"), pool.inventory, lambda: None)
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
