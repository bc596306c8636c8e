"""A node for our driver: the claims of a cluster, a resource that counts what is done, and drivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devplug.cdi.spec import CdiOwner
from devplug.devices import ContainerResponse, Device, DeviceNode
from devplug.dra.taints import Toleration
from devplug.driver.node_driver import KubeletSockets
from devplug.driver.offer import ClaimRequest, DriverResource, OfferedDevice
from devplug.driver.parameters import DeviceConfig
from devplug.errors import AllocationError
from devplug.holds.hardware import Use
from devplug.k8s.errors import NotThereError
from devplug.k8s.objects import Object
from devplug.kubelet.kubelet import Kubelet
from devplug.wire.dra import ClaimName
from tests.kubelet.dra_driver import FakeCluster

DRIVER = "devices.example.com"
NODE = "worker-0"
SERIAL = "example.com/serial"
NAMESPACE = "ns"
_OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "u", "uid": "u", "controller": True}


def decode(content: Mapping[str, object]) -> tuple[DeviceConfig, Sequence[str]]:
    """A decoder that believes everything."""
    found: Any = {key: value for key, value in content.items() if key not in {"apiVersion", "kind"}}
    return DeviceConfig(
        found.get("permissions"), env=found.get("env", {}), container_path=found.get("containerPath")
    ), [f"{key}: unknown key" for key in found if key not in {"permissions", "env", "containerPath"}]


@dataclass
class FakeResource:
    """A resource whose devices are nodes by name; it fails as it is told."""

    resource_name: str = SERIAL
    node_owner: CdiOwner = field(default_factory=CdiOwner)
    prepared: list[tuple[str, ...]] = field(default_factory=list)
    tolerations: list[tuple[tuple[Toleration, ...], ...]] = field(default_factory=list)
    """Those of each request, of each call of `prepare`."""
    asked_again: list[tuple[tuple[str, ...], int]] = field(default_factory=list)
    """The devices and first indexes with which `current` was called."""
    released: list[str] = field(default_factory=list)
    prepare_errors: list[Exception] = field(default_factory=list)
    release_errors: list[Exception] = field(default_factory=list)
    current_errors: list[Exception] = field(default_factory=list)
    nodes: dict[str, str] = field(default_factory=dict)
    """The paths of those that are elsewhere than by their names."""
    inside: str = "/dev/in-{id}"
    """The paths in containers, with the device's ID or its index."""
    unplugged: set[str] = field(default_factory=set)
    sick: set[str] = field(default_factory=set)
    """Those of which it is not known what containers get now."""
    may_go_on: asyncio.Event | None = None
    """Set it to let a call that was begun go on."""

    async def prepare(self, requests: Sequence[ClaimRequest]) -> Sequence[Sequence[ContainerResponse]]:
        self.prepared.append(tuple(id_ for one in requests for id_ in one.device_ids))
        self.tolerations.append(tuple(one.tolerations for one in requests))
        if self.may_go_on is not None:
            await self.may_go_on.wait()
        if self.prepare_errors:
            raise self.prepare_errors.pop(0)
        return [
            [self._response(id_, n) for n, id_ in enumerate(one.device_ids, one.first_index)]
            for one in requests
        ]

    async def current(
        self, device_ids: Sequence[str], first_index: int
    ) -> Mapping[str, ContainerResponse | None]:
        self.asked_again.append((tuple(device_ids), first_index))
        if self.current_errors:
            raise self.current_errors.pop(0)
        return {
            id_: self._response(id_, index) if id_ not in self.unplugged else None
            for index, id_ in enumerate(device_ids, first_index)
            if id_ not in self.sick
        }

    def _response(self, id_: str, index: int) -> ContainerResponse:
        node = DeviceNode(self.nodes.get(id_, f"/dev/{id_}"), self.inside.format(index=index, id=id_))
        return ContainerResponse(device_nodes=[node], envs={"ID": id_})

    def uses(self, device_ids: Sequence[str]) -> dict[str, Use]:
        return {}

    async def release(self, device_ids: Sequence[str], *, is_again: bool = False) -> None:
        if self.release_errors:
            raise self.release_errors.pop(0)
        self.released += device_ids


