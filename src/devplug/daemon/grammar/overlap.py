"""Whether two globs of names have a name in common, and which: `sd[!a]?` and `sd[a-z]*` have `sdba`. Pure."""

from __future__ import annotations

import functools
import string
from collections import deque
from typing import TYPE_CHECKING, Final

from devplug.daemon.grammar.globs import covers, name_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NAME_LIMIT", "name_in_both"]

NAME_LIMIT: Final = 255
"""The longest name of a file (NAME_MAX of Linux)."""

_ALPHABET: Final = string.digits + string.ascii_lowercase + "-"
"""What the kernel's names of disks are made of; digits first, so that the name found looks like one."""


def name_in_both(one: str, other: str) -> str | None:
    """Return a name of lower-case letters, digits and dashes that both globs cover, or None.

    Both are globs of one name, without a `/`. It takes time in the product of their lengths.
    """
    left, right = _pieces(one), _pieces(other)
    if any(len(pieces) - pieces.count("*") > NAME_LIMIT for pieces in (left, right)):
        return None
    if _differ(left, right) or _differ(left[::-1], right[::-1]):
        return None  # which is so of most, and quickly seen
    seen = {(0, 0)}
    waiting = deque([(0, 0, "")])
    while waiting:
        at_left, at_right, name = waiting.popleft()
        if at_left == len(left) and at_right == len(right):
            return name
        for step_left, step_right, character in _steps(left[at_left:][:1], right[at_right:][:1]):
            place = (at_left + step_left, at_right + step_right)
            if place not in seen:
                seen.add(place)
                waiting.append((*place, name + character))
    return None


def _differ(left: tuple[str, ...], right: tuple[str, ...]) -> bool:
    """Whether two globs have no name in common by what is before the first star of either."""
    for ours, theirs in zip(left, right, strict=False):
        if "*" in {ours, theirs}:
            return False
        if not _members(ours) & _members(theirs):
            return True
    return False


@functools.lru_cache(maxsize=256)
def _pieces(glob: str) -> tuple[str, ...]:
    return tuple(name_pieces(glob))


def _steps(left: tuple[str, ...], right: tuple[str, ...]) -> Iterator[tuple[int, int, str]]:
    """Yield how far both go on with one character, or with none where a star ends."""
    if "*" in left:
        yield 1, 0, ""
    if "*" in right:
        yield 0, 1, ""
    if left and right and (common := _members(left[0]) & _members(right[0])):
        # The lowest bit is the alphabet's first character.
        character = _ALPHABET[(common & -common).bit_length() - 1]
        yield int("*" not in left), int("*" not in right), character


@functools.lru_cache(maxsize=256)
def _members(piece: str) -> int:
    """Return what of the alphabet one piece stands for, a bit for each character."""
    return sum(1 << at for at, character in enumerate(_ALPHABET) if covers(piece, character))
