"""The search for the best node for one shape of pods, again and again while the nodes change. Pure.

What was rated once stays rated, as the state of a group never changes; and what cannot be better than the
best is not rated before the better ones are gone.

Groups of about the same size that are skewed alike stand in one bucket. `ceiling` is of the group alone, and
`allowance` of the pod and the bucket; no score that a `Rating` gives is above their sum. So whoever has found
a good node need not look at groups with a low ceiling. The buckets hold the list of all that happens to
groups, from which every search learns what is new.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import InitVar, dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from devplug.sandbox.scheduler.filters import preferred_weight, static_refusal, unwanted_taints
from devplug.sandbox.scheduler.groups import NO_ROOM
from devplug.sandbox.scheduler.scores import MOST, Strategy, is_scalar, normalised_affinity, normalised_taints

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.sandbox.scheduler.groups import Family, NodeGroup, Rate, Rating
    from devplug.sandbox.scheduler.scores import ScoringSettings
    from devplug.sandbox.scheduler.types import Node, Shape

_QUARTER: Final = 0.25
"""A request counts up to this part of a node against it.

A node that has less left than is requested scores 0 and not below, so it counts as if it had as much left.
"""

_DIGITS: Final = 6
"""The precision of sizes, in binary digits."""

_BAND: Final = 0.5
"""The precision of skews, in points of balance."""

_ROUNDED: Final = 0.5
"""The most that rounding adds to the balance."""

_TINY: Final = 1e-6
"""Far more than the error of floats."""

PART_BITS: Final = 16
"""Ceilings are whole numbers of parts of a point: 2 to the power of so many make one."""

_ROUNDING: Final = 1e-6
"""Far more points than the error of floats."""


# ── Ceilings: how good a group can be at most ──


@dataclass(frozen=True, slots=True)
class BucketKey:
    """The key of a bucket: the values that its groups have in common."""

    sizes: tuple[int, ...]
    """The least that is of this size, of each scored resource and then of each balanced one."""
    skew: int | None
    """How unequal the parts are that are used of the two balanced resources, in bands; None if not two."""

    @classmethod
    def of(cls, settings: ScoringSettings, group: NodeGroup) -> BucketKey:
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


def ceiling(settings: ScoringSettings, weights: tuple[int, ...], group: NodeGroup) -> float:
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


def allowance(settings: ScoringSettings, rating: Rating, bucket: BucketKey) -> float:
    """Return what a pod adds to, or takes from, the ceiling of every group of a bucket."""
    total = 0.0
    count = 0
    for weight, added, least in zip(rating.weights, rating.added, bucket.sizes, strict=False):
        if weight and least:
            count += weight
            match settings.strategy:
                case Strategy.LEAST_ALLOCATED:
                    total -= weight * min(added / _largest(least), _QUARTER)
                case Strategy.MOST_ALLOCATED:
                    total += weight * added / least
    return (total * MOST / count if count else 0) + _balance_at_most(rating, bucket)


def _balance_at_most(rating: Rating, bucket: BucketKey) -> float:
    """Return the best score for balance: more than 75 if the skew gets less, and less if it gets more."""
    if not rating.balance_added:
        return 0
    if bucket.skew is None:
        return MOST
    left, right = bucket.sizes[-2:]
    if not left or not right:
        return MOST * 3 / 4
    one, other = rating.balance_added
    lowest = _points(one / _largest(left), other / right)
    highest = _points(one / left, other / _largest(right))
    begin, end = bucket.skew * _BAND, (bucket.skew + 1) * _BAND
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


# ── Buckets ──


Line: TypeAlias = "tuple[NodeGroup, int, int, int]"
"""A group that came, or whose first node is another; the numbers of its family, of the parts of its ceiling
and of its bucket."""


def _in_parts(points: float) -> int:
    """Return so many points as parts, and rather more than fewer."""
    return math.ceil((points + _ROUNDING) * (1 << PART_BITS))


@dataclass(slots=True)
class Buckets:
    """All groups for pods to whom scored resources weigh the same; it lives until nodes are grouped anew."""

    settings: ScoringSettings
    weights: tuple[int, ...]
    keys: list[BucketKey] = field(default_factory=list)
    """What groups with one bucket number have in common; only ever longer, as is the list of lines."""
    lines: list[Line] = field(default_factory=list)
    _numbers: dict[BucketKey, int] = field(default_factory=dict)
    _line_of: dict[int, Line] = field(default_factory=dict)
    """By number of the group, which has the same line each time."""

    def enter(self, group: NodeGroup) -> None:
        """Add a line, for every search to read."""
        self.lines.append(self._line(group))

    def lines_of(self, groups: Iterable[NodeGroup]) -> list[Line]:
        """Return a line for each group: what a search reads that begins now."""
        known = self._line_of.get
        return [known(one.number) or self._line(one) for one in groups]

    def _line(self, group: NodeGroup) -> Line:
        line = self._line_of.get(group.number)
        if line is None:
            line = self._line_of[group.number] = self._new_line(group)
        return line

    def _new_line(self, group: NodeGroup) -> Line:
        key = BucketKey.of(self.settings, group)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.keys)
            self.keys.append(key)
        most = _in_parts(ceiling(self.settings, self.weights, group))
        return group, group.family.number, most, number


# ── The search ──


class Tier(NamedTuple):
    """A tier of nodes, whose scores differ by resources alone."""

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


def ordered(found: Sequence[tuple[Tier, int, Node]]) -> list[tuple[int, Node]]:
    """Return nodes with their scores, the best first; given are tier and score for resources, by rank."""
    tiers = {tier for tier, _, _ in found}
    most_taints = max((one.taints for one in tiers), default=0)
    most_weight = max((one.weight for one in tiers), default=0)
    worth = {
        one: normalised_taints(one.taints, most_taints) + normalised_affinity(one.weight, most_weight)
        for one in tiers
    }
    ranked = [(score + worth[tier], node) for tier, score, node in found]
    ranked.sort(key=_SCORE, reverse=True)  # and keeps the order of the ranks
    return ranked


_SCORE: Final = itemgetter(0)
_RANK: Final = attrgetter("rank")


@dataclass(slots=True)
class _Ranking:
    """The groups of one tier, the best first; some have changed since, and are put right on top."""

    score: int = NO_ROOM
    """The best score, if there is any."""
    best: list[tuple[str, int, NodeGroup]] = field(default_factory=list)
    """A heap of the groups that have it, by rank and number."""
    rated: defaultdict[int, list[NodeGroup]] = field(default_factory=lambda: defaultdict(list))
    """All others that fit, by score."""
    unrated: defaultdict[int, list[NodeGroup]] = field(default_factory=lambda: defaultdict(list))
    """Groups that were not rated yet, by the best score that they can have."""

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
        """Rate groups that may tie with the best and have a lower rank; return whether one does."""
        limit = self.best[0][0]
        before = [group for group in self.unrated[most] if group.rank < limit]
        if not before:
            return False
        self.unrated[most] = [group for group in self.unrated[most] if group.rank >= limit]
        self._rate(most, before, rate)
        return True

    def _rate(self, most: int, groups: list[NodeGroup], rate: Rate) -> None:
        """Rate groups by rank until one has this score, which none is above; put the rest aside again."""
        groups = sorted((group for group in groups if group.rank), key=_RANK)
        for count, group in enumerate(groups, 1):
            score = rate(group)
            if score != NO_ROOM:
                self._take(group, score)
            if score == most:
                self.unrated[most] += groups[count:]
                return

    def _take(self, group: NodeGroup, score: int) -> None:
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
    """The search state of one shape; it lives until the nodes are grouped anew."""

    shape: Shape
    rating: Rating
    rate: Rate
    buckets: Buckets
    groups: InitVar[Iterable[NodeGroup]]
    """All that there are when the search begins."""
    _rankings: dict[Tier, _Ranking] = field(default_factory=dict)
    _unrated_of: list[defaultdict[int, list[NodeGroup]] | None] = field(default_factory=list)
    """By number of family, where its ranking takes in what is new; None if the pod may not be in it."""
    _allowances: list[int] = field(default_factory=list)
    """By number of bucket, in parts of a point."""
    _first_lines: list[Line] = field(default_factory=list)
    _lines: int = 0

    def __post_init__(self, groups: Iterable[NodeGroup]) -> None:
        self._first_lines = self.buckets.lines_of(groups)
        self._lines = len(self.buckets.lines)

    def best(self, families: Sequence[Family]) -> str | None:
        """Return the rank of the best node, or None; families may be added at the end between calls."""
        for family in islice(families, len(self._unrated_of), None):
            tier = tier_of(self.shape, family.node)
            self._unrated_of.append(self._rankings.setdefault(tier, _Ranking()).unrated if tier else None)
        for key in islice(self.buckets.keys, len(self._allowances), None):
            self._allowances.append(_in_parts(allowance(self.buckets.settings, self.rating, key)))
        self._put_aside(self._first_lines)
        self._put_aside(self.buckets.lines[self._lines :])
        self._first_lines, self._lines = [], len(self.buckets.lines)
        tops = ((tier, ranking.top(self.rate)) for tier, ranking in self._rankings.items())
        return best_of((tier, *top) for tier, top in tops if top)

    def _put_aside(self, lines: Iterable[Line]) -> None:
        """Take in changed groups by their ceilings; rating each of them would cost too much."""
        unrated_of, allowances = self._unrated_of, self._allowances
        for group, family, most, bucket in lines:
            unrated = unrated_of[family]
            if unrated is not None:
                unrated[(most + allowances[bucket]) >> PART_BITS].append(group)
