"""Regular expressions of smarter-device-manager as globs of ours, where both say the same. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from devplug.daemon.importing.goglobs import class_of, literal

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NAMES_LIMIT", "REPEATS", "Covered", "covered_by"]

NAMES_LIMIT: Final = 16
"""As many names are written out one by one; what covers more becomes globs."""

REPEATS: Final = 3
"""`[0-9]*` is taken as at most so many digits: devices have numbers below 1,000."""

GLOBS_LIMIT: Final = 64

_BOUNDS: Final = re.compile(r"\{(\d{1,3})(?:(,)(\d{0,3}))?\}")
_CLASSES: Final = {"d": "0-9", "w": "0-9A-Za-z_"}


@dataclass(frozen=True, slots=True)
class Covered:
    """The paths below /dev that a regular expression matches."""

    names: tuple[str, ...] = ()
    """All of them, if they are few; `globs` is empty then."""
    globs: tuple[str, ...] = ()
    """Globs of them, also below /dev; each of another shape."""
    prefix: str = ""
    """What all of them begin with."""
    is_bounded: bool = False
    """Whether a repetition was taken as at most `REPEATS` times."""
    is_flat: bool = False
    """Whether the regular expression also matches what is in folders, which a glob does not."""


def covered_by(regex: str) -> Covered:
    """Return what `regex` matches; raises ValueError, saying why, if no few globs say the same.

    It is one of Go's (RE2), which smarter looks for anywhere in a path below /dev (smarter:main.go:114-127).
    """
    if not regex.startswith("^") or not regex.endswith("$") or regex.endswith("\\$"):
        raise ValueError("matches anywhere in a path; anchor it, as in ^ttyUSB0$")
    parser = _Parser(regex[1:-1])
    sequences = parser.whole()
    if len(sequences) > GLOBS_LIMIT:
        raise ValueError(f"needs {len(sequences)} globs; write fewer alternatives")
    names = _names(sequences)
    if names is not None:
        return Covered(names=tuple(dict.fromkeys(names)))
    globs = dict.fromkeys("".join(one.glob for one in sequence) for sequence in sequences)
    prefixes = ["".join(_leading(sequence)) for sequence in sequences]
    return Covered((), tuple(globs), _common(prefixes), parser.is_bounded, parser.is_flat)


@dataclass(frozen=True, slots=True)
class _Piece:
    """One character, or any number of them, as a glob has it."""

    glob: str
    choices: tuple[str, ...] = ()
    """The characters that it may be; empty if they are many."""


_ANY: Final = (_Piece("?"),)
_RUN: Final = _Piece("*")

_Sequence = tuple[_Piece, ...]


def _names(sequences: Sequence[_Sequence]) -> list[str] | None:
    """Return all texts that are covered, or None if they are more than a few."""
    names: list[str] = []
    for sequence in sequences:
        count = 1
        for piece in sequence:
            count *= len(piece.choices)
        if not 0 < count <= NAMES_LIMIT - len(names):
            return None
        names += ("".join(one) for one in product(*(piece.choices for piece in sequence)))
    return names


def _leading(sequence: _Sequence) -> list[str]:
    letters: list[str] = []
    for piece in sequence:
        if len(piece.choices) != 1:
            break
        letters.append(piece.choices[0])
    return letters


def _common(texts: Sequence[str]) -> str:
    low, high = min(texts), max(texts)
    length = next((at for at, pair in enumerate(zip(low, high, strict=False)) if pair[0] != pair[1]), None)
    return low if length is None else low[:length]


class _Parser:
    """Reads the part of RE2 that people use for device names; each method returns alternatives."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.is_bounded = False
        self.is_flat = False

    def whole(self) -> list[_Sequence]:
        found = self._alternatives(depth=0)
        if self._at < len(self._text):
            raise ValueError("has a ) without its partner")
        return found

    def _next(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _alternatives(self, depth: int) -> list[_Sequence]:
        if depth > 8:
            raise ValueError("has more than 8 groups in each other")
        found = self._sequence(depth)
        while self._next() == "|":
            if depth == 0:
                raise ValueError("has | outside of a group, where ^ and $ hold for one side only")
            self._at += 1
            found += self._sequence(depth)
        return found

    def _sequence(self, depth: int) -> list[_Sequence]:
        found: list[_Sequence] = [()]
        while self._next() not in {"", "|", ")"}:
            found = [one + other for one, other in product(found, self._repeated(depth))]
            if len(found) > GLOBS_LIMIT:
                raise ValueError(f"needs more than {GLOBS_LIMIT} globs; write fewer alternatives")
        return found

    def _repeated(self, depth: int) -> list[_Sequence]:
        atoms = self._atom(depth)
        least, most = self._bounds()
        if self._next() and self._next() in "*+?{":
            raise ValueError("has a repetition of a repetition, which no glob says")
        if most is None and atoms == [_ANY]:
            return [_ANY * least + (_RUN,)]
        if most is None:
            self.is_bounded = True
            most = max(least, REPEATS)
        if len(atoms) ** most > GLOBS_LIMIT:
            raise ValueError(f"needs more than {GLOBS_LIMIT} globs; write fewer alternatives")
        return [
            tuple(piece for part in parts for piece in part)
            for count in range(least, most + 1)
            for parts in product(atoms, repeat=count)
        ]

    def _bounds(self) -> tuple[int, int | None]:
        mark = self._next()
        if mark and mark in "*+?":
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[mark]
        if mark != "{":
            return 1, 1
        found = _BOUNDS.match(self._text, self._at)
        if not found:
            raise ValueError("has a { that is no repetition; write \\{")
        self._at = found.end()
        least = int(found[1])
        most = least if not found[2] else int(found[3]) if found[3] else None
        if least > 8 or (most or 0) > 8 or (most is not None and most < least):
            raise ValueError(f"has the repetition {found[0]}; at most 8 can be written as globs")
        return least, most

    def _atom(self, depth: int) -> list[_Sequence]:
        character = self._next()
        self._at += 1
        match character:
            case "(":
                return self._group(depth)
            case "[":
                return [(self._class(),)]
            case ".":
                self.is_flat = True
                return [_ANY]
            case "\\":
                return [(self._escaped(),)]
            case "^" | "$" | "*" | "+" | "?" | "{":
                raise ValueError(f"has a {character} in its middle, which no glob says")
        return [(_one(character),)]

    def _group(self, depth: int) -> list[_Sequence]:
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif self._next() == "?":
            raise ValueError("has (?, which no glob says; write a plain group")
        found = self._alternatives(depth + 1)
        if self._next() != ")":
            raise ValueError("has a ( without its partner")
        self._at += 1
        return found

    def _escaped(self) -> _Piece:
        character = self._next()
        self._at += 1
        if character in _CLASSES:
            return _class_piece([(part[0], part[-1]) for part in _spans(_CLASSES[character])], negated=False)
        if not character or character.isalnum():
            raise ValueError(f"has \\{character}, which no glob says")
        return _one(character)

    def _class(self) -> _Piece:
        is_negated = self._next() == "^"
        self._at += is_negated
        self.is_flat |= is_negated
        ranges: list[tuple[str, str]] = []
        while not (ranges and self._next() == "]"):
            ranges += self._range()
        self._at += 1
        return _class_piece(ranges, negated=is_negated)

    def _range(self) -> list[tuple[str, str]]:
        if self._text.startswith("[:", self._at):
            raise ValueError("has a class by name; write its characters")
        if self._next() == "\\" and self._text[self._at + 1 : self._at + 2] in _CLASSES:
            self._at += 2
            return [(part[0], part[-1]) for part in _spans(_CLASSES[self._text[self._at - 1]])]
        low = self._member()
        if self._next() == "-" and self._text[self._at + 1 : self._at + 2] not in {"]", ""}:
            self._at += 1
            return [(low, self._member())]
        return [(low, low)]

    def _member(self) -> str:
        character = self._next()
        self._at += 1
        if character == "\\":
            character = self._next()
            self._at += 1
            if character.isalnum():
                raise ValueError(f"has \\{character} in [ ], which no glob says")
        if not character:
            raise ValueError("has a [ without ]")
        return character


def _spans(text: str) -> list[str]:
    return re.findall(r".-.|.", text)


def _one(character: str) -> _Piece:
    return _Piece(literal(character), (character,))


def _class_piece(ranges: Sequence[tuple[str, str]], *, negated: bool) -> _Piece:
    glob = class_of(ranges, is_negated=negated)
    if negated:
        return _Piece(glob)
    count = sum(ord(high) - ord(low) + 1 for low, high in ranges if low <= high)
    if not 0 < count <= NAMES_LIMIT:
        return _Piece(glob)
    letters = {chr(code) for low, high in ranges for code in range(ord(low), ord(high) + 1)}
    return _Piece(glob, tuple(sorted(letters)))
