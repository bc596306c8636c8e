"""What is right after a restart, decided on values: the IDs, and what a process takes after many of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from devplug.conformance.program import Figures

__all__ = [
    "DESCRIPTORS_MORE",
    "ENOUGH",
    "MEBIBYTE",
    "changed_ids",
    "is_calm",
    "memory_growth_bytes",
    "more_descriptors",
    "more_threads",
    "threads_more",
]

MEBIBYTE: Final = 1024 * 1024

ENOUGH: Final = 6
"""So many restarts at least tell a leak at each of them from what a runtime keeps for itself."""

DESCRIPTORS_MORE: Final = 5
"""So many descriptors may be there that were not, for what is opened late or closed late."""

_THREADS_MORE: Final = 3
_IDS_SHOWN: Final = 3


def changed_ids(before: Collection[str], after: Collection[str]) -> str:
    """Return what became of the IDs, in words; empty if they are the same."""
    gone, new = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    parts = []
    if gone:
        parts.append(f"{len(gone)} of {len(set(before))} IDs are gone ({_few(gone)})")
    if new:
        parts.append(f"{len(new)} are new ({_few(new)})")
    return ", ".join(parts)


def more_descriptors(figures: Sequence[Figures]) -> int:
    """Return how many descriptors the last figures have above the first."""
    return figures[-1].descriptors - figures[0].descriptors


def more_threads(figures: Sequence[Figures]) -> int:
    """Return how many threads came in the later half: a runtime that starts them as it needs is done then."""
    return figures[-1].threads - _half(figures).threads


def threads_more(figures: Sequence[Figures]) -> int:
    """Return how many threads may come in the later half: one at every second restart is a leak."""
    return max(_THREADS_MORE, (len(figures) - 1) // 4)


def memory_growth_bytes(figures: Sequence[Figures]) -> int:
    """Return by how much the resident memory grew in the later half."""
    return figures[-1].resident_bytes - _half(figures).resident_bytes


def is_calm(figures: Sequence[Figures]) -> bool:
    """Whether the last figures have nothing left that might still be on its way out."""
    return more_descriptors(figures) <= DESCRIPTORS_MORE and more_threads(figures) <= threads_more(figures)


def _half(figures: Sequence[Figures]) -> Figures:
    return figures[len(figures) // 2]


def _few(ids: Sequence[str]) -> str:
    more = "" if len(ids) <= _IDS_SHOWN else ", ..."
    return ", ".join(id_[:64] for id_ in ids[:_IDS_SHOWN]) + more
