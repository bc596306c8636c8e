"""One schedule, from its seed to what did not hold: faults, then quiet, then the questions.

Its event loop has no I/O, and its time passes only when nothing is left to do.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.devices import HEALTHY
from torture.schedules.ends import RESOURCE
from torture.schedules.plan import Chance, Kind
from torture.schedules.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from devplug.wire.values import AdvertisedDevice
    from torture.schedules.network import Node
    from torture.schedules.plan import Plan

TRUTH_SECONDS: Final = 2.0
DEAF_SECONDS: Final = 8.0
"""As long as a level check takes that finds what an event did not tell, and what follows it."""

CUT_SECONDS: Final = 17.0
"""As long as a plugin waits for a stream that was cut before it came: nothing else tells it."""

CUTTING: Final = frozenset(
    (
        Kind.STREAM_CUT,
        Kind.CONNECTION_LOST,
        Kind.RIVAL,
        Kind.PLUGIN_REPLACED,
        Kind.LOCK_REMOVED,
        Kind.STALLED,
    ),
)
"""What may cut a connection on which a stream is about to come; the last makes every moment long."""

LANDING_SECONDS: Final = 1.0
STALLED_LANDING_SECONDS: Final = 21.0
"""How long messages may be under way after the last fault, with slow ones and with stalled ones."""

BREATH_SECONDS: Final = 1.5
"""How long it has to be right before it counts as right, and not as on the way from one wrong to the next."""

QUIET_SECONDS: Final = 20.0
"""More than the deadline of a stream, and several level checks."""


# ── the loop ──


class StuckError(Exception):
    """Somebody waits for what nobody will ever do, or does something without end."""


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own loop, with a clock that is put forward to the next timer whenever all are waiting.

    Nothing in it is left to chance, and callbacks that are ready run in the order in which they became so: a
    real loop promises that, and our code may rely on it. What no real loop promises is when messages, events
    and timers come, and those of different sources in which order. So chance belongs to whoever stands in for
    them: he calls `call_at` with a time that is drawn.
    """

    limit = 1_000_000
    """How often it may turn between two `begin`."""

    _scheduled: list[asyncio.TimerHandle]
    _timer_cancelled_count: int

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._turns = 0
        self._clock_resolution = 1e-9
        self._selector = self
        """What `BaseEventLoop` waits with."""

    def begin(self) -> None:
        """Put the clock back to 0, so that a story does not depend on those before it. Nothing may wait."""
        if self._scheduled and not all(handle.cancelled() for handle in self._scheduled):
            raise StuckError(f"left over from the story before: {self._scheduled}")
        self._scheduled.clear()
        self._timer_cancelled_count = 0
        self._now = 0.0
        self._turns = 0

    def time(self) -> float:
        """Return how many seconds of the story have passed."""
        return self._now

    def select(self, timeout: float | None) -> Sequence[object]:
        """Wait for I/O, of which there is none: put the clock forward to the first timer."""
        self._turns += 1
        if timeout is None:
            raise StuckError(f"after {self._now:g} s nothing is left that could happen")
        if self._turns > self.limit:
            raise StuckError(f"{self._now:g} s took {self._turns} turns of the loop")
        if timeout:
            # Not the sum, which may be a little less than the timer's time.
            self._now = self._scheduled[0].when()
        return ()

    def _process_events(self, event_list: Sequence[object]) -> None:
        """Do nothing, as there is no I/O."""

    def _write_to_self(self) -> None:
        """Do nothing, as the loop never sleeps."""


# ── what must hold at the end ──


async def settled_seconds(world: World, plan: Plan) -> float:
    """Wait until everything is as it should be, and note if that takes too long; return how long it took.

    What is true only because nobody knows better yet does not count: what is under way has to land first.
    """
    kinds = {fault.kind for fault in plan.faults}
    await asyncio.sleep(STALLED_LANDING_SECONDS if Kind.STALLED in kinds else LANDING_SECONDS)
    began = world.loop.time()
    is_cut = kinds & CUTTING or world.network.streams_cut_early
    allowed = CUT_SECONDS if is_cut else DEAF_SECONDS if Kind.DEAF in kinds else TRUTH_SECONDS
    # Who was refused for some time waits as long again, and jitter.
    allowed += 1.3 * sum(fault.seconds for fault in plan.faults if fault.kind is Kind.REFUSING)
    took = 0.0
    try:
        while _untrue(world):
            async with asyncio.timeout_at(began + allowed):
                while _untrue(world):
                    await world.changed()
            took = world.loop.time() - began
            await asyncio.sleep(BREATH_SECONDS)
    except TimeoutError:
        world.broke(f"I2: after {allowed:g} s of quiet {_untrue(world)}")
    return took


