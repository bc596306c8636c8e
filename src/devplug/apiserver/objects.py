"""Kubernetes objects as the maps and lists that JSON has, and how to read them. Pure.

Objects come from any server, of any age: what is missing or of another shape reads as empty.
"""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["Object", "maps", "object_at", "text", "texts", "whole"]

Object: TypeAlias = dict[str, object]
"""A map as JSON has it. Nobody changes one."""


def _at(value: object, path: tuple[str, ...]) -> object:
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def text(value: object, *path: str) -> str:
    """Return the text at `path`; empty if there is none."""
    found = _at(value, path)
    return found if isinstance(found, str) else ""


def whole(value: object, *path: str) -> int:
    """Return the integer at `path`; 0 if there is none."""
    found = _at(value, path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def object_at(value: object, *path: str) -> Object:
    """Return the map at `path`; an empty one if there is none."""
    found = _at(value, path)
    return found if isinstance(found, dict) else {}


def texts(value: object, *path: str) -> dict[str, str]:
    """Return the map of texts at `path`, without what is no text; numbers count as their digits."""
    return {
        name: str(one)
        for name, one in object_at(value, *path).items()
        if isinstance(one, str | int) and not isinstance(one, bool)
    }


def maps(value: object, *path: str) -> list[Object]:
    """Return the maps of the list at `path`; none if there is no list."""
    found = _at(value, path)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
