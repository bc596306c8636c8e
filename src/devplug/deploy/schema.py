"""The schema of a deployment's values: defaults, types and purposes; and how values are joined. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from devplug.k8s.yaml import Value

__all__ = [
    "COUNT",
    "DURATION",
    "FOLDER",
    "MAP",
    "MAPS",
    "NAME",
    "PORT",
    "TEXT",
    "TEXTS",
    "TEXTS_BY_NAME",
    "TRUTH",
    "Group",
    "Row",
    "nested",
    "one_of",
    "overridden",
]

TEXT: Final[Mapping[str, Value]] = {"type": "string"}
TRUTH: Final[Mapping[str, Value]] = {"type": "boolean"}
COUNT: Final[Mapping[str, Value]] = {"type": "integer", "minimum": 0}
PORT: Final[Mapping[str, Value]] = {"type": "integer", "minimum": 1, "maximum": 65535}
FOLDER: Final[Mapping[str, Value]] = {"type": "string", "pattern": "^/"}
DURATION: Final[Mapping[str, Value]] = {"type": "string", "pattern": "^([0-9]+(ms|[smhdwy]))+$"}
MAP: Final[Mapping[str, Value]] = {"type": "object"}
TEXTS_BY_NAME: Final[Mapping[str, Value]] = {"type": "object", "additionalProperties": {"type": "string"}}
MAPS: Final[Mapping[str, Value]] = {"type": "array", "items": {"type": "object"}}
TEXTS: Final[Mapping[str, Value]] = {"type": "array", "items": {"type": "string"}}
NAME: Final[Mapping[str, Value]] = {
    "type": "string",
    "maxLength": 63,
    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One value: where it is, what it is if nobody says, what it may be, and what it is for."""

    path: str
    default: Value
    schema: Mapping[str, Value]
    words: str


@dataclass(frozen=True, slots=True)
class Group:
    """Values that belong together, under a heading."""

    heading: str
    rows: tuple[Row, ...]


def one_of(*words: str) -> Mapping[str, Value]:
    """Return the schema of a text that is one of these."""
    return {"enum": words}


def nested(by_path: Mapping[str, Value]) -> dict[str, Value]:
    """Return values by path as maps in maps."""
    whole: dict[str, Value] = {}
    for path, value in by_path.items():
        *folders, last = path.split(".")
        place = whole
        for folder in folders:
            inner = place.setdefault(folder, {})
            if not isinstance(inner, dict):
                raise TypeError(f"{path}: {folder} is a value itself")
            place = inner
        place[last] = value
    return whole


def overridden(values: Mapping[str, Value], changes: Mapping[str, Value]) -> dict[str, Value]:
    """Return `values` with `changes` over them: maps are joined, anything else is replaced, as Helm does."""
    whole = dict(values)
    for key, value in changes.items():
        old = whole.get(key)
        both_maps = isinstance(old, Mapping) and isinstance(value, Mapping)
        whole[key] = overridden(old, value) if both_maps else value  # type: ignore[arg-type]
    return whole