async def judge_quiet(world: World) -> None:
    """Let nothing happen for a while, and note what happens nevertheless."""
    before = world.registrations
    await asyncio.sleep(QUIET_SECONDS)
    if why := _untrue(world):
        world.broke(f"I2: it was right, and {QUIET_SECONDS:g} s of quiet later {why}")
    if world.registrations != before:
        world.broke(f"I7: {world.registrations - before} registrations without a reason")


async def judge_remains(world: World) -> None:
    """End all in order, and note what is left over."""
    for plugin in world.plugins:
        await plugin.end(orderly=True)
    await asyncio.sleep(LANDING_SECONDS)
    if left := [name for name, node in world.network.nodes.items() if _should_be_gone(world, name, node)]:
        world.broke(f"I5: {left} are left")
    await world.kubelet.end(orderly=True)
    await asyncio.sleep(LANDING_SECONDS)
    if world.network.connections:
        world.broke(f"I3: {len(world.network.connections)} connections are left")


def _untrue(world: World) -> str:
    """Return what of I2, I8, I9 or I12 does not hold at this moment; empty if all does."""
    registered = [plugin for plugin in world.plugins if plugin.lifecycle.is_registered]
    if len(registered) != 1:
        return f"{len(registered)} of {len(world.plugins)} plugins are registered"
    (plugin,) = registered
    streams = [one.lifecycle.streams for one in world.plugins]
    if sum(streams) != 1:
        return f"open streams: {streams}"
    snapshot = plugin.inventory.snapshot
    truth = {device.id: device for device in snapshot.advertised()}
    state = world.kubelet.devices.allocations.state(RESOURCE)
    if state.devices != truth:
        return f"I8: the kubelet has {_words(state.devices)}, the truth is {_words(truth)}"
    healthy = frozenset(id_ for id_, device in truth.items() if device.health == HEALTHY)
    if state.healthy != healthy:
        return f"the kubelet has {sorted(state.healthy or ())} as healthy, and {sorted(healthy)} are"
    endpoint = world.kubelet.devices.endpoints.get(RESOURCE)
    if endpoint is None or endpoint.stopped_at_seconds is not None:
        return "the kubelet has no endpoint to call"
    there = {id_ for id_, device in snapshot.devices.items() if device.health.reason != "gone"}
    if there != set(world.health):
        return f"I9: {sorted(there)} are listed, {sorted(world.health)} are there"
    return ""


def _words(devices: Mapping[str, AdvertisedDevice]) -> str:
    return ", ".join(f"{id_} {device.health}" for id_, device in devices.items()) or "nothing"


def _should_be_gone(world: World, name: str, node: Node) -> bool:
    """Whether a file is a socket of ours that somebody should have removed.

    Who is killed while it makes its socket leaves a hidden name until a kubelet starts, and nobody cleans up
    after who is killed when another has its lock already.
    """
    if node.transport is None or not name.startswith(("devplug-", ".")):
        return False
    return not node.transport.owner.is_dead or (not name.startswith(".") and not world.had_lost_lock)


# ── the schedule ──


@dataclass(slots=True)
class Played:
    """What came of one schedule."""

    broken: list[str] = field(default_factory=list)
    """What did not hold, each with the time of the story."""
    settled_seconds: float = 0.0
    """How long after the last of the faults all was as it should be."""
    most_calls: int = 0
    """Of Register, in a minute, of one plugin to one kubelet."""
    dials_in_vain: int = 0
    """How often a kubelet has dialled a plugin whose socket was gone."""
    most_taken_on: int = 0
    """How often one kubelet has taken on plugins."""


class Player:
    """Plays schedules, one after the other, on one loop in the thread that enters it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runner = asyncio.Runner(loop_factory=VirtualLoop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def play(self, plan: Plan, source: random.Random) -> Played:
        """Play one schedule. A story that breaks off is broken, too."""
        loop = self._runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        loop.begin()
        # What our code draws for itself: jitter.
        random.seed(source.random())
        played = Played()
        try:
            self._runner.run(_story(loop, plan, Chance(source), self._folder, played))
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is of this schedule
            played.broken.append(f"I4: it broke off: {error!r}")
            with suppress(Exception):
                self._runner.close()
            self._runner = asyncio.Runner(loop_factory=VirtualLoop)
        return played


async def _story(
    loop: asyncio.AbstractEventLoop, plan: Plan, chance: Chance, folder: Path, played: Played
) -> None:
    async with asyncio.TaskGroup() as tasks:
        world = World(loop, tasks, chance, plan, folder)
        played.broken = world.broken
        await world.kubelet.start()
        world.start_plugin()
        async with asyncio.TaskGroup() as faults:
            for fault in plan.faults:
                await asyncio.sleep(fault.after)
                faults.create_task(world.happen(fault))
        chance.calm()
        await world.repair()
        played.settled_seconds = await settled_seconds(world, plan)
        await judge_quiet(world)
        played.most_calls = world.most_calls
        played.dials_in_vain = world.network.dials_in_vain
        played.most_taken_on = max(world.kubelet.taken_on.values())
        await judge_remains(world)
