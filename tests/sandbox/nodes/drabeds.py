"""A node of the sandbox with a DRA driver on real sockets, for the tests of pods with claims.

The scheduler's and the controllers' part is done by hand: claims are written allocated and reserved.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from devplug.kubelet.settings import KubeletSettings
from devplug.sandbox.nodes.podclaims import NodeClaims
from devplug.sandbox.registry import NAMESPACES, RESOURCE_CLAIMS, RESOURCE_SLICES, Registry
from tests.kubelet.dra_driver import DRIVER, FakeDriver
from tests.sandbox.nodes.beds import START, WORKER, Bed, FakeRuntime, container, manifest, node
from tests.virtualtime import now

OTHER = "other.example.com"


def node_time() -> datetime:
    return START + timedelta(seconds=now())


@dataclass
class Lab(Bed):
    """A node, and the driver that is made for it."""

    driver: FakeDriver

    def uid_of(self, name: str) -> str:
        """The UID of a claim."""
        one: Any = self.registry.get(RESOURCE_CLAIMS, "default", name)
        return str(one["metadata"]["uid"])

    def reserve(self, name: str, *pods: str, driver: str = DRIVER) -> None:
        """Make a claim that is allocated, and reserved for pods that are there."""
        if self.registry.find(RESOURCE_CLAIMS, "default", name) is None:
            self.registry.create(RESOURCE_CLAIMS, "default", claim(name))
        result = {"request": "gpu", "driver": driver, "pool": "pool", "device": "gpu-0"}
        uids = [(pod, self.get(pod)["metadata"]["uid"]) for pod in pods]
        status: dict[str, object] = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": uid} for pod, uid in uids],
        }
        self.registry.set_status(RESOURCE_CLAIMS, "default", name, status)

    def start(self, name: str, *containers: dict[str, object], **spec: object) -> Any:
        """Make a pod that uses a claim of the same name, allocated for it before the node sees it."""
        pod = self.put(using(name, *containers, **spec))
        self.reserve(name, name)
        return pod

    async def held_back(self, name: str) -> str:
        """Wait until claims keep a pod from starting; return what the event says, without its beginning."""
        message = await self.told(name, "FailedPrepareDynamicResources")
        return message.removeprefix("Failed to prepare dynamic resources: prepare dynamic resources: ")

    def slices(self) -> list[str]:
        found: list[Any] = [*self.registry.all(RESOURCE_SLICES)]
        return [one["metadata"]["name"] for one in found]


def claim(name: str) -> dict[str, object]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


def using(name: str, *containers: dict[str, object], **spec: object) -> dict[str, object]:
    given = containers or (container(resources={"claims": [{"name": "d"}]}),)
    return manifest(name, *given, resourceClaims=[{"name": "d", "resourceClaimName": name}], **spec)


def slice_of(name: str, driver: str = DRIVER, node_name: str = WORKER) -> dict[str, object]:
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node_name, "pool": pool, "devices": [{"name": "gpu-0"}]}
    return {"metadata": {"name": name}, "spec": spec}


def cluster() -> Registry:
    registry = Registry(now=node_time, seed=1)
    for name in ("default", "kube-node-lease"):
        registry.create(NAMESPACES, "", {"metadata": {"name": name}})
    return registry


@asynccontextmanager
async def lab(
    folder: Path,
    registry: Registry | None = None,
    runtime: FakeRuntime | None = None,
    manifests: Path | None = None,
) -> AsyncIterator[Lab]:
    """A node without a driver."""
    registry = registry or cluster()
    beds: list[Bed] = []
    ends = NodeClaims(registry, WORKER, lambda: not beds or beds[0].kubelet.is_api_server_up)
    settings = KubeletSettings(
        clock=now, claims=ends, slices=ends, plugins_registry=folder / "plugins_registry"
    )
    async with node(
        folder / "device-plugins",
        registry=registry,
        settings=settings,
        runtime=runtime,
        manifests=manifests,
        patience_seconds=200,
    ) as bed:
        beds.append(bed)
        yield Lab(bed.registry, bed.kubelet, bed.agent, FakeDriver(folder))
