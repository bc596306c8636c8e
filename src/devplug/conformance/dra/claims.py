"""Claims as the test bed allocates them: objects of the API, made of published devices. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.conformance.dra.slice_rules import Device
    from devplug.k8s.objects import Object


def result_of(device: Device, driver: str, request: str = "req", share_id: str = "") -> Object:
    """Return one entry of `status.allocation.devices.results`; it tolerates the taints of the device.

    One of a device that claims share has a share ID.
    """
    result: Object = {"request": request, "driver": driver, "pool": device.pool, "device": device.name}
    if share_id:
        result["shareID"] = share_id
    if device.capacity:
        result["consumedCapacity"] = dict(device.capacity)
    if device.is_tainted:
        result["tolerations"] = [{"operator": "Exists"}]
    return result


def claim_object(name: str, results: Sequence[Object], node_name: str) -> Object:
    """Return a ResourceClaim that is allocated with these results and reserved for a pod, or not allocated.

    A result for `req/sub` makes `req` a request with alternatives.
    """
    requests = dict.fromkeys(str(one["request"]) for one in results) or {"req": None}
    status = {"allocation": _allocation(results, node_name), "reservedFor": [_pod(name)]} if results else {}
    return {
        "metadata": {"name": name},
        "spec": {"devices": {"requests": list(_requests(requests))}},
        "status": status,
    }


def _requests(names: Iterable[str]) -> Iterable[Object]:
    for name in names:
        top, slash, sub = name.partition("/")
        if slash:
            yield {"name": top, "firstAvailable": [{"name": sub, "deviceClassName": "verify.example.com"}]}
        else:
            yield {"name": top, "exactly": {"deviceClassName": "verify.example.com"}}


def _allocation(results: Sequence[Object], node_name: str) -> Object:
    field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    return {
        "devices": {"results": list(results)},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }


def _pod(claim: str) -> Object:
    return {"resource": "pods", "name": f"pod-of-{claim}", "uid": f"uid-of-pod-of-{claim}"}
