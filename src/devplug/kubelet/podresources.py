"""The PodResources API: the holders of devices, for monitors, on its own socket (apis/podresources).

Where the real kubelet ranges over Go maps, and so answers in any order, pods, devices, NUMA nodes and CPUs
come in ascending order here; memory and claims stand as in the hardware's table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from devplug.errors import KubeletError, LimitError
from devplug.kubelet.allocation import NO_NUMA_NODE
from devplug.wire.limits import KUBELET_RECEIVE_LIMIT_BYTES
from devplug.wire.podresources import GET, GET_ALLOCATABLE_RESOURCES, LIST, V1ALPHA1_LIST
from devplug.wire.sockets import Listener, unary
from devplug.wire.values import AllocatableResources, ContainerDevices, ContainerResources, PodResources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from devplug.kubelet.allocation import Assignment, DeviceAllocations
    from devplug.kubelet.devicemanager import DeviceManager
    from devplug.kubelet.metrics import KubeletMetrics
    from devplug.kubelet.pods import Container, Pod
    from devplug.kubelet.podtable import PodTable
    from devplug.kubelet.settings import KubeletSettings
    from devplug.kubelet.topology import NodeHardware
    from devplug.wire.values import ClaimResource, DynamicResource, PodName

DynamicResources: TypeAlias = "Callable[[Pod, Container], Sequence[DynamicResource]]"

_CALLS_PER_SECOND: Final = 100
_CALLS_AT_ONCE: Final = 10
"""Of all monitors together (podresources/constants.go)."""

_SEND_LIMIT_BYTES: Final = 2**31 - 1
"""grpc-go's default: a monitor with much to read raises its own limit."""

_CLOCK_ERROR_SECONDS: Final = 1e-6
"""A token that is missing for less than this is there: seconds as a float are a little off."""


# ── what the answers contain ──────────────────────────────────────────────────────────────────────


def pod_resources(
    pods: Iterable[Pod],
    allocations: DeviceAllocations,
    machine: NodeHardware,
    claims: DynamicResources = lambda _, __: (),
    *,
    compat: bool,
) -> tuple[PodResources, ...]:
    """Return the v1 answer about these pods: their sidecars, then their app containers (server_v1.go).

    Regular init containers are left out though they may hold devices. Devices are those of the assignments,
    whatever has become of the plugin or of their health since; `claims` returns those of a container that DRA
    serves, and the rest is what `machine` has in its table. `compat` as in `_accumulated`.
    """
    held = _by_container(allocations)

    def resources(pod: Pod, container: Container) -> ContainerResources:
        share = machine.share(pod.namespace, pod.name, container.name)
        return ContainerResources(
            container.name,
            tuple(_assigned(held.get((pod.uid, container.name), ()))),
            tuple(sorted(share.cpu_ids)),
            share.memory,
            tuple(
                _accumulated(claim) if compat else claim
                for claim in (*share.dynamic_resources, *claims(pod, container))
            ),
        )

    return tuple(
        PodResources(
            pod.name,
            pod.namespace,
            tuple(resources(pod, container) for container in pod.lasting_containers()),
        )
        for pod in _ordered(pods)
    )


def pod_devices(pods: Iterable[Pod], allocations: DeviceAllocations) -> tuple[PodResources, ...]:
    """Return the v1alpha1 answer about these pods: the devices of their app containers (server_v1alpha1.go).

    It has no topology, yet an entry for each NUMA node of a device: one on two nodes is there twice.
    """
    held = _by_container(allocations)

    def resources(pod: Pod, container: Container) -> ContainerResources:
        devices = _assigned(held.get((pod.uid, container.name), ()))
        return ContainerResources(container.name, tuple(replace(one, numa_nodes=None) for one in devices))

    return tuple(
        PodResources(
            pod.name, pod.namespace, tuple(resources(pod, container) for container in pod.containers)
        )
        for pod in _ordered(pods)
    )


