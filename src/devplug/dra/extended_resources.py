"""Extended resources that a DeviceClass serves: the claim that stands for a pod's quantities (D91). Pure.

What a node has from a device plugin stays the device plugin's; on all others the scheduler asks for devices,
in one claim for the whole pod (SP/extendeddynamicresources.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from devplug.k8s.pod_requests import ALWAYS, pod_requests
from devplug.k8s.quantity import Quantity
from devplug.k8s.resource_names import is_extended

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from devplug.dra.objects import DeviceClass, Json

ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
IN_MEMORY: Final = "<extended-resources>"
"""The name of the claim before it is written, in messages."""

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"


class ExtendedRequests(NamedTuple):
    """What a pod asks for through claims, as the API has it."""

    requests: tuple[Json, ...]
    """For `spec.devices.requests`."""
    mappings: tuple[Json, ...]
    """For `status.extendedResourceClaimStatus.requestMappings` of the pod."""


class ExtendedClasses:
    """Which class serves which extended resource: the newest, then the first by name."""

    def __init__(self, classes: Iterable[DeviceClass]) -> None:
        self._by_name: dict[str, str] = {}
        ordered = sorted(classes, key=lambda one: one.name)
        for one in sorted(ordered, key=lambda one: one.created, reverse=True):
            if one.extended_resource_name:
                self._by_name.setdefault(one.extended_resource_name, one.name)
        self._names = frozenset(one.name for one in ordered)

    def of(self, resource: str) -> str | None:
        """Return the class that serves a resource."""
        found = self._by_name.get(resource)
        implicit = resource.removeprefix(IMPLICIT)
        if found is None and implicit != resource and implicit in self._names:
            return implicit
        return found

    def asked(self, spec: Json) -> dict[str, int]:
        """Return what a pod of this spec asks for of resources that some class serves."""
        totals = pod_requests(spec, _extended)
        return {name: amount for name, amount in totals.items() if amount and self.of(name) is not None}


def extended_claim(pod: Json, requests: Sequence[Json]) -> Json:
    """Return the claim object that the scheduler creates at binding; it has no name yet."""
    metadata = pod["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
        "controller": True,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": metadata.get("namespace") or "default",
            "generateName": f"{metadata['name']}-extended-resources-",
            "annotations": {ANNOTATION: "true"},
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": list(requests)}},
    }


def extended_requests(spec: Json, resources: Iterable[str], classes: ExtendedClasses) -> ExtendedRequests:
    """Return requests and mappings for these resources of a pod.

    Init containers that end share: they use what later containers ask for, and of what they need beyond it
    only the largest request is made.
    """
    initial = spec.get("initContainers") or ()
    containers = [*initial, *(spec.get("containers") or ())]
    ending = {index for index, one in enumerate(initial) if one.get("restartPolicy") != ALWAYS}
    requests: list[Json] = []
    mappings: list[Json] = []
    for resource in sorted(resources):
        class_name = classes.of(resource)
        if class_name is None:
            continue
        lasting: list[Json | None] = [None] * len(containers)
        for index, container in enumerate(containers):
            if index not in ending:
                lasting[index], found = _request(index, container, resource, class_name, ())
                mappings += found
        largest, found = _largest(containers, sorted(ending), resource, class_name, lasting)
        mappings += found
        requests += [one for one in (largest, *lasting) if one is not None]
    return ExtendedRequests(tuple(sorted(requests, key=lambda one: one["name"])), tuple(mappings))


def _largest(
    containers: Sequence[Json],
    ending: Sequence[int],
    resource: str,
    class_name: str,
    lasting: Sequence[Json | None],
) -> tuple[Json | None, list[Json]]:
    """Return the one request of all init containers that end, and their mappings, which name it."""
    largest: Json | None = None
    names: set[str] = set()
    mappings: list[Json] = []
    for index in ending:
        request, found = _request(index, containers[index], resource, class_name, lasting[index:])
        mappings += found
        if request is not None:
            names.add(request["name"])
            if largest is None or largest["exactly"]["count"] < request["exactly"]["count"]:
                largest = request
    if largest is not None:
        mappings = [
            {**one, "requestName": largest["name"]} if one["requestName"] in names else one
            for one in mappings
        ]
    return largest, mappings


def _request(
    index: int, container: Json, resource: str, class_name: str, reusable: Sequence[Json | None]
) -> tuple[Json | None, list[Json]]:
    """Return what one container asks for beyond what it can reuse, and its mappings."""
    written = (container.get("resources") or {}).get("requests") or {}
    wanted = Quantity.parse(str(written.get(resource, "0"))).value
    mappings: list[Json] = []
    if not wanted:
        return None, mappings
    reused = 0
    for other in reusable:
        if other is not None:
            reused += other["exactly"]["count"]
            mappings.append(_mapping(container, resource, other["name"]))
            if reused >= wanted:
                return None, mappings
    name = f"container-{index}-request-{sorted(written).index(resource)}"
    mappings.append(_mapping(container, resource, name))
    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": wanted - reused}
    return {"name": name, "exactly": exactly}, mappings


def _mapping(container: Json, resource: str, request: str) -> Json:
    return {"containerName": container["name"], "resourceName": resource, "requestName": request}


def _extended(written: Mapping[str, Any]) -> dict[str, int]:
    return {
        name: Quantity.parse(str(text)).value
        for name, text in written.items()
        if is_extended(name) or name.startswith(IMPLICIT)
    }
