"""What a source finds on the host: one value per device, the same for every kind of source."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

__all__ = ["Found", "FoundNode", "Source"]

_NONE: Mapping[str, str | int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FoundNode:
    """One device node of a found device, and what proves at Allocate that it is still the same."""

    host_path: str
    """The path that a container's answer carries: the stable link where there is one."""
    number: tuple[int, int]
    """Major and minor."""
    is_block: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A device that is present now. `name` identifies it from one look to the next, and is a device ID."""

    name: str
    nodes: tuple[FoundNode, ...] = ()
    numa_node: int | None = None
    facts: Mapping[str, str | int] = field(default_factory=lambda: _NONE, hash=False)
    """What templates may say of it, by their names for it; `id`, `index` and `containerPath` come later."""


class Source(Protocol):
    """One kind of host device. It announces changes; nobody polls it."""

    def looks(self) -> AsyncIterator[tuple[Found, ...]]:
        """Yield all devices that are present, sorted by name: at once, after each change, and every 30 s."""
