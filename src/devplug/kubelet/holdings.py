"""Who holds what, in the words of the PodResources API: what its answers contain (apis/podresources). Pure.

Where the real kubelet ranges over Go maps, and so answers in any order, pods, devices, NUMA nodes and CPUs
come in ascending order here; memory and claims stand as in the machine's table. Which pods are meant, and
when the books are cleaned, is `podresources`'.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from devplug.exchange import AllocatableResources, ContainerDevices, ContainerResources, PodResources
from devplug.kubelet.allocation import NO_NUMA_NODE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from devplug.exchange import ClaimResource, DynamicResource
    from devplug.kubelet.allocation import Assignment, Ledger
    from devplug.kubelet.machine import Machine
    from devplug.kubelet.pods import Container, Pod

__all__ = ["allocatable_resources", "pod_devices", "pod_resources"]


def pod_resources(
    pods: Iterable[Pod],
    ledger: Ledger,
    machine: Machine,
    *,
    compat: bool,
) -> tuple[PodResources, ...]:
    """Return what v1 says of these pods: their sidecars, then their app containers (server_v1.go).

    Regular init containers are left out though they may hold devices. Devices are those of the assignments,
    whatever has become of the plugin or of their health since; the rest is what `machine` has in its table.
    `compat` as in `_accumulated`.
    """
    held = _by_container(ledger)

    def resources(pod: Pod, container: Container) -> ContainerResources:
        share = machine.share(pod.namespace, pod.name, container.name)
        return ContainerResources(
            container.name,
            tuple(_assigned(held.get((pod.uid, container.name), ()))),
            tuple(sorted(share.cpu_ids)),
            share.memory,
            tuple(_accumulated(claim) if compat else claim for claim in share.dynamic_resources),
        )

    return tuple(
        PodResources(
            pod.name,
            pod.namespace,
            tuple(resources(pod, container) for container in pod.lasting_containers()),
        )
        for pod in _ordered(pods)
    )


def pod_devices(pods: Iterable[Pod], ledger: Ledger) -> tuple[PodResources, ...]:
    """Return what v1alpha1 says of these pods: the devices of their app containers (server_v1alpha1.go).

    It has no topology, yet an entry for each NUMA node of a device: one on two nodes is there twice.
    """
    held = _by_container(ledger)

    def resources(pod: Pod, container: Container) -> ContainerResources:
        devices = _assigned(held.get((pod.uid, container.name), ()))
        return ContainerResources(container.name, tuple(replace(one, numa_nodes=None) for one in devices))

    return tuple(
        PodResources(
            pod.name, pod.namespace, tuple(resources(pod, container) for container in pod.containers)
        )
        for pod in _ordered(pods)
    )


def allocatable_resources(ledger: Ledger, machine: Machine) -> AllocatableResources:
    """Return what the node can give: devices that are healthy now, assigned or not, and the machine's rest.

    A device whose topology is there but names no node is left out, as in the real kubelet
    (container_manager.go containerDevicesFromResourceDeviceInstances); one without topology is not.
    """
    return AllocatableResources(
        tuple(
            entry
            for name, state in sorted(ledger.resources.items())
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


def _by_container(ledger: Ledger) -> dict[tuple[str, str], list[Assignment]]:
    """Return (pod UID, container name) → what it holds, by resource name."""
    found: dict[tuple[str, str], list[Assignment]] = {}
    for held in ledger.assignments:
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
