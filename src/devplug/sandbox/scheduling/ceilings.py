"""How good a group of nodes can be at most for a pod, without a look at both together. Pure.

Groups of about the same size that are skewed alike stand on one shelf. `ceiling` is of the group alone, and
`allowance` of the pod and the shelf; no score that a `Rating` gives is above their sum. So whoever has found
a good node need not look at groups with a low ceiling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.sandbox.scheduling.scoring import MOST, Strategy, is_scalar

if TYPE_CHECKING:
    from devplug.sandbox.scheduling.groups import Group
    from devplug.sandbox.scheduling.rating import Rating
    from devplug.sandbox.scheduling.scoring import ScoringSettings

__all__ = ["ShelfKey", "allowance", "ceiling"]

_QUARTER: Final = 0.25
"""A request counts up to this part of a node against it.

A node that has less left than is requested scores 0 and not below, so it counts as if it had as much left.
"""

_DIGITS: Final = 6
"""Sizes are told apart by so many binary digits."""

_BAND: Final = 0.5
"""Skews are told apart by so many points of balance."""

_ROUNDED: Final = 0.5
"""What the balance gains by its rounding."""


_TINY: Final = 1e-6
"""Far more than floats are wrong by."""


@dataclass(frozen=True, slots=True)
class ShelfKey:
    """What the groups of a shelf have in common."""

    sizes: tuple[int, ...]
    """The least that is of this size, of each scored resource and then of each balanced one."""
    skew: int | None
    """How unequal the parts are that are used of the two balanced resources, in bands; None if not two."""

    @classmethod
    def of(cls, settings: ScoringSettings, group: Group) -> ShelfKey:
        """Return where a group stands."""
        sizes = (*group.wholes, *group.balance_wholes)
        skew = None
        if _is_pair(settings):
            parts = [
                min(1.0, used / whole)
                for used, whole in zip(group.balance_used, group.balance_wholes, strict=True)
                if whole
            ]
            skew = math.floor(_points(parts[0], parts[1]) / _BAND) if len(parts) == 2 else 0
        return cls(tuple(_least(whole) for whole in sizes), skew)


def ceiling(settings: ScoringSettings, weights: tuple[int, ...], group: Group) -> float:
    """Return what a group can score at most for resources, by a pod for which they weigh so much."""
    total = 0.0
    count = 0
    for weight, used, whole in zip(weights, group.used, group.wholes, strict=True):
        if weight and whole:
            count += weight
            match settings.strategy:
                case Strategy.LEAST_ALLOCATED:
                    total += weight * max(1 - used / whole, _QUARTER)
                case Strategy.MOST_ALLOCATED:
                    total += weight * min(used / whole, 1)
                case Strategy.REQUESTED_TO_CAPACITY_RATIO:
                    total += weight
    return total * MOST / count if count else 0


def allowance(settings: ScoringSettings, rating: Rating, shelf: ShelfKey) -> float:
    """Return what a pod adds to, or takes from, the ceiling of every group of a shelf."""
    total = 0.0
    count = 0
    for weight, added, least in zip(rating.weights, rating.added, shelf.sizes, strict=False):
        if weight and least:
            count += weight
            match settings.strategy:
                case Strategy.LEAST_ALLOCATED:
                    total -= weight * min(added / _largest(least), _QUARTER)
                case Strategy.MOST_ALLOCATED:
                    total += weight * added / least
    return (total * MOST / count if count else 0) + _balance_at_most(rating, shelf)


def _balance_at_most(rating: Rating, shelf: ShelfKey) -> float:
    """Return the best score for balance: more than 75 if the skew gets less, and less if it gets more."""
    if not rating.balance_added:
        return 0
    if shelf.skew is None:
        return MOST
    left, right = shelf.sizes[-2:]
    if not left or not right:
        return MOST * 3 / 4
    one, other = rating.balance_added
    lowest = _points(one / _largest(left), other / right)
    highest = _points(one / left, other / _largest(right))
    begin, end = shelf.skew * _BAND, (shelf.skew + 1) * _BAND
    turns = [at for at in (0.0, -lowest, -highest) if begin < at < end]
    mended = max(_mended(at, lowest, highest) for at in (begin, end, *turns))
    # Scores are whole numbers, so what is less than one is lost. Searches count on none being below 0; the
    # bound of a pod that is far larger than the node, and gets no score, would be.
    return max(math.floor(MOST * 3 / 4 + _ROUNDED + mended / 2 + _TINY), 0)


def _mended(skew: float, lowest: float, highest: float) -> float:
    """Return how much less a skew is at most, when something between these two is added."""
    return abs(skew) - max(0.0, skew + lowest, -skew - highest)


def _points(one: float, other: float) -> float:
    return (one - other) * MOST / 2


def _is_pair(settings: ScoringSettings) -> bool:
    """Whether balance is about two resources that count for every pod."""
    return len(settings.balanced) == 2 and not any(is_scalar(name) for name in settings.balanced)


def _least(amount: int) -> int:
    dropped = max(amount.bit_length() - _DIGITS, 0)
    return amount >> dropped << dropped


def _largest(least: int) -> int:
    return least + (1 << max(least.bit_length() - _DIGITS, 0)) - 1
