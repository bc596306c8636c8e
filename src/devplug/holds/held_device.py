"""A device that a container holds, and the file with the holds of one resource. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from devplug.errors import AllocationError
from devplug.holds.hardware import Hardware, Use, use_entry
from devplug.status import Holder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.wire.values import SocketIdentity

# ── values ──

PERIOD_SECONDS: Final = 10.0
"""The period of the questions."""

ABSENCE_SECONDS: Final = 3.0
"""How far apart two answers without an ID are at least before it is free. The container of a pod that was
deleted by force outlives the kubelet's books by some seconds (reference of the kubelet, L4)."""

GRACE_SECONDS: Final = 20.0
"""How long after our Allocate an ID may be missing: the kubelet lists it once it has our answer. Akri waits
as long before it takes a slot back (peers.md, row 13 of its gaps)."""

Key: TypeAlias = tuple[str, str]
"""Resource name and device ID."""


class Allocated(Struct, frozen=True):
    """An answer showed a holder that the one before did not show."""

    resource_name: str
    device_id: str
    holder: Holder


class Released(Struct, frozen=True):
    """A holder let go of a device."""

    resource_name: str
    device_id: str
    holder: Holder | None
    """None for a device that we gave out and no answer listed, as for a pod that failed at once."""
    is_free: bool = True
    """Whether it is free now; otherwise the kubelet has already given it to another container."""


Difference: TypeAlias = Allocated | Released


class Remembered(Struct, frozen=True):
    """What is kept of one held ID for the next process."""

    holders: tuple[Holder, ...] = ()
    """The holders in the last answer with this ID."""
    kubelet: SocketIdentity | None = None
    """The kubelet of that answer; None if no answer has listed the ID since our last Allocate of it."""
    use: Use | None = None
    """What the container got; None where an older version has recorded the hold."""


Memory: TypeAlias = Mapping[str, Remembered]
"""What is kept of one resource for the next process: what was held, by device ID."""


class Rules(Struct, frozen=True):
    """The times of a ledger, in seconds of its owner's clock."""

    period_seconds: float = PERIOD_SECONDS
    absence_seconds: float = ABSENCE_SECONDS
    grace_seconds: float = GRACE_SECONDS
    trusts_empty: bool = False
    """Whether an answer without any pod shows that nothing is held. A kubelet that has just started answers
    so for a second, or as long as the API server is away (reference of the kubelet, L6)."""


class NotCleanedError(AllocationError):
    """Devices of a claim are to be cleaned up later: they are unplugged, or in use in another way."""

    def __init__(self, device_ids: Iterable[str]) -> None:
        self.device_ids = frozenset(device_ids)
        super().__init__(f"not cleaned up yet: {', '.join(sorted(self.device_ids))}")


# ── the text of a ledger file ──

_VERSION: Final = 2

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def ledger_text(resource_name: str, memory: Memory, owner: str = "") -> str:
    """Return the text that `ledger_memory` reads. `owner` names what serves the resource."""
    kubelets = sorted({held.kubelet for held in memory.values() if held.kubelet is not None})
    places = {kubelet: place for place, kubelet in enumerate(kubelets)}
    # Entry by entry: one call for all of many thousands would let no other thread run meanwhile, and as
    # many dictionaries at a time would make the collector walk through all there is.
    held = ",".join(
        f"{_encode(device_id)}:{_encode(_entry(memory[device_id], places))}" for device_id in sorted(memory)
    )
    head: dict[str, Any] = {"version": _VERSION, "resource": resource_name, "kubelets": kubelets}
    if owner:
        head["owner"] = owner
    return f'{_encode(head)[:-1]},"held":{{{held}}}}}\n'


class _Held(Struct):
    """One entry of a ledger file. An older version writes less, a newer one may write more."""

    holders: tuple[tuple[str, str, str], ...]
    kubelet: int | None = None
    name: str | None = None
    hardware: tuple[str, str, bool] | None = None
    numbers: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    boot: str = ""
    shared: bool = False
    dirty: bool = False


class _File(Struct):
    version: int
    resource: str
    kubelets: tuple[tuple[int, int, int], ...]
    held: dict[str, _Held]
    owner: str = ""


class Recorded(Struct, frozen=True):
    """The content of a ledger file."""

    resource_name: str
    memory: Memory
    owner: str = ""
    """What has served the resource: `IN_CODE`, or empty for a daemon."""


def recorded(content: bytes) -> Recorded:
    """Read the content of a ledger file; raises `ValueError` for what `ledger_text` has not written."""
    try:
        file = msgspec.json.decode(content, type=_File)
        if file.version != _VERSION:
            raise ValueError(f"version {file.version} is not {_VERSION}")
        # Most of the holders are the same few containers.
        known: dict[tuple[str, str, str], Holder] = {}
        memory = {device_id: _remembered(one, file.kubelets, known) for device_id, one in file.held.items()}
    except (LookupError, RecursionError) as error:
        raise ValueError(f"not a ledger: {error!r}") from error
    return Recorded(file.resource, memory, file.owner)


def ledger_memory(content: bytes, resource_name: str) -> Memory:
    """Read the ledger file of this resource; raises `ValueError` for another one, as `recorded` does."""
    found = recorded(content)
    if found.resource_name != resource_name:
        raise ValueError(f"it is of the resource {found.resource_name!r}, not of {resource_name}")
    return found.memory


def _entry(held: Remembered, places: Mapping[SocketIdentity, int]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "holders": [[holder.namespace, holder.pod, holder.container] for holder in held.holders],
    }
    if held.kubelet is not None:
        entry["kubelet"] = places[held.kubelet]
    if held.use is not None:
        entry |= use_entry(held.use)
    return entry


def _remembered(
    entry: _Held, kubelets: Sequence[SocketIdentity], known: dict[tuple[str, str, str], Holder]
) -> Remembered:
    use = None
    if entry.name is not None:
        hardware = None if entry.hardware is None else Hardware(*entry.hardware)
        use = Use(entry.name, hardware, entry.numbers, entry.paths, entry.boot, entry.shared, entry.dirty)
    return Remembered(
        tuple(known.setdefault(one, Holder(*one)) for one in entry.holders),
        None if entry.kubelet is None else kubelets[entry.kubelet],
        use,
    )


def only_text(value: object) -> str:
    """Return a text that was read from JSON; raises `TypeError` for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
