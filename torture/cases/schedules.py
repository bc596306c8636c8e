"""Schedules: both ends in memory, on a loop whose every delay is drawn; what only an unlucky order shows.

`torture.schedules` says what is real in it, and what is not. One round is one schedule; its faults and all of
its delays come from the round's chance, so `--number` plays it again, and with `--log` tells its story.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from torture.catalogue import case
from torture.footprint import nothing_kept
from torture.schedules.plan import Family, drawn_plan
from torture.schedules.schedule import Player

if TYPE_CHECKING:
    from torture.catalogue import Trial

WARM_UP = 800
"""Schedules until the C library has the memory that it keeps; the number of objects stays the same from the
first on."""

GROWTH_BYTES = 4 * 1024 * 1024
INVARIANTS = "I1 I2 I3 I4 I5 I7 I8 I9 I12"


@case(
    "schedules-kubelet",
    fault="X43",
    promise="Whenever the kubelet goes or sockets vanish: registered, once, with a list that is true",
    count=28_000,
    unit="schedules",
    invariants=INVARIANTS,
    limit_seconds=900,
    brief=True,
)
async def schedules_kubelet(trial: Trial) -> None:
    """Play two to six faults of the kubelet's end and of the sockets."""
    await _played(trial, Family.KUBELET)


@case(
    "schedules-devices",
    fault="X43",
    promise="Whatever changes while pods come and go, no device is held twice, or dropped while it is held",
    count=28_000,
    unit="schedules",
    invariants=INVARIANTS,
    limit_seconds=900,
)
async def schedules_devices(trial: Trial) -> None:
    """Play pods and devices that change, among the other faults."""
    await _played(trial, Family.DEVICES)


@case(
    "schedules-owners",
    fault="X43 X12 X21",
    promise="However many processes want to serve a name, in the end one does, whoever ends whose stream",
    count=20_000,
    unit="schedules",
    invariants=INVARIANTS,
    limit_seconds=900,
)
async def schedules_owners(trial: Trial) -> None:
    """Play successors, rivals without our lock, and locks that somebody removes, among the other faults."""
    await _played(trial, Family.OWNERS)


@case(
    "schedules-mixed",
    fault="X43",
    promise="Whatever of all that comes together, in the end one plugin is registered once with what is true",
    count=24_000,
    unit="schedules",
    invariants=INVARIANTS,
    limit_seconds=900,
)
async def schedules_mixed(trial: Trial) -> None:
    """Play faults of every kind, each as often as any other."""
    await _played(trial, Family.ALL)


async def _played(trial: Trial, family: Family) -> None:
    # In a thread, as a loop cannot run inside another.
    await asyncio.to_thread(_warm_up, trial, family)
    async with nothing_kept(trial, growth_limit_bytes=GROWTH_BYTES):
        await asyncio.to_thread(_play, trial, family)


def _warm_up(trial: Trial, family: Family) -> None:
    with Player(trial.folder) as player:
        for number in range(min(WARM_UP, trial.count // 8)):
            source = random.Random(number)
            player.play(drawn_plan(source, family), source)


def _play(trial: Trial, family: Family) -> None:
    times, most_calls = [], 0
    with Player(trial.folder) as player:
        for turn in trial.rounds():
            plan = drawn_plan(turn.random, family)
            played = player.play(plan, turn.random)
            for text in played.broken:
                trial.broke(f"{text}: {plan}", turn.number)
            times.append(played.settled_seconds)
            most_calls = max(most_calls, played.most_calls)
    trial.times("quiet → truth, on the story's clock", times)
    trial.figure("most calls to one kubelet in a minute", most_calls)
