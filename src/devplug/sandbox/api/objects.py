"""Kubernetes objects in the sandbox: read as everywhere (`devplug.k8s.objects`), and changed in a copy.

Nobody changes an object in place, here or elsewhere: the store, its log and every answer share them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.k8s.objects import Object, fields, part, text, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Object", "entries", "fields", "part", "same", "text", "whole", "with_part", "without_nulls"]


def entries(value: object, *path: str) -> list[object]:
    """Return the list at `path`; an empty one if there is none."""
    found = part(value, *path)
    return found if isinstance(found, list) else []


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
