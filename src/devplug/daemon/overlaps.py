"""Which resource has which hardware: no two have the same, unless both say that they share. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.daemon.sources.host import MEMORY_MAJOR

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from devplug.daemon.sources.found import Found

__all__ = ["Overlaps"]

Keys: TypeAlias = "frozenset[Hashable]"

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(slots=True)
class _Claim:
    """What one resource has found, and what of it belongs to another one."""

    rank: int
    is_shared: bool
    on_change: Callable[[], None]
    found: Mapping[str, Keys] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=lambda: _NONE)


class Overlaps:
    """The hardware of all resources of one daemon; lives as long as that.

    Of two resources that find the same, the one that stands first in the file has it. What the file alone
    shows (equal paths) is refused before anything is served; this is for what only the machine shows: a link
    and its node, a gadget and its serial port.
    """

    def __init__(self) -> None:
        self._claims: dict[str, _Claim] = {}

    def enter(self, resource_name: str, rank: int, *, is_shared: bool, on_change: Callable[[], None]) -> None:
        """Take part from now on, or anew. `on_change` is called when others' finds concern this one."""
        self._claims[resource_name] = _Claim(rank, is_shared, on_change)
        self._settle(resource_name)

    def reorder(self, ranks: Mapping[str, int]) -> None:
        """Take note that the resources stand in another order now."""
        for name, rank in ranks.items():
            if name in self._claims:
                self._claims[name].rank = rank
        self._settle("")

    def leave(self, resource_name: str) -> None:
        """Give up all hardware of a resource."""
        if self._claims.pop(resource_name, None):
            self._settle(resource_name)

    def claim(self, resource_name: str, found: Iterable[Found]) -> Mapping[str, str]:
        """Say what a resource has found; return what it cannot have, with the resource that has it."""
        claim = self._claims[resource_name]
        keys = {one.name: _keys(one) for one in found}
        if keys != claim.found:
            claim.found = keys
            self._settle(resource_name)
        return claim.refused

    def _settle(self, resource_name: str) -> None:
        owners: dict[Hashable, str] = {}
        for name, claim in sorted(self._claims.items(), key=lambda item: item[1].rank):
            refused = {}
            for device, keys in claim.found.items():
                others = {owners[key] for key in keys if key in owners} - {name}
                excluding = {one for one in others if not (claim.is_shared and self._claims[one].is_shared)}
                if excluding:
                    refused[device] = min(excluding, key=lambda one: self._claims[one].rank)
                else:
                    owners.update((key, name) for key in keys)
            if refused != claim.refused:
                claim.refused = refused
                if name != resource_name:
                    claim.on_change()


def _keys(found: Found) -> Keys:
    """Return what makes a device the same as another one: where it is plugged in, and its own nodes."""
    keys: set[Hashable] = {found.hardware} if found.hardware else set()
    keys.update(
        (node.is_block, node.number)
        for node in found.nodes
        if not node.is_shared and (node.is_block or node.number[0] != MEMORY_MAJOR)
    )
    return frozenset(keys)
