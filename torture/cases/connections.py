"""Connections that nobody wants, of every kind: both servers go on, and nothing of them is left.

Streams, too: a peer opens ListAndWatch again and again, up to the limit and over it, and closes at random.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Final

from devplug import Device, Health, serve
from devplug.errors import RemoteError
from devplug.wire import deviceplugin
from devplug.wire.deviceplugin import ALLOCATE, REGISTER
from devplug.wire.podresources import GET
from devplug.wire.sockets import connected
from devplug.wire.values import AdvertisedDevice, PodName, RegisterRequest
from torture.catalogue import PATIENCE, Round, case
from torture.footprint import nothing_kept
from torture.fuzzing.both_ends import HEALTHY_IDS, SERVED_SECONDS, both_ends
from torture.fuzzing.raw_clients import KINDS, Outcome, Target, hold
from torture.testbed import RESOURCE, Fed, within

if TYPE_CHECKING:
    from pathlib import Path

    from devplug import Serving
    from devplug.wire.sockets import Peer
    from torture.catalogue import Body, Trial
    from torture.fuzzing.both_ends import BothEnds

AT_ONCE: Final = 25
"""Connections side by side."""

AT_ONCE_OF: Final = {"rapid-resets": 5}
"""Of kinds that make many calls each. Where over a thousand calls wait to be taken, gRPC ends some by chance,
good ones too, and neither end of ours hears of it."""

WARM_UP_DIVISOR: Final = 20
"""A twentieth as many before: until the C library has the memory that it keeps."""

BESIDE_SECONDS: Final = 0.5
"""X30 says 50 ms: with room for a machine that is busy with other cases, and for those who hold them here."""

BESIDE_PERIOD_SECONDS: Final = 0.02
PAUSE_SECONDS: Final = 0.005

IDS: Final = [f"d{number}" for number in range(8)]
LIMIT: Final = 16
ANSWER_SECONDS: Final = 2.0
REFUSAL: Final = "ResourceExhausted: 16 streams are open, which is the limit"
OPENS_OF_A_ROUND: Final = 100
WARM_UP: Final = 20
"""Rounds until the C library has the memory that it keeps."""


# ── connections ──


def _targets(ends: BothEnds) -> list[Target]:
    register = RegisterRequest("v0", "x.sock", "example.com/a")  # an unknown version is not dialled
    return [
        Target(ends.sockets["plugin"], ALLOCATE.path, ALLOCATE.request.encode([HEALTHY_IDS[:1]])),
        Target(ends.sockets["kubelet"], REGISTER.path, REGISTER.request.encode(register)),
        Target(ends.sockets["podresources"], GET.path, GET.request.encode(PodName("p", "default"))),
    ]


def _body(kind: str) -> Body:
    async def hostile_connections(trial: Trial) -> None:
        at_once = AT_ONCE_OF.get(kind, AT_ONCE)
        async with both_ends(trial.folder) as ends:
            outcome = Outcome()
            times: list[float] = []
            targets = _targets(ends)
            for number, target in enumerate(targets):
                warm_up = [
                    Random(f"warm-up {number} {each}") for each in range(trial.count // WARM_UP_DIVISOR)
                ]
                await _hold(kind, target, warm_up, Outcome())
            async with nothing_kept(trial), asyncio.TaskGroup() as group:
                beside = group.create_task(_call_beside(ends, times))
                turns = trial.rounds()
                number = 0
                while batch := list(islice(turns, at_once)):
                    chances = [turn.random for turn in batch]
                    await _hold(kind, targets[number % len(targets)], chances, outcome)
                    number += 1
                while not times:  # so few that they are over already
                    await asyncio.sleep(BESIDE_PERIOD_SECONDS)
                beside.cancel()
                await ends.check_served()
        trial.figure("ended by the server", outcome.ended_by_server)
        trial.check(not outcome.refused, f"I4: {outcome.refused} connections were refused")
        trial.times("a good call beside them", times, p99_within=BESIDE_SECONDS)

    return hostile_connections


async def _hold(kind: str, target: Target, chances: Sequence[Random], outcome: Outcome) -> None:
    """Hold one conversation for each of the chances, in a thread: neither end of the bed waits for it."""
    at_once = AT_ONCE_OF.get(kind, AT_ONCE)

    def held() -> None:
        for start in range(0, len(chances), at_once):
            batch = chances[start : start + at_once]
            hold(target, [KINDS[kind](chance, target) for chance in batch], outcome)
            # Who hangs up at once could outrun any server; what a flood of calls costs is X34's.
            time.sleep(PAUSE_SECONDS)

    with ThreadPoolExecutor(1) as thread:
        await asyncio.get_running_loop().run_in_executor(thread, held)


async def _call_beside(ends: BothEnds, times: list[float]) -> None:
    """Call the plugin now and then, over a connection of its own, and note how long it takes."""
    async with AsyncExitStack() as stack:
        peer = await stack.enter_async_context(
            connected(ends.sockets["plugin"], ready_within_seconds=SERVED_SECONDS)
        )
        while True:
            started = time.monotonic()
            await peer.call(ALLOCATE, [HEALTHY_IDS[:1]], timeout_seconds=SERVED_SECONDS)
            times.append(time.monotonic() - started)
            await asyncio.sleep(BESIDE_PERIOD_SECONDS)


for _kind in KINDS:
    case(
        f"hostile-connections-{_kind}",
        fault="X30",
        promise=f"Strangers of the kind {_kind} cost nobody a call, and leave nothing behind",
        count=10_000,
        unit="connections",
        invariants="I3 I4 I6",
        brief=_kind == next(iter(KINDS)),
    )(_body(_kind))

# ── streams ──


Lists = AsyncGenerator[Sequence[AdvertisedDevice], None]


@case(
    "streams-come-and-go",
    fault="X09",
    promise="Of 16 streams each gets the whole list and each change, the 17th is refused by name, and "
    "whoever closes makes room; Allocate is answered beside them",
    count=10_000,
    unit="opens",
    invariants="I3 I6 I8 I11",
    limit_seconds=150,
)
async def streams_come_and_go(trial: Trial) -> None:
    """Open streams over some connections, and close streams and connections in any order."""
    folder = trial.folder / "p"
    folder.mkdir()
    plugin = Fed(*IDS)
    async with serve(plugin, plugin_dir=folder, registration="socket") as serving:
        path = await _socket(folder)
        for again in range(min(WARM_UP, trial.count // OPENS_OF_A_ROUND)):
            await Crowd(trial, plugin, serving, path).play(Round(-1, Random(again)), OPENS_OF_A_ROUND)
        opened = refused = 0
        async with nothing_kept(trial):
            rounds = -(-trial.count // OPENS_OF_A_ROUND)
            for turn in trial.rounds(rounds):
                crowd = Crowd(trial, plugin, serving, path)
                await crowd.play(turn, min(OPENS_OF_A_ROUND, trial.count - opened))
                opened += crowd.opened
                refused += crowd.refused
    trial.done = opened
    trial.figure("refused", refused)


async def _socket(folder: Path) -> Path:
    """Wait for the plugin's socket and return its path."""
    async with asyncio.timeout(10):
        while not (found := [path for path in folder.glob("*.sock") if not path.name.startswith(".")]):
            await asyncio.sleep(0.01)
    return found[0]


