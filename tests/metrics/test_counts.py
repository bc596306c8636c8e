"""Histograms and counters between scrapes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.metrics.families import (
    ALLOCATE_BOUNDS_SECONDS,
    DISCOVERY_BOUNDS_SECONDS,
    Counts,
    Histogram,
    Sample,
)

BOUNDS = (0.5, 1.0, 2.0)


def test_a_value_that_equals_a_bound_is_in_its_bucket() -> None:
    histogram = Histogram(BOUNDS)
    for seconds in (0.0, 0.5, 0.50001, 2.0, 3.0):
        histogram.observe(seconds)
    sample = histogram.sample("a.b/c")
    assert sample.labels == ("a.b/c",)
    assert sample.buckets == ((0.5, 2), (1.0, 3), (2.0, 4))
    assert sample.count == 5


@given(st.lists(st.floats(0, 5)), st.lists(st.floats(0.001, 4), min_size=1, unique=True).map(sorted))
def test_a_bucket_holds_all_values_up_to_its_bound(values: list[float], bounds: list[float]) -> None:
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    sample = histogram.sample()
    assert sample.buckets == tuple((bound, sum(value <= bound for value in values)) for bound in bounds)
    assert sample.count == len(values)
    assert sample.sum == pytest.approx(math.fsum(values))


def test_a_sample_is_not_changed_by_what_comes_later() -> None:
    histogram = Histogram(BOUNDS)
    empty = histogram.sample()
    histogram.observe(0.1)
    assert (empty.count, empty.sum, empty.buckets) == (0, 0.0, ((0.5, 0), (1.0, 0), (2.0, 0)))


@pytest.mark.parametrize("bounds", [(), (0.0, 1.0), (2.0, 1.0), (1.0, 1.0), (1.0, math.inf), (math.nan,)])
def test_bounds_that_are_no_buckets_are_refused(bounds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="ascending order"):
        Histogram(bounds)


def test_allocates_are_measured_from_half_a_millisecond_to_ten_seconds() -> None:
    buckets = Histogram(ALLOCATE_BOUNDS_SECONDS).sample().buckets
    assert (buckets[0], buckets[-1]) == ((0.0005, 0), (10.0, 0))
    assert len(Histogram(DISCOVERY_BOUNDS_SECONDS).sample().buckets) == len(DISCOVERY_BOUNDS_SECONDS)


def test_counts_are_told_in_the_order_of_their_labels() -> None:
    counts = Counts()
    counts.add("b", "granted")
    counts.add("a", "refused")
    counts.add("b", "granted")
    assert counts.samples() == [Sample(("a", "refused"), 1), Sample(("b", "granted"), 2)]


def test_a_count_that_has_begun_is_told_as_zero_and_not_set_back() -> None:
    counts = Counts()
    counts.begin("a")
    assert counts.samples() == [Sample(("a",), 0)]
    counts.add("a")
    counts.begin("a")
    assert counts.samples() == [Sample(("a",), 1)]
