"""A draft of a resource, made of the fields of another plugin's file, and the remarks on the way. Pure.

Fields are read by their keys, as leniently as the other plugin reads them; each value has its place in that
file. The loader has not judged a draft yet.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.daemon.config.tree import (
    Keys,
    ListNode,
    MapNode,
    Node,
    RefusedNode,
    ScalarNode,
    path_text,
    shown,
)
from devplug.errors import Problem, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.k8s.yaml import Value

FOLDERS: Final[dict[str, dict[str, Value]]] = {
    "/dev/bus/usb": {"subsystem": "usb", "name": "usb1"},
    "/dev/dri": {"subsystem": "drm", "name": "renderD128"},
    "/dev/infiniband": {"subsystem": "misc", "name": "rdma_cm"},
    "/dev/input": {"subsystem": "input", "name": "mice"},
    "/dev/net": {"subsystem": "misc", "name": "tun"},
    "/dev/snd": {"subsystem": "sound", "name": "timer"},
    "/dev/vfio": {"subsystem": "misc", "name": "vfio"},
}
"""The folders that peers' files give out like a device node, which a runtime takes for all nodes in it,
and for each the selector of one device that is there whenever the folder is."""

_DIGITS: Final = re.compile(r"[0-9]{1,9}")


# ── drafts ────────────────────────────────────────────────────────────────────────────────────────


def as_template(text: str) -> str:
    """Return a template that is this text, braces included."""
    return text.replace("{", "{{").replace("}", "}}")


@dataclass(slots=True)
class Draft:
    """One resource; changed until it loads."""

    at: At
    """The value of the other plugin's file that it was made from."""
    name: str
    kind: str
    """The kind of discovery."""
    selectors: list[tuple[Value, At]]
    """Each selector, and what it was made from; at least one."""
    expose: dict[str, Value] = field(default_factory=dict)
    share: dict[str, Value] = field(default_factory=dict)
    others: dict[str, Value] = field(default_factory=dict)
    """Further keys of the resource."""
    allow: set[str] = field(default_factory=set)
    is_overlapping: bool = False
    """Whether another resource of the file has some of the same devices."""

    def value(self, *, is_short: bool = True) -> dict[str, Value]:
        """Return the resource as the file has it; `is_short` writes a single selector without a list."""
        selectors: list[Value] = [selector for selector, _ in self.selectors]
        one_only = is_short and len(selectors) == 1
        value: dict[str, Value] = {
            "name": self.name,
            "discover": {self.kind: selectors[0] if one_only else selectors},
        }
        if self.expose:
            value["expose"] = self.expose
        if self.share:
            value["share"] = self.share
        if self.is_overlapping:
            value["overlap"] = "shared"
        value |= self.others
        if self.allow:
            value["allow"] = sorted(self.allow)
        return value


# ── remarks ───────────────────────────────────────────────────────────────────────────────────────


class Grade(enum.Enum):
    """How important a remark is."""

    NOTE = "note"
    """It is translated and works differently from before; nothing needs to be done."""
    WARNING = "warning"
    """Something was left out, or pods must be changed."""


@dataclass(frozen=True, slots=True)
class At:
    """A value of the peer's file, and the way to it."""

    node: Node
    keys: Keys = ()

    def problem(self, message: str) -> Problem:
        """Return `message` with the place of this value."""
        return Problem(self.node.line, self.node.column, path_text(self.keys), message)


@dataclass(frozen=True, slots=True)
class Remark:
    """One remark on a translation."""

    grade: Grade
    problem: Problem


@dataclass(slots=True)
class Remarks:
    """The remarks on one translation."""

    _all: dict[Remark, None] = field(default_factory=dict)
    _noted_once: set[str] = field(default_factory=set)

    def note(self, at: At, message: str) -> None:
        """Add that something is translated and works differently."""
        self._all[Remark(Grade.NOTE, at.problem(message))] = None

    def note_once(self, at: At, message: str) -> None:
        """Add, once, what holds for the whole file, at the first place where it matters."""
        if message not in self._noted_once:
            self._noted_once.add(message)
            self.note(at, message)

    def warn(self, at: At, message: str) -> None:
        """Add that something was left out, and what to do about it."""
        self._all[Remark(Grade.WARNING, at.problem(message))] = None

    def __iter__(self) -> Iterator[Remark]:
        """Yield the remarks in file order."""
        return iter(sorted(self._all, key=lambda one: (one.problem, one.grade.value)))


# ── fields ────────────────────────────────────────────────────────────────────────────────────────


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
        """Warn of the keys that were not taken."""
        for at in self._left.values():
            self._remarks.note(at, f"{self._peer} does not know this key and ignores it; left out")
        self._left.clear()
