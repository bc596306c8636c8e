"""The machine a kubelet runs on, as far as device plugins and monitors notice it. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.exchange import ContainerMemory, DynamicResource

__all__ = ["ComputeShare", "Machine", "NumaNode"]


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node of the machine, by its kernel number."""

    id: int
    distances: tuple[int, ...] | None = None
    """The row of the kernel's distance table (`/sys/devices/system/node/nodeN/distance`), in the order of
    the machine's nodes, 10 for the node itself; None if the kubelet could not read it."""


@dataclass(frozen=True, slots=True)
class ComputeShare:
    """What the CPU and memory managers and DRA have given one container. Fixed: nothing here allocates."""

    cpu_ids: tuple[int, ...] = ()
    """CPUs of its own."""
    memory: tuple[ContainerMemory, ...] = ()
    dynamic_resources: tuple[DynamicResource, ...] = ()


_NO_SHARE: Final = ComputeShare()


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: its NUMA nodes, and a table of who has which CPUs and memory, for monitors to read."""

    numa_nodes: tuple[NumaNode, ...] = (NumaNode(0, (10,)),)
    cpu_ids: tuple[int, ...] = ()
    """CPUs that containers can have for themselves; none, as under the CPU manager's policy `none`."""
    memory: tuple[ContainerMemory, ...] = ()
    """Memory and huge pages that the memory manager can give; none, as under its policy `None`."""
    shares: Mapping[str, ComputeShare] = field(default_factory=dict, hash=False)
    """`namespace/pod/container` → what it has. A container that is not here uses the shared CPUs."""

    def share(self, namespace: str, pod_name: str, container_name: str) -> ComputeShare:
        """Return what a container has besides devices."""
        return self.shares.get(f"{namespace}/{pod_name}/{container_name}", _NO_SHARE)
