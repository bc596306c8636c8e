"""The Helm chart as the package has it: its files, and the values it begins with. Pure.

It is written by hand and stands in `deploy/chart/devplug` of a checkout.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from devplug.daemon.config.document import parse_document
from devplug.daemon.config.tree import ListNode, MapNode, ScalarNode
from devplug.k8s.yaml import yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

    from devplug.daemon.config.tree import Node
    from devplug.k8s.yaml import Value

VALUES: Final = "values.yaml"

Values: TypeAlias = Mapping[str, Any]
"""Values of the chart, as `values.yaml` has them: maps by key, down to lists, texts, numbers and booleans."""


def chart_files(changes: Mapping[str, Value]) -> dict[str, str]:
    """Return the text of each file by its path below the chart's folder, with `changes` over the values."""
    return {**_texts(files(__package__).joinpath("chart")), VALUES: _values_text(changes)}


def defaults() -> dict[str, Any]:
    """Return all values as they are if nobody says otherwise."""
    return cast("dict[str, Any]", _value(_values_root()))


def starter() -> str:
    """Return the configuration that the values begin with: devices of any Linux machine."""
    return str(defaults()["config"]["inline"])


def overridden(values: Values, changes: Mapping[str, Value]) -> dict[str, Any]:
    """Return `values` with `changes` over them: maps are joined, anything else is replaced, as Helm does."""
    whole = dict(values)
    for key, value in changes.items():
        old = whole.get(key)
        are_maps = isinstance(old, Mapping) and isinstance(value, Mapping)
        whole[key] = overridden(old, value) if are_maps else value  # type: ignore[arg-type]
    return whole


def _texts(folder: Traversable, parent: str = "") -> dict[str, str]:
    made: dict[str, str] = {}
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        path = f"{parent}{entry.name}"
        made |= _texts(entry, f"{path}/") if entry.is_dir() else {path: entry.read_text("utf-8")}
    return made


# ── values.yaml ───────────────────────────────────────────────────────────────────────────────────


@functools.cache
def _text() -> str:
    return files(__package__).joinpath("chart", VALUES).read_text("utf-8")


@functools.cache
def _values_root() -> MapNode:
    return cast("MapNode", parse_document(_text()).root)


def _value(node: Node) -> Value:
    match node:
        case MapNode():
            return {key.text: _value(inner) for key, inner in node.items}
        case ListNode():
            return [_value(inner) for inner in node.items]
        case ScalarNode(kind="number"):
            return int(node.text)
        case ScalarNode(kind="boolean"):
            return node.text == "true"
        case ScalarNode():
            return node.text
    raise TypeError(f"{VALUES}, line {node.line}: this cannot be a value")


def _values_text(changes: Mapping[str, Value]) -> str:
    """Return values.yaml with these changes in the places of the defaults, and all comments."""
    lines = _text().splitlines()
    for first, entry in sorted(_edits(_values_root(), defaults(), changes), reverse=True):
        indent = entry[0][: -len(entry[0].lstrip())]
        end = first + 1
        while end < len(lines) and lines[end].startswith(f"{indent} "):
            end += 1
        lines[first:end] = entry
    return "".join(f"{line}\n" for line in lines)


def _edits(node: MapNode, old: Values, changes: Mapping[str, Value]) -> Iterator[tuple[int, list[str]]]:
    """Yield the index of each line where an entry begins that changes, and the lines that it then has."""
    for key, value in changes.items():
        name, inner = node.pairs[key]
        if isinstance(value, Mapping) and isinstance(inner, MapNode) and value.keys() <= inner.pairs.keys():
            yield from _edits(inner, old[key], value)
        else:
            entry = yaml_text(overridden({key: old[key]}, {key: value}))
            indent = " " * (name.column - 1)
            yield name.line - 1, [f"{indent}{line}".rstrip() for line in entry.splitlines()]
