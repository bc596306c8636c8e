"""What gathers numbers between scrapes: made for Allocate's path, so without locks, for one event loop."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

from devplug.metrics.families import HistogramSample, Sample

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ALLOCATE_BOUNDS_SECONDS", "DISCOVERY_BOUNDS_SECONDS", "Counts", "Histogram"]

ALLOCATE_BOUNDS_SECONDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""From what a plugin without code of its own takes to what a pod's start visibly waits for."""

DISCOVERY_BOUNDS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""From a look at one folder to a machine with thousands of devices."""


class Histogram:
    """Counts values by size. Lives as long as what it measures; starts empty.

    `bounds` are the buckets' upper bounds: finite, above zero, ascending; ValueError otherwise.
    """

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(map(float, bounds))
        is_ascending = all(low < high for low, high in pairwise((0.0, *self._bounds, math.inf)))
        if not self._bounds or not is_ascending:
            raise ValueError(f"give finite bounds above zero, in ascending order, not {self._bounds}")
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one value; one that equals a bound is in that bound's bucket."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def sample(self, *labels: str) -> HistogramSample:
        """Return what was counted so far, under these label values."""
        *cumulative, count = accumulate(self._counts)
        buckets = tuple(zip(self._bounds, cumulative, strict=True))
        return HistogramSample(labels, buckets, self._sum, count)


class Counts:
    """A counter for each tuple of label values. Lives as long as what it counts; starts without any.

    A query over a rate only sees a counter that was there before it rose, so `begin` those that can be
    foreseen.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], int] = {}

    def begin(self, *labels: str) -> None:
        """Tell these from now on, as 0 until they are counted."""
        self._counts.setdefault(labels, 0)

    def add(self, *labels: str, times: int = 1) -> None:
        """Count one more of these, or several."""
        self._counts[labels] = self._counts.get(labels, 0) + times

    def samples(self) -> list[Sample]:
        """Return what was counted so far, in the labels' order."""
        return [Sample(labels, count) for labels, count in sorted(self._counts.items())]
