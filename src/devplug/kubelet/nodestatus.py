"""The node's numbers as `kubectl describe node` shows them (nodestatus/setters.go). Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.kubelet.resources import Capacity

__all__ = ["NodeStatus"]


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Capacity and allocatable per resource name, as last reported. Outlives the kubelet's processes."""

    capacity: Mapping[str, int] = field(default_factory=dict, hash=False)
    allocatable: Mapping[str, int] = field(default_factory=dict, hash=False)

    def updated(self, counts: Capacity) -> NodeStatus:
        """Return the next report.

        A resource whose plugin has been gone for too long stays, with 0. Where the device manager has no
        count of healthy devices, allocatable is the capacity. What others have put there stays as it is.
        """
        capacity = {**self.capacity, **counts.capacity, **dict.fromkeys(counts.deleted, 0)}
        return NodeStatus(capacity, {**capacity, **counts.allocatable})

    def patched(self, resource_name: str, count: int) -> NodeStatus:
        """Return the status after somebody has set a resource that no plugin serves."""
        return replace(self, capacity={**self.capacity, resource_name: count})

    def replaced(self, capacity: Mapping[str, int]) -> NodeStatus:
        """Return the status after the Node object was read again; what its capacity lacks is forgotten."""
        return replace(self, capacity=dict(capacity))
