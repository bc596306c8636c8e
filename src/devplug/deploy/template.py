"""Objects with places for values: what becomes of them once the values are known, and their Helm text. Pure.

A tree is what JSON knows, plus the types below. What `Resolver` does with values here, Helm does there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from devplug.k8s.yaml import flow

if TYPE_CHECKING:
    from devplug.k8s.yaml import Value

__all__ = [
    "MORE",
    "AllOf",
    "AnyOf",
    "At",
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
    "template_text",
    "value_at",
]


MORE = "..."
"""A key that begins so is no key: the entries of its `Part` stand in its place."""

Tree: TypeAlias = (
    "Mapping[str, Tree] | Sequence[Tree] | str | int | bool | At | Part | Named | Text | When | Either"
)

STEP: Final = "  "


# ── trees ─────────────────────────────────────────────────────────────────────────────────────────


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


# ── Helm's language ───────────────────────────────────────────────────────────────────────────────


def template_text(document: Document, *, head: str = "") -> str:
    """Return the template of one document; `head` is a line that stands before all."""
    lines = _lines(document.tree)
    if document.condition is not None:
        lines = [f"{{{{- if {_words(document.condition)} }}}}", *lines, "{{- end }}"]
    return "".join(f"{line}\n" for line in ([head] if head else []) + lines)


def _words(condition: Condition) -> str:
    match condition:
        case Given(path):
            return f".Values.{path}"
        case AnyOf(conditions):
            return f"(or {' '.join(map(_words, conditions))})"
        case AllOf(conditions):
            return f"(and {' '.join(map(_words, conditions))})"
        case Not(inner):
            return f"(not {_words(inner)})"


def _inline(tree: Tree) -> str | None:
    """Return what fits behind a key, or None. JSON is YAML: `toJson` keeps a text a text."""
    match tree:
        case At(path):
            return f"{{{{ .Values.{path} | toJson }}}}"
        case Named(name):
            return f'{{{{ include "devplug.{name}" . | toJson }}}}'
        case Text(pattern, parts):
            words = " ".join(
                f".Values.{part.path}" if isinstance(part, At) else f'(include "devplug.{part.name}" .)'
                for part in parts
            )
            return f"{{{{ printf {_quoted(pattern.replace('%s', '%v'))} {words} | toJson }}}}"
        case str() | int():
            return flow(tree)
        case Mapping() if not tree:
            return "{}"
        case [*items] if all(isinstance(item, str) for item in items):
            return flow([item for item in items if isinstance(item, str)])
    return None


def _block(part: Part, depth: int) -> list[str]:
    """Return the lines of a whole map or list; `toYaml` writes its lines at a depth that has to be told."""
    source = f".Values.{part.path}"
    if part.without:
        source = f"omit {source} {' '.join(map(_quoted, part.without))}"
    return [f"{{{{- {source} | toYaml | nindent {depth * len(STEP)} }}}}"]


def _quoted(text: str) -> str:
    """Return a text in quotes, as Go has it."""
    return f'"{text}"'


def _lines(tree: Tree, depth: int = 0) -> list[str]:
    """Return the lines of a map or list, indented; control lines stand as deep as what they enclose."""
    indent = STEP * depth
    lines: list[str] = []
    entries: list[tuple[str, Tree]] = []
    match tree:
        case Mapping():
            entries = [*tree.items()]
        case Sequence():
            entries = [("", item) for item in tree]
    for key, value in entries:
        if isinstance(value, When):
            condition, inner = _words(value.condition), value.tree
            lines += [f"{indent}{{{{- if {condition} }}}}"]
            lines += _entry(key, inner, depth)
            lines += [f"{indent}{{{{- end }}}}"]
        else:
            lines += _entry(key, value, depth)
    return lines


def _entry(key: str, tree: Tree, depth: int) -> list[str]:
    indent = STEP * depth
    if isinstance(tree, Part) and (not key or key.startswith(MORE)):
        return [
            f"{indent}{{{{- with .Values.{tree.path} }}}}",
            *(f"{indent}{line}" for line in _spread(tree, depth)),
            f"{indent}{{{{- end }}}}",
        ]
    lead = f"{flow(key)}:" if key else "-"
    if (text := _inline(tree)) is not None:
        return [f"{indent}{lead} {text}"]
    if isinstance(tree, Part):
        return [f"{indent}{lead}", *(f"{indent}{STEP}{line}" for line in _block(tree, depth + 1))]
    if isinstance(tree, Either):
        return [
            f"{indent}{lead}",
            f"{indent}{STEP}{{{{- if {_words(tree.condition)} }}}}",
            *_inner(tree.tree, depth + 1),
            f"{indent}{STEP}{{{{- else }}}}",
            *_inner(tree.otherwise, depth + 1),
            f"{indent}{STEP}{{{{- end }}}}",
        ]
    if key:
        return [f"{indent}{lead}", *_lines(tree, depth + 1)]
    first, *rest = _lines(tree, depth + 1)
    return [f"{indent}- {first.removeprefix(indent + STEP)}", *rest]


def _inner(tree: Tree, depth: int) -> list[str]:
    if isinstance(tree, Part):
        return [f"{STEP * depth}{line}" for line in _block(tree, depth)]
    if (text := _inline(tree)) is not None:
        return [f"{STEP * depth}{text}"]
    return _lines(tree, depth)


def _spread(part: Part, depth: int) -> list[str]:
    source = f"omit . {' '.join(map(_quoted, part.without))}" if part.without else "."
    return [f"{{{{- {source} | toYaml | nindent {depth * len(STEP)} }}}}"]
