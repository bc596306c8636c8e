"""Claims, templates and slices in a registry, and what the scheduler does to claims, for the tests."""

from __future__ import annotations

from typing import Any

from devplug.dra.scheduling import bound
from devplug.sandbox.registry import CLAIM_TEMPLATES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Registry
from tests.sandbox.controllers.beds import add_pod

DRIVER = "gpu.example.com"
DEVICES = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}
NODE_TERM = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-0"]}]}


def add_template(registry: Registry, name: str = "t", **metadata: Any) -> None:
    spec = {"metadata": metadata, "spec": {"devices": DEVICES}}
    registry.create(CLAIM_TEMPLATES, "default", {"metadata": {"name": name}, "spec": spec})


def add_claim(registry: Registry, name: str = "c", **metadata: Any) -> Any:
    one: Any = {"metadata": {"name": name, **metadata}, "spec": {"devices": DEVICES}}
    return registry.create(RESOURCE_CLAIMS, "default", one)


def of_claim(name: str = "c") -> dict[str, Any]:
    """What a pod has that uses a claim made by hand."""
    return {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}


def of_template(name: str = "t") -> dict[str, Any]:
    return {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}]}


def add_slice(registry: Registry, name: str = "s", generation: int = 1, *devices: Any) -> None:
    spec = {
        "driver": DRIVER,
        "pool": {"name": "worker-0", "generation": generation, "resourceSliceCount": 1},
        "nodeName": "worker-0",
        "devices": list(devices) or [{"name": "dev-0"}],
    }
    registry.create(RESOURCE_SLICES, "", {"metadata": {"name": name}, "spec": spec})


def taint_device(registry: Registry, *taints: Any) -> None:
    """Give the device its taints."""

    def tainted(old: Any) -> Any:
        return {**old, "spec": {**old["spec"], "devices": [{"name": "dev-0", "taints": list(taints)}]}}

    registry.update(RESOURCE_SLICES, "", "s", tainted)


def allocation(*tolerations: Any) -> Any:
    result: Any = {"request": "gpu", "driver": DRIVER, "pool": "worker-0", "device": "dev-0"}
    if tolerations:
        result["tolerations"] = list(tolerations)
    return {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [NODE_TERM]}}


def allocate(registry: Registry, pod: Any, name: str, *tolerations: Any) -> None:
    """Do what the scheduler does before it binds a pod: finalizer, then allocation and reservation."""
    claim: Any = registry.get(RESOURCE_CLAIMS, "default", name)
    made = None if claim.get("status", {}).get("allocation") else allocation(*tolerations)
    after: Any = bound(claim, pod, made)
    finalizers = after["metadata"]["finalizers"]

    def protected(old: Any) -> Any:
        return {**old, "metadata": {**old["metadata"], "finalizers": finalizers}}

    registry.update(RESOURCE_CLAIMS, "default", name, protected)
    registry.set_status(RESOURCE_CLAIMS, "default", name, after["status"])


def run_pod(registry: Registry, name: str, claim_name: str = "c", *tolerations: Any, **spec: Any) -> Any:
    """Add a pod that uses a claim, and bind it as the scheduler does."""
    pod = add_pod(registry, name, **of_claim(claim_name), **spec)
    allocate(registry, pod, claim_name, *tolerations)
    return registry.bind("default", name, "worker-0")


def claim_of(registry: Registry, name: str = "c") -> Any:
    return registry.find(RESOURCE_CLAIMS, "default", name)


def reserved_for(registry: Registry, name: str = "c") -> list[str]:
    """The names of the pods that a claim is reserved for."""
    return [one["name"] for one in claim_of(registry, name).get("status", {}).get("reservedFor", [])]


def generated_name(registry: Registry, pod_name: str) -> str:
    """The name of the claim that a pod's status tells; empty before."""
    pod: Any = registry.get(PODS, "default", pod_name)
    statuses = pod.get("status", {}).get("resourceClaimStatuses", [])
    return str(statuses[0]["resourceClaimName"]) if statuses else ""
