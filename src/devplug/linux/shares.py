"""The share of each peer in what a server holds for all of them: who makes room when it is full. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

Held = TypeVar("Held")


class Standing(Struct, frozen=True):
    """What decides whether something that a peer holds makes room."""

    peer: Hashable
    rank: int
    """What is unfinished has 0; the more it would be missed, the larger."""
    since: float
    """When it began, by any clock or count."""


def first_to_go(held: Mapping[Held, Standing], newcomer: Hashable) -> Held:
    """Return what makes room for one more of `newcomer`; `held` must not be empty.

    It belongs to a peer that holds most, counting the new one. So a peer that holds little loses nothing
    while another holds more. Of what those peers hold, the lowest rank goes first, and then the oldest.
    """
    counts = Counter(standing.peer for standing in held.values())
    if newcomer in counts:
        counts[newcomer] += 1
    most = max(counts.values())
    among = [one for one, standing in held.items() if counts[standing.peer] == most]
    return min(among, key=lambda one: (held[one].rank, held[one].since))
