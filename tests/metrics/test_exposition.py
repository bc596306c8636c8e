"""The text of a scrape: prometheus_client and promtool read in it what was measured."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric as ReadMetric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from devplug.metrics.catalogue import REGISTRATIONS, START_TIME
from devplug.metrics.exposition import Form, exposition
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
        labels = tuple(sorted(zip(metric.labels, map(_shown, sample.labels), strict=True)))
        if isinstance(sample, Sample):
            yield metric.name, labels, comparable(sample.value)
            continue
        for bound, count in (*sample.buckets, (math.inf, sample.count)):
            yield f"{metric.name}_bucket", tuple(sorted((*labels, ("le", _go(bound))))), float(count)
        yield f"{metric.name}_sum", labels, sample.sum
        yield f"{metric.name}_count", labels, float(sample.count)


def _shown(value: str) -> str:
    """How a terminal can show a label value."""
    return "".join(one if one == "\n" or one.isprintable() else _code(ord(one)) for one in value)


def _code(number: int) -> str:
    return (
        f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 2**16 else f"\\U{number:08x}"
    )


def _go(bound: float) -> str:
    return "+Inf" if math.isinf(bound) else repr(bound)


TEMPERATURE = Metric("devplug_heat", Kind.GAUGE, "How warm.", labels=("device",))
WAIT = Metric("devplug_wait_seconds", Kind.HISTOGRAM, "How long.", "seconds", ("resource",))


def read(form: Form, text: bytes) -> list[ReadMetric]:
    reader = read_open_metrics if form is Form.OPEN_METRICS else read_text
    return list(reader(text.decode()))


def series_read(metrics: list[ReadMetric]) -> Iterator[Series]:
    for metric in metrics:
        for sample in metric.samples:
            yield sample.name, tuple(sorted(sample.labels.items())), comparable(sample.value)


def distinct(drawn: list[Family]) -> list[Family]:
    """Families whose names are not the start of each other's: a reader could not tell those apart."""
    return list({family.metric.family_name: family for family in drawn}.values())


@pytest.mark.parametrize("form", Form)
@given(drawn=st.lists(families(), max_size=4))
def test_each_form_is_read_as_what_was_measured(form: Form, drawn: list[Family]) -> None:
    measured = [family for family in distinct(drawn) if family.samples]
    seen = read(form, exposition(measured, form))
    expected = sorted(itertools.chain.from_iterable(map(series_of, measured)))
    assert sorted(series_read(seen)) == expected
    kinds = {family.metric.family_name: family.metric.kind.value for family in measured}
    assert {metric.name: metric.type for metric in seen} == kinds


@given(families())
def test_open_metrics_tells_the_unit_and_the_help_unharmed(family: Family) -> None:
    for metric in read(Form.OPEN_METRICS, exposition([family], Form.OPEN_METRICS)):
        assert metric.unit == family.metric.unit
        assert metric.documentation == f"[ALPHA] {family.metric.help}"


def test_a_scrape_as_text() -> None:
    told = [
        Family(WAIT, [HistogramSample(("a.b/c",), ((0.5, 1), (1.0, 3)), 2.75, 4)]),
        Family(REGISTRATIONS, [Sample(("a.b/c", "accepted"), 3)]),
        Family(START_TIME, [Sample((), 1_700_000_000.25)]),
    ]
    assert (
        exposition(told, Form.TEXT).decode()
        == """\
# HELP devplug_registrations_total [ALPHA] Attempts to register; result is accepted, refused or unreachable. \
Many mean that kubelets restart.
# TYPE devplug_registrations_total counter
devplug_registrations_total{resource="a.b/c",result="accepted"} 3
# HELP devplug_start_time_seconds [ALPHA] When the process started, in seconds since 1970.
# TYPE devplug_start_time_seconds gauge
devplug_start_time_seconds 1700000000.25
# HELP devplug_wait_seconds [ALPHA] How long.
# TYPE devplug_wait_seconds histogram
devplug_wait_seconds_bucket{resource="a.b/c",le="0.5"} 1
devplug_wait_seconds_bucket{resource="a.b/c",le="1.0"} 3
devplug_wait_seconds_bucket{resource="a.b/c",le="+Inf"} 4
devplug_wait_seconds_sum{resource="a.b/c"} 2.75
devplug_wait_seconds_count{resource="a.b/c"} 4
"""
    )


def test_a_scrape_as_open_metrics_has_units_and_an_end() -> None:
    told = [Family(REGISTRATIONS, [Sample(("a.b/c", "refused"), 1)]), Family(START_TIME, [Sample((), 5.0)])]
    lines = exposition(told, Form.OPEN_METRICS).decode().splitlines()
    assert [line for line in lines if "HELP" not in line] == [
        "# TYPE devplug_registrations counter",
        'devplug_registrations_total{resource="a.b/c",result="refused"} 1',
        "# TYPE devplug_start_time_seconds gauge",
        "# UNIT devplug_start_time_seconds seconds",
        "devplug_start_time_seconds 5",
        "# EOF",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (True, "1"),
        (-0.0, "0"),
        (3.0, "3"),
        (2_000_000.0, "2000000"),
        (0.1, "0.1"),
        (1e-7, "1e-07"),
        (1e22, "1e+22"),
        (-5, "-5"),
        (math.nan, "NaN"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
    ],
)
def test_numbers_look_as_go_reads_them(value: float, text: str) -> None:
    told = exposition([Family(TEMPERATURE, [Sample(("x",), value)])], Form.TEXT).decode()
    assert told.splitlines()[-1] == f'devplug_heat{{device="x"}} {text}'


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("a\0b\r", r"a\x00b\x0d"),
        ("\x1b]0;x\x07\u202e", r"\x1b]0;x\x07\u202e"),
        ("a\udcffb", "a?b"),
        ('a"} 7\n# EOF', 'a"} 7\n# EOF'),
    ],
)
def test_a_foreign_device_id_cannot_spoil_the_scrape(device: str, told: str) -> None:
    for form in Form:
        (metric,) = read(form, exposition([Family(TEMPERATURE, [Sample((device,), 1)])], form))
        assert [sample.labels for sample in metric.samples] == [{"device": told}]


def test_nothing_to_tell_is_nothing_but_an_end() -> None:
    assert exposition([Family(TEMPERATURE, [])], Form.TEXT) == b""
    assert exposition([Family(TEMPERATURE, [])], Form.OPEN_METRICS) == b"# EOF\n"


def test_a_metric_of_two_processes_is_told_once() -> None:
    one, other = (Family(TEMPERATURE, [Sample((device,), 1)]) for device in "ab")
    assert exposition([one, Family(WAIT, []), other], Form.TEXT).decode().splitlines() == [
        "# HELP devplug_heat [ALPHA] How warm.",
        "# TYPE devplug_heat gauge",
        'devplug_heat{device="a"} 1',
        'devplug_heat{device="b"} 1',
    ]


def test_two_processes_cannot_tell_of_the_same_thing() -> None:
    family = Family(TEMPERATURE, [Sample(("a",), 1)])
    with pytest.raises(ValueError, match=r"devplug_heat: there are two samples for \{'device': 'a'\}"):
        exposition([family, family], Form.TEXT)


def test_two_metrics_cannot_have_one_name() -> None:
    other = Metric("devplug_heat", Kind.GAUGE, "How hot.", labels=("device",))
    with pytest.raises(ValueError, match="two different metrics are named devplug_heat"):
        exposition([Family(TEMPERATURE, []), Family(other, [])], Form.TEXT)
