"""The best node for one shape of pods, found again and again while the nodes change. Pure.

What was rated once stays rated, as the state of a group never changes; and what cannot be better than the
best is not rated before the better ones are gone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import InitVar, dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from devplug.sandbox.scheduling.ceilings import allowance
from devplug.sandbox.scheduling.filtering import static_refusal
from devplug.sandbox.scheduling.matching import preferred_weight, unwanted_taints
from devplug.sandbox.scheduling.rating import NO_ROOM
from devplug.sandbox.scheduling.scoring import normalised_affinity, normalised_taints
from devplug.sandbox.scheduling.shelves import PART_BITS, in_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.sandbox.scheduling.groups import Family, Group
    from devplug.sandbox.scheduling.rating import Rate, Rating
    from devplug.sandbox.scheduling.shelves import Line, Shelves
    from devplug.sandbox.scheduling.values import Node, Shape

__all__ = ["Search", "Tier", "best_of", "tier_of"]


@dataclass(frozen=True, slots=True)
class Tier:
    """What nodes have in common whose other scores differ by resources alone."""

    taints: int
    """How many unwanted taints they have."""
    weight: int
    """How much of the pod's preferences they meet."""


def tier_of(shape: Shape, node: Node) -> Tier | None:
    """Return a node's tier, or None if the pod cannot go there, resources aside."""
    if static_refusal(shape, node) is not None:
        return None
    return Tier(unwanted_taints(shape, node.taints), preferred_weight(shape, node))


def best_of(found: Iterable[tuple[Tier, int, str]]) -> str | None:
    """Return the rank of the best node, given tier, score for resources and rank of each that fits.

    Only one of each tier need be there, its best, as the tiers alone decide what scores are normalised by.
    """
    ready = list(found)
    most_taints = max((tier.taints for tier, _, _ in ready), default=0)
    most_weight = max((tier.weight for tier, _, _ in ready), default=0)
    return min(
        (
            (
                -score
                - normalised_taints(tier.taints, most_taints)
                - normalised_affinity(tier.weight, most_weight),
                rank,
            )
            for tier, score, rank in ready
        ),
        default=(0, None),
    )[1]


_RANK: Final = attrgetter("rank")


@dataclass(slots=True)
class _Ranking:
    """The groups of one tier, the best first; some have changed since, and are put right on top."""

    score: int = NO_ROOM
    """The best score, if there is any."""
    best: list[tuple[str, int, Group]] = field(default_factory=list)
    """A heap of the groups that have it, by rank and number."""
    rated: defaultdict[int, list[Group]] = field(default_factory=lambda: defaultdict(list))
    """All others that fit, by score."""
    unrated: defaultdict[int, list[Group]] = field(default_factory=lambda: defaultdict(list))
    """What was not worth a look yet, by the best score that it can have."""

    def top(self, rate: Rate) -> tuple[int, str] | None:
        """Return the best score and the rank of the node that has it, or None if there is no room."""
        while True:
            self._put_right()
            most = max(self.unrated, default=NO_ROOM)
            if not self.best and most == NO_ROOM:
                return None
            if most < self.score or (most == self.score and self.best and not self._beaten(most, rate)):
                return self.score, self.best[0][0]
            if most > self.score:
                self._rate(most, self.unrated.pop(most), rate)

    def _beaten(self, most: int, rate: Rate) -> bool:
        """Rate who may be as good as the best and would go before it; return whether one does."""
        limit = self.best[0][0]
        before = [group for group in self.unrated[most] if group.rank < limit]
        if not before:
            return False
        self.unrated[most] = [group for group in self.unrated[most] if group.rank >= limit]
        self._rate(most, before, rate)
        return True

    def _rate(self, most: int, groups: list[Group], rate: Rate) -> None:
        """Rate groups by rank until one has this score, which none is above; put the rest aside again."""
        groups = sorted((group for group in groups if group.rank), key=_RANK)
        for count, group in enumerate(groups, 1):
            score = rate(group)
            if score != NO_ROOM:
                self._take(group, score)
            if score == most:
                self.unrated[most] += groups[count:]
                return

    def _take(self, group: Group, score: int) -> None:
        """Put a rated group in its place."""
        if score > self.score:
            if self.best:
                self.rated[self.score] = [one for _, _, one in self.best]
            self.score, self.best = score, [(group.rank, group.number, group)]
        elif score == self.score:
            heappush(self.best, (group.rank, group.number, group))
        else:
            self.rated[score].append(group)

    def _put_right(self) -> None:
        """See to it that the first group has the best score, and has the node that it is there for."""
        while True:
            heap = self.best
            while heap:
                rank, number, group = heap[0]
                if group.rank == rank:
                    return
                if group.rank:
                    heapreplace(heap, (group.rank, number, group))
                else:
                    heappop(heap)
            if not self.rated:
                self.score = NO_ROOM
                return
            self.score = max(self.rated)
            self.best = [(one.rank, one.number, one) for one in self.rated.pop(self.score) if one.rank]
            heapify(self.best)


@dataclass(slots=True)
class Search:
    """What is known of one shape; it lives until the nodes are grouped anew."""

    shape: Shape
    rating: Rating
    rate: Rate
    shelves: Shelves
    groups: InitVar[Iterable[Group]]
    """All that there are when the search begins."""
    _rankings: dict[Tier, _Ranking] = field(default_factory=dict)
    _unrated_of: list[defaultdict[int, list[Group]] | None] = field(default_factory=list)
    """By number of family, where its ranking takes in what is new; None if the pod may not be in it."""
    _allowances: list[int] = field(default_factory=list)
    """By number of shelf, in parts of a point."""
    _first_lines: list[Line] = field(default_factory=list)
    _lines: int = 0

    def __post_init__(self, groups: Iterable[Group]) -> None:
        self._first_lines = self.shelves.lines_of(groups)
        self._lines = len(self.shelves.lines)

    def best(self, families: Sequence[Family]) -> str | None:
        """Return the rank of the best node, or None; families may be added at the end between calls."""
        for family in islice(families, len(self._unrated_of), None):
            tier = tier_of(self.shape, family.node)
            self._unrated_of.append(self._rankings.setdefault(tier, _Ranking()).unrated if tier else None)
        for key in islice(self.shelves.keys, len(self._allowances), None):
            self._allowances.append(in_parts(allowance(self.shelves.settings, self.rating, key)))
        self._put_aside(self._first_lines)
        self._put_aside(self.shelves.lines[self._lines :])
        self._first_lines, self._lines = [], len(self.shelves.lines)
        tops = ((tier, ranking.top(self.rate)) for tier, ranking in self._rankings.items())
        return best_of((tier, *top) for tier, top in tops if top)

    def _put_aside(self, lines: Iterable[Line]) -> None:
        """Take in what happened, by how good it may be; a look at each group would cost too much."""
        unrated_of, allowances = self._unrated_of, self._allowances
        for group, family, most, shelf in lines:
            unrated = unrated_of[family]
            if unrated is not None:
                unrated[(most + allowances[shelf]) >> PART_BITS].append(group)
