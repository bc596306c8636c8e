"""The tree that a file's text becomes: lists, maps and scalars, each with its place. Pure values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from devplug.errors import Problem, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = [
    "Document",
    "Finding",
    "Keys",
    "Kind",
    "ListNode",
    "MapNode",
    "Node",
    "RefusedNode",
    "ScalarNode",
    "path_text",
]

Keys: TypeAlias = tuple[str | int, ...]
"""The way to a value: keys of maps and indices of lists."""

Kind: TypeAlias = Literal["text", "number", "boolean", "null", "other"]
"""What YAML takes a plain scalar for; `other` are dates and what only YAML knows."""

_DECIMAL: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII)
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


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
        return self.kind == "number" and bool(_DECIMAL.fullmatch(self.text))


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
        elif _PLAIN_KEY.fullmatch(key):
            text += f".{key}" if text else key
        else:
            text += f"[{quoted(key)}]"
    return text
