"""Which kernel modules a module needs, and in which order they are loaded. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["load_order"]


def load_order(modules_dep: str, names: Iterable[str]) -> list[str]:
    """Return the files of `names` and of all that they need, as `modules.dep` has them, in loading order.

    In names `-` and `_` are the same. A module that is not there is built into the kernel, or unknown; the
    drivers that a scenario misses then show which.
    """
    needs: dict[str, list[str]] = {}
    files: dict[str, str] = {}
    for line in modules_dep.splitlines():
        file, colon, needed = line.partition(":")
        if colon:
            needs[file] = needed.split()
            files[_name(file)] = file
    order: dict[str, None] = {}

    def add(file: str) -> None:
        for needed in needs.get(file, ()):
            if needed not in order:
                add(needed)
        order[file] = None

    for name in names:
        found = files.get(_name(name))
        if found is not None and found not in order:
            add(found)
    return list(order)


def _name(file: str) -> str:
    return file.rpartition("/")[2].partition(".ko")[0].replace("-", "_")
