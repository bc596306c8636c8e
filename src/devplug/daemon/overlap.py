"""The overlap of resources: which has which hardware. No two have the same, unless both share it. Pure."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.daemon.sources.host import MEMORY_MAJOR

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from devplug.daemon.sources.device import HostDevice

__all__ = ["DeviceOverlap"]

Key: TypeAlias = "str | tuple[bool, tuple[int, int]]"
"""A place below /sys/devices, or a node: whether it is a block device, and its number."""

Keys: TypeAlias = "tuple[Key, ...]"

FilePosition: TypeAlias = "tuple[int, str]"
"""Where a resource stands in the file, and its name."""

FRONT: Final[FilePosition] = (-1, "")


@dataclass(slots=True, eq=False)
class _Claim:
    """What one resource has found, what of it containers hold, and what belongs to another resource."""

    place: FilePosition
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
        """Return whose claim it is."""
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
class _Conflict:
    """A key that several resources have."""

    line: list[FilePosition]
    """The resources in file order."""
    refusing: int
    """How many of them do not share."""
    owners: dict[str, int]
    """The resources that have a device with this key which is not refused, and how many such devices."""
    keepers: frozenset[str]
    """The resources for which it is held: one, or several which all share."""


class _Todo:
    """The devices to decide on again, in file order: what is before one is settled when it is its turn."""

    def __init__(self) -> None:
        self._places: list[FilePosition] = []
        self._work: dict[FilePosition, tuple[set[str], set[Key]]] = {}

    def _at(self, place: FilePosition) -> tuple[set[str], set[Key]]:
        if place not in self._work:
            self._work[place] = (set(), set())
            heappush(self._places, place)
        return self._work[place]

    def look_at(self, place: FilePosition, names: Iterable[str]) -> None:
        """Have these devices of a resource decided on again."""
        self._at(place)[0].update(names)

    def look_behind(self, place: FilePosition, key: Key) -> None:
        """Have the resources that stand behind this one in line for a key looked at, one after the other."""
        self._at(place)[1].add(key)

    def __iter__(self) -> Iterator[tuple[FilePosition, set[str], set[Key]]]:
        while self._places:
            place = heappop(self._places)
            names, keys = self._work[place]
            yield place, names, keys
            del self._work[place]


def _conflict_of(key: Key, claim: _Claim) -> _Conflict:
    """Return a conflict in which there is one resource so far."""
    name = claim.resource_name
    granted = sum(one not in claim.refused for one in claim.names_with(key))
    return _Conflict(
        [claim.place],
        int(not claim.is_shared),
        {name: granted} if granted else {},
        frozenset((name,) if key in claim.held_keys else ()),
    )


def _still_held(claim: _Claim, found: Mapping[str, Keys], held: Collection[str]) -> dict[str, Keys]:
    """Return what containers hold: what is found by these names, and what was.

    A device that is found elsewhere has left its old place to whatever is plugged in there. Its old node
    numbers stay: a container may still open them, whichever device the kernel gives them to.
    """
    kept: dict[str, Keys] = {}
    for name in held:
        before = claim.held.get(name) or claim.found.get(name, ())
        keys = found.get(name, before)
        if keys != before:
            is_elsewhere = any(isinstance(key, str) for key in keys)
            left = (key for key in before if not (is_elsewhere and isinstance(key, str)))
            keys += tuple(key for key in left if key not in keys)
        if keys:
            kept[name] = keys
    return kept


def _keys_of(found: HostDevice) -> Keys:
    """Return what makes a device the same as another one: where it is plugged in, and its own nodes."""
    nodes = [
        (node.is_block, node.number)
        for node in found.nodes
        if not node.is_shared and (node.is_block or node.number[0] != MEMORY_MAJOR)
    ]
    return (found.hardware, *nodes) if found.hardware else tuple(nodes)


# ── the owner of each ─────────────────────────────────────────────────────────────────────────────


class DeviceOverlap:
    """The hardware of all resources of one daemon; lives as long as that.

    Of two resources that find the same, that one has it whose device a container holds, and else the one
    that stands first in the file. What the file alone shows (equal paths) is refused before anything is
    served; this is for what only the machine shows: a link and its node, a gadget and its serial port.

    What is held stays with its resource until it is let go, also if it was pulled out, if another resource
    comes before this one in the file, and if the file has the resource no more. Where two resources hold the
    same already, because they shared it before an edit, the first of them in the file is its owner and the
    other comes next.
    """

    def __init__(self) -> None:
        self._claims: dict[str, _Claim] = {}
        # Nearly every key belongs to one resource alone, and a machine may have very many.
        self._alone: dict[Key, str] = {}
        self._conflicts: dict[Key, _Conflict] = {}

    def enter(self, resource_name: str, rank: int, *, is_shared: bool, on_change: Callable[[], None]) -> None:
        """Take part from now on, or as another one; its claim stays as it is until the next.

        `on_change` is called when what others do changes which devices are refused to this one. It must not
        call back.
        """
        claim = self._claims.get(resource_name)
        if claim is None:
            self._claims[resource_name] = _Claim((rank, resource_name), is_shared, on_change)
            return
        claim.on_change = on_change
        place, is_edited = (rank, resource_name), is_shared != claim.is_shared
        if place == claim.place and not is_edited:
            return
        claim.place, claim.is_shared = place, is_shared
        todo = _Todo()
        for key in claim.keys & self._conflicts.keys():
            conflict = self._conflicts[key]
            self._line_up(key, todo)
            if is_edited:
                conflict.refusing += -1 if is_shared else 1
                conflict.keepers = self._chosen(key, conflict)
        self._settle(todo, claim)

    def reorder(self, ranks: Mapping[str, int]) -> None:
        """Take note that the resources stand in another order now. What is held stays where it is."""
        moved = [self._claims[name] for name in ranks.keys() & self._claims.keys()]
        moved = [claim for claim in moved if claim.place[0] != ranks[claim.resource_name]]
        for claim in moved:
            claim.place = (ranks[claim.resource_name], claim.resource_name)
        todo = _Todo()
        for key in self._conflicts.keys() & {key for claim in moved for key in claim.keys}:
            self._line_up(key, todo)
        self._settle(todo)

    def claim(
        self, resource_name: str, found: Iterable[HostDevice], held: Collection[str] = ()
    ) -> Mapping[str, str]:
        """Say what a resource has found; return what it cannot have, with the resource that has it.

        `held` are the names of those devices, and of devices that it found before, which a container may
        hold. Their keys stay claimed until a call without the name, also if they are not found any more.
        Raises `KeyError` for a resource that has not entered.
        """
        claim = self._claims[resource_name]
        fresh = {one.name: _keys_of(one) for one in found}
        self._replace(claim, fresh, _still_held(claim, fresh, held))
        return {name: min(self._excluding(claim, name))[1] for name in sorted(claim.refused)}

    def retire(self, resource_name: str, held: Collection[str]) -> None:
        """Keep of a resource only what containers hold; without any, it leaves. May be called again."""
        claim = self._claims.get(resource_name)
        if claim is not None:
            self._replace(claim, {}, _still_held(claim, {}, held))
            if not claim.held:
                del self._claims[resource_name]

    def leave(self, resource_name: str) -> None:
        """Give up all hardware of a resource, held or not."""
        self.retire(resource_name, ())

    # ── who has which key ──

    def _replace(self, claim: _Claim, found: Mapping[str, Keys], held: Mapping[str, Keys]) -> None:
        """Put this in the place of what a resource had, and settle what that concerns."""
        before = claim.found
        if found == before and held == claim.held:
            return
        todo = _Todo()
        changed = {name for name in found.keys() | before.keys() if found.get(name) != before.get(name)}
        if self._conflicts:
            for name in (changed & before.keys()) - claim.refused:
                self._disown(claim, name, todo)
        claim.refused -= changed
        keys, held_keys = claim.keys, claim.held_keys
        claim.replace(found, held)
        self._drop(keys - claim.keys, claim, todo)
        self._add(claim.keys - keys, claim)
        if conflicts := self._conflicts.keys():
            for key in conflicts & (held_keys ^ claim.held_keys):
                self._pass_on(key, claim, todo)
            disputed = {one for one in changed & found.keys() if not conflicts.isdisjoint(found[one])}
            claim.refused |= disputed
            todo.look_at(claim.place, disputed)
        self._settle(todo, claim)

    def _add(self, keys: Iterable[Key], claim: _Claim) -> None:
        for key in keys:
            conflict = self._conflicts.get(key)
            if conflict is None:
                name = self._alone.setdefault(key, claim.resource_name)
                if name == claim.resource_name:
                    continue
                conflict = self._conflicts[key] = _conflict_of(key, self._claims[self._alone.pop(key)])
            insort(conflict.line, claim.place)
            conflict.refusing += not claim.is_shared

    def _drop(self, keys: Iterable[Key], claim: _Claim, todo: _Todo) -> None:
        for key in keys:
            conflict = self._conflicts.get(key)
            if conflict is None:
                del self._alone[key]
                continue
            conflict.line.remove(claim.place)
            conflict.refusing -= not claim.is_shared
            if len(conflict.line) == 1:
                del self._conflicts[key]
                ((_, self._alone[key]),) = conflict.line
                self._look_at(self._alone[key], key, todo)

    def _line_up(self, key: Key, todo: _Todo) -> None:
        """Put the resources that have a key into file order, and have all of them looked at."""
        line = self._conflicts[key].line
        line[:] = sorted(self._claims[name].place for _, name in line)
        for _, name in line:
            self._look_at(name, key, todo)

    # ── for whom a key is held ──

    def _pass_on(self, key: Key, claim: _Claim, todo: _Todo) -> None:
        """Take note that a resource holds a key from now on, or no more."""
        conflict = self._conflicts[key]
        before = conflict.keepers
        mine = frozenset((claim.resource_name,))
        if key not in claim.held_keys:
            conflict.keepers -= mine
            if before and not conflict.keepers:
                conflict.keepers = self._chosen(key, conflict)
        elif not before or (claim.is_shared and self._share(before)):
            conflict.keepers |= mine
        if conflict.keepers == before or (claim.is_shared and not conflict.refusing):
            return
        for name in {*before, *conflict.keepers, *conflict.owners}:
            self._look_at(name, key, todo)
        if not conflict.keepers or self._share(conflict.keepers):
            todo.look_behind(FRONT, key)

    def _share(self, keepers: Iterable[str]) -> bool:
        # Either all of them do, or there is only one.
        return self._claims[next(iter(keepers))].is_shared

    def _chosen(self, key: Key, conflict: _Conflict) -> frozenset[str]:
        """Return for whom a key is kept, of those that hold it: who had it before, then file order."""
        before = (name for _, name in conflict.line if name in conflict.keepers)
        others = (name for _, name in conflict.line if name not in conflict.keepers)
        line = (self._claims[name] for name in chain(before, others))
        holders = (claim for claim in line if key in claim.held_keys)
        first = next(holders, None)
        if first is None:
            return frozenset()
        with_first = [claim for claim in holders if claim.is_shared] if first.is_shared else []
        return frozenset(claim.resource_name for claim in (first, *with_first))

    # ── who is refused what ──

    def _settle(self, todo: _Todo, caller: _Claim | None = None) -> None:
        """Decide on all devices that are to be looked at, and wake whom that changes, but the caller."""
        to_wake: dict[_Claim, None] = {}
        for place, names, keys in todo:
            for name in sorted(names):
                claim = self._claims[place[1]]
                is_refused = any(True for _ in self._excluding(claim, name))
                if is_refused == (name in claim.refused):
                    continue
                if is_refused:
                    claim.refused.add(name)
                    self._disown(claim, name, todo)
                else:
                    claim.refused.remove(name)
                    self._own(claim, name, todo)
                to_wake[claim] = None
            for key in keys:
                self._look_behind(place, key, todo)
        for claim in to_wake:
            if claim is not caller:
                claim.on_change()

    def _excluding(self, claim: _Claim, name: str) -> Iterator[FilePosition]:
        """Yield who keeps a resource from having a device: who holds of it, and who is before it."""
        for key in claim.found[name]:
            conflict = self._conflicts.get(key)
            if conflict is None or not conflict.refusing or claim.resource_name in conflict.keepers:
                continue
            for one in chain(conflict.keepers, conflict.owners):
                other = self._claims[one]
                if (one in conflict.keepers or other.place < claim.place) and not (
                    claim.is_shared and other.is_shared
                ):
                    yield other.place

    def _own(self, claim: _Claim, name: str, todo: _Todo) -> None:
        for key in claim.found[name]:
            if conflict := self._conflicts.get(key):
                if conflict.refusing and claim.resource_name not in conflict.owners:
                    for other in conflict.owners:
                        self._look_at(other, key, todo, behind=claim.place)
                conflict.owners[claim.resource_name] = conflict.owners.get(claim.resource_name, 0) + 1

    def _disown(self, claim: _Claim, name: str, todo: _Todo) -> None:
        for key in claim.found[name]:
            if conflict := self._conflicts.get(key):
                conflict.owners[claim.resource_name] -= 1
                if not conflict.owners[claim.resource_name]:
                    del conflict.owners[claim.resource_name]
                    if conflict.refusing:
                        todo.look_behind(claim.place, key)

    def _look_at(self, resource_name: str, key: Key, todo: _Todo, behind: FilePosition = FRONT) -> None:
        claim = self._claims[resource_name]
        if claim.place > behind:
            todo.look_at(claim.place, claim.names_with(key))

    def _look_behind(self, place: FilePosition, key: Key, todo: _Todo) -> None:
        """Have the next one in line for a key looked at, unless the key is taken for all that follow."""
        conflict = self._conflicts.get(key)
        if conflict is None:
            return
        taken = conflict.keepers or (one for one in conflict.owners if self._claims[one].place <= place)
        if any(not self._claims[one].is_shared for one in taken):
            return
        following = bisect_right(conflict.line, place)
        if following < len(conflict.line):
            behind = conflict.line[following]
            self._look_at(behind[1], key, todo)
            todo.look_behind(behind, key)
