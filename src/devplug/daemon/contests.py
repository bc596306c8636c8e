"""Values of `hardware`: who has a stake in what, who contends for it, which devices to decide on. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.daemon.sources.host import MEMORY_MAJOR

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from devplug.daemon.sources.found import Found

__all__ = ["FRONT", "Contest", "Key", "Keys", "Place", "Stake", "Todo", "contest_of", "keys_of", "still_held"]

Key: TypeAlias = "str | tuple[bool, tuple[int, int]]"
"""A place below /sys/devices, or a node: whether it is a block device, and its number."""

Keys: TypeAlias = "tuple[Key, ...]"

Place: TypeAlias = "tuple[int, str]"
"""Where a resource stands in the file, and its name."""

FRONT: Final[Place] = (-1, "")


@dataclass(slots=True, eq=False)
class Stake:
    """What one resource has found, what of it containers hold, and what belongs to another resource."""

    place: Place
    is_shared: bool
    on_change: Callable[[], None]
    found: Mapping[str, Keys] = field(default_factory=dict)
    held: Mapping[str, Keys] = field(default_factory=dict)
    held_keys: frozenset[Key] = frozenset()
    keys: frozenset[Key] = frozenset()
    """All of `found` and `held`."""
    refused: set[str] = field(default_factory=set)
    _names: dict[Key, list[str]] | None = None

    @property
    def resource_name(self) -> str:
        """Return whose stake it is."""
        return self.place[1]

    def names_with(self, key: Key) -> Sequence[str]:
        """Return the found devices that have a key."""
        # Made only when first asked for: nearly always nobody else finds anything of a resource.
        if self._names is None:
            self._names = {}
            for name, keys in self.found.items():
                for one in keys:
                    self._names.setdefault(one, []).append(name)
        return self._names.get(key, ())

    def replace(self, found: Mapping[str, Keys], held: Mapping[str, Keys]) -> None:
        """Take what is found and held from now on."""
        self.found, self.held, self._names = found, held, None
        self.held_keys = frozenset(chain.from_iterable(held.values()))
        self.keys = self.held_keys.union(*found.values())


@dataclass(slots=True, eq=False)
class Contest:
    """A key that several resources have."""

    line: list[Place]
    """The resources in file order."""
    refusing: int
    """How many of them do not share."""
    owners: dict[str, int]
    """The resources that have a device with this key which is not refused, and how many such devices."""
    keepers: frozenset[str]
    """The resources for which it is held: one, or several which all share."""


class Todo:
    """The devices to decide on again, in file order: what is before one is settled when it is its turn."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._work: dict[Place, tuple[set[str], set[Key]]] = {}

    def _at(self, place: Place) -> tuple[set[str], set[Key]]:
        if place not in self._work:
            self._work[place] = (set(), set())
            heappush(self._places, place)
        return self._work[place]

    def look_at(self, place: Place, names: Iterable[str]) -> None:
        """Have these devices of a resource decided on again."""
        self._at(place)[0].update(names)

    def look_behind(self, place: Place, key: Key) -> None:
        """Have the resources that stand behind this one in line for a key looked at, one after the other."""
        self._at(place)[1].add(key)

    def __iter__(self) -> Iterator[tuple[Place, set[str], set[Key]]]:
        while self._places:
            place = heappop(self._places)
            names, keys = self._work[place]
            yield place, names, keys
            del self._work[place]


def contest_of(key: Key, stake: Stake) -> Contest:
    """Return a contest in which there is one resource so far."""
    name = stake.resource_name
    granted = sum(one not in stake.refused for one in stake.names_with(key))
    return Contest(
        [stake.place],
        int(not stake.is_shared),
        {name: granted} if granted else {},
        frozenset((name,) if key in stake.held_keys else ()),
    )


def still_held(stake: Stake, found: Mapping[str, Keys], held: Collection[str]) -> dict[str, Keys]:
    """Return what containers hold: what is found by these names, and what was.

    A device that is found elsewhere has left its old place to whatever is plugged in there. Its old node
    numbers stay: a container may still open them, whichever device the kernel gives them to.
    """
    kept: dict[str, Keys] = {}
    for name in held:
        before = stake.held.get(name) or stake.found.get(name, ())
        keys = found.get(name, before)
        if keys != before:
            is_elsewhere = _has_place(keys)
            keys += tuple(
                key for key in before if key not in keys and not (is_elsewhere and isinstance(key, str))
            )
        if keys:
            kept[name] = keys
    return kept


def _has_place(keys: Keys) -> bool:
    return any(isinstance(key, str) for key in keys)


def keys_of(found: Found) -> Keys:
    """Return what makes a device the same as another one: where it is plugged in, and its own nodes."""
    nodes = [
        (node.is_block, node.number)
        for node in found.nodes
        if not node.is_shared and (node.is_block or node.number[0] != MEMORY_MAJOR)
    ]
    return (found.hardware, *nodes) if found.hardware else tuple(nodes)
