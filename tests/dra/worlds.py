"""Small clusters with devices, and a stand-in for CEL whose expressions are `key=value`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from devplug.dra.allocations import Allocations
from devplug.dra.allocator import Allocator
from devplug.dra.objects import Claim, Device, DeviceClass, Slice
from devplug.dra.pools import LIKE_1_36, Inventory, Like
from devplug.dra.scheduling import Cluster
from devplug.dra.search import Found
from devplug.dra.selectors import SelectorError
from devplug.k8s.node_selectors import Node

Json = dict[str, Any]

GPU, NIC = "gpu.example.com", "nic.example.com"
N1, N2 = Node("n1", {"zone": "a"}), Node("n2", {"zone": "b"})


class PlainSelectors:
    """Takes `driver=D`, `NAME=VALUE` of a string attribute, and `fails`, an error for every device."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def matches(self, expression: str, device: Device) -> bool:
        self.asked.append((expression, device.id.device))
        name, _, value = expression.partition("=")
        if name == "driver":
            return device.id.driver == value
        found = device.attribute(f"{device.id.driver}/{name}")
        if found is None:
            raise SelectorError(f"CEL runtime error: no such key: {name}")
        return found.value == value


def device(name: str, /, **more: Any) -> Json:
    """Return a device; attributes given as texts are strings."""
    attributes = {
        key: one if isinstance(one, dict) else {"string": one}
        for key, one in more.pop("attributes", {}).items()
    }
    return {"name": name, "attributes": attributes, **more}


def shared(name: str, /, **capacity: Any) -> Json:
    """Return a device that many may use, with these capacities."""
    values = {key: one if isinstance(one, dict) else {"value": one} for key, one in capacity.items()}
    return device(name, allowMultipleAllocations=True, capacity=values)


def slice_of(
    name: str,
    devices: Sequence[Json | str],
    pool: str = "n1",
    driver: str = GPU,
    generation: int = 1,
    count: int = 1,
    **where: Any,
) -> Slice:
    spec = {
        "driver": driver,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        "devices": [device(one) if isinstance(one, str) else one for one in devices],
        **(where or {"nodeName": "n1"}),
    }
    return Slice.of({"metadata": {"name": name}, "spec": spec})


def request(name: str = "r0", device_class: str = "gpu", *selectors: str, **more: Any) -> Json:
    return {"name": name, "exactly": wanted(device_class, *selectors, **more)}


def one_of(name: str, *alternatives: Json) -> Json:
    """Return a request with alternatives named s0, s1 and so on."""
    return {
        "name": name,
        "firstAvailable": [{"name": f"s{at}", **one} for at, one in enumerate(alternatives)],
    }


def wanted(device_class: str = "gpu", *selectors: str, **more: Any) -> Json:
    return {
        "deviceClassName": device_class,
        "selectors": [{"cel": {"expression": one}} for one in selectors],
        **more,
    }


def claim(*requests: Json, name: str = "c0", constraints: list[Json] | None = None, **more: Any) -> Claim:
    devices = {"requests": list(requests), "constraints": constraints or [], **more}
    metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}"}
    return Claim.of({"metadata": metadata, "spec": {"devices": devices}})


CLASSES = {
    one.name: one
    for one in (
        DeviceClass("gpu", (f"driver={GPU}",), ()),
        DeviceClass("nic", (f"driver={NIC}",), ()),
        DeviceClass("any", (), ()),
        DeviceClass("bad", ("fails",), ()),
    )
}


@dataclass
class Small:
    """A cluster of slices, with what is in use."""

    slices: tuple[Slice, ...]
    allocations: Allocations = field(default_factory=Allocations)
    selectors: PlainSelectors = field(default_factory=PlainSelectors)

    def search(self, *claims: Claim, node: Node = N1, like: Like = LIKE_1_36) -> Found:
        inventory = Inventory(self.slices)
        return Allocator(CLASSES, inventory, self.allocations, self.selectors, like).allocate(node, claims)

    def devices(self, *claims: Claim, node: Node = N1, like: Like = LIKE_1_36) -> list[list[str]] | None:
        """Return the names of the devices that each claim gets."""
        found = self.search(*claims, node=node, like=like).allocations
        return found if found is None else [names(one) for one in found]

    @property
    def cluster(self) -> Cluster:
        return Cluster(Inventory(self.slices), self.allocations, self.selectors, CLASSES)


def cluster_of(*slices: Slice) -> Small:
    return Small(slices)


def names(allocation: Json) -> list[str]:
    return [one["device"] for one in allocation["devices"].get("results", [])]


def in_use(*devices: str, **more: object) -> Allocations:
    """Return what is in use if a claim has these devices of the pool n1."""
    results = [{"driver": GPU, "pool": "n1", "device": name, **more} for name in devices]
    return Allocations([{"devices": {"results": results}}])
