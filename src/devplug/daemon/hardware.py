"""Which resource has which hardware: no two have the same, unless both say that they share. No I/O."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from devplug.daemon.sources.host import MEMORY_MAJOR

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping

    from devplug.daemon.sources.found import Found

__all__ = ["Overlaps"]

Keys: TypeAlias = "frozenset[Hashable]"
"""What makes a device the same as another one: where it is plugged in, and its own nodes."""


@dataclass(slots=True)
class _Claim:
    """What one resource has found, and what of it belongs to another one."""

    name: str
    rank: int
    is_shared: bool
    on_change: Callable[[], None]
    found: dict[str, Keys] = field(default_factory=dict)
    held: dict[str, Keys] = field(default_factory=dict)
    """Of devices that a container may hold, also of those that are not found any more."""
    refused: dict[str, str] = field(default_factory=dict)

    def names(self) -> dict[str, Keys]:
        return {**self.held, **self.found}

    def excludes(self, other: _Claim) -> bool:
        return self is not other and not (self.is_shared and other.is_shared)


class Overlaps:
    """The hardware of all resources of one daemon; lives as long as that.

    What a container holds stays with the resource by which it was given out, whatever becomes of that in the
    file. Else the resource that stands first in the file has what several find. What the file alone shows
    (equal paths) is refused before anything is served; this is for what only the machine shows: a link and
    its node, a gadget and its serial port.
    """

    def __init__(self) -> None:
        self._claims: dict[str, _Claim] = {}
        self._users: defaultdict[Hashable, dict[str, set[str]]] = defaultdict(dict)
        """By key, who has devices with it: resource name, device names."""
        self._contested: set[Hashable] = set()
        """The keys that several resources have devices with. All others need no decision."""

    def enter(self, resource_name: str, rank: int, *, is_shared: bool, on_change: Callable[[], None]) -> None:
        """Take part from now on; after an edit anew, with what was found and held before.

        `on_change` is called when others' claims concern this resource, never within a claim of its own.
        """
        claim = self._claims.get(resource_name)
        if claim is None:
            self._claims[resource_name] = _Claim(resource_name, rank, is_shared, on_change)
            return
        claim.rank, claim.is_shared, claim.on_change = rank, is_shared, on_change
        self._settle(claim)

    def reorder(self, ranks: Mapping[str, int]) -> None:
        """Take note that the resources stand in another order now."""
        for name, rank in ranks.items():
            if name in self._claims:
                self._claims[name].rank = rank
        self._settle()

    def claim(
        self, resource_name: str, found: Iterable[Found], held: Collection[str] = ()
    ) -> Mapping[str, str]:
        """Say what a resource has found, and which devices a container may hold.

        Returns those that it cannot have, each with the resource that has it.
        """
        claim = self._claims[resource_name]
        self._replace(claim, {one.name: _keys(one) for one in found}, held)
        return claim.refused

    def retire(self, resource_name: str, held: Collection[str]) -> None:
        """Give up all hardware of a resource but what a container may hold."""
        self._replace(self._claims[resource_name], {}, held)

    def leave(self, resource_name: str) -> None:
        """Give up all hardware of a resource, for good; unknown names are ignored."""
        if claim := self._claims.get(resource_name):
            self._replace(claim, {}, ())
            del self._claims[resource_name]

    def _replace(self, claim: _Claim, found: dict[str, Keys], held: Collection[str]) -> None:
        before = claim.names()
        claim_held = {name: found.get(name, before.get(name, frozenset())) for name in held}
        claim_held = {name: keys for name, keys in claim_held.items() if keys}
        if found == claim.found and claim_held == claim.held:
            return
        is_held_as_before = claim_held == claim.held
        claim.found, claim.held = found, claim_held
        after = claim.names()
        touched = self._contested.intersection(
            key for name, keys in before.items() if after.get(name) != keys for key in keys
        )
        for name, keys in before.items():
            if after.get(name) != keys:
                self._drop(claim.name, name, keys)
        for name, keys in after.items():
            if before.get(name) != keys:
                touched |= self._add(claim.name, name, keys)
        if touched or not (is_held_as_before and claim.refused.keys() <= found.keys()):
            self._settle(claim)

    def _add(self, resource_name: str, device: str, keys: Keys) -> set[Hashable]:
        """Note the keys of a device, and return those that others have, too."""
        for key in keys:
            users = self._users[key]
            users.setdefault(resource_name, set()).add(device)
            if len(users) > 1:
                self._contested.add(key)
        return self._contested.intersection(keys)

    def _drop(self, resource_name: str, device: str, keys: Keys) -> None:
        for key in keys:
            users = self._users[key]
            users[resource_name].discard(device)
            if not users[resource_name]:
                del users[resource_name]
            if len(users) < 2:
                self._contested.discard(key)
            if not users:
                del self._users[key]

    def _settle(self, caller: _Claim | None = None) -> None:
        """Decide anew over all hardware that several resources have."""
        rivals = {
            (name, device)
            for key in self._contested
            for name, devices in self._users[key].items()
            for device in devices
        }
        refused: defaultdict[str, dict[str, str]] = defaultdict(dict)
        # The first owner of a key speaks for all: it excludes everybody, or it shares, and so do the others.
        owners: dict[Hashable, _Claim] = {}
        for name, device in sorted(rivals, key=self._precedence):
            claim = self._claims[name]
            keys = self._contested.intersection(claim.found.get(device, claim.held.get(device, frozenset())))
            excluding = [owners[key] for key in keys if key in owners and claim.excludes(owners[key])]
            if excluding:
                refused[name][device] = min(excluding, key=lambda one: (one.rank, one.name)).name
            else:
                for key in keys:
                    owners.setdefault(key, claim)
        for claim in self._claims.values():
            if refused[claim.name] != claim.refused:
                claim.refused = refused[claim.name]
                if claim is not caller:
                    claim.on_change()

    def _precedence(self, rival: tuple[str, str]) -> tuple[bool, int, str, str]:
        name, device = rival
        claim = self._claims[name]
        return device not in claim.held, claim.rank, name, device


def _keys(found: Found) -> Keys:
    keys: set[Hashable] = {found.hardware} if found.hardware else set()
    keys.update(
        (node.is_block, node.number)
        for node in found.nodes
        if not node.is_shared and (node.is_block or node.number[0] != MEMORY_MAJOR)
    )
    return frozenset(keys)
