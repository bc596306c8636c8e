"""Reads what kubectl prints, and what the API server answers, into named values that can be compared.

A name says where a value stands: `2:AGE` in the second row of a table, `0.status.phase` in the first document
of JSON, `Containers/c/Ready` in a description. Widths of columns are no part of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

Leaf: TypeAlias = tuple[str, str]
"""Where a value stands, and the value."""

_GAP: Final = re.compile(r"\s{2,}")
_UNDERLINE: Final = re.compile(r"\s*-+(\s+-+)*\s*")
_LABELLED: Final = re.compile(r"([^\s:][^:]*):(?:\s+(.*))?")
_SAMPLE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


def line_leaves(text: str) -> Iterator[Leaf]:
    """Yield the lines of a message."""
    for number, line in enumerate(text.rstrip("\n").split("\n"), 1):
        yield f"line {number}", line.rstrip()


def table_leaves(text: str) -> Iterator[Leaf]:
    """Yield the cells of a table of `kubectl get`, its head first; what is no table is told by lines."""
    head, *rows = text.rstrip("\n").split("\n")
    columns = _GAP.split(head.strip())
    if len(columns) == 1:
        yield from line_leaves(text)
        return
    yield "columns", "  ".join(columns)
    for number, row in enumerate(rows, 1):
        yield from _row(columns, row, f"{number}:")


def _row(columns: Sequence[str], row: str, place: str) -> Iterator[Leaf]:
    cells = _GAP.split(row.strip())
    if len(cells) == len(columns):
        for column, cell in zip(columns, cells, strict=True):
            yield f"{place}{column}", cell
    else:
        yield f"{place}row", "  ".join(cells)


def description_leaves(text: str) -> Iterator[Leaf]:
    """Yield the values of `kubectl describe`, with the labels above them."""
    above: list[tuple[int, str]] = []
    columns: list[str] | None = None
    table_indent, row_number = 0, 0
    lines = text.rstrip("\n").split("\n")
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        indent = len(line) - len(line.lstrip())
        if not line.strip() or (columns and _UNDERLINE.fullmatch(line)):
            continue
        if columns and indent < table_indent:
            columns = None
        while above and above[-1][0] >= indent:
            above.pop()
        place = "/".join(label for _, label in above)
        if below.strip() and _UNDERLINE.fullmatch(below):
            columns, table_indent, row_number = _GAP.split(line.strip()), indent, 0
            yield f"{place}/columns", "  ".join(columns)
        elif columns:
            row_number += 1
            yield from _row(columns, line, f"{place}/{row_number}:")
        elif labelled := _LABELLED.fullmatch(line.strip()):
            above.append((indent, labelled[1]))
            yield f"{place}/{labelled[1]}".lstrip("/"), labelled[2] or ""
        else:
            yield place, "  ".join(_GAP.split(line.strip()))


def json_leaves(text: str) -> Iterator[Leaf]:
    """Yield what stands in one JSON document after another; a map's keys have no order."""
    decoder, position, number = json.JSONDecoder(), 0, 0
    while (position := _after_space(text, position)) < len(text):
        value, position = decoder.raw_decode(text, position)
        yield from _json(str(number), value)
        number += 1


def _after_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _json(place: str, value: object) -> Iterator[Leaf]:
    if isinstance(value, dict) and value:
        for key in sorted(value):
            yield from _json(f"{place}.{key}", value[key])
    elif isinstance(value, list) and value:
        for number, one in enumerate(value):
            yield from _json(f"{place}.{number}", one)
    else:
        yield place, json.dumps(value)


def metric_leaves(text: str) -> Iterator[Leaf]:
    """Yield samples and their descriptions. Neither lines nor labels have an order, and numbers are read."""
    yield from sorted(map(_metric, text.rstrip("\n").split("\n")))


def _metric(line: str) -> Leaf:
    if sample := _SAMPLE.fullmatch(line):
        labels = sorted(_LABEL.findall(sample[2] or ""), reverse=True)
        told = (f'{name}="{float(value) if name == "le" else value}"' for name, value in labels)
        return f"{sample[1]}{{{','.join(told)}}}", str(float(sample[3]))
    _, word, name, rest = line.split(" ", 3)
    return f"{word} {name}", rest
