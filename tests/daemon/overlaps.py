"""Resources that find the same hardware, and their table of claims."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from devplug.daemon.overlap import DeviceOverlap
from devplug.daemon.sources.device import HostDevice, HostDeviceNode


def found(name: str, hardware: str = "", minor: int | None = None, major: int = 188) -> HostDevice:
    nodes = () if minor is None else (HostDeviceNode(f"/dev/{name}", (major, minor)),)
    return HostDevice(name, nodes, hardware=hardware)


class Table:
    """Resources in file order, which of them share, and who was woken."""

    def __init__(self, **shares: bool) -> None:
        self.shares = shares
        self.woken: list[str] = []
        self.overlaps = DeviceOverlap()
        self.reorder, self.leave = self.overlaps.reorder, self.overlaps.leave
        self.reorder(shares)

    def claim(self, name: str, found: Iterable[HostDevice], held: Collection[str] = ()) -> Mapping[str, str]:
        return self.overlaps.claim(
            name, found, held, is_shared=self.shares[name], on_change=lambda: self.woken.append(name)
        )
