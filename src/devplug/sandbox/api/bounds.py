"""Bounds on the values of an object: their depth, their number, and their length as JSON. Pure.

A body of 3 MiB has room for a million empty maps, or for a million brackets in each other. Each takes 64
bytes in memory, and every later step of the sandbox looks at each of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.wire.limits import ELEMENTS_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

DEPTH_LIMIT: Final = 200
"""How deep maps and lists may stand in each other; nothing in the API is half as deep."""

TOO_DEEP: Final = "exceeded max depth"
TOO_MANY: Final = f"the body of the request has more than {ELEMENTS_LIMIT} elements"

_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_MARKS: Final = (b"{", b"[", b",")


def has_too_many_elements(body: bytes) -> bool:
    """Whether a JSON text has more values than the server takes; each has a bracket or a comma before it."""
    if _marks(body) <= ELEMENTS_LIMIT:
        return False
    return _marks(_STRING.sub(b"", body)) > ELEMENTS_LIMIT


def _marks(content: bytes) -> int:
    return sum(content.count(mark) for mark in _MARKS)


def excess_of(value: object) -> str:
    """Return which bound the value exceeds: `TOO_DEEP`, `TOO_MANY`, or empty."""
    level: list[object] = [value]
    depth = elements = 0
    while level:
        depth, elements = depth + 1, elements + len(level)
        if depth > DEPTH_LIMIT:
            return TOO_DEEP
        if elements > ELEMENTS_LIMIT:
            return TOO_MANY
        level = [inner for one in level for inner in _inner(one)]
    return ""


def json_size(value: object) -> int:
    """Return the length of a value as JSON without spaces, in bytes; escapes count as what they stand for."""
    size, rest = 0, [value]
    while rest:
        match rest.pop():
            case str() as written:
                size += len(written.encode("utf-8", "surrogatepass")) + 2
            case bool() | None:
                size += 4
            case dict() as one:
                size += 2 + 2 * len(one)
                rest += [*one, *one.values()]
            case list() as elements:
                size += 2 + len(elements)
                rest += elements
            case number:
                size += len(repr(number))
    return size


def _inner(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value
