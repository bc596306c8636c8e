"""The entries of all devices that a driver offers, from one look to the next: what its slices should have."""

from __future__ import annotations

import asyncio
import operator
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from devplug.devices import HealthState
from devplug.driver.device_entries import UNHEALTHY_TAINT, consumption, counter_sets, device_entry
from devplug.k8s.objects import maps, text
from devplug.k8s.times import stamp_at

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence

    from devplug.attributes import Partition
    from devplug.devices import Device
    from devplug.k8s.objects import Object

DEVICES_AT_ONCE: Final = 500
"""How many devices are looked at between two turns of the loop."""


class LogOnce(Protocol):
    """What logs a warning, but for those that it has logged already."""

    def __call__(self, message: str, /, **facts: str) -> None:
        """Log it; a fact `reason` makes no difference."""


class SharesInUse(Struct, frozen=True):
    """The shares of devices that claims use, by resource and device ID."""

    alone: frozenset[tuple[str, str]] = frozenset()
    """Those that were allocated as devices of their own."""
    shared: frozenset[tuple[str, str]] = frozenset()
    """Those that stand for an allocation of what they are shares of."""


class _Known(Struct):
    """What is offered, and its entry."""

    devices: tuple[Device, ...]
    """One, or all shares of one."""
    content: Object


class PoolEntries:
    """The entries of a driver's devices on one node; lives as long as its publisher.

    The taint of an unhealthy device keeps the time at which it was added (D80); for resources in `evicting`
    it ends the pods that have the device.
    """

    def __init__(
        self, driver: str, evicting: Container[str], wall_clock: Callable[[], float], log_once: LogOnce
    ) -> None:
        self._driver = driver
        self._evicting = evicting
        self._wall_clock = wall_clock
        self._log_once = log_once
        self._entries: dict[tuple[str, str, bool], _Known] = {}
        """By resource, ID of the first device, and whether it stands for all shares of one."""
        self._tainted_at: dict[str, tuple[str, str]] = {}
        """By device name: the effect of its taint, and its time."""

    def learn_taints(self, devices: Iterable[Object]) -> None:
        """Take the times of taints from entries that are stored."""
        for device in devices:
            for taint in maps(device, "taints"):
                if text(taint, "key") == UNHEALTHY_TAINT:
                    since = text(taint, "effect"), text(taint, "timeAdded")
                    self._tainted_at.setdefault(text(device, "name"), since)

    async def of(
        self,
        offered: Mapping[str, Collection[Device]],
        in_use: SharesInUse,
        *,
        with_shares: bool,
        with_counters: bool,
        with_tainted: bool,
    ) -> tuple[list[Object], list[Object]]:
        """Return the entries of all devices that are offered, by resource, and the counter sets they take of.

        With shares, those of one device are one entry; without counters there are no such sets, and tainted
        devices are there only if asked for. With many devices other tasks run meanwhile.
        """
        before, self._entries = self._entries, {}
        wanted: dict[object, Object] = {}
        for resource_name, devices in offered.items():
            for one, is_shared in _entered(resource_name, devices, in_use, with_shares=with_shares):
                if len(self._entries) % DEVICES_AT_ONCE == DEVICES_AT_ONCE - 1:
                    await asyncio.sleep(0)
                key = resource_name, one[0].id, is_shared
                known = before.get(key)
                if known is None or not _are_same(known.devices, one):
                    known = _Known(one, self._entry(resource_name, one, is_shared=is_shared))
                self._entries[key] = known
                name = known.content["name"]
                if "taints" in known.content and not with_tainted:
                    continue
                if wanted.setdefault(name, known.content) is not known.content:
                    self._log_once(
                        "a device is not published, because another one has its name in slices; give it "
                        "another ID",
                        resource_name=resource_name,
                        device=one[0].id,
                    )
        if self._tainted_at:
            names = {text(one.content, "name") for one in self._entries.values()}
            self._tainted_at = {name: since for name, since in self._tainted_at.items() if name in names}
        return self._with_counters(wanted) if with_counters else ([*wanted.values()], [])

    def _with_counters(self, wanted: dict[object, Object]) -> tuple[list[Object], list[Object]]:
        """Return these entries with what they take of counter sets, and those sets."""
        parts: dict[object, Partition] = {}
        for known in self._entries.values():
            name, part = known.content["name"], known.devices[0].partition
            # Of counters, a device takes the same with each share of it.
            if part is not None and not known.devices[0].share_of and wanted.get(name) is known.content:
                parts[name] = part
        sets = counter_sets(parts.values())
        for name, part in parts.items():
            if part.of in sets:
                wanted[name] = {**wanted[name], "consumesCounters": [consumption(part)]}
        return [*wanted.values()], [*sets.values()]

    def _entry(self, resource_name: str, devices: Sequence[Device], *, is_shared: bool) -> Object:
        ill = next((one for one in devices if one.health.state is HealthState.UNHEALTHY), devices[0])
        entry = device_entry(
            self._driver,
            resource_name,
            ill,
            shares=len(devices) if is_shared else 0,
            evicts=resource_name in self._evicting,
        )
        for name, why in entry.dropped.items():
            message = "an attribute or a capacity is left out of slices"
            self._log_once(message, resource_name=resource_name, attribute=name, reason=f"it {why}")
        name = text(entry.content, "name")
        taints = maps(entry.content, "taints")
        if not taints:
            self._tainted_at.pop(name, None)
            return entry.content
        effect = text(taints[0], "effect")
        before, at = self._tainted_at.get(name, ("", ""))
        if before != effect or not at:
            at = stamp_at(self._wall_clock())
        self._tainted_at[name] = effect, at
        return {**entry.content, "taints": [{**taints[0], "timeAdded": at}]}


def _entered(
    resource_name: str, devices: Iterable[Device], in_use: SharesInUse, *, with_shares: bool
) -> Iterator[tuple[tuple[Device, ...], bool]]:
    """Yield what has an entry: a device, or all shares of one, of which the second value tells.

    Whatever was published before, no share is given out twice: shares of which a claim has one as a device of
    its own stay such devices, without those that are in use as shares.
    """
    shares: dict[str, list[Device]] = {}
    for device in devices:
        if device.share_of:
            shares.setdefault(device.share_of, []).append(device)
        else:
            yield (device,), False
    for of_one in shares.values():
        if with_shares and not any((resource_name, one.id) in in_use.alone for one in of_one):
            yield tuple(of_one), True
        else:
            yield from (((one,), False) for one in of_one if (resource_name, one.id) not in in_use.shared)


def _are_same(before: Sequence[Device], now: Sequence[Device]) -> bool:
    return len(before) == len(now) and all(map(operator.is_, before, now))
