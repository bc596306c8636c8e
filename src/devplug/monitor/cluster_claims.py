"""The devices of a cluster that pods get by claims, from pods, ResourceClaims and ResourceSlices. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devplug.dra.taints import NO_EXECUTE, NO_SCHEDULE
from devplug.k8s.objects import Object, fields, maps, part, text, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """A device of a driver, named as in its ResourceSlice."""

    driver: str
    pool: str
    name: str


@dataclass(frozen=True, slots=True)
class ClaimedRequest:
    """The request of a claim that a container uses, and what was allocated to it."""

    container: str
    claim: str
    request: str
    """With the alternative, of one with `firstAvailable`: `REQUEST/ALTERNATIVE`."""
    device_class: str
    devices: tuple[SliceDevice, ...]
    since: str = ""
    """When they were allocated, as RFC 3339 writes it; empty where the API server does not say."""


def claimed_requests(
    pod: Object, claims: Mapping[tuple[str, str], Object]
) -> Iterator[tuple[ClaimedRequest, str]]:
    """Yield the requests that a pod's containers use, each with the pod's own word for the claim.

    `claims` are by namespace and name; one that is not there, or not allocated, yields nothing.
    """
    namespace = text(pod, "metadata", "namespace")
    listed = (*maps(pod, "status", "resourceClaimStatuses"), *maps(pod, "spec", "resourceClaims"))
    # Of one from a template only the status has the name.
    names = {text(one, "name"): name for one in listed if (name := text(one, "resourceClaimName"))}
    for container in (*maps(pod, "spec", "initContainers"), *maps(pod, "spec", "containers")):
        for used in maps(container, "resources", "claims"):
            word, wanted = text(used, "name"), text(used, "request")
            name = names.get(word, "")
            for request in _requests(claims.get((namespace, name))):
                if not wanted or wanted in {request[0], request[0].partition("/")[0]}:
                    yield ClaimedRequest(text(container, "name"), name, *request), word


def limits_by_claim(
    pod: Object, claims: Mapping[tuple[str, str], Object]
) -> Mapping[tuple[str, str], ClaimedRequest]:
    """Return what a pod has by the claim that the scheduler made of its limits, by container and resource.

    Without that claim's object the devices are not known, and there are none.
    """
    status = fields(pod, "status", "extendedResourceClaimStatus")
    name = text(status, "resourceClaimName")
    allocated = {one[0]: one for one in _requests(claims.get((text(pod, "metadata", "namespace"), name)))}
    found = {}
    for one in maps(status, "requestMappings"):
        container, request = text(one, "containerName"), text(one, "requestName")
        known = allocated.get(request, (request, "", (), ""))
        found[container, text(one, "resourceName")] = ClaimedRequest(container, name, *known)
    return found


def _requests(claim: Object | None) -> Iterator[tuple[str, str, tuple[SliceDevice, ...], str]]:
    """Yield the name of each request of a claim, its class, what was allocated to it, and when."""
    since = text(claim, "status", "allocation", "allocationTimestamp")
    by_request: dict[str, dict[SliceDevice, None]] = {}
    for result in maps(claim, "status", "allocation", "devices", "results"):
        by_request.setdefault(text(result, "request"), {})[_device(result)] = None
    for request, devices in by_request.items():
        yield request, _class_of(claim, request), tuple(devices), since


def _device(result: Object) -> SliceDevice:
    return SliceDevice(text(result, "driver"), text(result, "pool"), text(result, "device"))


def _class_of(claim: Object | None, request: str) -> str:
    name, _, alternative = request.partition("/")
    for one in maps(claim, "spec", "devices", "requests"):
        if text(one, "name") == name:
            choices = {text(sub, "name"): sub for sub in maps(one, "firstAvailable")}
            return text(choices.get(alternative) or fields(one, "exactly"), "deviceClassName")
    return ""


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────


def slice_devices(slices: Iterable[Object]) -> Mapping[str, Mapping[SliceDevice, bool]]:
    """Return the devices of each node, by its name, and whether claims can get them: those without a taint.

    Only the newest generation of a pool counts. Devices of no certain node are left out.
    """
    listed = [(one, whole(one, "spec", "pool", "generation")) for one in slices]
    newest: dict[tuple[str, str], int] = {}
    for one, generation in listed:
        newest[_pool(one)] = max(newest.get(_pool(one), 0), generation)
    found: dict[str, dict[SliceDevice, bool]] = {}
    for one, generation in listed:
        node = text(one, "spec", "nodeName")
        if node and generation == newest[_pool(one)]:
            for device in maps(one, "spec", "devices"):
                found.setdefault(node, {})[SliceDevice(*_pool(one), text(device, "name"))] = not any(
                    text(taint, "effect") in {NO_SCHEDULE, NO_EXECUTE} for taint in maps(device, "taints")
                )
    return found


def _pool(found: Object) -> tuple[str, str]:
    return text(found, "spec", "driver"), text(found, "spec", "pool", "name")


def claims_on(devices: Iterable[SliceDevice], claims: Iterable[Object]) -> Mapping[str, Mapping[str, int]]:
    """Return how many of these devices each claim has, by driver and `NAMESPACE/NAME`.

    Who has one with admin access only looks at it.
    """
    there = {*devices}
    found: dict[str, Counter[str]] = {}
    for claim in claims:
        name = f"{text(claim, 'metadata', 'namespace')}/{text(claim, 'metadata', 'name')}"
        had = {
            _device(result): None
            for result in maps(claim, "status", "allocation", "devices", "results")
            if part(result, "adminAccess") is not True
        }
        for device in had:
            if device in there:
                found.setdefault(device.driver, Counter())[name] += 1
    return found
