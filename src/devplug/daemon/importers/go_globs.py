"""Globs of Go's filepath.Match, which squat's plugin uses, as globs of ours. Pure."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_SPECIAL: Final = frozenset("*?[")


def literal(text: str) -> str:
    """Return the glob that covers `text` alone."""
    return "".join(f"[{character}]" if character in _SPECIAL else character for character in text)


def glob_of(pattern: str) -> tuple[str, bool]:
    """Return the glob of ours that covers what `pattern` covers, and whether that may be several paths.

    Go's rules (go:src/path/filepath/match.go, Match): `^` and not `!` negates a class, a backslash makes the
    next character an ordinary one, `**` is `*`. The path is cleaned before, as squat:absolute/fs.go does with
    filepath.Rel. One thing stays different: Go's wildcards also cover names with a leading dot, which no
    device node has. Raises ValueError, saying why, for what is no pattern, or cannot be said here.
    """
    if not pattern.startswith("/"):
        raise ValueError("is not absolute, so squat's plugin cannot find it")
    pattern = "/" + posixpath.normpath(pattern).lstrip("/")
    text, at, is_wild = "", 0, False
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "\\":
            if at == len(pattern):
                raise ValueError("ends in a backslash, so squat's plugin cannot read it")
            text += literal(pattern[at])
            at += 1
        elif character == "[":
            part, at, is_class = _class(pattern, at)
            text += part
            is_wild |= is_class
        elif character in "*?":
            is_wild = True
            text += "" if character == "*" and text.endswith("*") else character
        else:
            text += character
    return text, is_wild


def _class(pattern: str, at: int) -> tuple[str, int, bool]:
    """Return the class that begins before `at`, where it ends, and whether it covers several characters."""
    is_negated = pattern.startswith("^", at)
    at += is_negated
    ranges: list[tuple[str, str]] = []
    while not (ranges and pattern.startswith("]", at)):
        low, at = _member(pattern, at)
        high = low
        if pattern.startswith("-", at):
            high, at = _member(pattern, at + 1)
        ranges.append((low, high))
    single = not is_negated and len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    return class_of(ranges, is_negated=is_negated), at + 1, not single


def _member(pattern: str, at: int) -> tuple[str, int]:
    escaped = pattern.startswith("\\", at)
    at += escaped
    if at >= len(pattern) or (not escaped and pattern[at] in "-]"):
        raise ValueError("has a [ ] that Go cannot read, so squat's plugin finds nothing")
    return pattern[at], at + 1


def class_of(ranges: Iterable[tuple[str, str]], *, is_negated: bool) -> str:
    """Return the class of these characters, from and to, as a glob of ours.

    Raises ValueError if it covers nothing or cannot be written: in our globs `]` stands first in a class and
    `-` last, and a backslash nowhere.
    """
    ranges = sorted({(low, high) for low, high in ranges if low <= high})
    singles = {low for low, high in ranges if low == high}
    spans = [(low, high) for low, high in ranges if low < high]
    if not ranges:
        raise ValueError("has a [ ] that covers no character")
    if any(end in "]-\\!" for span in spans for end in span):
        raise ValueError("has a [ ] with ], - or ! at the end of a range, which cannot be written here")
    if len(singles) == 1 and not spans and not is_negated:
        return literal(next(iter(singles)))
    first = "]" if "]" in singles else ""
    last = "".join(mark for mark in "!-" if mark in singles)
    middle = "".join(f"{low}-{high}" for low, high in spans) + "".join(sorted(singles - set("]!-")))
    if not is_negated and not first + middle:  # only ! and - are in it, and ! may not come first
        return "[-!]"
    return f"[{'!' if is_negated else ''}{first}{middle}{last}]"
