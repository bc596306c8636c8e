"""The counters that the devices of a pool share, during one attempt to place a pod (D85). Pure.

What is left of a counter is what its set has, less what allocated devices take, on other nodes too. In 1.36
two things look unintended. A candidate that passes here and is refused afterwards, for a taint or by a
constraint, keeps its counters until the attempt ends on this node. And what is left is remembered by the
name of the pool without its driver, so of two drivers with one pool name the second is not limited.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from devplug.dra.capacity import amount as written
from devplug.dra.pools import LIKE_1_36, Like

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.dra.allocations import Allocations
    from devplug.dra.objects import Device
    from devplug.dra.pools import Place, Pool

_NOTHING: Final = Fraction()


class Available:
    """What is left of the counters of pools; it lives for one attempt, over all nodes."""

    def __init__(self, allocations: Allocations, like: Like) -> None:
        self._allocations = allocations
        self._like = like
        self._of: dict[object, tuple[str, Mapping[str, Mapping[str, Fraction]]]] = {}

    def key(self, pool: Pool) -> object:
        """Return what the counters of a pool are remembered by."""
        return pool.id.name if self._like == LIKE_1_36 else pool.id

    def left(self, pool: Pool) -> tuple[str, Mapping[str, Mapping[str, Fraction]]]:
        """Return whose counters these are, a driver's, and what is left by set and counter."""
        key = self.key(pool)
        known = self._of.get(key)
        if known is None:
            known = self._of[key] = pool.id.driver, self._reckoned(pool)
        return known

    def shortages(self, place: Place) -> list[str]:
        """Return the counters of which too little is left for one device, with the figures."""
        needs: defaultdict[tuple[str, str], Fraction] = defaultdict(Fraction)
        _add(needs, place.device, 1)
        return [
            f"{written(needs[set_name, name])} of {set_name}/{name} needed, {written(amount)} left"
            for set_name, counters in self.left(place.pool)[1].items()
            for name, amount in counters.items()
            if needs[set_name, name] > amount
        ]

    def _reckoned(self, pool: Pool) -> dict[str, dict[str, Fraction]]:
        left = {name: dict(counters) for name, counters in (pool.counter_sets or {}).items()}
        for found in (*pool.slices, *pool.elsewhere):
            for device in found.devices:
                if device.consumes and self._allocations.has(device.id):
                    for use in device.consumes:
                        counters = left.get(use.counter_set, {})
                        for name, amount in use.counters.items():
                            if name in counters:
                                counters[name] -= amount
        return left


class Counters:
    """What the devices take that are being chosen on one node."""

    def __init__(self, available: Available) -> None:
        self._available = available
        self._taken: defaultdict[object, defaultdict[tuple[str, str], Fraction]] = defaultdict(
            lambda: defaultdict(Fraction)
        )
        self.suspicions: set[str] = set()
        """What may have been decided by D85: `D85a` what was kept, `D85b` the pool of another driver."""
        self.has_leaked = False

    def take(self, place: Place) -> bool:
        """Take what a device needs, if all counters of its pool allow it."""
        driver, left = self._available.left(place.pool)
        taken = self._taken[self._available.key(place.pool)]
        _add(taken, place.device, 1)
        if driver != place.pool.id.driver:
            self.suspicions.add("D85b")
        for set_name, counters in left.items():
            for name, amount in counters.items():
                if taken.get((set_name, name), _NOTHING) > amount:
                    _add(taken, place.device, -1)
                    if self.has_leaked:
                        self.suspicions.add("D85a")
                    return False
        return True

    def give_back(self, place: Place) -> None:
        """Take back what a device took."""
        _add(self._taken[self._available.key(place.pool)], place.device, -1)


def _add(taken: dict[tuple[str, str], Fraction], device: Device, sign: int) -> None:
    for use in device.consumes:
        for name, amount in use.counters.items():
            taken[use.counter_set, name] += sign * amount
