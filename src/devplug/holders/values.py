"""Holders, what becomes of their holds, and what of it outlives a process: values, all of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from devplug.status.values import Holder

__all__ = [
    "GRACE_SECONDS",
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
    """Those that the last answer with this ID named."""
    kubelet: Identity | None = None
    """Whose answer that was; None if no answer has shown it since our last Allocate of it."""


Memory: TypeAlias = Mapping[str, Remembered]
"""What of one resource outlives the process: what was held, by device ID."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The times of a ledger, in seconds of its owner's clock."""

    period_seconds: float = PERIOD_SECONDS
    grace_seconds: float = GRACE_SECONDS
