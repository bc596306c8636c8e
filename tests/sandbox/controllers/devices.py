"""A cluster of devices for the tests of the scheduler: classes, slices, claims, and pods that name them."""

from __future__ import annotations

from typing import Any

from devplug.k8s.objects import entries, fields, text
from devplug.sandbox.registry import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Registry
from tests.sandbox.controllers.beds import Clock, add_node, add_pod, new_registry

DRIVER, CLASS = "gpu.example.com", "gpu"


def add_class(registry: Registry, name: str = CLASS, **spec: Any) -> None:
    registry.create(DEVICE_CLASSES, "", {"metadata": {"name": name}, "spec": spec})


def add_slice(registry: Registry, node: str, *devices: Any, **more: Any) -> None:
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [one if isinstance(one, dict) else {"name": one} for one in devices],
        **more,
    }
    registry.create(RESOURCE_SLICES, "", {"metadata": {"name": f"slice-{node}"}, "spec": spec})


def add_claim(registry: Registry, name: str, *alternatives: str, selector: str = "") -> None:
    asked: Any = {"deviceClassName": CLASS}
    if selector:
        asked["selectors"] = [{"cel": {"expression": selector}}]
    request: Any = {"name": "gpu", "exactly": asked}
    if alternatives:
        listed = [{"name": f"s{at}", "deviceClassName": one} for at, one in enumerate(alternatives)]
        request = {"name": "gpu", "firstAvailable": listed}
    spec = {"devices": {"requests": [request]}}
    registry.create(RESOURCE_CLAIMS, "default", {"metadata": {"name": name}, "spec": spec})


def add_user(registry: Registry, name: str, *claims: str, **spec: Any) -> Any:
    """Return a pod that names these claims."""
    listed = [{"name": f"k{at}", "resourceClaimName": one} for at, one in enumerate(claims)]
    return add_pod(registry, name, resourceClaims=listed, **spec)


def claim(registry: Registry, name: str) -> Any:
    return registry.get(RESOURCE_CLAIMS, "default", name)


def devices(registry: Registry, name: str) -> list[str]:
    results = entries(fields(claim(registry, name), "status", "allocation", "devices"), "results")
    return [text(one, "device") for one in results]


def node_of(registry: Registry, name: str) -> str:
    return text(registry.find(PODS, "default", name), "spec", "nodeName")


def conditions(registry: Registry, name: str) -> list[Any]:
    return list(entries(registry.get(PODS, "default", name), "status", "conditions"))


def message(registry: Registry, name: str) -> str:
    return next((text(one, "message") for one in conditions(registry, name)), "")


def bed(*names: Any, clock: Clock | None = None) -> Registry:
    """Return a registry with one node, these devices on it, and a class of all devices."""
    registry = new_registry(clock)
    add_node(registry)
    add_class(registry)
    add_slice(registry, "worker-0", *names)
    return registry
