"""A device that a container holds: its events, and what a process leaves to the next one. Pure.

A ledger file has the holds of one resource, by device ID, for the next process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from devplug.holds.hardware import use_entry, use_of_entry
from devplug.status import Holder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.holds.hardware import Use
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


# ── the text of a ledger file ──

_VERSION: Final = 2

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def ledger_text(resource_name: str, memory: Memory, owner: str = "") -> str:
    """Return the text that `ledger_memory` reads; the same for the same memory.

    `owner` names what serves the resource, for other programs.
    """
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


def ledger_memory(text: str, resource_name: str) -> Memory:
    """Read such a text; raises `ValueError` for what `ledger_text` has not written for this resource."""
    try:
        content = json.loads(text)
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']} is not {_VERSION}")
        if content["resource"] != resource_name:
            raise ValueError(f"it is of the resource {content['resource']!r}, not of {resource_name}")
        kubelets = [_kubelet(one) for one in content["kubelets"]]
        return {
            only_text(device_id): _remembered(entry, kubelets) for device_id, entry in content["held"].items()
        }
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"not a ledger: {error!r}") from error


def _entry(held: Remembered, places: Mapping[SocketIdentity, int]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "holders": [[holder.namespace, holder.pod, holder.container] for holder in held.holders],
    }
    if held.kubelet is not None:
        entry["kubelet"] = places[held.kubelet]
    if held.use is not None:
        entry |= use_entry(held.use)
    return entry


def _remembered(entry: Any, kubelets: Sequence[SocketIdentity]) -> Remembered:  # noqa: ANN401 -- whatever the file has
    return Remembered(
        tuple(Holder(*(only_text(part) for part in holder)) for holder in entry["holders"]),
        kubelets[entry["kubelet"]] if "kubelet" in entry else None,
        use_of_entry(entry),
    )


def _kubelet(value: Any) -> SocketIdentity:  # noqa: ANN401 -- whatever the file has
    device, inode, made_at = (int(part) for part in value)
    return device, inode, made_at


def only_text(value: object) -> str:
    """Return a text that was read from JSON; raises `TypeError` for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
