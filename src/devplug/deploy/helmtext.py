"""A tree as the text of a Helm template: what `Resolver` does with values here, Helm does there. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from devplug.deploy.objects.tree import (
    MORE,
    AllOf,
    AnyOf,
    At,
    Document,
    Either,
    Given,
    Named,
    Not,
    Part,
    Text,
    When,
)
from devplug.yamltext import flow

if TYPE_CHECKING:
    from devplug.deploy.objects.tree import Condition, Tree

__all__ = ["template_text"]

STEP: Final = "  "


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