@dataclass(eq=False, slots=True)
class _Open:
    """One stream that is open, and the connection that it came over."""

    lists: Lists
    number: int
    peer: Peer


class Crowd:
    """Callers of one plugin, over several connections; lives for a round, after which all are gone."""

    def __init__(self, trial: Trial, plugin: Fed, serving: Serving, path: Path) -> None:
        self.opened = 0
        self.refused = 0
        self._trial = trial
        self._plugin = plugin
        self._serving = serving
        self._path = path
        self._open: list[_Open] = []

    async def play(self, turn: Round, opens: int) -> None:
        """Open so many streams, of which never more than the limit are there."""
        chance = turn.random
        self._plugin.feed.put(*(Device(id_, device_nodes=[f"/dev/{id_}"]) for id_ in IDS))
        most = chance.choice([chance.randint(2, LIMIT), LIMIT])
        connections = chance.randint(1, 4)
        async with AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(connected(self._path)) for _ in range(connections)]
            while self.opened < opens:
                if len(self._open) < most and (len(self._open) < 2 or chance.random() < 0.7):
                    await self._come(chance.choice(peers), turn)
                else:
                    await self._go(chance.randrange(len(self._open)))
                if len(self._open) == LIMIT:
                    # Of the connection that has most: a stream of another one takes its oldest one's place.
                    counted = Counter(id(one.peer) for one in self._open)
                    await self._overflow(max(peers, key=lambda peer: counted[id(peer)]), turn)
                if chance.random() < 0.03:
                    await self._allocate(chance.choice(peers), turn)
            await self._change(chance)
            # Some are closed in order, the others end with their connections.
            for _ in range(chance.randint(0, len(self._open))):
                await self._go(0)
        text = f"I3: {self._serving.streams[RESOURCE]} streams after all were closed"
        await within(ANSWER_SECONDS, self._until_streams(0), lambda: text)
        for one in self._open:
            await one.lists.aclose()

    async def _come(self, peer: Peer, turn: Round) -> None:
        lists: Lists = peer.stream(deviceplugin.LIST_AND_WATCH, None)
        async with asyncio.timeout(ANSWER_SECONDS * PATIENCE.get()):
            first = await anext(lists)
        self.opened += 1
        self._open.append(_Open(lists, self.opened, peer))
        seen = [device.id for device in first]
        self._trial.check(seen == IDS, f"I8: a new stream got {seen}", turn.number)

    async def _go(self, index: int) -> None:
        """Close a stream, and wait until its room is free: the plugin hears of it a moment later."""
        await self._open.pop(index).lists.aclose()
        story = f"I3: {self._serving.streams[RESOURCE]} streams, {len(self._open)} are open"
        await within(ANSWER_SECONDS, self._until_streams(len(self._open)), lambda: story)

    async def _overflow(self, peer: Peer, turn: Round) -> None:
        """Ask for one stream more than there may be."""
        self.refused += 1
        lists: Lists = peer.stream(deviceplugin.LIST_AND_WATCH, None)
        answer = "a list"
        try:
            async with asyncio.timeout(ANSWER_SECONDS * PATIENCE.get()):
                await anext(lists)
        except RemoteError as error:
            answer = f"{error.status}: {error.text}"
        except StopAsyncIteration:
            answer = "an end"
        await lists.aclose()
        self._trial.check(answer == REFUSAL, f"I11: the 17th stream got {answer}", turn.number)
        count = self._serving.streams[RESOURCE]
        self._trial.check(count == LIMIT, f"I8: {count} streams after a refusal", turn.number)

    async def _allocate(self, peer: Peer, turn: Round) -> None:
        id_ = turn.random.choice(IDS)
        (response,) = await peer.call(deviceplugin.ALLOCATE, [(id_,)], timeout_seconds=ANSWER_SECONDS)
        given = [node.host_path for node in response.device_nodes]
        self._trial.check(given == [f"/dev/{id_}"], f"I6: Allocate of {id_} gave {given}", turn.number)

    async def _change(self, chance: Random) -> None:
        """Have a device fail: each stream that is open gets the list that says so."""
        id_ = chance.choice(IDS)
        sick = Device(id_, device_nodes=[f"/dev/{id_}"], health=Health.unhealthy("broken"))
        self._plugin.feed.put(sick)
        for one in self._open:
            text = f"I8: stream {one.number} was not told that {id_} is broken"
            await within(ANSWER_SECONDS, _until_broken(one.lists, id_), partial(str, text))

    async def _until_streams(self, count: int) -> None:
        while self._serving.streams[RESOURCE] != count:
            await asyncio.sleep(0)


async def _until_broken(lists: Lists, id_: str) -> None:
    """Read lists until one has every device, and only this one Unhealthy."""
    wanted = [(other, "Unhealthy" if other == id_ else "Healthy") for other in IDS]
    async for latest in lists:
        if [(device.id, device.health) for device in latest] == wanted:
            return
