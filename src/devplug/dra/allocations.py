"""What is in use of all devices: what the allocations of the cluster's claims add up to (D79). Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING

from devplug.dra.objects import DeviceID
from devplug.k8s.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.dra.objects import Json

_NONE: Mapping[str, Fraction] = {}


class Allocations:
    """The devices and capacities in use; it lives as long as the cluster does.

    A claim counts from the moment that the scheduler has chosen its devices. What admin access uses does not
    count, and of a shared device only what is consumed.
    """

    def __init__(self, allocations: Iterable[Json] = ()) -> None:
        self._exclusive: Counter[DeviceID] = Counter()
        self._shares: Counter[DeviceID] = Counter()
        self._consumed: defaultdict[DeviceID, Counter[str]] = defaultdict(Counter)
        """In billionths, so that sums are exact and quick."""
        self._fractions: dict[DeviceID, Mapping[str, Fraction]] = {}
        self._changes: Counter[tuple[str, str]] = Counter()
        for one in allocations:
            self.add(one)

    def add(self, allocation: Json) -> None:
        """Count the `status.allocation` of a claim."""
        self._count(allocation, 1)

    def remove(self, allocation: Json) -> None:
        """Take back what `add` counted."""
        self._count(allocation, -1)

    def is_in_use(self, device: DeviceID) -> bool:
        """Whether a device belongs to a claim alone, so that nobody else gets it."""
        return device in self._exclusive

    def is_shared(self, device: DeviceID) -> bool:
        """Whether some of a device's capacity is consumed."""
        return device in self._consumed

    def has(self, device: DeviceID) -> bool:
        """Whether a claim has a device, alone or shared."""
        return device in self._exclusive or device in self._shares

    def consumed(self, device: DeviceID) -> Mapping[str, Fraction]:
        """Return what is consumed of a shared device, by capacity."""
        used = self._consumed.get(device)
        if used is None:
            return _NONE
        known = self._fractions.get(device)
        if known is None:
            known = self._fractions[device] = {name: Fraction(n, _BILLION) for name, n in used.items()}
        return known

    def changes(self, pools: Iterable[tuple[str, str]]) -> int:
        """Return how often it changed so far what is in use of pools, given by driver and name."""
        known, count = self._changes, 0
        for one in pools:
            count += known.get(one, 0)
        return count

    def in_use(self) -> tuple[object, ...]:
        """Return all that is counted, for comparisons."""
        return (
            dict(self._exclusive),
            dict(self._shares),
            {key: dict(one) for key, one in self._consumed.items()},
        )

    def _count(self, allocation: Json, sign: int) -> None:
        for result in (allocation.get("devices") or {}).get("results") or ():
            if result.get("adminAccess"):
                continue
            device = DeviceID(result["driver"], result["pool"], result["device"])
            self._changes[device[:2]] += 1
            if result.get("shareID") is None:
                _change(self._exclusive, device, sign)
                continue
            _change(self._shares, device, sign)
            consumed = result.get("consumedCapacity") or {}
            self._fractions.pop(device, None)
            for name, text in consumed.items():
                amount = int(Quantity.parse(str(text)).number * _BILLION)
                self._consumed[device][name] += sign * amount
            if device not in self._shares:
                self._consumed.pop(device, None)


_BILLION = 10**9


def _change(counts: Counter[DeviceID], device: DeviceID, sign: int) -> None:
    counts[device] += sign
    if not counts[device]:
        del counts[device]
