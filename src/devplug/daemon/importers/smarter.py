"""The importer for smarter-device-manager: its entries as resources, its regular expressions as globs. Pure.

Each node that an entry matches is a resource of its own there, called after its path below /dev, with
`nummaxdevices` devices that are all the same node (smarter:main.go:185-206, server.go:154-172). An expression
becomes globs where both say the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from devplug.daemon.importers.draft import FOLDERS, Draft, Fields, items_of
from devplug.daemon.importers.go_globs import class_of, literal
from devplug.errors import quoted
from devplug.k8s.resource_names import resource_name_fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from devplug.daemon.importers.draft import At, Remarks

NAMES_LIMIT: Final = 16
"""As many names are written out one by one; what covers more becomes globs."""

REPEATS: Final = 3
"""`[0-9]*` is taken as at most so many digits: devices have numbers below 1,000."""

GLOBS_LIMIT: Final = 64

_BOUNDS: Final = re.compile(r"\{(\d{1,3})(?:(,)(\d{0,3}))?\}")
_CLASSES: Final = {"d": "0-9", "w": "0-9A-Za-z_"}

SMARTER: Final = "smarter-device-manager"

_DOMAIN: Final = "smarter-devices"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
"""smarter:main.go:95-112: everything else becomes `_`."""


# ── regular expressions ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Covered:
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


def covered_by(regex: str) -> _Covered:
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
        return _Covered(names=tuple(dict.fromkeys(names)))
    globs = dict.fromkeys("".join(one.glob for one in sequence) for sequence in sequences)
    prefixes = ["".join(_leading(sequence)) for sequence in sequences]
    return _Covered((), tuple(globs), _common(prefixes), parser.is_bounded, parser.is_flat)


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
            raise ValueError("has a repetition of a repetition, which a glob cannot express")
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
                raise ValueError(f"has a {character} in its middle, which a glob cannot express")
        return [(_one(character),)]

    def _group(self, depth: int) -> list[_Sequence]:
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif self._next() == "?":
            raise ValueError("has (?, which a glob cannot express; write a plain group")
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
            raise ValueError(f"has \\{character}, which a glob cannot express")
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
                raise ValueError(f"has \\{character} in [ ], which a glob cannot express")
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


# ── entries ───────────────────────────────────────────────────────────────────────────────────────


def smarter_drafts(config: At, remarks: Remarks) -> Iterator[Draft]:
    """Yield the resources for each entry that can be said here."""
    names: set[str] = set()
    entries = items_of(config)
    if not entries:
        remarks.warn(config, "is not a list of devicematch and nummaxdevices; left out")
    for at in entries:
        fields = Fields(at, remarks, SMARTER)
        regex, count = fields.text("devicematch"), fields.number("nummaxdevices", 0)
        fields.rest()
        if not regex:
            message = "has no devicematch, so smarter-device-manager gives out everything in /dev; left out"
            remarks.warn(at, message)
        elif count == 0:
            remarks.warn(at, "has no nummaxdevices, so it makes no device; left out")
        elif regex == "nvidia-gpu":  # smarter:main.go:161-183: the GPUs of Jetson boards
            message = (
                "the GPU of a Jetson is not known here; for a graphics card write discover: {nvidia: {}}; "
                "left out"
            )
            remarks.warn(at, message)
        else:
            yield from _drafts(at, regex, count, names, remarks)


def _drafts(at: At, regex: str, count: int, names: set[str], remarks: Remarks) -> Iterator[Draft]:
    try:
        covered = covered_by(regex)
    except ValueError as error:
        advice = "write the globs that you mean under discover.path"
        remarks.warn(at, f"the regular expression {quoted(regex)} {error}; {advice}; left out")
        return
    drafts = [_of_one_node(at, path, remarks) for path in covered.names]
    if len(drafts) > 1:
        for draft in drafts:
            draft.others["whenNone"] = "wait"
        message = (
            "each of these nodes is a resource, as before; one that does not exist yet is not registered"
        )
        remarks.note(at, message)
    if covered.globs:
        drafts = [_of_many(at, covered, names, remarks)]
    for draft in drafts:
        if count > 1:
            draft.share["replicas"] = count
        fault = resource_name_fault(draft.name)
        if fault:
            remarks.warn(at, f"{quoted(draft.name)} {fault}; the kubelet refuses it; left out")
        elif draft.name in names:
            remarks.warn(at, f"{draft.name} comes from an entry before this one, too; left out")
        else:
            names.add(draft.name)
            yield draft


def _of_one_node(at: At, path: str, remarks: Remarks) -> Draft:
    name = f"{_DOMAIN}/{_NOT_IN_NAMES.sub('_', path)}"
    node = f"/dev/{path}"
    if node not in FOLDERS:
        return Draft(at, name, "path", [(literal(node), at)])
    remarks.note(at, f"{node} is a folder: a container gets every device node that is in it")
    draft = Draft(at, name, "sysfs", [(FOLDERS[node], at)])
    draft.expose = {"deviceNodes": [], "directories": [node]}
    return draft


def _of_many(at: At, covered: _Covered, names: set[str], remarks: Remarks) -> Draft:
    """Return one resource for nodes whose names are not known beforehand."""
    base = _NOT_IN_NAMES.sub("_", covered.prefix).strip("_-") or "device"
    name = f"{_DOMAIN}/{base}"
    number = 2
    while name in names:
        name, number = f"{_DOMAIN}/{base}-{number}", number + 1
    message = (
        f"{SMARTER} makes a resource of each node; here all are devices of {name}: let pods ask for that, "
        "or write a resource for each node that they name"
    )
    remarks.warn(at, message)
    if covered.is_bounded:
        remarks.note_once(
            at, f"repetitions are taken as at most {REPEATS} characters, as in numbers below 1,000"
        )
    if covered.is_flat:
        remarks.note_once(at, "a wildcard of a glob covers no /, so what is in folders is not found")
    return Draft(at, name, "path", [(f"/dev/{glob}", at) for glob in covered.globs])
