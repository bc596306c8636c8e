"""Figures and how they are shown: percentiles, units, ratios, the table. Pure."""

from __future__ import annotations

import json
import math
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME_WIDTH, COLUMN_WIDTH, WIDTH = 48, 16, 100


@dataclass(frozen=True, slots=True)
class Figure:
    """One number about one plugin, or why there is none."""

    name: str
    unit: str
    value: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of every plugin, in the order of the columns."""

    figures: tuple[Figure, ...]

    @property
    def name(self) -> str:
        """What was measured."""
        return self.figures[0].name

    def ratio(self) -> float | None:
        """Return how many times the second column's value the first one's is; None if that says nothing."""
        match [figure.value for figure in self.figures]:
            case [float(first), float(second)] if second > 0:
                return first / second
        return None


@dataclass(frozen=True, slots=True)
class Report:
    """All that was measured: a column for each plugin, and why some have none."""

    columns: list[str]
    rows: list[Row]
    missing: list[str]


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the value below which `percent` of the samples lie, between neighbours in proportion.

    The usual definition (type 7 of Hyndman and Fan, as in NumPy and spreadsheets).
    """
    ordered = sorted(samples)
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def spread(name: str, seconds: Sequence[float], wanted: int, failure: str = "") -> list[Figure]:
    """Return the median and the 99th percentile of times, and say if there are fewer than wanted."""
    if not seconds:
        return [Figure(f"{name}, {part}", "ms", None, failure or "not measured") for part in ("p50", "p99")]
    missing = f"{len(seconds)} of {wanted} samples" + (f": {failure}" if failure else "")
    note = "" if len(seconds) == wanted else missing
    return [
        Figure(f"{name}, p50", "ms", percentile(seconds, 50) * 1000, note),
        Figure(f"{name}, p99", "ms", percentile(seconds, 99) * 1000, note),
    ]


def median(name: str, seconds: Sequence[float], failure: str = "") -> Figure:
    """Return the median of times."""
    if not seconds:
        return Figure(name, "ms", None, failure or "not measured")
    return Figure(name, "ms", percentile(seconds, 50) * 1000)


def shown(figure: Figure) -> str:
    """Return the value with its unit, with as many digits as mean something."""
    if figure.value is None:
        return "-"
    digits = 0 if figure.unit == "" else 2 if abs(figure.value) < 10 else 1
    return f"{figure.value:.{digits}f} {figure.unit}".strip()


def table(report: Report, machine: Mapping[str, str]) -> str:
    """Return everything as text of at most 100 columns: the machine, the figures, then the notes."""
    has_ratio = len(report.columns) == 2
    lines = [
        ", ".join(f"{name} {value}" for name, value in machine.items()),
        "",
        _line("", report.columns, "ratio" if has_ratio else ""),
    ]
    notes = [*report.missing]
    for row in report.rows:
        ratio = row.ratio() if has_ratio else None
        lines.append(
            _line(row.name, [shown(one) for one in row.figures], "" if ratio is None else f"{ratio:.2f}"),
        )
        for column, figure in zip(report.columns, row.figures, strict=True):
            if figure.note:
                notes.append(f"{column}: {row.name}: {figure.note}")
    lines += [""] if notes else []
    for note in notes:
        lines += textwrap.wrap(note, WIDTH, subsequent_indent="  ")
    return "\n".join(lines)


def _line(name: str, cells: Sequence[str], last: str) -> str:
    columns = "".join(f"{cell[:COLUMN_WIDTH]:>{COLUMN_WIDTH + 1}}" for cell in cells)
    return f"{name:<{NAME_WIDTH}}{columns}{last:>9}".rstrip()


def as_json(report: Report, machine: Mapping[str, str]) -> str:
    """Return everything as JSON; times are in milliseconds, sizes in MB of 1,000,000 bytes."""
    figures = [
        {
            "name": row.name,
            "unit": row.figures[0].unit,
            "values": {column: one.value for column, one in zip(report.columns, row.figures, strict=True)},
            "notes": {
                column: one.note for column, one in zip(report.columns, row.figures, strict=True) if one.note
            },
            "ratio": row.ratio(),
        }
        for row in report.rows
    ]
    whole = {"machine": dict(machine), "missing": report.missing, "figures": figures}
    return json.dumps(whole, indent=2, ensure_ascii=False)
