"""Metrics and what was measured of them, as values that obey the naming rules. Nothing here knows a metric.

The rules are those of Kubernetes (metric-instrumentation.md in kubernetes/community), of Prometheus
(prometheus.io/docs/practices/naming) and of OpenMetrics 1.0 (prometheus.io/docs/specs/om/open_metrics_spec).
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["PREFIX", "Family", "HistogramSample", "Kind", "Metric", "Sample", "Stability"]

PREFIX: Final = "devplug_"
"""What each name begins with: the component, as Kubernetes asks for."""

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_RESERVED_LABELS: Final = frozenset({"le", "quantile", "job", "instance"})
"""Labels that a histogram, a summary or the scraping Prometheus itself sets."""
_SAMPLE_SUFFIXES: Final = ("_total", "_count", "_sum", "_bucket", "_created")
"""How the samples of counters and histograms end; as the end of another metric they would be mistaken."""
_UNITS: Final = ("seconds", "bytes", "ratio")
"""Base units only; milliseconds or percents are never told."""


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


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name, meaning and labels. A constant of the program; ValueError for a bad one."""

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

    def __post_init__(self) -> None:
        faults = "; ".join(self._faults())
        if faults:
            raise ValueError(f"metric {self.name!r}: {faults}")

    @property
    def family_name(self) -> str:
        """The name in OpenMetrics' metadata lines: a counter's without `_total`."""
        return self.name.removesuffix("_total") if self.kind is Kind.COUNTER else self.name

    def _faults(self) -> Iterator[str]:
        bare = self.name.removeprefix(PREFIX)
        if bare == self.name or not _NAME.fullmatch(bare):
            yield f"begin with {PREFIX} and go on with words of a-z and 0-9, joined by one _ each"
        yield from self._faults_of_the_end()
        if not self.help.endswith(".") or self.help != self.help.strip() or "\n" in self.help:
            yield "let the help be one line that ends with a full stop"
        for label, count in Counter(self.labels).items():
            if not _NAME.fullmatch(label) or label in _RESERVED_LABELS or count > 1:
                yield f"rename the label {label!r}: it is malformed, reserved or there twice"

    def _faults_of_the_end(self) -> Iterator[str]:
        if self.kind is Kind.COUNTER and not self.name.endswith("_total"):
            yield "end a counter's name with _total"
        if self.family_name.endswith(_SAMPLE_SUFFIXES):
            yield f"do not end it with any of {' '.join(_SAMPLE_SUFFIXES)}: samples of other kinds end so"
        if self.name.endswith("_info") and self.kind is not Kind.GAUGE:
            yield "make a metric named _info a gauge"
        if self.unit and self.unit not in _UNITS:
            yield f"use one of the base units {', '.join(_UNITS)}, not {self.unit!r}"
        named_unit = self.family_name.rpartition("_")[2]
        if self.unit and self.unit != named_unit:
            yield f"end the name with its unit, _{self.unit}"
        if not self.unit and named_unit in _UNITS:
            yield f"say that its unit is {named_unit}"


class Sample(NamedTuple):
    """One number of a gauge or counter. A NamedTuple, because a scrape makes tens of thousands of them."""

    labels: tuple[str, ...]
    """Values for `Metric.labels`, in its order."""
    value: float


@dataclass(frozen=True, slots=True)
class HistogramSample:
    """What one histogram counted since the process began."""

    labels: tuple[str, ...]
    buckets: tuple[tuple[float, int], ...]
    """Bounds, ascending and finite, each with how many values were at most that. Infinity is `count`."""
    sum: float
    count: int


@dataclass(frozen=True, slots=True)
class Family:
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
        told = [sample.labels for sample in self.samples]
        if not set(map(len, told)) <= {len(labels)}:
            raise ValueError(f"{name}: give each sample a value for each of its labels ({', '.join(labels)})")
        if len(set(told)) != len(told):
            twice = next(values for values, count in Counter(told).items() if count > 1)
            raise ValueError(f"{name}: there are two samples for {dict(zip(labels, twice, strict=True))}")
