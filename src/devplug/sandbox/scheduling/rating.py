"""What one shape of pods makes of one group of nodes, by resources alone. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from devplug.sandbox.scheduling.groups import Group
from devplug.sandbox.scheduling.scoring import (
    MOST,
    Strategy,
    balance,
    balance_gain,
    is_scalar,
    scored_requests,
    scorer_of,
)
from devplug.sandbox.scheduling.values import CPU, MEMORY, PODS

if TYPE_CHECKING:
    from devplug.sandbox.scheduling.scoring import ScoringSettings
    from devplug.sandbox.scheduling.values import Amounts, Shape

__all__ = ["NO_ROOM", "Rate", "Rating"]

NO_ROOM = -1

Rate: TypeAlias = Callable[[Group], int]
"""Returns the sum of the scores for resources and for balance, or `NO_ROOM` if there is too little left."""


@dataclass(frozen=True, slots=True)
class Rating:
    """How one shape of pods rates groups; it lives as long as its shape is of interest."""

    needs: Amounts
    """What must be left: the requests, and room for one pod."""
    weights: tuple[int, ...]
    """Of each scored resource; 0 if it does not count, because the pod does not request it."""
    added: tuple[int, ...]
    """What the pod adds of each."""
    balance_added: tuple[int, ...]
    """What the pod adds of each resource to be balanced; empty if none of any, as it is not scored then."""

    @classmethod
    def of(cls, shape: Shape, settings: ScoringSettings) -> Rating:
        """Return the rating of a shape."""
        requests, scored = dict(shape.requests), scored_requests(shape)
        balanced = tuple(requests.get(name, 0) for name in settings.balanced)
        return cls(
            (*shape.requests, (PODS, 1)),
            tuple(
                weight if name in requests or not is_scalar(name) else 0
                for name, weight in settings.resources
            ),
            tuple(scored.get(name, 0) for name, _ in settings.resources),
            balanced if any(balanced) else (),
        )

    def rate(self, settings: ScoringSettings) -> Rate:
        """Return what rates a group."""
        rate = self._any(settings)
        names = tuple(name for name, _ in settings.resources)
        if settings.strategy is Strategy.LEAST_ALLOCATED and names == settings.balanced == (CPU, MEMORY):
            return self._default(rate)
        return rate

    def _any(self, settings: ScoringSettings) -> Rate:
        needs, weights, added, balance_added = self.needs, self.weights, self.added, self.balance_added
        scorer = scorer_of(settings)
        # What the pod does not request does not count for the balance without it either.
        left_out = [
            at
            for at, (name, amount) in enumerate(zip(settings.balanced, balance_added, strict=False))
            if is_scalar(name) and not amount
        ]

        def rate(group: Group) -> int:
            free = group.free
            for name, amount in needs:
                if amount > free.get(name, 0):
                    return NO_ROOM
            total = scorer(weights, added, group.used, group.wholes)
            if not balance_added:
                return total
            used, wholes, without = group.balance_used, group.balance_wholes, group.balance
            if left_out:
                wholes = tuple(0 if at in left_out else whole for at, whole in enumerate(wholes))
                without = balance((0,) * len(used), used, wholes)
            return total + balance_gain(balance(balance_added, used, wholes), without)

        return rate

    def _default(self, otherwise: Rate) -> Rate:
        """Return the same for the default settings, written out: it is what most of the time is spent in."""
        needs, (first_weight, second_weight), (first, second) = self.needs, self.weights, self.added
        weights, is_balanced = first_weight + second_weight, bool(self.balance_added)
        first_part, second_part = self.balance_added or (0, 0)

        def rate(group: Group) -> int:
            free = group.free
            for name, amount in needs:
                if amount > free.get(name, 0):
                    return NO_ROOM
            first_whole, second_whole = group.wholes
            if not first_whole or not second_whole:
                return otherwise(group)
            first_used, second_used = group.used
            left = first_whole - first_used - first
            total = left * MOST // first_whole * first_weight if left > 0 else 0
            left = second_whole - second_used - second
            if left > 0:
                total += left * MOST // second_whole * second_weight
            total //= weights
            if not is_balanced:
                return total
            first_used, second_used = group.balance_used
            one, other = (first_used + first_part) / first_whole, (second_used + second_part) / second_whole
            if one > 1:
                one = 1.0
            if other > 1:
                other = 1.0
            return (
                total
                + MOST // 2
                + (MOST // 2 + int((1 - abs((one - other) / 2)) * MOST) - group.balance) // 2
            )

        return rate
