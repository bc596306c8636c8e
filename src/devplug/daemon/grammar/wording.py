"""What to tell people about a value of the wrong kind: what YAML made of it, and what to write. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from devplug.daemon.grammar.tree import ListNode, MapNode, ScalarNode
from devplug.errors import quoted

if TYPE_CHECKING:
    from devplug.daemon.grammar.tree import Node

__all__ = [
    "not_a_boolean",
    "not_a_list",
    "not_a_map",
    "not_a_text",
    "not_a_whole_number",
    "not_the_number",
    "read_as_a_map",
    "shown",
]

_WHOLE: Final = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)
_EXPONENT: Final = re.compile(r"\d{1,3}(\.\d{1,3})?[eE]\+?\d{1,2}", re.ASCII)
_TRUE_WORDS: Final = frozenset({"yes", "on", "y", "true"})
_FALSE_WORDS: Final = frozenset({"no", "off", "n", "false"})


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
    if _WHOLE.fullmatch(node.text):
        return f"{shown(node)} is not a number; write {node.text} without quotes" if node.quoted else ""
    if _EXPONENT.fullmatch(node.text) and float(node.text).is_integer():
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
