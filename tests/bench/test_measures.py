"""The bench against a small plugin: every figure is had, and what cannot be had says why."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from bench.measures import Counts, measure
from bench.report import Report
from bench.subjects import Subject

PLUGIN = (sys.executable, "-m", "bench.baseline")
COUNTS = Counts(starts=1, calls=20, plugs=1, restarts=1, pause_seconds=0, idle_seconds=0.1)


def measured(*subjects: Subject) -> Report:
    return asyncio.run(measure(subjects, COUNTS))


def values(report: Report, column: int = 0) -> dict[str, float | None]:
    return {row.name: row.figures[column].value for row in report.rows}


def notes(report: Report, column: int = 0) -> dict[str, str]:
    return {row.name: row.figures[column].note for row in report.rows if row.figures[column].note}


def test_every_figure_of_a_plugin_is_had() -> None:
    report = measured(*(Subject(name, (*PLUGIN, "{dir}", "{devices}")) for name in ("one", "two")))
    assert report.missing == []
    assert report.columns == ["one", "two"]
    for column in (0, 1):
        found = values(report, column)
        assert [name for name, value in found.items() if value is None] == []
        assert found["exit code after SIGTERM"] == 7
        assert notes(report, column) == {"files left in the plugin folder": "left-behind"}


def test_a_plugin_that_cannot_be_told_of_devices_has_no_figures_of_them(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / str(number)).touch()
    report = measured(Subject("one", (*PLUGIN, "{dir}", str(tmp_path))))
    assert {name: value for name, value in values(report).items() if value is None} == {
        "device appears → list, p50": None,
        "device appears → list, p99": None,
        "device vanishes → list, p50": None,
        "device vanishes → list, p99": None,
    }
    assert notes(report)["device appears → list, p50"] == "its command has no {devices}"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("/no/such/plugin",), "cannot run /no/such/plugin: No such file or directory"),
        (
            (sys.executable, "-c", "print('bad flag')"),
            "it ended with code 0 before Register; its last words: bad flag",
        ),
    ],
)
def test_a_plugin_that_does_not_start_has_no_column_but_a_reason(
    command: tuple[str, ...], reason: str
) -> None:
    report = measured(Subject("one", command))
    assert report.columns == []
    assert report.missing == [f"one was not measured: {reason}"]
