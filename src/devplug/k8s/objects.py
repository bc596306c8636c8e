"""Kubernetes objects as the maps and lists that JSON has, and how to read them. Pure.

Objects come from any server, of any age: what is missing or of another shape reads as empty.
"""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["Object", "fields", "maps", "part", "text", "texts", "whole"]

Object: TypeAlias = dict[str, object]
"""A map as JSON has it: texts, numbers, booleans, null, lists and such maps. Nobody changes one."""


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


def maps(value: object, *path: str) -> list[Object]:
    """Return the maps of the list at `path`; none if there is no list."""
    found = part(value, *path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
