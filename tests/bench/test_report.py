"""The bench's arithmetic and what it prints."""

from __future__ import annotations

import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.report import (
    Bound,
    Figure,
    Report,
    Row,
    as_json,
    as_text,
    by_row,
    median,
    percentile,
    shown,
    spread,
    table,
)

REPORT = Report(
    ["devplug", "other"],
    [
        Row((Figure("Allocate, p50", "ms", 0.5), Figure("Allocate, p50", "ms", 0.25))),
        Row((Figure("appears, p50", "ms", 1.2), Figure("appears, p50", "ms", None, "no list within 30 s"))),
        Row((Figure("exit code", "", 0), Figure("exit code", "", 0))),
    ],
    [],
)


@pytest.mark.parametrize(
    ("samples", "percent", "value"),
    [
        ([7.0], 50, 7.0),
        ([7.0], 99, 7.0),
        ([1.0, 2.0], 50, 1.5),
        ([4.0, 1.0, 3.0, 2.0], 0, 1.0),
        ([4.0, 1.0, 3.0, 2.0], 100, 4.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 25, 2.0),
        ([float(number) for number in range(101)], 99, 99.0),
        ([float(number) for number in range(50)], 99, 48.51),
    ],
)
def test_a_percentile_lies_between_its_neighbours(samples: list[float], percent: float, value: float) -> None:
    assert percentile(samples, percent) == pytest.approx(value)


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=200))
def test_percentiles_are_those_of_the_standard_library(samples: list[float]) -> None:
    cuts = statistics.quantiles(samples, n=100, method="inclusive")
    assert percentile(samples, 50) == pytest.approx(cuts[49])
    assert percentile(samples, 99) == pytest.approx(cuts[98])


def test_a_spread_is_in_milliseconds() -> None:
    p50, p99 = spread("x", [0.5, 1.5], wanted=2)
    assert p50 == Figure("x, p50", "ms", 1000)
    assert p99 == Figure("x, p99", "ms", 1490)


@pytest.mark.parametrize(
    ("seconds", "failure", "note"),
    [
        ([], "no list within 30 s", "no list within 30 s"),
        ([], "", "not measured"),
        ([0.1], "stopped after 90 s", "1 of 3 samples: stopped after 90 s"),
        ([0.1], "", "1 of 3 samples"),
    ],
)
def test_a_spread_of_too_few_says_why(seconds: list[float], failure: str, note: str) -> None:
    assert {figure.note for figure in spread("x", seconds, 3, failure)} == {note}


def test_a_median_of_nothing_says_why() -> None:
    assert median("x", [], "it did not start") == Figure("x", "ms", None, "it did not start")


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (Figure("", "ms", 0.444), "0.44 ms"),
        (Figure("", "ms", 12.34), "12.3 ms"),
        (Figure("", "%", 0), "0.00 %"),
        (Figure("", "", 7), "7"),
        (Figure("", "ms", None), "-"),
    ],
)
def test_a_figure_shows_the_digits_that_mean_something(figure: Figure, text: str) -> None:
    assert shown(figure) == text


def test_figures_by_column_become_rows() -> None:
    one, two = (Figure(name, "ms", 1) for name in ("one", "two"))
    assert by_row([[one, two], [one, two]]) == [Row((one, one)), Row((two, two))]


def test_the_table_has_the_figures_their_ratio_and_the_notes() -> None:
    assert table(REPORT).split("\n") == [
        "                                                          devplug            other    ratio",
        "Allocate, p50                                             0.50 ms          0.25 ms     2.00",
        "appears, p50                                              1.20 ms                -",
        "exit code                                                       0                0",
        "",
        "other: appears, p50: no list within 30 s",
    ]


def test_the_table_of_one_plugin_has_no_ratio() -> None:
    alone = Report(["devplug"], [Row((Figure("threads", "", 8),))], ["other was not measured: gone"])
    assert table(alone).split("\n") == [
        "                                                          devplug",
        "threads                                                         8",
        "",
        "other was not measured: gone",
    ]


def test_the_table_of_many_columns_has_narrow_ones_under_their_heading() -> None:
    row = Row(tuple(Figure("admission, p50", "ms", value) for value in (1.0, 2.0, 3.0, 4.0)))
    sizes = ["100 · 20", "1,000 · 50", "10,000 · 50", "10,000 · 500"]
    assert table(Report(sizes, [row], heading="devices · pods")).split("\n") == [
        f"{'devices · pods':<48}     100 · 20   1,000 · 50  10,000 · 50 10,000 · 500",
        f"{'admission, p50':<48}      1.00 ms      2.00 ms      3.00 ms      4.00 ms",
    ]


def test_the_table_says_of_each_bound_whether_it_holds() -> None:
    bounds = [Bound("10 × the pods", 2, 10), Bound("10 × the devices", 10.01, 10), Bound("x", None, 2)]
    assert table(Report(["one"], [], bounds=bounds)).split("\n")[2:] == [
        f"{'10 × the pods':<66}    × 2.00, at most 10: holds",
        f"{'10 × the devices':<66}   × 10.01, at most 10: BROKEN",
        f"{'x':<66}         -, at most 2: BROKEN",
    ]


@pytest.mark.parametrize(
    ("report", "is_good"),
    [
        (REPORT, True),
        (Report(["one"], [], ["other was not measured: gone"]), False),
        (Report(["one"], [], bounds=[Bound("x", 10, 10)]), True),
        (Report(["one"], [], bounds=[Bound("x", 10, 10), Bound("y", 11, 10)]), False),
        (Report(["one"], [], bounds=[Bound("x", None, 10)]), False),
    ],
)
def test_a_report_is_good_if_nothing_is_missing_and_all_bounds_hold(report: Report, *, is_good: bool) -> None:
    assert report.is_good == is_good


@given(st.text(min_size=1, max_size=300), st.text(max_size=300), st.integers(1, 4))
def test_the_table_fits_a_hundred_columns(name: str, note: str, columns: int) -> None:
    row = Row((Figure("kubelet restart → Register, p99", "ms", 12345.6, note),) * columns)
    lines = table(Report([name] * columns, [row], [note])).split("\n")
    assert max(map(len, lines)) <= 100


def test_the_text_has_the_machine_and_every_table() -> None:
    reports = [Report(["one"], []), Report(["two"], [])]
    shown_text = as_text(reports, {"cores": "2", "Python": "3.11.7"})
    assert shown_text == "\n\n".join(["cores 2, Python 3.11.7", *map(table, reports)])


def test_json_has_the_same_figures() -> None:
    bound = Report(["one"], [Row((Figure("x", "ms", 1),))], ["gone"], bounds=[Bound("y", 11, 10)])
    read = json.loads(as_json([REPORT, bound], {"cores": "2"}))
    assert (read["machine"], read["missing"]) == ({"cores": "2"}, ["gone"])
    assert [figure["ratio"] for figure in read["figures"]] == [2.0, None, None, None]
    assert read["figures"][1] == {
        "name": "appears, p50",
        "unit": "ms",
        "values": {"devplug": 1.2, "other": None},
        "notes": {"other": "no list within 30 s"},
        "ratio": None,
    }
    assert read["bounds"] == [{"claim": "y", "ratio": 11, "limit": 10, "holds": False}]
