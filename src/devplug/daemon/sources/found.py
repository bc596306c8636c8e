"""What a source finds on the host: one value per device, the same for every kind of source."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from devplug.devices import Health

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

__all__ = ["Found", "FoundNode", "Source"]

_NO_FACTS: Mapping[str, str | int] = MappingProxyType({})
_NO_LINKS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FoundNode:
    """One device node of a found device, and what proves at Allocate that it is still the same."""

    host_path: str
    """The path that a container's answer carries: the stable link where there is one."""
    number: tuple[int, int]
    """Major and minor."""
    is_block: bool = False
    subsystem: str = ""
    """What the kernel calls its kind, as in `tty`; empty where a source does not look into sysfs."""
    real_path: str = ""
    """The kernel's own path of the node, as in `/dev/ttyUSB0`; empty if that is `host_path`."""
    name: str = ""
    """What `{containerPath.NAME}` calls it, where the source gives names: the members of a bundle."""
    is_shared: bool = False
    """Whether it belongs to a driver and not to this device: it comes along, and nobody owns it."""

    @property
    def file_name(self) -> str:
        """The kernel's name of the node: what `file` in `expose.deviceNodes` is compared with."""
        return (self.real_path or self.host_path).rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Found:
    """A device that is present now. `name` identifies it from one look to the next, and is a device ID."""

    name: str
    nodes: tuple[FoundNode, ...] = ()
    numa_node: int | None = None
    facts: Mapping[str, str | int] = field(default_factory=lambda: _NO_FACTS, hash=False)
    """What templates may say of it, by their names for it; `id`, `index` and `containerPath` come later."""
    hardware: str = ""
    """What it physically is, for as long as it is plugged in: its folder below /sys/devices where sysfs knows
    it. Two resources that find the same have one device between them. Empty: nothing is behind it."""
    health: Health = field(default_factory=Health.healthy)
    """What the source itself knows of it, as from the driver; health rules come on top."""
    links: Mapping[str, int] = field(default_factory=lambda: _NO_LINKS, hash=False)
    """How well it is connected to other devices of the resource, by their names; more is better. Only what
    sysfs cannot tell, such as the number of NVLinks."""
    plugged: int = 0
    """Which time of being plugged in this is: the inode of its folder, of which the kernel makes another one
    for whatever comes to the same place with the same numbers. 0: nobody can tell."""

    @property
    def plugged_in(self) -> object:
        """What is another after it was pulled out and plugged in again."""
        return self.hardware, self.plugged, self.nodes


class Source(Protocol):
    """One kind of host device. It announces changes; nobody polls it."""

    def look(self) -> tuple[Found, ...]:
        """Return all devices that are present, sorted by name: a fresh look, which only reads.

        It may be asked at any time, also while `looks` is followed: in Allocate, and by commands that only
        show what is here.
        """

    def looks(self) -> AsyncGenerator[tuple[Found, ...], None]:
        """Yield all devices that are present, sorted by name: at once, after each change, and every 30 s."""