@dataclass
class Claims:
    """The claims of the cluster; `errors` are raised by the next reads."""

    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)
    reads: int = 0

    def allocate(
        self,
        name: str,
        *devices: str,
        uid: str = "",
        pods: Sequence[str] = ("u",),
        admin: bool = False,
        share: str = "",
        requests: Sequence[str] = (),
        is_for_one_pod: bool = False,
        parameters: Sequence[tuple[str, Mapping[str, object]]] = (),
        tolerations: Sequence[Mapping[str, object]] = (),
    ) -> ClaimName:
        """Allocate devices to a claim; return how a kubelet names it. `parameters` are (source, content).

        `requests` are those of the devices, in order; "r" without them.
        """
        claim = ClaimName(NAMESPACE, uid or f"uid-{name}", name)
        results = [
            {"request": request, "driver": DRIVER, "pool": NODE, "device": device}
            | ({"adminAccess": True} if admin else {})
            | ({"shareID": share} if share else {})
            | ({"tolerations": [*tolerations]} if tolerations else {})
            for request, device in zip(requests or ["r"] * len(devices), devices, strict=True)
        ]
        config = [
            {"source": source, "opaque": {"driver": DRIVER, "parameters": content}}
            for source, content in parameters
        ]
        self.objects[NAMESPACE, name] = {
            "metadata": {"namespace": NAMESPACE, "name": name, "uid": claim.uid}
            | ({"ownerReferences": [_OWNER]} if is_for_one_pod else {}),
            "status": {
                "allocation": {"devices": {"results": results, "config": config}},
                "reservedFor": [{"resource": "pods", "name": pod, "uid": pod} for pod in pods],
            },
        }
        return claim

    def release(self, name: str) -> None:
        """Take the allocation of a claim away."""
        self.objects[NAMESPACE, name]["status"] = {}

    def delete(self, name: str) -> None:
        del self.objects[NAMESPACE, name]

    async def get_claim(self, namespace: str, name: str) -> Object:
        self.reads += 1
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        if (namespace, name) not in self.objects:
            raise NotThereError(f"there is no ResourceClaim {name}")
        return self.objects[namespace, name]


@dataclass
class Node:
    """A machine with a kubelet's folder and a CDI folder; drivers come and go."""

    root: Path
    claims: Claims = field(default_factory=Claims)
    resource: FakeResource = field(default_factory=FakeResource)
    boot: str = "boot-1"

    def __post_init__(self) -> None:
        (self.root / "plugins_registry").mkdir(exist_ok=True)
        self.cdi.mkdir(exist_ok=True)
        self.resources: dict[str, DriverResource] = {self.resource.resource_name: self.resource}

    @property
    def cdi(self) -> Path:
        return self.root / "cdi"

    @property
    def state(self) -> Path:
        return self.root / "plugins" / DRIVER / "prepared_claims.json"

    def cdi_names(self) -> list[str]:
        return sorted(path.name for path in self.cdi.iterdir())

    def socket(self, pod_uid: str = "") -> Path:
        return self.root / "plugins" / DRIVER / (f"dra-{pod_uid}.sock" if pod_uid else "dra.sock")

    def registration_socket(self, pod_uid: str = "") -> Path:
        suffix = f"-{pod_uid}" if pod_uid else ""
        return self.root / "plugins_registry" / f"{DRIVER}{suffix}-reg.sock"

    def driver(
        self,
        *device_ids: str,
        pod_uid: str = "",
        host_root: Path | None = None,
        cdi_folder: Path | None = None,
    ) -> KubeletSockets:
        made = KubeletSockets(
            DRIVER,
            NODE,
            self.resources,
            self.claims,
            decode,
            kubelet_root=self.root,
            host_root=host_root,
            cdi_folder=cdi_folder or self.cdi,
            pod_uid=pod_uid,
            boot=self.boot,
        )
        made.offer.replace(
            {id_: OfferedDevice(self.resource.resource_name, Device(id_)) for id_ in device_ids}
        )
        return made


@asynccontextmanager
async def serving(driver: KubeletSockets) -> AsyncIterator[KubeletSockets]:
    """Have a driver serve for a block; then it ends as by SIGTERM."""
    async with asyncio.TaskGroup() as tasks:
        life = tasks.create_task(driver.run())
        try:
            yield driver
        finally:
            life.cancel()


def refusal(text: str = "the device is on fire") -> AllocationError:
    return AllocationError(text)


class Cluster(FakeCluster):
    """The cluster of a kubelet that reads a node's claims."""

    def __init__(self, node: Node) -> None:
        super().__init__(claims=node.claims.objects)


def events(kubelet: Kubelet) -> list[str]:
    """Why claims were not prepared, as pods' events tell it."""
    prefix = "Failed to prepare dynamic resources: prepare dynamic resources: "
    return [event.message.removeprefix(prefix) for event in kubelet.events]
