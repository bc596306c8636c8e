"""Answers of PodResources, written short, and a ledger with short times."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from devplug.holds.held_device import Rules
from devplug.status import Holder
from devplug.wire.values import ContainerDevices, ContainerResources, PodResources

RESOURCE = "example.com/a"
RULES = Rules(period_seconds=10, absence_seconds=10, grace_seconds=20, trusts_empty=True)
KUBELET, NEXT_KUBELET = (1, 1, 1), (1, 2, 2)


def pod(name: str, *ids: str, resource_name: str = RESOURCE, container: str = "c") -> PodResources:
    """A pod whose container holds these IDs, one entry for each as the kubelet sends them."""
    devices = tuple(ContainerDevices(resource_name, (device_id,)) for device_id in ids)
    return PodResources(name, "default", (ContainerResources(container, devices),))


def holder(name: str, container: str = "c") -> Holder:
    return Holder("default", name, container)


def pods(held: Mapping[str, Collection[str]]) -> tuple[PodResources, ...]:
    """Pods by name, each with the IDs that it holds."""
    return tuple(pod(name, *sorted(ids)) for name, ids in held.items())
