"""Which devices get series of their own, where there are more than a Prometheus should be given. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["DEVICE_SERIES_LIMIT", "Bounded", "bounded"]

DEVICE_SERIES_LIMIT: Final = 1_000
"""Devices with series of their own, of all resources of a process together: about 4,000 series a node."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """Who is in and how many are not."""

    chosen: frozenset[tuple[str, str]]
    """Resource name and device ID of each device that gets series of its own."""
    omitted: Mapping[str, int]
    """How many devices of each resource get none, also where that is 0; in the resources' order."""


def bounded(devices: Iterable[tuple[str, str, bool]], limit: int = DEVICE_SERIES_LIMIT) -> Bounded:
    """Choose at most `limit` devices from (resource name, device ID, whether it is important).

    Important ones come first: those that are held or unhealthy, about which people ask. Then it goes by
    resource name and device ID, so that the same devices are chosen at each scrape and in any order of
    `devices`. One that is given twice counts once, and is important if it is so once.
    """
    important: set[tuple[str, str]] = set()
    others: set[tuple[str, str]] = set()
    for resource_name, device_id, is_important in devices:
        (important if is_important else others).add((resource_name, device_id))
    others -= important
    chosen = frozenset(_first(important, limit) + _first(others, limit - len(important)))
    known = Counter(resource_name for one in (important, others) for resource_name, _ in one)
    told = Counter(resource_name for resource_name, _ in chosen)
    return Bounded(chosen, {name: known[name] - told[name] for name in sorted(known)})


def _first(devices: set[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    return list(devices) if len(devices) <= count else nsmallest(count, devices)
