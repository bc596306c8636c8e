"""Metrics whose names a reader would stumble over are told so, and families cannot be made."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from devplug.metrics.families import Family, HistogramSample, Kind, Metric, Sample, naming_problems

GOOD = Metric("devplug_lamps", Kind.GAUGE, "Lamps that burn.", labels=("room", "colour"))
WAIT = Metric("devplug_wait_seconds", Kind.HISTOGRAM, "How long.", "seconds")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"name": "lamps"}, "begin with devplug_"),
        ({"name": "devplug_"}, "begin with devplug_"),
        ({"name": "devplug_Lamps"}, "words of a-z"),
        ({"name": "devplug_lamps:rate"}, "words of a-z"),
        ({"name": "devplug_lamps__lit"}, "joined by one _"),
        ({"name": "devplug_lamps_"}, "joined by one _"),
        ({"kind": Kind.COUNTER}, "end a counter's name with _total"),
        ({"name": "devplug_lamps_total"}, "samples of other kinds end so"),
        ({"name": "devplug_lamps_count"}, "samples of other kinds end so"),
        ({"name": "devplug_lamps_bucket_total", "kind": Kind.COUNTER}, "samples of other kinds end so"),
        ({"unit": "seconds"}, "end the name with its unit, _seconds"),
        ({"name": "devplug_lamps_milliseconds", "unit": "milliseconds"}, "use one of the base units"),
        ({"name": "devplug_lamps_seconds"}, "say that its unit is seconds"),
        ({"name": "devplug_lamps_seconds_total", "kind": Kind.COUNTER}, "say that its unit is seconds"),
        ({"name": "devplug_lamps_info", "kind": Kind.HISTOGRAM}, "a gauge"),
        ({"help": "Lamps that burn"}, "full stop"),
        ({"help": "Lamps.\nThey burn."}, "one line"),
        ({"help": ""}, "full stop"),
        ({"labels": ("room", "room")}, "rename the label 'room'"),
        ({"labels": ("le",)}, "rename the label 'le'"),
        ({"labels": ("roomName",)}, "rename the label 'roomName'"),
        ({"labels": ("__name",)}, "rename the label '__name'"),
        ({"labels": ("instance",)}, "rename the label 'instance'"),
    ],
)
def test_a_bad_metric_is_told_what_to_change(change: dict[str, object], fault: str) -> None:
    (problem,) = naming_problems(replace(GOOD, **change))
    assert fault in problem


def test_all_faults_are_told_at_once() -> None:
    problems = list(naming_problems(Metric("devplug_lamps", Kind.COUNTER, "", labels=("le",))))
    assert ["_total" in problems[0], "full stop" in problems[1], "'le'" in problems[2]] == [True] * 3
    assert not list(naming_problems(GOOD))


def test_only_a_counter_has_another_name_in_open_metrics() -> None:
    assert Metric("devplug_runs_total", Kind.COUNTER, "Runs.").family_name == "devplug_runs"
    assert GOOD.family_name == GOOD.name


@pytest.mark.parametrize(
    ("metric", "samples", "fault"),
    [
        (GOOD, [Sample(("hall",), 1)], "a value for each of its labels"),
        (GOOD, [Sample(("hall", "red", "big"), 1)], "a value for each of its labels"),
        (GOOD, [Sample(("hall", "red"), 1), Sample(("hall", "red"), 2)], "two samples for {'room': 'hall'"),
        (WAIT, [Sample((), 1)], "make each sample of a histogram a HistogramSample"),
        (GOOD, [HistogramSample(("hall", "red"), (), 0, 0)], "make each sample of a gauge a Sample"),
    ],
)
def test_a_family_refuses_samples_that_cost_the_scrape(
    metric: Metric, samples: list[Sample], fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        Family(metric, samples)
