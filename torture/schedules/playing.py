"""One schedule, from its seed to what did not hold: faults, then quiet, then the questions."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torture.schedules.chance import Chance
from torture.schedules.judging import judge_quiet, judge_remains, settled_seconds
from torture.schedules.loop import VirtualLoop
from torture.schedules.world import World

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from torture.schedules.plans import Plan

__all__ = ["Played", "Player"]


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
