"""Pods as a test sees them: what each asked for, what became of it, what its containers got."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from devplug.errors import KubeletError
from devplug.kubelet.pods import ContainerOptions, ContainerState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devplug.devices import DeviceNode, Mount
    from devplug.kubelet.kubelet import Kubelet
    from devplug.kubelet.pods import ContainerStatus, Pod, PodPhase, PodStatus


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
    """Resource name, or `claim:` and its name → device ID → health, as in `allocatedResourcesStatus`."""
    envs: Mapping[str, str] = field(hash=False)
    """The environment that plugins gave it at its last start; so for all that follows."""
    annotations: Mapping[str, str] = field(hash=False)
    mounts: tuple[Mount, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    """Of claims first, then of plugins; a container that waits has none."""

    @property
    def device_ids(self) -> tuple[str, ...]:
        """All devices that it holds, of all resources, ascending."""
        return tuple(sorted(device_id for ids in self.devices.values() for device_id in ids))


class PodOwner(Protocol):
    """The owner of admitted pods, which acts on them: a `SyncKubelet`."""

    def pod_status(self, uid: str) -> PodStatus:
        """Return what people see of a pod."""

    def containers_of(self, uid: str) -> Mapping[str, ContainerView]:
        """Return the containers of a pod by name, in start order."""

    def restart_container(self, uid: str, name: str) -> ContainerView:
        """End a container and start it again."""

    def sync_pod(self, uid: str) -> None:
        """Try again to prepare its claims."""

    def delete_pod(self, uid: str) -> None:
        """Delete a pod."""


class AdmittedPod:
    """A pod that was given to the kubelet; every attribute is as it is now.

    A refused pod is Failed, with the reason and message that users see.
    """

    def __init__(self, kubelet: PodOwner, uid: str) -> None:
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
        """End a container and start it again; it gets the same devices and the same answer.

        One that could not be made is tried again, and those that wait for it are started after it.
        """
        return self._kubelet.restart_container(self.uid, name)

    def sync(self) -> None:
        """Have the kubelet look at the pod again, which tries to prepare claims that could not be.

        The real one does so after a minute or more.
        """
        self._kubelet.sync_pod(self.uid)

    def delete(self) -> None:
        """Delete the pod; its devices are free for the next one that asks.

        Raises `KubeletError` if its claims cannot be unprepared; the pod stays then.
        """
        self._kubelet.delete_pod(self.uid)


# ── on the kubelet's loop ─────────────────────────────────────────────────────────────────────────


def containers_of(kubelet: Kubelet, uid: str) -> dict[str, ContainerView]:
    """Return the containers of a pod by name, in start order."""
    held = [one for one in kubelet.allocations() if one.pod_uid == uid]
    views = {}
    for one in kubelet.pod(uid).containers:
        options = one.options or ContainerOptions()
        is_waiting = one.state is ContainerState.WAITING
        views[one.name] = ContainerView(
            one.name,
            one.state,
            one.reason,
            one.message,
            one.restart_count,
            {mine.resource_name: mine.device_ids for mine in held if mine.container_name == one.name},
            {**one.allocated_resources, **_health_of_claims(one)},
            dict(options.envs),
            dict(options.annotations),
            options.mounts,
            options.device_nodes,
            options.cdi_devices if is_waiting else kubelet.container_config(uid, one.name).cdi_devices,
        )
    return views


def _health_of_claims(status: ContainerStatus) -> dict[str, dict[str, str]]:
    return {
        name: {device.resource_id: device.health for device in devices}
        for name, devices in status.claims_health.items()
    }


async def synced(kubelet: Kubelet, pod: Pod) -> None:
    """Prepare the claims of a pod, and start the containers that waited for them."""
    waiting = (one for one in kubelet.pod(pod.uid).containers if one.state is ContainerState.WAITING)
    first = next(waiting, None)
    if await kubelet.dra.try_prepare(pod) and first is not None:
        await restarted(kubelet, pod, first.name)


async def restarted(kubelet: Kubelet, pod: Pod, name: str) -> None:
    """End a container if it runs, start it, and then start those that wait for it."""
    if kubelet.pod(pod.uid).container(name).state is ContainerState.RUNNING:
        kubelet.end_container(pod.uid, name)
    waiting = [
        one.name
        for one in kubelet.pod(pod.uid).containers
        if one.state is ContainerState.WAITING and one.name != name
    ]
    for next_name in (name, *waiting):
        started = await kubelet.start_container(pod.uid, next_name)
        if started.state is not ContainerState.RUNNING:
            break
        if pod.runs_to_its_end(pod.container(next_name)):
            kubelet.end_container(pod.uid, next_name)


# ── the node as text, for a test that failed ──────────────────────────────────────────────────────


class NotInTimeError(TimeoutError):
    """Something did not happen; the text ends with what the node is like (`SyncKubelet.story`)."""


def node_lines(kubelet: Kubelet, pods: Mapping[str, Pod]) -> list[str]:
    """Return what the node has, who holds what, and what happened; `pods` are those that may be named."""
    names = {uid: f"{pod.namespace}/{pod.name}" for uid, pod in pods.items()}
    capacity, allocatable = kubelet.capacity(), kubelet.allocatable()
    lines = [
        f"resource     {name}: capacity {count}, allocatable {allocatable[name]}"
        for name, count in capacity.items()
    ]
    for uid, name in names.items():
        with suppress(KubeletError):  # one that the kubelet has never got
            lines += _pod_lines(kubelet, uid, name)
    lines += [
        f"held         {names.get(held.pod_uid, held.pod_uid)} {held.container_name}: "
        f"{held.resource_name}: {', '.join(held.device_ids)}"
        for held in kubelet.allocations()
    ]
    lines += [
        _line("event       ", names.get(event.pod_uid, event.pod_uid), event.reason, event.message)
        for event in kubelet.events
    ]
    return lines or ["the node has no resources and no pods"]


def _pod_lines(kubelet: Kubelet, uid: str, name: str) -> Iterator[str]:
    status = kubelet.pod(uid)
    yield _line("pod         ", f"{name} is {status.phase}", status.reason, status.message)
    for one in status.containers:
        yield _line("container   ", f"{name} {one.name} is {one.state}", one.reason, one.message)


def _line(title: str, *parts: str) -> str:
    return f"{title} {': '.join(part for part in parts if part)}"
