"""Device health: one, some or all flap at every pace; the kubelet hears the truth at a bounded one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug import Device, Health
from devplug.devices import HEALTHY
from devplug.kubelet.changes import ChangeKind
from torture.catalogue import PATIENCE, case
from torture.footprint import nothing_kept, resident_bytes, told
from torture.testbed import RESOURCE, Fed, bed, within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from random import Random

    from torture.catalogue import Round, Trial
    from torture.testbed import Bed

IDS: Final = tuple(f"d{number}" for number in range(64))
STATES: Final = {id_: (Device(id_), Device(id_, health=Health.unhealthy("it flaps"))) for id_ in IDS}

EDGES: Final = 20_000
"""Changes of health in one round."""

BURST_BYTES: Final = 1024 * 1024
"""How much memory a burst may take that the loop had no turn to read: nothing of it is kept but the end."""

BURST: Final = 5
PER_SECOND: Final = 15.0
"""How many lists may come at once, and then in each second: half of the edges are bad news."""

LINES_AT_ONCE: Final = 500
LINES_PER_SECOND: Final = 50
"""What the log may have of one round: far less than a line for each edge."""

TRUTH_SECONDS: Final = 2.5
"""How long the last edge may take to the kubelet: half a second of it is the pace's."""


@case(
    "devices-flapping",
    fault="X24",
    promise="However fast devices flap, the kubelet gets no more than twenty lists in a second, the last one "
    "true, while memory and log stay bounded",
    count=1_000_000,
    unit="health edges",
    invariants="I2 I3 I8 I10",
    brief=True,
)
async def devices_flapping(trial: Trial) -> None:
    """Push edges into a feed, a round of them at one pace, and wait until the kubelet has the last state."""
    plugin = Fed()
    flapping = Flapping(trial, plugin)
    async with bed(trial.folder, plugin) as stage, asyncio.TaskGroup() as group:
        listed: list[float] = []
        reading = group.create_task(_note_lists(stage, listed))
        await flapping.play(stage, IDS[:2], flapping.with_turns, 1_000)
        async with nothing_kept(trial):
            for turn in trial.rounds(max(1, trial.count // EDGES)):
                await flapping.round(stage, turn)
                trial.done += EDGES - 1
        reading.cancel()
    _check_pace(trial, listed)
    trial.figure("lists", len(listed))
    trial.times("last edge → the kubelet knows", flapping.times)
    trial.figure("most log lines in a second", round(flapping.most_lines_per_second))
    trial.figure("most memory in a burst", f"{flapping.most_bytes / 1024 / 1024:.1f} MiB")


@dataclass(slots=True)
class Flapping:
    """A feed whose devices flap, and what was measured of it."""

    trial: Trial
    plugin: Fed
    times: list[float] = field(default_factory=list)
    most_lines_per_second: float = 0.0
    most_bytes: int = 0
    _number: int = 0
    _is_sick: dict[str, bool] = field(default_factory=dict)

    async def round(self, stage: Bed, turn: Round) -> None:
        """Let one device, some or all flap, at one pace."""
        self._number = turn.number
        ids = turn.random.sample(IDS, turn.random.choice((1, 8, len(IDS))))
        pace = turn.random.choice(
            (self.in_one_go, self.with_turns, self.of_a_thread, self.at_1_kilohertz, self.at_100_hertz)
        )
        loop = asyncio.get_running_loop()
        started = loop.time()
        with told() as lines:
            await self.play(stage, ids, pace, EDGES, turn.random)
        seconds = loop.time() - started
        self.most_lines_per_second = max(self.most_lines_per_second, lines.total / seconds)
        self.trial.check(
            lines.total <= LINES_AT_ONCE + LINES_PER_SECOND * seconds,
            f"I10: {lines.total} lines in {seconds:.1f} s, {pace.__name__}: {lines.counts.most_common(3)}",
            turn.number,
        )

    async def play(
        self,
        stage: Bed,
        ids: Sequence[str],
        pace: Callable[[Sequence[str]], Awaitable[None]],
        edges: int,
        chance: Random | None = None,
    ) -> None:
        """Begin with all devices healthy, make so many edges, and wait for the truth at the kubelet."""
        self._is_sick = dict.fromkeys(IDS, False)
        self.plugin.feed.replace(STATES[id_][False] for id_ in IDS)
        await pace(chance.choices(ids, k=edges) if chance else [*ids] * (edges // len(ids)))
        self.times.append(
            await within(
                TRUTH_SECONDS,
                stage.kubelet.wait(lambda: self._wrong(stage) == []),
                lambda: f"I2: after {TRUTH_SECONDS} s the kubelet is wrong about {self._wrong(stage)[:5]}",
            )
        )
        listed = [device.id for device in stage.kubelet.devices(RESOURCE)]
        self.trial.check(
            listed == sorted(IDS), f"I8: {len(listed)} of {len(IDS)} devices are listed", self._number
        )

    def _wrong(self, stage: Bed) -> list[str]:
        seen = {device.id: device.health != HEALTHY for device in stage.kubelet.devices(RESOURCE)}
        return [id_ for id_, is_sick in self._is_sick.items() if seen.get(id_) is not is_sick]

    def _edge(self, id_: str) -> None:
        self._is_sick[id_] = not self._is_sick[id_]
        self.plugin.feed.put(STATES[id_][self._is_sick[id_]])

    # ── paces ──

    async def in_one_go(self, edges: Sequence[str]) -> None:
        """Give the loop no turn before the last edge."""
        before = resident_bytes()
        for id_ in edges:
            self._edge(id_)
        taken = resident_bytes() - before
        self.most_bytes = max(self.most_bytes, taken)
        text = f"I3: a burst of {len(edges)} edges took {taken} bytes"
        self.trial.check(taken <= BURST_BYTES * PATIENCE.get(), text, self._number)

    async def with_turns(self, edges: Sequence[str]) -> None:
        """Give the loop a turn after each edge for a while, then none before the last."""
        await self._paced(edges, 5_000, 0)

    async def of_a_thread(self, edges: Sequence[str]) -> None:
        """Push as fast as a thread can, beside the loop."""

        def push() -> None:
            for id_ in edges:
                self._edge(id_)

        await asyncio.to_thread(push)

    async def at_1_kilohertz(self, edges: Sequence[str]) -> None:
        """Flap a thousand times a second for a while, then all at once."""
        await self._paced(edges, 500, 0.001)

    async def at_100_hertz(self, edges: Sequence[str]) -> None:
        """Flap a hundred times a second for a while, then all at once."""
        await self._paced(edges, 50, 0.01)

    async def _paced(self, edges: Sequence[str], count: int, seconds: float) -> None:
        for id_ in edges[:count]:
            self._edge(id_)
            await asyncio.sleep(seconds)
        await self.in_one_go(edges[count:])


async def _note_lists(stage: Bed, times: list[float]) -> None:
    """Note when the kubelet has taken each list, until cancelled."""
    with stage.kubelet.changes() as changes:
        # No comprehension, which would give them at the end only.
        async for change in changes:
            if change.kind is ChangeKind.LISTED:
                times.append(change.at_seconds)  # noqa: PERF401


def _check_pace(trial: Trial, times: Sequence[float]) -> None:
    """Hold every stretch of time against the pace; one list more may be on its way at both ends."""
    for first, begun in enumerate(times):
        for last in range(first + BURST, len(times)):
            seconds, count = times[last] - begun, last - first + 1
            if count > BURST + 1 + PER_SECOND * seconds:
                trial.broke(f"I8: {count} lists within {seconds:.2f} s")
                return
