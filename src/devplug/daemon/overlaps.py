"""Which resource has which hardware: no two have the same, unless both say that they share. No I/O."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.daemon.sources.host import MEMORY_MAJOR

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from devplug.daemon.sources.found import Found

__all__ = ["Overlaps"]

Key: TypeAlias = "str | tuple[bool, tuple[int, int]]"
"""A place below /sys/devices, or a node: whether it is a block device, and its number."""

Keys: TypeAlias = "tuple[Key, ...]"

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class _Claim:
    """What one resource has found, what of it containers hold, and what belongs to another resource."""

    resource_name: str
    rank: int
    is_shared: bool
    on_change: Callable[[], None]
    found: Mapping[str, Keys] = field(default_factory=dict)
    held: Mapping[str, Keys] = field(default_factory=dict)
    held_keys: AbstractSet[Key] = frozenset()
    keys: AbstractSet[Key] = frozenset()
    """All of `found` and `held`."""
    refused: Mapping[str, str] = field(default_factory=lambda: _NONE)
    _names: dict[Key, list[str]] | None = None

    @property
    def place(self) -> tuple[int, str]:
        """Return what to sort by: file order."""
        return self.rank, self.resource_name

    def names_with(self, key: Key) -> Sequence[str]:
        """Return the found devices that have a key."""
        # Made only when first asked for: nearly always nobody else finds anything of a resource.
        if self._names is None:
            self._names = {}
            for name, keys in self.found.items():
                for one in keys:
                    self._names.setdefault(one, []).append(name)
        return self._names.get(key, ())

    def find(self, found: Mapping[str, Keys], changed: AbstractSet[str]) -> None:
        """Take what is found now; what has changed counts as not refused until it is settled."""
        self.found, self._names = found, None
        if self.refused:
            self.refused = {name: owner for name, owner in self.refused.items() if name not in changed}


class Overlaps:
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
        self._together: dict[Key, dict[str, bool]] = {}
        """Keys that several resources have: whether each of them shares."""
        self._keepers: dict[Key, tuple[str, ...]] = {}
        """Keys that are held, and for which resources; if for several, all of them share."""

    def enter(self, resource_name: str, rank: int, *, is_shared: bool, on_change: Callable[[], None]) -> None:
        """Take part from now on, or as another one from now on: what it found and held stays until it claims.

        `on_change` is called when what others do changes which devices are refused to this one. It must not
        call back.
        """
        claim = self._claims.get(resource_name)
        if claim is None:
            self._claims[resource_name] = _Claim(resource_name, rank, is_shared, on_change)
            return
        claim.on_change = on_change
        if (rank, is_shared) == (claim.rank, claim.is_shared):
            return
        contested = self._contested(claim.keys)
        claim.rank, claim.is_shared = rank, is_shared
        for key in claim.keys & self._together.keys():
            self._together[key][resource_name] = is_shared
        for key in claim.held_keys:
            self._choose_keepers(key)
        self._settle(contested | self._contested(claim.keys), claim)

    def reorder(self, ranks: Mapping[str, int]) -> None:
        """Take note that the resources stand in another order now. What is held stays where it is."""
        moved = [
            name for name in ranks.keys() & self._claims.keys() if self._claims[name].rank != ranks[name]
        ]
        for name in moved:
            self._claims[name].rank = ranks[name]
        if moved:
            self._settle(self._contested(self._together))

    def claim(
        self, resource_name: str, found: Iterable[Found], held: Collection[str] = ()
    ) -> Mapping[str, str]:
        """Say what a resource has found; return what it cannot have, with the resource that has it.

        `held` are the names of those devices, and of devices that it found before, which a container may
        hold. Their keys stay claimed until a claim without the name, also if they are not found any more.
        Raises `KeyError` for a resource that has not entered.
        """
        claim = self._claims[resource_name]
        fresh = {one.name: _keys(one) for one in found}
        self._replace(claim, fresh, _still_held(claim, fresh, held))
        return claim.refused

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
        if found == claim.found and held == claim.held:
            return
        before = claim.found
        changed = {name for name in found.keys() | before.keys() if found.get(name) != before.get(name)}
        held_keys = frozenset(chain.from_iterable(held.values()))
        passed_on = claim.held_keys ^ held_keys
        touched = passed_on.union(*(one.get(name, ()) for name in changed for one in (before, found)))
        contested = self._contested(touched)
        keys = held_keys.union(*found.values())
        for key in claim.keys - keys:
            self._drop(key, claim.resource_name)
        for key in keys - claim.keys:
            self._add(key, claim)
        claim.find(found, changed)
        claim.held, claim.held_keys, claim.keys = held, held_keys, keys
        for key in passed_on:
            self._choose_keepers(key)
        self._settle(contested | self._contested(touched), claim)

    def _add(self, key: Key, claim: _Claim) -> None:
        if key in self._together:
            self._together[key][claim.resource_name] = claim.is_shared
        elif (other := self._alone.setdefault(key, claim.resource_name)) != claim.resource_name:
            del self._alone[key]
            both = (self._claims[other], claim)
            self._together[key] = {one.resource_name: one.is_shared for one in both}

    def _drop(self, key: Key, resource_name: str) -> None:
        together = self._together.get(key)
        if together is None:
            del self._alone[key]
            return
        del together[resource_name]
        if len(together) == 1:
            del self._together[key]
            (self._alone[key],) = together

    def _claims_on(self, key: Key) -> Iterator[_Claim]:
        alone = self._alone.get(key)
        names: Iterable[str] = self._together.get(key, ()) if alone is None else (alone,)
        return (self._claims[name] for name in names)

    def _contested(self, keys: Iterable[Key]) -> set[Key]:
        """Return the keys of these that not all resources which want them can have."""
        if not self._together:
            return set()
        return {key for key in keys if key in self._together and not all(self._together[key].values())}

    def _choose_keepers(self, key: Key) -> None:
        holders = [claim for claim in self._claims_on(key) if key in claim.held_keys]
        if holders:
            self._keepers[key] = _keepers(holders, self._keepers.get(key, ()))
        else:
            self._keepers.pop(key, None)

    # ── who is refused what ──

    def _settle(self, keys: Iterable[Key], caller: _Claim | None = None) -> None:
        """Decide again on all devices that these keys concern, and wake whom that changes, but the caller."""
        concerned = self._concerned(keys)
        owners: defaultdict[Key, set[str]] = defaultdict(set)
        to_wake: list[_Claim] = []
        for claim in sorted(concerned, key=lambda one: one.place):
            names = concerned[claim]
            refused = {name: owner for name, owner in claim.refused.items() if name not in names}
            for name in names:
                others = self._excluding(claim, name, owners)
                if others:
                    refused[name] = min(others, key=lambda one: one.place).resource_name
                else:
                    for key in claim.found[name]:
                        owners[key].add(claim.resource_name)
            if claim is not caller and refused.keys() != claim.refused.keys():
                to_wake.append(claim)
            claim.refused = MappingProxyType(refused)
        for claim in to_wake:
            claim.on_change()

    def _concerned(self, keys: Iterable[Key]) -> dict[_Claim, set[str]]:
        """Return the devices that have these keys, those that contend with them for others, and so on."""
        concerned: defaultdict[_Claim, set[str]] = defaultdict(set)
        seen = set(keys)
        todo = list(seen)
        while todo:
            key = todo.pop()
            for claim in self._claims_on(key):
                for name in claim.names_with(key):
                    if name in concerned[claim]:
                        continue
                    concerned[claim].add(name)
                    more = self._contested(claim.found[name]) - seen
                    seen |= more
                    todo.extend(more)
        return concerned

    def _excluding(self, claim: _Claim, name: str, owners: Mapping[Key, AbstractSet[str]]) -> list[_Claim]:
        """Return who keeps a resource from having a device: who holds of it, and who is before it."""
        others: set[str] = set()
        for key in claim.found[name]:
            keepers = self._keepers.get(key, ())
            if claim.resource_name not in keepers:
                others.update(keepers, owners.get(key, ()))
        others.discard(claim.resource_name)
        return [self._claims[one] for one in others if not (claim.is_shared and self._claims[one].is_shared)]


def _keepers(holders: Iterable[_Claim], before: Collection[str]) -> tuple[str, ...]:
    """Return for whom a key is kept, of those that hold it: who had it before, then file order."""
    first, *others = sorted(holders, key=lambda one: (one.resource_name not in before, one.place))
    if not first.is_shared:
        return (first.resource_name,)
    return (first.resource_name, *(one.resource_name for one in others if one.is_shared))


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
            is_elsewhere = _has_place(keys)
            keys += tuple(
                key for key in before if key not in keys and not (is_elsewhere and isinstance(key, str))
            )
        if keys:
            kept[name] = keys
    return kept


def _has_place(keys: Keys) -> bool:
    return any(isinstance(key, str) for key in keys)


def _keys(found: Found) -> Keys:
    """Return what makes a device the same as another one: where it is plugged in, and its own nodes."""
    nodes = tuple(
        (node.is_block, node.number)
        for node in found.nodes
        if not node.is_shared and (node.is_block or node.number[0] != MEMORY_MAJOR)
    )
    return (found.hardware, *nodes) if found.hardware else nodes