def allocatable_resources(allocations: DeviceAllocations, machine: NodeHardware) -> AllocatableResources:
    """Return the allocatable resources: devices that are healthy, assigned or not, and the machine's rest.

    A device whose topology is there but names no node is left out, as in the real kubelet
    (container_manager.go containerDevicesFromResourceDeviceInstances); one without topology is not.
    """
    return AllocatableResources(
        tuple(
            entry
            for name, state in sorted(allocations.resources.items())
            for device_id in sorted(state.healthy or ())
            for entry in _entries(name, device_id, state.devices[device_id].numa_nodes)
        ),
        tuple(sorted(machine.cpu_ids)),
        machine.memory,
    )


def _accumulated(claim: DynamicResource) -> DynamicResource:
    """Return a claim as 1.36 tells of it, with the CDI names piled up (container_manager_linux.go).

    A machine's table says for each prepared device which CDI names are its own, and without `compat` monitors
    read just that. The real kubelet fills one list per driver of a claim and shows each device the list so
    far: the second device of a driver has the names of the first one too.
    """
    names: dict[str, tuple[str, ...]] = {}

    def piled_up(resource: ClaimResource) -> ClaimResource:
        driver_name = resource.driver_name
        names[driver_name] = (*names.get(driver_name, ()), *resource.cdi_devices)
        return replace(resource, cdi_devices=names[driver_name])

    return replace(claim, claim_resources=tuple(piled_up(resource) for resource in claim.claim_resources))


def _ordered(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid))


def _by_container(allocations: DeviceAllocations) -> dict[tuple[str, str], list[Assignment]]:
    """Return (pod UID, container name) → what it holds, by resource name."""
    found: dict[tuple[str, str], list[Assignment]] = {}
    for held in allocations.assignments:
        found.setdefault(held.key[:2], []).append(held)
    return found


def _assigned(held: Iterable[Assignment]) -> Iterator[ContainerDevices]:
    """Yield the entries for what one container holds, with the nodes that the checkpoint keeps.

    That has no empty topology: a device that was allocated with one counts as one without.
    """
    for one in held:
        nodes: dict[str, list[int]] = {device_id: [] for device_id in one.allocation.device_ids}
        for node, device_ids in sorted(one.devices_per_numa.items()):
            if node != NO_NUMA_NODE:
                for device_id in device_ids:
                    nodes[device_id].append(node)
        for device_id in sorted(nodes):
            yield from _entries(one.allocation.resource_name, device_id, nodes[device_id] or None)


def _entries(
    resource_name: str,
    device_id: str,
    numa_nodes: Iterable[int] | None,
) -> Iterator[ContainerDevices]:
    """Yield one entry for each node; one without topology for None, and none at all for no nodes."""
    if numa_nodes is None:
        yield ContainerDevices(resource_name, (device_id,))
    else:
        for node in sorted(numa_nodes):
            yield ContainerDevices(resource_name, (device_id,), (node,))


# ── how many calls the server takes ───────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBucket:
    """A bucket that holds up to `size` tokens, one for each call, and is refilled at `per_second`.

    Full at first, and replaced at each call that is allowed. Times are seconds of any clock that does not go
    back.
    """

    per_second: float
    size: int
    counted_at_seconds: float
    missing: float = 0.0
    """How many tokens it lacked at `counted_at_seconds`; 0 is full."""

    def taken(self, now_seconds: float) -> TokenBucket | None:
        """Return the bucket after one call, or None if the call is refused; then this one goes on."""
        refilled = (now_seconds - self.counted_at_seconds) * self.per_second
        missing = max(0.0, self.missing - refilled) + 1
        if (missing - self.size) / self.per_second >= _CLOCK_ERROR_SECONDS:
            return None
        return TokenBucket(
            per_second=self.per_second, size=self.size, counted_at_seconds=now_seconds, missing=missing
        )


# ── the server ────────────────────────────────────────────────────────────────────────────────────


