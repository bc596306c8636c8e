"""Which members make the heaviest set, where members and pairs of them have weights. Pure: only numbers.

Exact where there are few enough sets to be tried; beyond that a search with a fixed number of steps, so that
an answer depends on nothing but the question.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import comb
from operator import add, sub
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Weights", "heaviest"]

_SETS_LIMIT: Final = 13_000
"""How many sets are tried at most: all of any size among 16 members."""

_SEEDS: Final = 8
_SWAPS_LIMIT: Final = 64
"""How many sets a search beyond the limit begins with, and how often it exchanges a member of the best."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What sets weigh: the sum over their members and over the pairs of them."""

    own: Sequence[int]
    pairs: Sequence[Sequence[int]]
    """Symmetric, and 0 for a member with itself."""

    def never(self) -> int:
        """Return a weight so low that nothing makes up for it."""
        return -2 * (sum(map(abs, self.own)) + sum(sum(map(abs, row)) for row in self.pairs) + 1)


def heaviest(weights: Weights, count: int) -> list[int]:
    """Return the `count` members that weigh most together, ascending; all, if there are no more.

    Exact as long as there are at most 13,000 sets: for all counts among 16 members. Of several sets that
    weigh the same it is then the one that comes first in the order of members.
    """
    total = len(weights.own)
    if not 0 < count < total:
        return [*range(total)][: max(0, count)]
    good, weight = _bounded(weights, count)
    return _exact(weights, count, weight) if comb(total, count) <= _SETS_LIMIT else good


def _exact(weights: Weights, count: int, known: int) -> list[int]:
    """Try all sets but those that cannot weigh more than others do. One is known to weigh `known`."""
    rows = weights.pairs
    # tops[n][one]: no n others add more to one. Half of that is its part of the pairs that it is in.
    columns = [
        [0, *accumulate(sorted((*row[:index], *row[index + 1 :]), reverse=True))]
        for index, row in enumerate(rows)
    ]
    tops = [[column[others] for column in columns] for others in range(count)]
    best: list[int] = []
    most = known - 1

    def extend(members: list[int], weight: int, gains: list[int]) -> None:
        """Try the sets that begin with `members`; `gains` are what those after the last of them would add."""
        nonlocal best, most
        start, missing = len(rows) - len(gains), count - len(members)
        if missing == 1:
            gain = max(gains)
            if weight + gain > most:
                best, most = [*members, start + gains.index(gain)], weight + gain
            return
        hopes = sorted(2 * gain + top for gain, top in zip(gains, tops[missing - 1][start:], strict=True))
        if 2 * weight + sum(hopes[-missing:]) <= 2 * most:
            return
        for offset in range(len(gains) - missing + 1):
            one = start + offset
            after = [*map(add, gains[offset + 1 :], rows[one][one + 1 :])]
            extend([*members, one], weight + gains[offset], after)

    extend([], 0, [*weights.own])
    return best


def _bounded(weights: Weights, count: int) -> tuple[list[int], int]:
    """Return a heavy set and its weight: the best that grows from one of a few members, then improved."""
    total, never = len(weights.own), weights.never()
    seeds = [None, *sorted({index * total // _SEEDS for index in range(_SEEDS)})]
    grown = [_grown(weights, seed, count, never) for seed in seeds]
    return _improved(weights, *max(grown, key=lambda one: one[1]), never)


def _grown(weights: Weights, seed: int | None, count: int, never: int) -> tuple[list[int], int]:
    """Return a set that begins with `seed` and takes what adds most, again and again; and its weight."""
    gains, weight = [*weights.own], 0
    members: list[int] = []
    while len(members) < count:
        one = gains.index(max(gains)) if seed is None or members else seed
        members.append(one)
        weight += gains[one]
        gains = [*map(add, gains, weights.pairs[one])]
        gains[one] = never
    return members, weight


def _improved(weights: Weights, members: list[int], weight: int, never: int) -> tuple[list[int], int]:
    """Exchange one member for another while that makes the set heavier, the best exchange each time."""
    rows = weights.pairs
    gains = [*map(sum, zip(weights.own, *(rows[one] for one in members), strict=True))]
    members = sorted(members)
    for _ in range(_SWAPS_LIMIT):
        outside = [*gains]
        for one in members:
            outside[one] = never
        most, gone, come = 0, -1, -1
        for one in members:
            instead = [*map(sub, outside, rows[one])]
            best = max(instead)
            if best - gains[one] > most:
                most, gone, come = best - gains[one], one, instead.index(best)
        if not most:
            break
        members = sorted((*(one for one in members if one != gone), come))
        weight += most
        gains = [gain - less + more for gain, less, more in zip(gains, rows[gone], rows[come], strict=True)]
    return members, weight
