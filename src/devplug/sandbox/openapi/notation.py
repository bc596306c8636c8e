"""How the tables of fields are written: `name! image args:[string] limits:{Quantity} *ProbeHandler`.

Words apart by spaces: a field's name, `!` if it has to be there, `:` and its type, `[…]` for a list of that
type and `{…}` for a map of texts to it. Without a type it is a text. `*Type` stands for the fields of another
type, which has no place of its own in an object (a Go struct's embedded one).
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Field", "Form", "read_fields"]

_FIELD: Final = re.compile(r"(?P<name>\w+)(?P<required>!?)(:(?P<open>[\[{]?)(?P<type>[\w.]+)[\]}]?)?")


class Form(enum.Enum):
    """How many values of its type a field has."""

    ONE = ""
    LIST = "["
    MAP = "{"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a type, for as long as the program runs."""

    name: str
    type: str
    """The name of the type of its value, or of each of its values."""
    form: Form
    required: bool
    embedded: str
    """The Go struct inside of its type that it is written in; mostly empty."""


def read_fields(notation: str, tables: Mapping[str, str], embedded: str = "") -> Iterator[Field]:
    """Yield the fields of a type; `tables` has the types that it names with `*`."""
    for word in notation.split():
        if word.startswith("*"):
            yield from read_fields(tables[word[1:]], tables, word[1:])
            continue
        found = _FIELD.fullmatch(word)
        assert found is not None, word
        yield Field(
            found["name"],
            found["type"] or "string",
            Form(found["open"] or ""),
            bool(found["required"]),
            embedded,
        )
