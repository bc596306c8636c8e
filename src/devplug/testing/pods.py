"""A pod as a test sees it: what it asked for, what became of it, what its containers got."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.devices import DeviceNode, Mount
    from devplug.kubelet.pods import ContainerState, PodPhase, PodStatus
    from devplug.testing.kubelet import SyncKubelet

__all__ = ["AdmittedPod", "ContainerView"]


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container at the moment at which it was looked at."""

    name: str
    state: ContainerState
    reason: str
    message: str
    restart_count: int
    devices: Mapping[str, tuple[str, ...]] = field(hash=False)
    """Resource name → IDs of the devices that it holds, ascending."""
    health: Mapping[str, Mapping[str, str]] = field(hash=False)
    """Resource name → device ID → `Healthy` or `Unhealthy`, as in `allocatedResourcesStatus`."""
    envs: Mapping[str, str] = field(hash=False)
    """The environment that plugins gave it at its last start; so for all that follows."""
    annotations: Mapping[str, str] = field(hash=False)
    mounts: tuple[Mount, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    cdi_devices: tuple[str, ...] = ()

    @property
    def device_ids(self) -> tuple[str, ...]:
        """All devices that it holds, of all resources, ascending."""
        return tuple(sorted(device_id for ids in self.devices.values() for device_id in ids))


class AdmittedPod:
    """A pod that was given to the kubelet; every attribute is as it is now.

    A refused pod is Failed, with the reason and message that users see.
    """

    def __init__(self, kubelet: SyncKubelet, uid: str) -> None:
        self.uid = uid
        self._kubelet = kubelet

    def __repr__(self) -> str:
        """Return what `kubectl get pod` would say, for failing tests."""
        status = self.status
        why = f", {status.reason}: {status.message}" if status.reason else ""
        return f"<pod {self.uid}: {status.phase}{why}>"

    @property
    def status(self) -> PodStatus:
        """The pod's status; raises `KubeletError` once it was deleted."""
        return self._kubelet.pod_status(self.uid)

    @property
    def phase(self) -> PodPhase:
        """`Pending`, `Running`, `Succeeded` or `Failed`."""
        return self.status.phase

    @property
    def reason(self) -> str:
        """Why it failed, in a word; empty if it did not."""
        return self.status.reason

    @property
    def message(self) -> str:
        """Why it failed, in words; empty if it did not."""
        return self.status.message

    @property
    def containers(self) -> Mapping[str, ContainerView]:
        """Container name → container, in start order; none for a refused pod."""
        return self._kubelet.containers_of(self.uid)

    @property
    def container(self) -> ContainerView:
        """The only container of the pod; raises `LookupError` if there are others or none."""
        containers = self.containers
        if len(containers) != 1:
            names = ", ".join(containers) or repr(self)
            raise LookupError(f"not one container but {len(containers)} ({names}); use containers[NAME]")
        return next(iter(containers.values()))

    def restart_container(self, name: str) -> ContainerView:
        """End a container and start it again; it gets the same devices and the same answer."""
        return self._kubelet.restart_container(self.uid, name)

    def delete(self) -> None:
        """Delete the pod; its devices are free for the next one that asks."""
        self._kubelet.delete_pod(self.uid)
