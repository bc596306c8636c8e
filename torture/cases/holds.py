"""Holds: whatever happens to a node in whatever order, no hardware is in two containers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.ownership.history import VERBS, play_history
from torture.catalogue import case
from torture.hardware import may_make_nodes

if TYPE_CHECKING:
    from torture.catalogue import Trial

STEPS = 30
"""The most steps of one history."""

LARGEST_NUMBER = 20
"""The largest number by which a step chooses among what is there."""


@case(
    "holds-in-any-order",
    fault="X22",
    promise="Sticks are plugged, moved and renumbered, twins among them, links are led elsewhere, files are "
    "edited and lost, daemons and kubelets restart, pods come and go: no stick is in two containers, none is "
    "left out, and each is cleaned once after its use",
    count=200,
    unit="histories",
    invariants="I1 I2 I9 I12 I14",
    limit_seconds=900,
)
async def holds_in_any_order(trial: Trial) -> None:
    """Play histories of a node with one daemon, or with two."""
    if not may_make_nodes(trial):
        return
    verbs = [verb for verb, weight in VERBS.items() for _ in range(weight)]
    for turn in trial.rounds():
        chance = turn.random
        history = [
            (chance.choice(verbs), chance.randint(0, LARGEST_NUMBER), chance.randint(0, LARGEST_NUMBER))
            for _ in range(chance.randint(1, STEPS))
        ]
        is_cleaning, is_alone = chance.random() < 0.5, chance.random() < 0.7
        try:
            # A thread, because each history has a loop of its own, on virtual time.
            await asyncio.to_thread(play_history, history, is_cleaning=is_cleaning, is_alone=is_alone)
        except AssertionError as error:
            trial.broke(f"I1: {error} after {history}", turn.number)
