"""The tree of a file's text: lists, maps and scalars with their places. Pure.

Also the sentences about a value of the wrong kind.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from devplug.errors import Problem, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

Keys: TypeAlias = tuple[str | int, ...]
"""The way to a value: keys of maps and indices of lists."""

Kind: TypeAlias = Literal["text", "number", "boolean", "null", "other"]
"""What YAML takes a plain scalar for; `other` are dates and what only YAML knows."""

_DECIMAL: Final = r"(?a)-?(0|[1-9]\d*)(\.\d+)?"
_PLAIN_KEY: Final = r"[A-Za-z0-9_-]{1,64}"

_WHOLE: Final = r"(?a)-?(0|[1-9]\d*)"
_EXPONENT: Final = r"(?a)\d{1,3}(\.\d{1,3})?[eE]\+?\d{1,2}"
_TRUE_WORDS: Final = frozenset({"yes", "on", "y", "true"})
_FALSE_WORDS: Final = frozenset({"no", "off", "n", "false"})


# ── the tree ──────────────────────────────────────────────────────────────────────────────────────


class ScalarNode(Struct, frozen=True):
    """A value without parts."""

    line: int
    column: int
    text: str
    """What is written, without quotes."""
    kind: Kind = "text"
    reading: str = ""
    """What YAML makes of it, in words, unless it is a text: `259`, `true`, `nothing`, `a date`."""
    quoted: bool = False

    @property
    def is_decimal(self) -> bool:
        """Whether it is a number that everybody reads alike: digits, maybe a sign and a point."""
        return self.kind == "number" and bool(re.fullmatch(_DECIMAL, self.text))


class ListNode(Struct, frozen=True):
    """A list."""

    line: int
    column: int
    items: tuple[Node, ...]


class MapNode(Struct, frozen=True):
    """A map; each key once, in file order."""

    line: int
    column: int
    pairs: Mapping[str, tuple[ScalarNode, Node]]
    """By the text of the key: every problem looks its way up, and a map may have very many keys."""
    braces: bool
    """Whether it is written with `{` and `}`."""

    @property
    def items(self) -> Collection[tuple[ScalarNode, Node]]:
        """The keys with their values, in file order."""
        return self.pairs.values()

    def get(self, key: str) -> Node | None:
        """Return the value of `key`, or None."""
        found = self.pairs.get(key)
        return found[1] if found else None

    @property
    def template(self) -> str:
        """The text that this was meant to be if it is an unquoted template such as `{ids}`, or ""."""
        if not self.braces or not self.items:
            return ""
        if any(not isinstance(node, ScalarNode) or node.text or node.quoted for _, node in self.items):
            return ""
        return "{" + ", ".join(name.text for name, _ in self.items) + "}"


class RefusedNode(Struct, frozen=True):
    """Something already reported, of which nothing more needs to be said."""

    line: int
    column: int


Node: TypeAlias = ScalarNode | ListNode | MapNode | RefusedNode


class Document(Struct, frozen=True):
    """A parsed file: the tree, and what was wrong with it as YAML."""

    root: Node | None
    """None if there is no tree; `problems` then says why."""
    problems: tuple[Problem, ...]

    def problem(self, keys: Keys, message: str) -> Problem:
        """Return `message` as a problem at the value that `keys` lead to.

        Keys that the file does not have are left out: indices where one value stands instead of a list, and
        everything below a value that is written short.
        """
        node = self.root
        found: list[str | int] = []
        for key in keys:
            inner: Node | None = None
            if isinstance(node, MapNode) and isinstance(key, str):
                inner = node.get(key)
            elif isinstance(node, ListNode) and isinstance(key, int) and key < len(node.items):
                inner = node.items[key]
            elif isinstance(key, int):
                continue
            if inner is None:
                break
            found.append(key)
            node = inner
        line, column = (node.line, node.column) if node else (0, 0)
        return Problem(line, column, path_text(found), message)


class Finding(Struct, frozen=True):
    """A broken rule and the keys that it is about, before anybody knows their lines."""

    keys: Keys
    """The way to the value, with the keys of the file."""
    message: str
    """What is wrong and what to change."""
    other: Keys = ()
    """The way to the value that it clashes with; the report adds that one's line."""


