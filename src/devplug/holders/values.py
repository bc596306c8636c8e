"""Holders, what becomes of their holds, and what of it outlives a process: values, all of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.exchange import PodName
    from devplug.status.values import Holder

__all__ = [
    "GRACE_SECONDS",
    "PATIENCE_SECONDS",
    "PERIOD_SECONDS",
    "Allocated",
    "Difference",
    "Identity",
    "Key",
    "Memory",
    "Released",
    "Remembered",
    "Rules",
]

PERIOD_SECONDS: Final = 10.0
"""How often the kubelet is asked, and how long an ID has to be missing from its answers."""

GRACE_SECONDS: Final = 20.0
"""How long after our Allocate an ID may be missing: the kubelet lists it once it has our answer. Akri waits
as long before it takes a slot back (peers.md, row 13 of its gaps)."""

PATIENCE_SECONDS: Final = 300.0
"""How long the absences of a kubelet that has shown no holder yet prove nothing. One that has just started
lists no pods, or only static ones, until it has heard from the API server."""

Identity: TypeAlias = tuple[int, int, int]
"""Which kubelet answered: what tells its socket from an earlier one; see `wire.sockets.socket_identity`."""

Key: TypeAlias = tuple[str, str]
"""Resource name and device ID."""


@dataclass(frozen=True, slots=True)
class Allocated:
    """An answer showed a holder that the one before did not show."""

    resource_name: str
    device_id: str
    holder: Holder


@dataclass(frozen=True, slots=True)
class Released:
    """A holder let go of a device."""

    resource_name: str
    device_id: str
    holder: Holder | None
    """None for a device that we gave out and that no answer ever showed, as for a pod that failed at once."""
    is_free: bool = True
    """Whether nobody holds it now; otherwise the kubelet has given it on already."""


Difference: TypeAlias = Allocated | Released


@dataclass(frozen=True, slots=True)
class Remembered:
    """What of one held ID outlives the process."""

    holders: tuple[Holder, ...] = ()
    is_listed: bool = True
    """Whether an answer has shown it since our last Allocate of it."""
    suspects: frozenset[PodName] | None = None
    """For an ID that no answer shows: the pods of which one may be its holder; None if that is unknown."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What of one resource outlives the process: what was held, and the kubelet that was believed."""

    kubelet: Identity | None = None
    """The last kubelet that has shown a holder, of whatever resource."""
    held: Mapping[str, Remembered] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rules:
    """The times of a ledger, in seconds of its owner's clock."""

    period_seconds: float = PERIOD_SECONDS
    grace_seconds: float = GRACE_SECONDS
    patience_seconds: float = PATIENCE_SECONDS
