"""Families of any shape for properties, and what a reader of the text should find in them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

from hypothesis import strategies as st

from devplug.metrics.families import Family, Histogram, HistogramSample, Kind, Metric, Sample

Series: TypeAlias = tuple[str, tuple[tuple[str, str], ...], float]
"""The name, labels and value of one line; the value as a number that equals itself."""

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WORDS = st.sampled_from(["fan", "lane", "port", "spin", "plug", "tick"])
HELPS = st.text(st.sampled_from('ab\\"n {}=,#%'), max_size=20).map(lambda text: f"A{text}Z.")
"""What spoils a line, in help texts too."""
VALUES = st.one_of(st.integers(-(2**60), 2**60), st.floats())
RISING = st.one_of(st.integers(0, 2**60), st.floats(0, allow_infinity=False, allow_nan=False))


def comparable(value: float) -> float:
    return -0.125 if math.isnan(value) else float(value)


@st.composite
def families(draw: st.DrawFn) -> Family:
    kind = draw(st.sampled_from(Kind))
    unit = draw(st.sampled_from(["", "seconds", "bytes"]))
    labels = tuple(draw(st.lists(WORDS, unique=True, max_size=3)))
    words = ["devplug", *draw(st.lists(WORDS, min_size=1, max_size=3)), kind.value, unit]
    name = "_".join(filter(None, words)) + ("_total" if kind is Kind.COUNTER else "")
    metric = Metric(name, kind, draw(HELPS), unit, labels)
    told = draw(st.lists(st.tuples(*[TEXTS] * len(labels)), unique=True, max_size=4))
    if kind is Kind.HISTOGRAM:
        return Family(metric, [draw(histogram_samples(values)) for values in told])
    numbers = RISING if kind is Kind.COUNTER else VALUES
    return Family(metric, [Sample(values, draw(numbers)) for values in told])


@st.composite
def histogram_samples(draw: st.DrawFn, labels: tuple[str, ...]) -> HistogramSample:
    bounds = draw(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=5, unique=True).map(sorted))
    histogram = Histogram(bounds)
    for value in draw(st.lists(st.floats(0, 1e9), max_size=5)):
        histogram.observe(value)
    return histogram.sample(*labels)


def series_of(family: Family) -> Iterator[Series]:
    """All lines that a family stands for."""
    metric = family.metric
    for sample in family.samples:
        labels = tuple(sorted(zip(metric.labels, sample.labels, strict=True)))
        if isinstance(sample, Sample):
            yield metric.name, labels, comparable(sample.value)
            continue
        for bound, count in (*sample.buckets, (math.inf, sample.count)):
            yield f"{metric.name}_bucket", tuple(sorted((*labels, ("le", _go(bound))))), float(count)
        yield f"{metric.name}_sum", labels, sample.sum
        yield f"{metric.name}_count", labels, float(sample.count)


def _go(bound: float) -> str:
    return "+Inf" if math.isinf(bound) else repr(bound)
