"""Kubernetes objects as the maps and lists that JSON has: read, compared, and changed in a copy. Pure.

Objects come from any server, of any age: what is missing or of another shape reads as empty. Nobody changes
one in place: caches, logs and answers share them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Object: TypeAlias = dict[str, object]
"""A map as JSON has it: texts, numbers, booleans, null, lists and such maps."""


def part(value: object, *path: str) -> object:
    """Return what stands at `path` inside `value`; None if a step of the way is missing or no map."""
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def text(value: object, *path: str) -> str:
    """Return the text at `path`; empty if there is none."""
    found = part(value, *path)
    return found if isinstance(found, str) else ""


def whole(value: object, *path: str) -> int:
    """Return the integer at `path`; 0 if there is none."""
    found = part(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def fields(value: object, *path: str) -> Object:
    """Return the map at `path`; an empty one if there is none."""
    found = part(value, *path)
    return found if isinstance(found, dict) else {}


def texts(value: object, *path: str) -> dict[str, str]:
    """Return the map of texts at `path`, without what is no text; numbers count as their digits."""
    return {
        name: str(one)
        for name, one in fields(value, *path).items()
        if isinstance(one, str | int) and not isinstance(one, bool)
    }


def entries(value: object, *path: str) -> list[object]:
    """Return the list at `path`; an empty one if there is none."""
    found = part(value, *path)
    return found if isinstance(found, list) else []


def maps(value: object, *path: str) -> list[Object]:
    """Return the maps of the list at `path`; none if there is no list."""
    found = part(value, *path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def with_part(owner: Mapping[str, object], value: object, *path: str) -> Object:
    """Return a copy of `owner` with `value` at `path`, where None takes away what stands there.

    Maps on the way are made, but not in order to take something away in them.
    """
    step, *rest = path
    copy = dict(owner)
    if rest:
        inner = copy.get(step)
        if value is None and not isinstance(inner, dict):
            return copy
        copy[step] = with_part(inner if isinstance(inner, dict) else {}, value, *rest)
    elif value is None:
        copy.pop(step, None)
    else:
        copy[step] = value
    return copy


def same(left: object, right: object) -> bool:
    """Whether two values are equal as JSON: true is not 1, and 1 is 1.0 (RFC 6902 section 4.6)."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and left == right


def without_nulls(value: object) -> object:
    """Return `value` without the fields that are null, in maps and in the maps of lists."""
    if isinstance(value, dict):
        return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value]
    return value
