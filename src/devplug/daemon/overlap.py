"""The overlap of resources: which has which hardware. No two have the same, unless both share it. Pure.

Of two resources that find the same, that one has it whose device a container holds, and else the one that
stands first in the file. What the file alone shows (equal paths) is refused before anything is served; this
is for what only the machine shows: a link and its node, a gadget and its serial port.

What is held stays with its resource until it is let go, also if it was pulled out, if another resource comes
before this one in the file, and if the file has the resource no more. Where two resources hold the same
already, because they shared it before an edit, the first of them in the file is its owner and the other comes
next.

`decide` says all of this, from the claims of all resources and from what it said last. `DeviceOverlap`
remembers that, and has it say it again whenever a claim is another one than before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from devplug.daemon.sources.device import MEMORY_MAJOR

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from devplug.daemon.sources.device import HostDevice

__all__ = ["Claim", "Decision", "DeviceOverlap", "decide"]

Key: TypeAlias = "str | tuple[bool, tuple[int, int]]"
"""A place below /sys/devices, or a node: whether it is a block device, and its number."""

Keys: TypeAlias = "tuple[Key, ...]"


def _keys_of(found: HostDevice) -> Keys:
    """Return what makes a device the same as another one: where it is plugged in, and its own nodes."""
    nodes = [
        (node.is_block, node.number)
        for node in found.nodes
        if not node.is_shared and (node.is_block or node.number[0] != MEMORY_MAJOR)
    ]
    return (found.hardware, *nodes) if found.hardware else tuple(nodes)


@dataclass(frozen=True, eq=False)
class Claim:
    """What one resource has found, and what containers hold of it and of what was found before."""

    resource_name: str
    is_shared: bool = False
    found: Mapping[str, Keys] = field(default_factory=dict)
    """By device name."""
    held: Mapping[str, Keys] = field(default_factory=dict)
    """By device name."""

    @cached_property
    def keys(self) -> frozenset[Key]:
        """All that was found."""
        return frozenset(chain.from_iterable(self.found.values()))

    @cached_property
    def held_keys(self) -> frozenset[Key]:
        """All that is held."""
        return frozenset(chain.from_iterable(self.held.values()))

    def after(self, found: Iterable[HostDevice], held: Collection[str] = (), *, is_shared: bool) -> Claim:
        """Return the claim after a look; this one if it is the same.

        `held` are the names of those devices, and of devices that were found before, which a container may
        hold.
        """
        fresh = {one.name: _keys_of(one) for one in found}
        kept = {name: keys for name in held if (keys := self._held_keys(name, fresh))}
        if (is_shared, fresh, kept) == (self.is_shared, self.found, self.held):
            return self
        return Claim(self.resource_name, is_shared, fresh, kept)

    def _held_keys(self, name: str, found: Mapping[str, Keys]) -> Keys:
        """Return the keys of a held device: those that it has, and had.

        One that is found elsewhere has left its old place to whatever is plugged in there. Its old node
        numbers stay: a container may still open them, whichever device the kernel gives them to.
        """
        before = self.held.get(name) or self.found.get(name, ())
        keys = found.get(name, before)
        if keys == before:
            return keys
        is_elsewhere = any(isinstance(key, str) for key in keys)
        left = (key for key in before if not (is_elsewhere and isinstance(key, str)))
        return (*keys, *(key for key in left if key not in keys))


@dataclass(frozen=True, eq=False)
class Decision:
    """What one resource has of its claim, and what it has not."""

    claim: Claim
    kept: frozenset[Key]
    """What is kept for its containers: no other resource has that, unless both share it."""
    taken: frozenset[Key]
    """What it finds and cannot have: other resources have it."""

    @cached_property
    def refused(self) -> frozenset[str]:
        """The names of the found devices that it cannot have."""
        if not self.taken:
            return frozenset()
        return frozenset(name for name, keys in self.claim.found.items() if not self.taken.isdisjoint(keys))

    @cached_property
    def owned(self) -> frozenset[Key]:
        """The keys of the found devices that it has."""
        if not self.refused:
            return self.claim.keys
        return frozenset().union(
            *(keys for name, keys in self.claim.found.items() if name not in self.refused)
        )

    def owners(self, decisions: Iterable[Decision]) -> dict[str, str]:
        """Return the refused devices, sorted, each with the first resource in the file that has it.

        `decisions` are those of all resources in file order, with this one.
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

    `before` are the last decisions, by resource name. One that is still right is returned as the same object.
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
    """Return what is kept for the containers of each resource: of a key that several hold only the first's.

    First is for whom it was kept before, then file order. Others that share with the first have it, too.
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
    """The claims of all resources of one daemon, and what was decided; lives as long as that."""

    def __init__(self) -> None:
        self._ranks: dict[str, int] = {}
        self._decisions: dict[str, Decision] = {}
        """In file order."""
        self._on_change: dict[str, Callable[[], None]] = {}

    def reorder(self, resource_names: Iterable[str]) -> None:
        """Record the order in the file; a resource that it lacks comes last."""
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
        """Say what a resource has found; return what it cannot have, with the resource that has it.

        `held` are the names of those devices, and of devices that it found before, which a container may
        hold. Their keys stay claimed until a call without the name, also if they are not found any more.
        `on_change` is called when what others do changes which devices are refused to this one. It must not
        call back.
        """
        self._on_change[resource_name] = on_change
        last = self._decisions.get(resource_name)
        claim = (last.claim if last else Claim(resource_name)).after(found, held, is_shared=is_shared)
        if last is None or claim is not last.claim:
            others = (one.claim for name, one in self._decisions.items() if name != resource_name)
            self._decide((claim, *others), caller=resource_name)
        return self._decisions[resource_name].owners(self._decisions.values())

    def leave(self, resource_name: str) -> None:
        """Give up all hardware of a resource, held or not. May be called again."""
        if self._decisions.pop(resource_name, None):
            del self._on_change[resource_name]
            self._decide(one.claim for one in self._decisions.values())

    def _decide(self, claims: Iterable[Claim], caller: str = "") -> None:
        """Decide on all claims, and wake whom that changes, but the caller."""
        last_rank = len(self._ranks)
        line = sorted(
            claims, key=lambda one: (self._ranks.get(one.resource_name, last_rank), one.resource_name)
        )
        before = self._decisions
        self._decisions = {one.claim.resource_name: one for one in decide(line, before)}
        for name, one in self._decisions.items():
            if name != caller and one is not before[name] and one.refused != before[name].refused:
                self._on_change[name]()
