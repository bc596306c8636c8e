"""Which paths and globs a file may name, and which paths a glob covers. Pure: nothing is looked up."""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING, Final

from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = [
    "DISK_NODES",
    "MEMORY_NODES",
    "covers",
    "covers_whole_root",
    "dangerous_fault",
    "device_glob_fault",
    "has_wildcard",
    "path_fault",
    "regex_fault",
]

MEMORY_NODES: Final = ("mem", "kmem", "port")
"""Nodes directly below a root that hand out the machine itself. No key allows them."""

DISK_NODES: Final = (
    "sd[a-z]*",
    "vd[a-z]*",
    "xvd[a-z]*",
    "nvme[0-9]*n[0-9]*",
    "mmcblk[0-9]*",
    "dm-[0-9]*",
    "md[0-9]*",
)
"""Globs of whole disks and partitions directly below a root; they need `allow: [rawDisks]`."""

_DISK_SAMPLES: Final = (
    *("sda", "sda1", "sdb", "vda", "vda1", "nvme0n1", "nvme0n1p1", "nvme1n1"),
    *("mmcblk0", "mmcblk0p1", "dm-0", "dm-1", "md0", "md127"),
)
_WILDCARD: Final = re.compile(r"[*?\[]")
_BRACKETS: Final = re.compile(r"\[!?(?:\][^\]]*|[^\]]+)\]")
_TOKEN: Final = re.compile(r"\[(!?)(\][^\]]*|[^\]]+)\]|.", re.DOTALL)
_MEMBER: Final = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_REGEX_SIGNS: Final = re.compile(r"^\^|\$$|\\|\(.*[|)?]|\][+{]|\.\+|/\.\*|^\.\*")


def has_wildcard(glob: str) -> bool:
    """Whether `glob` may cover more than one path."""
    return bool(_WILDCARD.search(glob))


def path_fault(path: str) -> str | None:
    """Return what keeps `path` (or a glob) from being an absolute path in normal form, or None."""
    if not path:
        return "is empty; write an absolute path"
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
    normal = "/" + os.path.normpath(path).lstrip("/")
    if path != normal:
        return f"{quoted(path)} is not in normal form; write {quoted(normal)}"
    return None


def regex_fault(glob: str) -> str | None:
    """Return what shows that `glob` was meant as a regular expression, or as a shell's braces, or None."""
    if _REGEX_SIGNS.search(glob):
        return f"{quoted(glob)} looks like a regular expression; write a glob: * is any text, ? any character"
    if "{" in glob or "}" in glob:
        return f"{quoted(glob)} has braces, which globs do not know; write a list of globs"
    if "**" in glob:
        return f"{quoted(glob)} has **, which goes no deeper here; write one * for each level"
    if "[" in _BRACKETS.sub("", glob):
        return f'{quoted(glob)} has a "[" without "]"'
    return None


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
        if glob.startswith(prefix) and not _BRACKETS.sub("", glob[len(prefix) :]).strip("*?/"):
            return True
    return False


def dangerous_fault(
    glob: str,
    exclude: Iterable[str],
    roots: Iterable[str],
    *,
    raw_disks_allowed: bool,
) -> str | None:
    """Return which memory or disk nodes `glob` would hand out although nothing allows it, or None.

    A glob over a whole root is not judged here: it is allowed as such, and discovery leaves those nodes out.
    """
    exclude = list(exclude)
    for root in roots:
        if covers_whole_root(glob, [root]):
            continue
        for name in (*MEMORY_NODES, *(() if raw_disks_allowed else _DISK_SAMPLES)):
            node = f"{root.rstrip('/')}/{name}"
            if not covers(glob, node) or any(covers(left_out, node) for left_out in exclude):
                continue
            if name in MEMORY_NODES:
                what = f"{quoted(node)} is the machine's own memory, which is never given out"
                return f"{what}; exclude it" if has_wildcard(glob) else what
            advice = "exclude it, or write" if has_wildcard(glob) else "write"
            return f"{quoted(node)} is a whole disk; {advice} allow: [rawDisks]"
        disks = (f"{root.rstrip('/')}/{disk}" for disk in DISK_NODES)
        if not raw_disks_allowed and not has_wildcard(glob) and any(covers(disk, glob) for disk in disks):
            return f"{quoted(glob)} is a whole disk; write allow: [rawDisks]"
    return None


def covers(glob: str, path: str) -> bool:
    """Whether `glob` covers `path`: as in a shell, no wildcard crosses a `/` or finds a leading dot."""
    found = _WILDCARD.search(glob)
    literal = glob[: found.start()] if found else glob
    return path.startswith(literal) and bool(_compiled(glob).fullmatch(path))


@functools.lru_cache(maxsize=4_096)
def _compiled(glob: str) -> re.Pattern[str]:
    try:
        return re.compile("/".join(_part_regex(part) for part in glob.split("/")))
    except re.error:  # an empty range such as [z-a]
        return re.compile(r"(?!)")


def _part_regex(part: str) -> str:
    """Return the regex of one level. Atomic groups, because plain `.*` backtracks for ever on many stars."""
    runs = [""]
    for token in _TOKEN.finditer(part):
        if token.group() == "*":
            runs.append("")
        else:
            runs[-1] += _token_regex(token)
    first, *rest = runs
    hidden = r"(?!\.)" if part[:1] in {"*", "?", "["} else ""
    if not rest:
        return hidden + first
    *middle, last = rest
    return hidden + first + "".join(f"(?>[^/]*?{run})" for run in middle) + f"[^/]*{last}"


def _token_regex(token: re.Match[str]) -> str:
    match token.group():
        case "?":
            return "[^/]"
        case text if len(text) == 1:
            return re.escape(text)
    members = "".join(
        f"{re.escape(low)}-{re.escape(high)}" if low else re.escape(single)
        for low, high, single in _MEMBER.findall(token.group(2))
    )
    return f"(?!/)[{'^' if token.group(1) else ''}{members}]"
