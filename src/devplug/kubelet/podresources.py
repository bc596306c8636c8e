"""The PodResources API: who holds what, told to monitors on a socket of its own (apis/podresources)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from devplug.kubelet.devicemanager import DeviceManager
    from devplug.kubelet.metrics import KubeletMetrics
    from devplug.kubelet.podtable import PodTable
    from devplug.kubelet.settings import KubeletSettings

__all__ = ["PodResourcesServer"]


class PodResourcesServer:
    """The server at `pod-resources/kubelet.sock`. Lives from `open` to `close`."""

    def __init__(
        self,
        socket: Path,
        pods: PodTable,
        devices: DeviceManager,
        metrics: KubeletMetrics,
        settings: KubeletSettings,
    ) -> None:
        self._socket = socket

    async def open(self) -> None:
        """Listen."""

    async def close(self, *, orderly: bool = False) -> None:
        """End; the socket stays and refuses connections, unless it is `orderly`. Safe to repeat."""
