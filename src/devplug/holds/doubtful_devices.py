"""The steering away from devices that a container may still have. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["steered"]


def steered(
    available: Iterable[str], must_include: Collection[str], size: int, doubtful: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return the IDs to choose `size` from, and those that have to be chosen: doubtful IDs come last."""
    others = [one for one in available if one not in must_include]
    certain = [*must_include, *(one for one in others if one not in doubtful)]
    if len(certain) >= size:
        return certain, [*must_include]
    return [*certain, *(one for one in others if one in doubtful)], certain
