"""The overlap of resources: which resource owns hardware that several find. Pure.

Hardware has one owner, or several if all of them have `share`. The owner is the resource of which a container
holds a device on it, else the first resource in the file. Equal paths in the file are refused when it is
read; this is for what only the machine shows: a link and its node, a USB device and its serial port.

A resource owns what its containers hold until they release it, also if the device was unplugged, if another
resource now stands before it in the file, or if the file no longer has the resource. If containers of two
resources hold the same hardware, because the resources had `share` before an edit, the first of the two in
the file owns it.

`decide` computes the owners from the claims of all resources and from the decisions before. `DeviceOverlap`
keeps the decisions, and computes them again whenever a claim changes.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field

from devplug.daemon.sources.device import MEMORY_MAJOR

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from devplug.daemon.sources.device import HostDevice

__all__ = ["Claim", "Decision", "DeviceOverlap", "decide"]

Key: TypeAlias = "str | tuple[bool, tuple[int, int]]"
"""A place below /sys/devices, or a node: whether it is a block device, and its number."""

Keys: TypeAlias = "tuple[Key, ...]"


def _keys_of(found: HostDevice) -> Keys:
    """Return the keys of a device; two devices that have one in common are the same hardware."""
    nodes = [
        (node.is_block, node.number)
        for node in found.nodes
        if not node.is_shared and (node.is_block or node.number[0] != MEMORY_MAJOR)
    ]
    return (found.hardware, *nodes) if found.hardware else tuple(nodes)


class Claim(Struct, frozen=True, eq=False, dict=True):
    """The hardware that one resource has found, and that its containers hold."""

    resource_name: str
    is_shared: bool = False
    found: Mapping[str, Keys] = field(default_factory=dict)
    """By device name."""
    held: Mapping[str, Keys] = field(default_factory=dict)
    """By device name."""

    @cached_property
    def keys(self) -> frozenset[Key]:
        """The keys of all found devices."""
        return frozenset(chain.from_iterable(self.found.values()))

    @cached_property
    def held_keys(self) -> frozenset[Key]:
        """The keys of all held devices."""
        return frozenset(chain.from_iterable(self.held.values()))

    def after(self, found: Iterable[HostDevice], held: Collection[str] = (), *, is_shared: bool) -> Claim:
        """Return the claim after a scan; this object if nothing differs.

        `held` are the names of the devices, found now or before, that a container may hold.
        """
        fresh = {one.name: _keys_of(one) for one in found}
        kept = {name: keys for name in held if (keys := self._held_keys(name, fresh))}
        if (is_shared, fresh, kept) == (self.is_shared, self.found, self.held):
            return self
        return Claim(self.resource_name, is_shared, fresh, kept)

    def _held_keys(self, name: str, found: Mapping[str, Keys]) -> Keys:
        """Return the keys of a held device: those that it has now, and some that it had before.

        If it is found at another place, its old place is dropped: something else may be plugged in there. Its
        old node numbers stay, because a container may still open them, whichever device has them now.
        """
        before = self.held.get(name) or self.found.get(name, ())
        keys = found.get(name, before)
        if keys == before:
            return keys
        is_elsewhere = any(isinstance(key, str) for key in keys)
        left = (key for key in before if not (is_elsewhere and isinstance(key, str)))
        return (*keys, *(key for key in left if key not in keys))


class Decision(Struct, frozen=True, eq=False, dict=True):
    """What one resource owns of its claim, and what it does not."""

    claim: Claim
    kept: frozenset[Key]
    """What its containers hold: no other resource may own it, unless both have `share`."""
    taken: frozenset[Key]
    """What it finds and other resources own."""

    @cached_property
    def refused(self) -> frozenset[str]:
        """The names of the found devices that it does not own."""
        if not self.taken:
            return frozenset()
        return frozenset(name for name, keys in self.claim.found.items() if not self.taken.isdisjoint(keys))

    @cached_property
    def owned(self) -> frozenset[Key]:
        """The keys of the found devices that it owns."""
        if not self.refused:
            return self.claim.keys
        return frozenset().union(
            *(keys for name, keys in self.claim.found.items() if name not in self.refused)
        )

    def owners(self, decisions: Iterable[Decision]) -> dict[str, str]:
        """Return the first owner in the file of each refused device, by device name, sorted.

        `decisions` are those of all resources, this one too, in file order.
        """
        owners: dict[str, str] = {}
        is_before = True
        left = self.refused
        for other in decisions:
            if other is self:
                is_before = False
            elif left and not (self.claim.is_shared and other.claim.is_shared):
                has = [other.kept, other.owned] if is_before else [other.kept]
                taken = frozenset().union(*map(self.taken.intersection, has))
                mine = {name for name in left if not taken.isdisjoint(self.claim.found[name])}
                owners |= dict.fromkeys(mine, other.claim.resource_name)
                left -= mine
        return dict(sorted(owners.items()))


def decide(claims: Iterable[Claim], before: Mapping[str, Decision] = MappingProxyType({})) -> list[Decision]:
    """Return the decision on each claim; `claims` are in file order.

    `before` are the decisions before, by resource name. One that has not changed is returned as the same
    object.
    """
    claims = list(claims)
    kept = _kept([claim for claim in claims if claim.held], before)
    shared: set[Key] = set()
    exclusive: set[Key] = set()
    for claim in claims:
        (shared if claim.is_shared else exclusive).update(kept.get(claim.resource_name, ()))
    decisions: list[Decision] = []
    for claim in claims:
        taken = claim.keys & exclusive
        if not claim.is_shared:
            taken |= claim.keys & shared
        mine = kept.get(claim.resource_name, frozenset())
        taken -= mine
        decision = before.get(claim.resource_name)
        if (
            decision is None
            or decision.claim is not claim
            or decision.kept != mine
            or decision.taken != taken
        ):
            decision = Decision(claim, mine, taken)
        (shared if claim.is_shared else exclusive).update(decision.owned)
        decisions.append(decision)
    return decisions


def _kept(claims: Sequence[Claim], before: Mapping[str, Decision]) -> dict[str, frozenset[Key]]:
    """Return for each resource the keys that its containers hold and that it therefore owns.

    Of several whose containers hold a key, the one that owned it before is first, then file order decides.
    Others own it too if they and the first have `share`.
    """
    held: set[Key] = set()
    several: set[Key] = set()
    for claim in claims:
        several |= claim.held_keys & held
        held |= claim.held_keys
    kept = {claim.resource_name: set(claim.held_keys - several) for claim in claims}
    for key in several:
        line = [claim for claim in claims if key in claim.held_keys]
        last = (one for one in line if (said := before.get(one.resource_name)) and key in said.kept)
        first = next(last, line[0])
        for one in line:
            if one is first or (one.is_shared and first.is_shared):
                kept[one.resource_name].add(key)
    return {name: frozenset(keys) for name, keys in kept.items()}


class DeviceOverlap:
    """The claims and decisions of all resources of one daemon; lives as long as the daemon."""

    def __init__(self) -> None:
        self._ranks: dict[str, int] = {}
        self._decisions: dict[str, Decision] = {}
        """In file order."""
        self._said: dict[str, tuple[object, object, bool]] = {}
        """What each resource said last: what it found, what of that is held, and whether it shares."""
        self._on_change: dict[str, Callable[[], None]] = {}

    def reorder(self, resource_names: Iterable[str]) -> None:
        """Record the order of the resources in the file; a resource that is not in the file comes last."""
        self._ranks = {name: rank for rank, name in enumerate(resource_names)}
        self._decide(one.claim for one in self._decisions.values())

    def claim(
        self,
        resource_name: str,
        found: Iterable[HostDevice],
        held: Collection[str] = (),
        *,
        is_shared: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> Mapping[str, str]:
        """Record what a resource has found; return the names of what it does not own, with the owners.

        `held` are the names of the devices, found now or before, that a container may hold. Their keys stay
        claimed until a call without the name, also if they are not found any more. `on_change` is called when
        another resource changes what is refused to this one; it must not call this object.
        """
        self._on_change[resource_name] = on_change
        if not self._is_said_again(resource_name, found, held, is_shared=is_shared):
            last = self._decisions.get(resource_name)
            claim = (last.claim if last else Claim(resource_name)).after(found, held, is_shared=is_shared)
            if last is None or claim is not last.claim:
                others = (one.claim for name, one in self._decisions.items() if name != resource_name)
                self._decide((claim, *others), caller=resource_name)
        return self._decisions[resource_name].owners(self._decisions.values())

    def _is_said_again(
        self, resource_name: str, found: Iterable[HostDevice], held: Collection[str], *, is_shared: bool
    ) -> bool:
        """Whether a resource says the very values that it said last, which nobody can have changed since."""
        before, held_before, was_shared = self._said.get(resource_name, (None, None, None))
        self._said[resource_name] = found, held, is_shared
        return (
            isinstance(found, tuple)
            and isinstance(held, frozenset)
            and found is before
            and held is held_before
            and is_shared is was_shared
        )

    def leave(self, resource_name: str) -> None:
        """Drop the claim of a resource, held devices too; a second call does nothing."""
        if self._decisions.pop(resource_name, None):
            del self._on_change[resource_name], self._said[resource_name]
            self._decide(one.claim for one in self._decisions.values())

    def _decide(self, claims: Iterable[Claim], caller: str = "") -> None:
        """Decide on all claims, and call `on_change` of each changed resource but the caller."""
        last_rank = len(self._ranks)
        line = sorted(
            claims, key=lambda one: (self._ranks.get(one.resource_name, last_rank), one.resource_name)
        )
        before = self._decisions
        self._decisions = {one.claim.resource_name: one for one in decide(line, before)}
        for name, one in self._decisions.items():
            if name != caller and one is not before[name] and one.refused != before[name].refused:
                self._on_change[name]()
