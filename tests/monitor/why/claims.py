"""Claims, classes and slices in the shapes that a cluster has them in, and pods that ask for them."""

from __future__ import annotations

from typing import Any

from tests.monitor.why.pods import unschedulable

DRIVER = "gpu.example.com"
NO_DEVICES = (
    "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: "
    "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
)
CLASS: dict[str, Any] = {
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}


def slice_on(name: str, *devices: dict[str, Any]) -> dict[str, Any]:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": list(devices)}
    return {"metadata": {"name": f"{name}-gpu"}, "spec": spec}


def gpus(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"gpu-{at}", **more} for at in range(count)]


def claim(name: str = "mine", *, namespace: str = "default", **exactly: Any) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, **exactly}}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"},
        "spec": {"devices": {"requests": [request]}},
    }


def holding(name: str, *devices: str, on: str = "worker-0", namespace: str = "other") -> dict[str, Any]:
    results = [{"request": "gpu", "driver": DRIVER, "pool": on, "device": one} for one in devices]
    where = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [on]}]}
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [where]}}
    return claim(name, namespace=namespace) | {"status": {"allocation": allocation}}


def asking(message: str = NO_DEVICES, **named: str) -> dict[str, Any]:
    named = named or {"resourceClaimName": "mine"}
    pod = unschedulable(message, resourceClaims=[{"name": "gpu", **named}])
    pod["spec"]["containers"] = [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}]
    return pod