class PodResourcesServer:
    """The server at `pod-resources/kubelet.sock`. Lives from `open` to `close`.

    Both versions of the API share the socket and one limit of calls. Calls that `settings` leave out are
    answered as by the kubelets that never had them, UNIMPLEMENTED, and like all unknown calls are not
    limited; kubelets that had them switched off by a feature gate said UNKNOWN instead.
    """

    def __init__(
        self,
        socket: Path,
        pods: PodTable,
        devices: DeviceManager,
        claims: DynamicResources,
        metrics: KubeletMetrics,
        settings: KubeletSettings,
    ) -> None:
        self._socket = socket
        self._pods = pods
        self._devices = devices
        self._claims = claims
        self._metrics = metrics
        self._settings = settings
        self._bucket = TokenBucket(
            per_second=_CALLS_PER_SECOND,
            size=_CALLS_AT_ONCE,
            counted_at_seconds=settings.clock(),
        )
        later_calls = {
            "get": unary(GET, self._get),
            "allocatable": unary(GET_ALLOCATABLE_RESOURCES, self._get_allocatable_resources),
        }
        self._listener = Listener(
            socket,
            (
                unary(LIST, self._list),
                unary(V1ALPHA1_LIST, self._list_v1alpha1),
                *(call for name, call in later_calls.items() if name not in settings.pod_resources_without),
            ),
            receive_limit_bytes=KUBELET_RECEIVE_LIMIT_BYTES,
            send_limit_bytes=_SEND_LIMIT_BYTES,
            admit_call=self._admit_call,
            by_rename=True,
        )

    async def open(self) -> None:
        """Listen, in a folder that only its owner and group can enter (cri-client util_unix.go).

        Raises `KubeletError` if the folder cannot be made or does not take the socket.
        """
        folder = self._socket.parent
        try:
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise KubeletError(f"cannot make the folder {folder}: {error.strerror}") from error
        await self._listener.bind()

    async def close(self, *, orderly: bool = False) -> None:
        """End; the socket stays and refuses connections, unless it is `orderly`. Safe to repeat."""
        await self._listener.close(keep_file=not orderly)

    def _admit_call(self) -> None:
        """Admit a call, or refuse it before it is counted (apis/grpc/ratelimit.go)."""
        bucket = self._bucket.taken(self._settings.clock())
        if bucket is None:
            raise LimitError("rejected by rate limit")
        self._bucket = bucket

    # ── v1 ──

    async def _list(self, _: None) -> Sequence[PodResources]:
        self._metrics.count_pod_resources_call("v1", "list")
        self._devices.free_inactive()
        return pod_resources(
            self._pods.active(),
            self._devices.allocations,
            self._settings.machine,
            self._claims,
            compat=self._settings.compat,
        )

    async def _get(self, asked: PodName) -> PodResources:
        """Serve Get; the devices of ended pods are not freed by it."""
        self._metrics.count_pod_resources_call("v1", "get")
        bound = self._pods.named(asked.namespace, asked.name)
        if bound is None or bound.status.is_terminal:
            self._metrics.count_pod_resources_error("v1", "get")
            raise KubeletError(f"pod {asked.name} in namespace {asked.namespace} not found")
        (found,) = pod_resources(
            (bound.pod,),
            self._devices.allocations,
            self._settings.machine,
            self._claims,
            compat=self._settings.compat,
        )
        return found

    async def _get_allocatable_resources(self, _: None) -> AllocatableResources:
        self._metrics.count_pod_resources_call("v1", "get_allocatable")
        return allocatable_resources(self._devices.allocations, self._settings.machine)

    # ── v1alpha1 ──

    async def _list_v1alpha1(self, _: None) -> Sequence[PodResources]:
        """Serve the older List: of every pod, also those that have ended."""
        self._metrics.count_pod_resources_call("v1alpha1", None)
        self._devices.free_inactive()
        return pod_devices(self._pods.known(), self._devices.allocations)
