"""Semantic versions as Kubernetes reads and compares them in CEL (apiserver cel/library/semver.go). Pure."""

from __future__ import annotations

from functools import lru_cache, total_ordering
from typing import NamedTuple

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-")
_DIGITS = frozenset("0123456789")


class SemverError(ValueError):
    """A text is no version; the sentence is the one of the library that Kubernetes uses."""


class _Parts(NamedTuple):
    major: int
    minor: int
    patch: int
    before: tuple[str, ...]


@total_ordering
class Semver:
    """A version; what stands after `+` counts for nothing."""

    def __init__(self, parts: _Parts) -> None:
        self.major, self.minor, self.patch, self._before = parts

    def __str__(self) -> str:
        """Return the version without what stands after `+`."""
        core = f"{self.major}.{self.minor}.{self.patch}"
        return f"{core}-{'.'.join(self._before)}" if self._before else core

    def __eq__(self, other: object) -> bool:
        """Whether the versions rank equally."""
        return isinstance(other, Semver) and self._rank == other._rank

    def __lt__(self, other: Semver) -> bool:
        """Whether this one comes before the other; what is before a release ranks lower than it."""
        return self._rank < other._rank

    def __hash__(self) -> int:
        """Equal versions have one hash."""
        return hash(self._rank)

    @property
    def _rank(self) -> tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]:
        before = tuple((False, int(one), "") if _is_number(one) else (True, 0, one) for one in self._before)
        return self.major, self.minor, self.patch, not before, before

    @classmethod
    @lru_cache(maxsize=4096)
    def parse(cls, text: str, *, is_lenient: bool = False) -> Semver:
        """Read a version; lenient is what `semver(text, true)` takes: `v1.02`. Raises `SemverError`."""
        return cls(_parts(_normalised(text) if is_lenient else text))


def _is_number(text: str) -> bool:
    return bool(text) and set(text) <= _DIGITS


def _normalised(text: str) -> str:
    """Return a text without a leading `v` and zeroes, and with the parts that are missing."""
    text = text.removeprefix("v")
    end = min((at for at in (text.find("-"), text.find("+")) if at >= 0), default=len(text))
    core, rest = text[:end], text[end:]
    numbers = [one.lstrip("0") or "0" if one else one for one in core.split(".")]
    if len(numbers) < 3 and rest:
        raise SemverError("Short version cannot contain PreRelease/Build meta data")
    return ".".join(numbers + ["0"] * (3 - len(numbers))) + rest


def _parts(text: str) -> _Parts:
    if not text:
        raise SemverError("Version string empty")
    pieces = text.split(".", 2)
    if len(pieces) != 3:
        raise SemverError("No Major.Minor.Patch elements found")
    major, minor = _number("Major", pieces[0]), _number("Minor", pieces[1])
    rest, plus, build = pieces[2].partition("+")
    patch, dash, before = rest.partition("-")
    if plus:
        for one in build.split("."):
            _identifier("Build meta data", one)
    found = tuple(before.split(".")) if dash else ()
    number = _number("Patch", patch)
    for one in found:
        _identifier("Prerelease", one)
        if _is_number(one) and len(one) > 1 and one.startswith("0"):
            raise SemverError(f'Numeric PreRelease version must not contain leading zeroes "{one}"')
    return _Parts(major, minor, number, found)


def _number(word: str, text: str) -> int:
    if not _is_number(text):
        raise SemverError(f'Invalid character(s) found in {word.lower()} number "{text}"')
    if len(text) > 1 and text.startswith("0"):
        raise SemverError(f'{word} number must not contain leading zeroes "{text}"')
    return int(text)


def _identifier(word: str, text: str) -> None:
    if not text:
        raise SemverError(f"{word} is empty")
    if not set(text) <= _LETTERS | _DIGITS:
        raise SemverError(f'Invalid character(s) found in {word.lower()} "{text}"')
