"""Globs and paths that a file may name, which paths a glob covers, and what two globs both cover.

Pure: nothing is looked up. `sd[!a]?` and `sd[a-z]*` have the name `sdba` in common.
"""

from __future__ import annotations

import functools
import posixpath
import re
import string
from collections import deque
from typing import TYPE_CHECKING, Final

from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_WILDCARD: Final = re.compile(r"[*?\[]")
_BRACKETS: Final = re.compile(r"\[!?+\]?+[^\]]*\]")
_PIECE: Final = re.compile(r"\[!?+\]?+[^\]]*\]|.", re.DOTALL)
_CHARACTER: Final = re.compile(".", re.DOTALL)
_MEMBER: Final = re.compile(r"(.)-(.)|(.)", re.DOTALL)
# All of these, and what follows, take time in the length of a glob and not in its square.
_REGEX_SIGNS: Final = re.compile(r"^\^|\$$|\\|\([^(|)?\n]*[|)?]|\][+{]|\.\+|/\.\*|^\.\*")

KEPT_LIMIT: Final = 256
"""Longer globs are understood anew each time: a thousand of them would take a hundred megabytes."""

PATH_LIMIT: Final = 4095
"""The longest path (PATH_MAX of Linux, without its end mark); a longer glob covers none."""

NAME_LIMIT: Final = 255
"""The longest name of a file (NAME_MAX of Linux)."""

_ALPHABET: Final = string.digits + string.ascii_lowercase + "-"
"""What the kernel's names of disks are made of; digits first, so that the name found looks like one."""


def has_wildcard(glob: str) -> bool:
    """Whether `glob` may cover more than one path."""
    return bool(_WILDCARD.search(glob))


def path_fault(path: str) -> str | None:
    """Return what keeps `path` (or a glob) from being an absolute path in normal form, or None."""
    if not path:
        return "is empty; write an absolute path"
    if len(path) > PATH_LIMIT:
        return f"{quoted(path)} has {len(path)} characters; no path has more than {PATH_LIMIT}"
    if "\0" in path or not path.isprintable():
        return f"{quoted(path)} has control characters"
    if path.startswith("~"):
        return f"{quoted(path)}: the daemon has no home folder; write the path from / on"
    if "$" in path.rstrip("$"):
        return f"{quoted(path)}: environment variables are not replaced; write the path from / on"
    if not path.startswith("/"):
        return f"{quoted(path)} is not absolute; write the path from / on"
    if ".." in path.split("/"):
        return f'{quoted(path)} has ".."; write the path without it'
    normal = "/" + posixpath.normpath(path).lstrip("/")
    if path != normal:
        return f"{quoted(path)} is not in normal form; write {quoted(normal)}"
    return None


def regex_fault(glob: str) -> str | None:
    """Return what shows that `glob` was meant as a regular expression, or as a shell's braces, or None."""
    if len(glob) > PATH_LIMIT:
        return f"{quoted(glob)} has {len(glob)} characters; no path has more than {PATH_LIMIT}"
    if _REGEX_SIGNS.search(glob):
        return f"{quoted(glob)} looks like a regular expression; write a glob: * is any text, ? any character"
    if "{" in glob or "}" in glob:
        return f"{quoted(glob)} has braces, which a glob cannot have; write a list of globs"
    if "**" in glob:
        return f"{quoted(glob)} has **, which goes no deeper here; write one * for each level"
    if "[" in _without_brackets(glob):
        return f'{quoted(glob)} has a "[" without "]"'
    return None


def _without_brackets(glob: str) -> str:
    end = glob.rfind("]") + 1  # else each [ would look for its ] to the end of the text
    return _BRACKETS.sub("", glob[:end]) + glob[end:]


def device_glob_fault(glob: str, roots: Collection[str]) -> str | None:
    """Return what keeps `glob` from naming device nodes below one of `roots`, or None."""
    if fault := regex_fault(glob) or path_fault(glob):
        return fault
    if not any(glob.startswith(f"{root.rstrip('/')}/") for root in roots):
        return f"{quoted(glob)} is not below {' or '.join(roots)}"
    return None


def covers_whole_root(glob: str, roots: Iterable[str]) -> bool:
    """Whether `glob` covers everything at its level of a root: `/dev/*`, `/dev/?*`, `/dev/*/*`."""
    for root in roots:
        prefix = f"{root.rstrip('/')}/"
        if glob.startswith(prefix) and not _without_brackets(glob[len(prefix) :]).strip("*?/"):
            return True
    return False


def covers(glob: str, path: str) -> bool:
    """Whether `glob` covers `path`: as in a shell, no wildcard crosses a `/` or finds a leading dot."""
    found = _WILDCARD.search(glob)
    literal = glob[: found.start()] if found else glob
    if len(glob) > PATH_LIMIT:
        return False
    if not path.startswith(literal):
        return False
    pattern = _kept(glob) if len(glob) <= KEPT_LIMIT else _compiled(glob)
    return bool(pattern.fullmatch(path))


@functools.lru_cache(maxsize=1_024)
def _kept(glob: str) -> re.Pattern[str]:
    return _compiled(glob)


def _compiled(glob: str) -> re.Pattern[str]:
    try:
        return re.compile("/".join(_part_regex(part) for part in glob.split("/")))
    except re.error:  # an empty range such as [z-a]
        return re.compile(r"(?!)")


def _part_regex(part: str) -> str:
    """Return the regex of one level. Atomic groups, because plain `.*` backtracks for ever on many stars."""
    runs = [""]
    for piece in _name_pieces(part):
        if piece == "*":
            runs.append("")
        else:
            runs[-1] += _piece_regex(piece)
    first, *rest = runs
    hidden = r"(?!\.)" if part[:1] in {"*", "?", "["} else ""
    if not rest:
        return hidden + first
    *middle, last = rest
    return hidden + first + "".join(f"(?>[^/]*?{run})" for run in middle) + f"[^/]*{last}"


def _name_pieces(part: str) -> list[str]:
    """Return what one level of a glob is made of: characters, `*`, `?`, and sets such as `[!a-c]`."""
    end = part.rfind("]") + 1  # else each [ would look for its ] to the end of the text
    found = (*_PIECE.finditer(part, 0, end), *_CHARACTER.finditer(part, end))
    return [piece.group() for piece in found]


def _piece_regex(piece: str) -> str:
    if piece == "?":
        return "[^/]"
    if len(piece) == 1:
        return re.escape(piece)
    is_negated = piece.startswith("[!")
    members = "".join(
        f"{re.escape(low)}-{re.escape(high)}" if low else re.escape(single)
        for low, high, single in _MEMBER.findall(piece[2 if is_negated else 1 : -1])
    )
    return f"(?!/)[{'^' if is_negated else ''}{members}]"


# ── names that two globs have in common ───────────────────────────────────────────────────────────


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
    return tuple(_name_pieces(glob))


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
