"""What an agent asks of whoever runs containers as processes of this machine, and what it is told back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from devplug.kubelet.pods import ContainerConfig
    from devplug.sandbox.api.objects import Object

__all__ = ["Ended", "Runtime", "StartOrder"]


@dataclass(frozen=True, slots=True)
class StartOrder:
    """One start of one container."""

    pod: Object
    node_name: str
    plugin_dir: Path
    """The folder of the node's plugins, which is `/var/lib/kubelet/device-plugins` to the container."""
    container: Object
    """The container of the pod's spec."""
    restart_count: int
    config: ContainerConfig
    """What plugins give it, and what the kubelet adds."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of one container's process, however it came about."""

    pod_uid: str
    container: str
    exit_code: int
    finished: datetime


class Runtime(Protocol):
    """Runs containers whose image stands for a program. One serves all nodes; it tells of every `Ended`."""

    def maps(self, image: str) -> bool:
        """Whether containers of this image run; all others are running in name only."""

    async def start(self, order: StartOrder) -> None:
        """Start a container. Raises `DevplugError` or `OSError` if it cannot be started."""

    async def stop(self, pod_uid: str, container: str, grace_seconds: float) -> None:
        """Stop a container and return once it is gone and told of; one that does not run is no error."""
