"""A node whose daemon is a DRA driver too, with claims and an API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.settings import KubeletSettings
from devplug.sandbox.registry import NAMESPACES, RESOURCE_CLAIMS
from devplug.wire.dra import PREPARE, UNPREPARE, ClaimName
from devplug.wire.sockets import connected
from tests.driver.apiserver import NODE, Cluster, cluster
from tests.ownership.machine import UsbMachine
from tests.ownership.node import Described, Node, PodResources

DRIVER = "d.example.com"


@dataclass
class DraNode(Node):
    """A node with claims; `dra_node` makes one."""

    server: Cluster | None = None
    driver: str = DRIVER
    """The driver of the daemon's file; empty for none."""

    def _text(self, resources: tuple[Described, ...]) -> str:
        named = {"driver": self.driver} if self.driver else {}
        return json.dumps({"version": 1, **named, "resources": resources})

    def published(self) -> list[str]:
        """Return the names of the devices in slices that claims may get."""
        return sorted(one["name"] for one in self.slices() if not one.get("taints"))

    def slices(self) -> list[Any]:
        """Return the devices in slices."""
        assert self.server is not None
        return [one for piece in self.server.slices() for one in piece["spec"].get("devices", ())]

    def allocate(self, name: str, device: str, *, admin: bool = False) -> ClaimName:
        """Make a claim, with a device of a slice allocated to it; its pod has the same name."""
        assert self.server is not None
        registry, result = self.server.registry, {"request": "r", "driver": self.driver, "pool": NODE}
        access = {"adminAccess": True} if admin else {}
        if admin:
            labels = {"resource.kubernetes.io/admin-access": "true"}
            label = {"metadata": {"labels": labels}}
            registry.patch(NAMESPACES, "", "default", "application/merge-patch+json", label)
        requests = [{"name": "r", "exactly": {"deviceClassName": "x", **access}}]
        claim = {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
        made: Any = registry.create(RESOURCE_CLAIMS, "default", claim)
        status: dict[str, object] = {
            "allocation": {"devices": {"results": [{**result, **access, "device": device}]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": f"uid-{name}"}],
        }
        registry.set_status(RESOURCE_CLAIMS, "default", name, status)
        return ClaimName("default", made["metadata"]["uid"], name)

    def delete(self, name: str) -> None:
        """Delete a claim as somebody does who removes its finalizer: the kubelet is not asked."""
        assert self.server is not None
        self.server.registry.delete(RESOURCE_CLAIMS, "default", name)

    async def prepare(self, claim: ClaimName) -> str:
        """Do what the kubelet does before the pod starts; return the refusal."""
        async with connected(self.folder / "plugins" / self.driver / "dra.sock") as peer:
            return (await peer.call(PREPARE["v1.DRAPlugin"], [claim]))[claim.uid].error

    async def unprepare(self, claim: ClaimName) -> str:
        """Do what the kubelet does after the pod has ended; return the refusal."""
        async with connected(self.folder / "plugins" / self.driver / "dra.sock") as peer:
            return (await peer.call(UNPREPARE["v1.DRAPlugin"], [claim]))[claim.uid]

    @asynccontextmanager
    async def other_daemon(self, driver: str, *resources: Described) -> AsyncIterator[None]:
        """Run a second daemon beside the first, with the file of a rollout."""
        file, own = self.folder / "another.yaml", self.driver
        self.driver = driver
        file.write_text(self._text(resources))
        self._known.update((str(one["name"]), one) for one in resources)
        async with self._serving(file):
            await self.quiet()
            yield
        self.driver = own


@asynccontextmanager
async def dra_node(
    folder: Path, monkeypatch: pytest.MonkeyPatch, machine: UsbMachine | None = None
) -> AsyncIterator[DraNode]:
    """Run a node with claims; its daemon is yet to be started."""
    monkeypatch.setenv("NODE_NAME", NODE)
    monkeypatch.setenv("KUBECONFIG", str(folder / "kubeconfig"))
    (folder / "cdi").mkdir()
    (folder / "plugins_registry").mkdir(exist_ok=True)
    kubelet = Kubelet.under(folder, KubeletSettings(clock=asyncio.get_running_loop().time))
    async with cluster(folder) as server, kubelet.running(), asyncio.TaskGroup() as tasks:
        pod_resources = PodResources(folder / "pod-resources" / "kubelet.sock", folder / "asked.sock")
        await pod_resources.listener.bind()
        machine = machine or UsbMachine(folder / "machine", "by-path")
        here = DraNode(folder, tasks, machine, kubelet, pod_resources, server=server)
        try:
            yield here
        finally:
            await here.stop()
            await pod_resources.listener.close()