def path_text(keys: Keys | list[str | int]) -> str:
    """Return `keys` as people read them: `resources[0].expose.env.IDS`."""
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
        elif re.fullmatch(_PLAIN_KEY, key):
            text += f".{key}" if text else key
        else:
            text += f"[{quoted(key)}]"
    return text


# ── what is wrong with a value: what YAML made of it, and what to write ───────────────────────────


def shown(node: Node) -> str:
    """Return `node` in one or two words."""
    match node:
        case ScalarNode(quoted=True, text=text):
            return f"the text {quoted(text)}"
        case ScalarNode(text=""):
            return "nothing"
        case ScalarNode(kind="text", text=text):
            return quoted(text)
        case ScalarNode(text=text):
            return text if len(text) <= 32 else quoted(text)
        case ListNode():
            return "a list"
    return "a map"


def read_as_a_map(node: MapNode) -> str:
    """Return what to write instead of an unquoted template."""
    return f"YAML reads {node.template} as a map; write {quoted(node.template)}"


def not_a_text(node: Node) -> str:
    """Return why `node` is not a text, and what to write; empty if it is one."""
    if isinstance(node, MapNode) and node.template:
        return read_as_a_map(node)
    if not isinstance(node, ScalarNode):
        return f"is {shown(node)}; write one text"
    if node.kind == "text":
        return ""
    if node.text == "":
        return "is empty; write a value, or leave the key out"
    read = node.reading if node.reading != node.text else f"a {node.kind}"
    or_not = ", or leave the key out" if node.kind == "null" else ""
    return f"YAML reads {_cut(node.text)} as {_cut(read)}; write {quoted(node.text)}{or_not}"


def _cut(text: str) -> str:
    return text if len(text) <= 48 else f"{text[:45]}..."


def not_a_list(node: Node) -> str:
    """Return why `node` is not a list, and what to write."""
    if isinstance(node, ScalarNode) and node.kind != "null":
        return f"is one value; write a list: [{quoted(node.text)}]"
    return f"is {shown(node)}; write a list: [...]"


def not_a_map(node: Node, keys: list[str]) -> str:
    """Return why `node` is not a map, and which keys one would have."""
    return f"is {shown(node)}; write a map with {', '.join(keys)}"


def not_a_whole_number(node: Node) -> str:
    """Return why `node` is not a plain whole number, and what to write; empty if it is one."""
    if not isinstance(node, ScalarNode):
        return f"is {shown(node)}; write a whole number"
    if re.fullmatch(_WHOLE, node.text):
        return f"{shown(node)} is not a number; write {node.text} without quotes" if node.quoted else ""
    if re.fullmatch(_EXPONENT, node.text) and float(node.text).is_integer():
        return f"{shown(node)} is not a plain whole number; write {float(node.text):.0f}"
    if node.kind == "number" and node.reading.removeprefix("-").isdigit():
        return f"YAML reads {_cut(node.text)} as {_cut(node.reading)}; write the plain number"
    return f"{shown(node)} is not a whole number"


def not_the_number(node: Node, only: int) -> str:
    """Return why `node` is not the one number that is known here."""
    if isinstance(node, ScalarNode) and node.quoted and node.text == str(only):
        return f"{shown(node)} is not a number; write {only} without quotes"
    return f"{shown(node)} is not possible; this devplug reads version {only}"


def not_a_boolean(node: Node) -> str:
    """Return why `node` is neither `true` nor `false`, and what to write."""
    word = node.text.lower() if isinstance(node, ScalarNode) else ""
    meant = "true" if word in _TRUE_WORDS else "false" if word in _FALSE_WORDS else ""
    advice = f"write {meant} without quotes" if meant else "write true or false"
    return f"{shown(node)} is neither true nor false; {advice}"
