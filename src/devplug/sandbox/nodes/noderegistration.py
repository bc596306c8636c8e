"""The registration of a node: its Node object made and kept up to date, and its lease renewed.

What stands in it is `nodestatus`'.
"""

from __future__ import annotations

import os
import platform
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from devplug import __version__
from devplug.k8s.objects import Object, fields, with_part
from devplug.k8s.pod_requests import device_counts
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.events import EventRecorder, EventSource
from devplug.sandbox.nodes.nodestatus import NodeFacts, is_due, lease_of, new_node, status_of
from devplug.sandbox.registry import LEASES, NODES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.kubelet.kubelet import Kubelet
    from devplug.sandbox.registry import Registry

LEASE_NAMESPACE: Final = "kube-node-lease"
"""Where leases are; without that namespace there are none."""

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}


def facts_of_this_machine(
    name: str, *, internal_ip: str = "", labels: Mapping[str, str] | None = None
) -> NodeFacts:
    """Return what this machine gives a node of that name; every node of a sandbox has all of it."""
    machine_id = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.sandbox.devplug.dev")
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    image = "Linux"
    with suppress(OSError):
        image = platform.freedesktop_os_release().get("PRETTY_NAME", image)
    return NodeFacts(
        name,
        os.cpu_count() or 1,
        memory_bytes // 1024,
        _ARCHITECTURES.get(platform.machine(), platform.machine()),
        platform.release(),
        image,
        f"devplug-sandbox://{__version__}",
        machine_id.hex,
        str(uuid.uuid4()),
        internal_ip,
        labels,
    )


class NodeRegistration:
    """The writer of one Node object; lives as long as its agent."""

    def __init__(self, facts: NodeFacts, kubelet: Kubelet, registry: Registry) -> None:
        self._facts = facts
        self._kubelet = kubelet
        self._registry = registry
        self.recorder = EventRecorder(registry, EventSource("kubelet", facts.name))
        """The recorder of the kubelet's events on nodes and pods."""

    @property
    def node(self) -> Object | None:
        """The Node object; None if somebody has deleted it."""
        return self._registry.find(NODES, "", self._facts.name)

    def register(self) -> None:
        """Make the Node object if it is not there, as a kubelet does at its start."""
        if self.node is None:
            self._registry.create(NODES, "", new_node(self._facts))

    def write(self, *, is_up: bool) -> None:
        """Write the node's status if it is due, and have the kubelet know what others have put there.

        A node that was deleted stays away until the kubelet starts again.
        """
        node = self.node
        if node is None:
            return
        self.refresh_kubelet()
        now, counts = self._registry.now, self._kubelet.device_manager.capacity()
        if is_up:
            # What is told to be gone is forgotten then (manager.go GetCapacity): people can remove it.
            self._kubelet.device_manager.drop_expired()
        old = fields(node, "status")
        new = status_of(old, self._facts, counts, now, is_up=is_up)
        if is_due(old, new, now):
            self._registry.set_status(NODES, "", self._facts.name, new)

    def refresh_kubelet(self) -> None:
        """Have the kubelet admit pods by what the Node object has now."""
        self._kubelet.replace_node(device_counts(self.node, "status", "capacity"))

    def beat(self, *, is_up: bool) -> None:
        """Do what a kubelet does now and then: write the status, and say that it lives."""
        self.write(is_up=is_up)
        if is_up:
            self._renew_lease()

    def _renew_lease(self) -> None:
        node, name = self.node, self._facts.name
        if node is None:
            return
        lease = lease_of(node, self._registry.now)
        with suppress(StatusError):
            if self._registry.find(LEASES, LEASE_NAMESPACE, name) is None:
                self._registry.create(LEASES, LEASE_NAMESPACE, lease)
            else:
                self._registry.update(
                    LEASES, LEASE_NAMESPACE, name, lambda old: with_part(old, lease["spec"], "spec")
                )

    def started(self, *, booted: bool) -> None:
        """Tell of another start of the kubelet, and of a boot; a node that is gone is made again."""
        self.register()
        self.event("Normal", "Starting", "Starting kubelet.")
        if booted:
            self._facts = replace(self._facts, boot_id=str(uuid.uuid4()))
            name = self._facts.name
            self.event(
                "Warning", "Rebooted", f"Node {name} has been rebooted, boot id: {self._facts.boot_id}"
            )

    def event(self, type_: str, reason: str, message: str) -> None:
        """Write an event on the node, which kubelets refer to by its name alone."""
        name = self._facts.name
        about: Object = {"kind": "Node", "name": name, "uid": name, "apiVersion": "v1"}
        self.recorder.event(about, type_, reason, message)
