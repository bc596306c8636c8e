"""Objects with places for values, and what becomes of them once the values are known. Pure.

A tree is what JSON knows, plus the types below. Helm does the same with what `helmtext` writes of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

if TYPE_CHECKING:
    from devplug.yamltext import Value

__all__ = [
    "MORE",
    "AllOf",
    "AnyOf",
    "At",
    "Condition",
    "Document",
    "Either",
    "Given",
    "Named",
    "Not",
    "Part",
    "Resolver",
    "Text",
    "Tree",
    "When",
    "value_at",
]

MORE = "..."
"""A key that begins so is no key: the entries of its `Part` stand in its place."""


@dataclass(frozen=True, slots=True)
class Given:
    """That the value at a path is not empty, zero or false, by Helm's and by Python's rules alike."""

    path: str


@dataclass(frozen=True, slots=True)
class AnyOf:
    """That one of several holds."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """That all of several hold."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """That another does not hold."""

    condition: Condition


Condition: TypeAlias = Given | AnyOf | AllOf | Not


@dataclass(frozen=True, slots=True)
class At:
    """The text, number or truth value at a path, as in `image.pullPolicy`."""

    path: str


@dataclass(frozen=True, slots=True)
class Part:
    """The map or list at a path, whole; in a map under a `MORE` key and in a list, its entries."""

    path: str
    without: tuple[str, ...] = ()
    """Keys that are left out."""


@dataclass(frozen=True, slots=True)
class Named:
    """A text that is made of several values, by its name: a template of the chart, a function in `names`."""

    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """A text with one `%s` for each of its parts."""

    pattern: str
    parts: tuple[At | Named, ...]


@dataclass(frozen=True, slots=True)
class When:
    """An entry of a map or list that is there only if the condition holds."""

    condition: Condition
    tree: Tree


@dataclass(frozen=True, slots=True)
class Either:
    """One of two; an entry of a map."""

    condition: Condition
    tree: Tree
    otherwise: Tree


Tree: TypeAlias = (
    "Mapping[str, Tree] | Sequence[Tree] | str | int | bool | At | Part | Named | Text | When | Either"
)


@dataclass(frozen=True, slots=True)
class Document:
    """One object, and the condition under which it is there at all."""

    name: str
    """Its file is called so, without `.yaml`."""
    tree: Tree
    condition: Condition | None = None


def value_at(values: Mapping[str, Value], path: str) -> Value:
    """Return the value at a path. Raises `KeyError` for one that is not there."""
    value: Value = values
    for key in path.split("."):
        value = cast("Mapping[str, Value]", value)[key]
    return value


@dataclass(frozen=True, slots=True)
class Resolver:
    """Puts values in their places: what Helm does when it renders the chart."""

    values: Mapping[str, Value]
    names: Mapping[str, str]
    """What each `Named` is."""

    def holds(self, condition: Condition | None) -> bool:
        """Whether a condition holds; none always does."""
        match condition:
            case Given(path):
                return bool(value_at(self.values, path))
            case AnyOf(conditions):
                return any(map(self.holds, conditions))
            case AllOf(conditions):
                return all(map(self.holds, conditions))
            case Not(inner):
                return not self.holds(inner)
        return True

    def resolved(self, tree: Tree) -> Value:
        """Return the tree with all values in their places."""
        match tree:
            case At(path):
                return value_at(self.values, path)
            case Part(path, without):
                value = value_at(self.values, path)
                if isinstance(value, Mapping):
                    return {key: inner for key, inner in value.items() if key not in without}
                return value
            case Named(name):
                return self.names[name]
            case Text(pattern, parts):
                return pattern % tuple(self.resolved(part) for part in parts)
            case When(_, inner):
                return self.resolved(inner)
            case Either(condition, first, second):
                return self.resolved(first if self.holds(condition) else second)
            case str() | int():
                return tree
            case Mapping():
                return self._map(tree)
        return self._list(tree)

    def _map(self, tree: Mapping[str, Tree]) -> Value:
        entries: dict[str, Value] = {}
        for key, inner in tree.items():
            if isinstance(inner, When) and not self.holds(inner.condition):
                continue
            value = self.resolved(inner)
            if key.startswith(MORE):
                entries |= cast("Mapping[str, Value]", value)
            else:
                entries[key] = value
        return entries

    def _list(self, tree: Sequence[Tree]) -> Value:
        items: list[Value] = []
        for inner in tree:
            if isinstance(inner, When) and not self.holds(inner.condition):
                continue
            value = self.resolved(inner)
            if isinstance(inner, Part):
                items += cast("Sequence[Value]", value)
            else:
                items.append(value)
        return items
