"""Metric families: metrics and what was measured of them, as values. Pure.

Nothing here knows a metric of ours; `naming_problems` has the rules for their names. Counters and histograms
gather numbers between two scrapes; they are made for Allocate's path, so without locks, for one event loop.
"""

from __future__ import annotations

import enum
import math
import re
from bisect import bisect_left
from collections import Counter
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# ── families ──

PREFIX: Final = "devplug_"
"""What each name begins with: the component, as Kubernetes asks for."""

_NAME: Final = r"[a-z][a-z0-9]*(_[a-z0-9]+)*"
_RESERVED_LABELS: Final = frozenset({"le", "quantile", "job", "instance"})
"""Labels that a histogram, a summary or the scraping Prometheus itself sets."""
_SAMPLE_SUFFIXES: Final = ("_total", "_count", "_sum", "_bucket", "_created")
"""How the samples of counters and histograms end; as the end of another metric they would be mistaken."""
_UNITS: Final = ("seconds", "bytes", "ratio")
"""Base units only; never milliseconds or percents."""


class Kind(enum.Enum):
    """What a metric's numbers mean; the value is the word in the text."""

    GAUGE = "gauge"
    """May rise and fall. Facts in labels are gauges too, named `_info` and always 1."""
    COUNTER = "counter"
    """Only rises, from 0 at the start of the process."""
    HISTOGRAM = "histogram"
    """How often values were at most each bound."""


class Stability(enum.Enum):
    """What a user may rely on, in Kubernetes' words (KEP-1209)."""

    ALPHA = "alpha"
    """May change or go in any release."""
    BETA = "beta"
    """Keeps its labels, perhaps gets more."""
    STABLE = "stable"
    """Keeps its name, kind and labels."""


class Metric(Struct, frozen=True):
    """One metric: its name, meaning and labels. A constant of the program."""

    name: str
    """As queries say it: a counter's with `_total`."""
    kind: Kind
    help: str
    """One line that ends with a full stop."""
    unit: str = ""
    """A base unit, which is also how the name ends (before `_total`)."""
    labels: tuple[str, ...] = ()
    """Names; samples give the values in this order."""
    stability: Stability = Stability.ALPHA

    @property
    def family_name(self) -> str:
        """The name in OpenMetrics' metadata lines: a counter's without `_total`."""
        return self.name.removesuffix("_total") if self.kind is Kind.COUNTER else self.name


def naming_problems(metric: Metric) -> Iterator[str]:
    """Yield what the rules for devplug's own metrics forbid in one, as what to change."""
    bare = metric.name.removeprefix(PREFIX)
    if bare == metric.name or not re.fullmatch(_NAME, bare):
        yield f"begin with {PREFIX} and go on with words of a-z and 0-9, joined by one _ each"
    if metric.kind is Kind.COUNTER and not metric.name.endswith("_total"):
        yield "end a counter's name with _total"
    if metric.family_name.endswith(_SAMPLE_SUFFIXES):
        yield f"do not end it with any of {' '.join(_SAMPLE_SUFFIXES)}: samples of other kinds end so"
    if metric.name.endswith("_info") and metric.kind is not Kind.GAUGE:
        yield "make a metric named _info a gauge"
    if metric.unit and metric.unit not in _UNITS:
        yield f"use one of the base units {', '.join(_UNITS)}, not {metric.unit!r}"
    named_unit = metric.family_name.rpartition("_")[2]
    if metric.unit and metric.unit != named_unit:
        yield f"end the name with its unit, _{metric.unit}"
    if not metric.unit and named_unit in _UNITS:
        yield f"say that its unit is {named_unit}"
    if not metric.help.endswith(".") or metric.help != metric.help.strip() or "\n" in metric.help:
        yield "let the help be one line that ends with a full stop"
    yield from (
        f"rename the label {label!r}: it is malformed, reserved or there twice"
        for label, count in Counter(metric.labels).items()
        if not re.fullmatch(_NAME, label) or label in _RESERVED_LABELS or count > 1
    )


class Sample(NamedTuple):
    """One number of a gauge or counter. A NamedTuple, because a scrape makes tens of thousands of them."""

    labels: tuple[str, ...]
    """Values for `Metric.labels`, in its order."""
    value: float


class HistogramSample(Struct, frozen=True):
    """What one histogram counted since the process began."""

    labels: tuple[str, ...]
    buckets: tuple[tuple[float, int], ...]
    """Bounds, ascending and finite, each with how many values were at most that. Infinity is `count`."""
    sum: float
    count: int


class Family(Struct, frozen=True):
    """A metric and what was measured of it, at one moment. Lives for one scrape.

    Raises ValueError for samples that no reader would take: of another kind, with too few or too many
    labels, or two with the same ones. One of those would cost the whole scrape.
    """

    metric: Metric
    samples: Sequence[Sample] | Sequence[HistogramSample]

    def __post_init__(self) -> None:
        name, labels = self.metric.name, self.metric.labels
        wanted = HistogramSample if self.metric.kind is Kind.HISTOGRAM else Sample
        if not {type(sample) for sample in self.samples} <= {wanted}:
            raise ValueError(f"{name}: make each sample of a {self.metric.kind.value} a {wanted.__name__}")
        labelled = [sample.labels for sample in self.samples]
        if not set(map(len, labelled)) <= {len(labels)}:
            raise ValueError(f"{name}: give each sample a value for each of its labels ({', '.join(labels)})")
        if len(set(labelled)) != len(labelled):
            twice = next(values for values, count in Counter(labelled).items() if count > 1)
            raise ValueError(f"{name}: there are two samples for {dict(zip(labels, twice, strict=True))}")


# ── counters and histograms ──

ALLOCATE_BOUNDS_SECONDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""From what a plugin without code of its own takes to what a pod's start visibly waits for."""

PREPARE_BOUNDS_SECONDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 45.0),
)
"""From a claim that is prepared already to the time at which the kubelet gives a call up."""

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
    """A counter for each tuple of label values. Lives as long as what it counts.

    A query over a rate only sees a counter that was there before it rose, so those that can be foreseen are
    `begun`, each by its one label value, or `begin` later.
    """

    __slots__ = ("_counts",)

    def __init__(self, *begun: str) -> None:
        self._counts: dict[tuple[str, ...], int] = {(label,): 0 for label in begun}

    def begin(self, *labels: str) -> None:
        """Include these label values from now on, as 0 until they are counted."""
        self._counts.setdefault(labels, 0)

    def add(self, *labels: str, times: int = 1) -> None:
        """Count one more of these, or several."""
        self._counts[labels] = self._counts.get(labels, 0) + times

    def samples(self) -> list[Sample]:
        """Return what was counted so far, in the labels' order."""
        return [Sample(labels, count) for labels, count in sorted(self._counts.items())]
