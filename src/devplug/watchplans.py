"""Which folders to watch for what a glob matches, also where it leads through folders that come and go."""

from __future__ import annotations

import fnmatch
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["folders_to_watch", "is_glob"]


def folders_to_watch(patterns: Iterable[str]) -> dict[str, set[str]]:
    """Return the existing folders on the way to each absolute glob, with the names that matter in each.

    The last folder tells of what the glob matches; the ones before it tell when a missing folder is made, or
    a present one is removed and made again, as udev does with /dev/serial/by-id.
    """
    plan: dict[str, set[str]] = {}
    for pattern in patterns:
        folders = ["/"]
        names = pattern.strip("/").split("/")
        for depth, name in enumerate(names):
            for folder in folders:
                plan.setdefault(folder, set()).add(name)
            if depth < len(names) - 1:
                folders = [inner for folder in folders for inner in _subfolders(folder, name)]
    return plan


def _subfolders(folder: str, name: str) -> Iterator[str]:
    if not is_glob(name):
        path = Path(folder, name)
        with suppress(PermissionError):  # what nobody lets us see is not there for us
            if path.is_dir():
                yield str(path)
        return
    try:
        with os.scandir(folder) as entries:
            matched = [e.path for e in entries if fnmatch.fnmatchcase(e.name, name) and e.is_dir()]
    except OSError:
        return
    yield from sorted(matched)


def is_glob(name: str) -> bool:
    """Whether a name of one level may match more than itself."""
    return any(character in name for character in "*?[")
