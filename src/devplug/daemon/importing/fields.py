"""The values of a peer's map by their keys, read as leniently as the peer reads them. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.daemon.grammar.tree import ListNode, MapNode, RefusedNode, ScalarNode
from devplug.daemon.grammar.wording import shown
from devplug.daemon.importing.remarks import At
from devplug.errors import quoted

if TYPE_CHECKING:
    from devplug.daemon.importing.remarks import Remarks

__all__ = ["Fields", "items_of", "text_of"]

_DIGITS: Final = re.compile(r"[0-9]{1,9}")


def items_of(at: At | None) -> list[At]:
    """Return the entries of a list; none of anything else."""
    if at is None or not isinstance(at.node, ListNode):
        return []
    return [At(node, (*at.keys, index)) for index, node in enumerate(at.node.items)]


def text_of(at: At | None) -> str | None:
    """Return a value as it is written; None of what is no single value, or nothing."""
    if at is None or not isinstance(at.node, ScalarNode):
        return None
    return None if at.node.kind == "null" else at.node.text


class Fields:
    """The map of a peer; each value is taken once, and what is left at the end the peer does not know either.

    Keys are compared without regard to case, as Go's decoders do it (encoding/json, mapstructure).
    """

    def __init__(self, at: At, remarks: Remarks, peer: str) -> None:
        self.at = at
        self._remarks = remarks
        self._peer = peer
        self._left: dict[str, At] = {}
        if isinstance(at.node, MapNode):
            for key, node in at.node.items:
                self._left.setdefault(key.text.lower(), At(node, (*at.keys, key.text)))
        elif not isinstance(at.node, RefusedNode) and shown(at.node) != "nothing":
            remarks.warn(at, f"is {shown(at.node)}, where {peer} has a map; left out")

    def take(self, key: str) -> At | None:
        """Return a value that has not been taken yet."""
        return self._left.pop(key.lower(), None)

    def text(self, key: str, default: str = "") -> str:
        """Return a text; the default, with a warning, if it is a list or a map."""
        at = self.take(key)
        if at is not None and not isinstance(at.node, ScalarNode | RefusedNode):
            self._remarks.warn(at, f"is {shown(at.node)}, where {self._peer} has a text; left out")
        found = text_of(at)
        return default if found is None else found

    def number(self, key: str, default: int) -> int:
        """Return a count; the default, with a warning, if it is none."""
        at = self.take(key)
        if at is None:
            return default
        written = text_of(at)
        if written is not None and _DIGITS.fullmatch(written):
            return int(written)
        if written is not None:
            what = f"{quoted(written)} is no whole number; taken as {default}"
            self._remarks.warn(at, what)
        return default

    def flag(self, key: str, *, default: bool | None = None) -> bool | None:
        """Return a boolean; the default, with a warning, if it is none."""
        at = self.take(key)
        if at is None or not isinstance(at.node, ScalarNode) or at.node.kind == "null":
            return default
        reading = at.node.reading or at.node.text.lower()
        if reading not in {"true", "false"}:
            self._remarks.warn(at, f"{quoted(at.node.text)} is neither true nor false; left out")
            return default
        return reading == "true"

    def items(self, key: str) -> list[At]:
        """Return the entries of a list; none, with a warning, if it is none."""
        at = self.take(key)
        if at is not None and not isinstance(at.node, ListNode | RefusedNode) and text_of(at) is not None:
            self._remarks.warn(at, f"is {shown(at.node)}, where {self._peer} has a list; left out")
        return items_of(at)

    def rest(self) -> None:
        """Tell of the keys that nobody has taken."""
        for at in self._left.values():
            self._remarks.note(at, f"{self._peer} does not know this key and ignores it; left out")
        self._left.clear()
