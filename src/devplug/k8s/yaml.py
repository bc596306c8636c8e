"""YAML text in block style, for people and for `load`: maps, lists, texts, numbers. Pure.

Written here and not by a library, so that a text is in quotes wherever a reader of YAML 1.1 could take it for
something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

Value: TypeAlias = "Mapping[str, Value] | Sequence[Value] | str | int | float | bool | None"
"""What can be written: what JSON knows, too."""

_PLAIN: Final = re.compile(r"(?![0-9A-Fa-f]{2,}$)[A-Za-z/][A-Za-z0-9/._+-]*", re.ASCII)
"""Hex digits are in quotes all the same: one more digit, and YAML would read a number."""

_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "inf", "nan"})


def yaml_text(value: Value) -> str:
    """Return `value` as the lines of a YAML document, each with its end."""
    return "".join(f"{line}\n" for line in _lines(value))


def comments(lines: Iterable[str]) -> str:
    """Return each text as one line of comment: a line break in it would make YAML of the rest."""
    return "".join(f"# {' '.join(text.splitlines())}\n" for text in lines)


def flow(value: Value) -> str:
    """Return `value` on one line, as in `{vendor: "0403", product: "6001"}`."""
    match value:
        case Mapping():
            return "{" + ", ".join(f"{flow(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
        case str():
            return value if _is_plain(value) else f'"{"".join(map(_in_quotes, value))}"'
        case Sequence():
            return "[" + ", ".join(flow(inner) for inner in value) + "]"
    return json.dumps(value)


def _in_quotes(character: str) -> str:
    if character in {'"', "\\"}:
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def _is_plain(text: str) -> bool:
    return bool(_PLAIN.fullmatch(text)) and text.lower() not in _WORDS


def _literal(text: str) -> list[str]:
    """Return the lines of a text that can stand as it is, as a file does; empty for any other."""
    *lines, rest = text.split("\n")
    can_stand = (
        not rest and lines and lines[0].strip() and lines[-1].strip() and all(map(str.isprintable, lines))
    )
    return lines if can_stand and not lines[0].startswith(" ") else []


def _lines(value: Value) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [line for key, inner in value.items() for line in _entry(f"{flow(key)}:", inner)]
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        lines = []
        for inner in value:
            first, *rest = _lines(inner)
            lines += [f"- {first}", *(f"  {line}" if line else "" for line in rest)]
        return lines
    return [flow(value)]


def _entry(key: str, value: Value) -> list[str]:
    if isinstance(value, str) and (lines := _literal(value)):
        return [f"{key} |", *(f"  {line}" if line else "" for line in lines)]
    if isinstance(value, str) or not isinstance(value, Mapping | Sequence) or not value:
        return [f"{key} {flow(value)}"]
    if isinstance(value, Sequence) and not any(isinstance(one, Mapping | list | tuple) for one in value):
        return [f"{key} {flow(value)}"]
    return [key, *(f"  {line}" if line else "" for line in _lines(value))]
