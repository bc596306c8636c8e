"""Figures and how they are shown: percentiles, units, ratios, the table. Pure."""

from __future__ import annotations

import json
import math
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NAME_WIDTH, COLUMN_WIDTH, CLAIM_WIDTH, WIDTH = 48, 16, 66, 100


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
class Bound:
    """A bound that a ratio within one run has to keep."""

    claim: str
    """What is compared with what."""
    ratio: float | None
    """None if it could not be measured."""
    limit: float

    @property
    def holds(self) -> bool:
        """Whether the bound is kept; what was not measured keeps none."""
        return self.ratio is not None and self.ratio <= self.limit


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured of one kind: a column for each thing measured, and why some have none."""

    columns: list[str]
    rows: list[Row]
    missing: list[str] = field(default_factory=list)
    heading: str = ""
    """What the columns are, where their names do not say it."""
    bounds: list[Bound] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether all was measured, and each bound is kept."""
        return not self.missing and all(bound.holds for bound in self.bounds)


def by_row(columns: Iterable[Sequence[Figure]]) -> list[Row]:
    """Return figures by row, given them by column."""
    return [Row(tuple(figures)) for figures in zip(*columns, strict=True)]


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


def as_text(reports: Sequence[Report], machine: Mapping[str, str]) -> str:
    """Return everything as text of at most 100 columns: the machine, then a table for each report."""
    return "\n\n".join(
        (", ".join(f"{name} {value}" for name, value in machine.items()), *(table(one) for one in reports)),
    )


def table(report: Report) -> str:
    """Return one report as text: the figures, the bounds, then the notes."""
    has_ratio = len(report.columns) == 2
    width = min(COLUMN_WIDTH, (WIDTH - NAME_WIDTH) // max(1, len(report.columns)) - 1)
    lines = [_line(report.heading, report.columns, "ratio" if has_ratio else "", width)]
    notes = [*report.missing]
    for row in report.rows:
        ratio = row.ratio() if has_ratio else None
        cells = [shown(one) for one in row.figures]
        lines.append(_line(row.name, cells, "" if ratio is None else f"{ratio:.2f}", width))
        for column, figure in zip(report.columns, row.figures, strict=True):
            if figure.note:
                notes.append(f"{column}: {row.name}: {figure.note}")
    lines += [""] if report.bounds else []
    for bound in report.bounds:
        ratio_text = "-" if bound.ratio is None else f"× {bound.ratio:.2f}"
        outcome = f"at most {bound.limit:g}: {'holds' if bound.holds else 'BROKEN'}"
        lines.append(f"{bound.claim:<{CLAIM_WIDTH}} {ratio_text:>9}, {outcome}")
    lines += [""] if notes else []
    for note in notes:
        lines += textwrap.wrap(note, WIDTH, subsequent_indent="  ")
    return "\n".join(lines)


def _line(name: str, cells: Sequence[str], last: str, width: int) -> str:
    columns = "".join(f" {cell[:width]:>{width}}" for cell in cells)
    return f"{name:<{NAME_WIDTH}}{columns}{last:>9}".rstrip()


def as_json(reports: Sequence[Report], machine: Mapping[str, str]) -> str:
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
        for report in reports
        for row in report.rows
    ]
    bounds = [
        {"claim": one.claim, "ratio": one.ratio, "limit": one.limit, "holds": one.holds}
        for report in reports
        for one in report.bounds
    ]
    whole = {
        "machine": dict(machine),
        "missing": [one for report in reports for one in report.missing],
        "figures": figures,
        "bounds": bounds,
    }
    return json.dumps(whole, indent=2, ensure_ascii=False)
