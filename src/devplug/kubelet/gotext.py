"""Text as Go programs print it, where the kubelet's messages and files contain it. Pure."""

from __future__ import annotations

import json
from typing import Final

_HTML: Final = str.maketrans(
    {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    },
)
"""What Go's encoding/json escapes beyond the JSON rules."""


def go_json(value: object) -> str:
    """Return the compact JSON that Go writes; keys stay in the order in which they come."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_HTML)


_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def go_quoted(text: str) -> str:
    """Return `text` as the verb `%q` of Go's fmt prints it."""
    return f'"{"".join(map(_quoted_character, text))}"'


def _quoted_character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
