"""Tables as lines: columns as wide as they need, the last one folded at the terminal's edge. Pure.

Rich lays out tables, too, but none with a sentence across the columns below a row.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from rich.cells import cell_len, set_cell_size

from devplug.cli.looking.views.words import Cell, Tone

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["GAP", "Line", "Row", "cut", "folded", "laid_out", "plain", "widths"]

GAP: Final = 2
"""Spaces between columns."""

NARROWEST: Final = 12
"""A last column is not folded into less than this; the terminal breaks the line then."""

INDENT: Final = "    "
_ELLIPSIS: Final = "…"

Line: TypeAlias = tuple[Cell, ...]
"""Texts that stand side by side in one line."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, with sentences that stand above and below it, across its columns."""

    cells: tuple[Cell, ...]
    below: tuple[Cell, ...] = ()
    above: tuple[Cell, ...] = ()


def plain(line: Line) -> str:
    """Return a line without its tones, and without spaces at its end."""
    return "".join(cell.text for cell in line).rstrip()


def widths(columns: Sequence[str], rows: Iterable[Row]) -> list[int]:
    """Return how wide each column has to be, in cells of a terminal."""
    found = [cell_len(column) for column in columns]
    for row in rows:
        for place, cell in enumerate(row.cells):
            found[place] = max(found[place], cell_len(cell.text))
    return found


def laid_out(columns: Sequence[str], rows: Sequence[Row], width: int | None) -> list[Line]:
    """Return a table with its headings; no wider than `width` if the last column can be folded so far.

    None is for readers that are no terminals: each row is one line then.
    """
    needed = widths(columns, rows)
    left = sum(needed[:-1]) + GAP * (len(needed) - 1)
    room = None if width is None or width - left < NARROWEST else width - left
    lines = [_line([Cell(column, Tone.HEAD) for column in columns], needed)]
    for row in rows:
        for note in row.above:
            lines += folded(note, width)
        last = row.cells[-1]
        first, *more = [last.text] if room is None else _wrapped(last.text, room)
        lines.append(_line([*row.cells[:-1], Cell(first, last.tone)], needed))
        lines += [(Cell(" " * left), Cell(text, last.tone)) for text in more]
        for note in row.below:
            lines += folded(Cell(INDENT + note.text, note.tone), width)
    return lines


def folded(cell: Cell, width: int | None) -> list[Line]:
    """Return a sentence as lines; what does not fit goes on four columns further right."""
    indent = cell.text[: len(cell.text) - len(cell.text.lstrip())]
    if width is None or cell_len(cell.text) <= width:
        return [(cell,)]
    return [(Cell(text, cell.tone),) for text in _wrapped(cell.text, max(width, NARROWEST), indent + INDENT)]


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [text]


def _line(cells: Sequence[Cell], needed: Sequence[int]) -> Line:
    *most, last = cells
    padded = [
        Cell(set_cell_size(cell.text, width) + " " * GAP, cell.tone)
        for cell, width in zip(most, needed, strict=False)
    ]
    return (*padded, last)


def cut(line: Line, width: int) -> Line:
    """Return a line that fits; where something was cut off stands an ellipsis."""
    fitting: list[Cell] = []
    room = width
    for cell in line:
        size = cell_len(cell.text)
        if size > room:
            text = set_cell_size(cell.text, max(0, room - 1)).rstrip() + _ELLIPSIS if room else ""
            fitting.append(Cell(text, cell.tone))
            break
        fitting.append(cell)
        room -= size
    return tuple(fitting)
