"""The claims in a pod: which it names, which containers use, and what its status says of them (dra.md D66).

The rules are those of pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, part, text
from devplug.sandbox.api.errors import (
    duplicate_field,
    invalid_field,
    not_found_field,
    required_field,
    unsupported_field,
)
from devplug.sandbox.api.names import label_errors, subdomain_errors
from devplug.sandbox.api.resource.gostructs import go_struct
from devplug.sandbox.api.resource.names import label_name_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.sandbox.api.errors import FieldError

_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")
_HEALTHS: Final = ("Healthy", "Unhealthy", "Unknown")
_CONTAINERS: Final = ("initContainers", "containers")
_OF_MAPPING: Final = ("containerName", "resourceName", "requestName")


def pod_claim_errors(spec: Object, place: str) -> Iterator[FieldError]:
    """Yield what is wrong with `resourceClaims` of a pod's spec at `place`."""
    names: set[str] = set()
    for number, claim in enumerate(entries(spec, "resourceClaims")):
        here = f"{place}.resourceClaims[{number}]"
        if not (name := text(claim, "name")):
            yield required_field(f"{here}.name")
        elif name in names:
            yield duplicate_field(f"{here}.name", name)
        else:
            yield from label_name_errors(name, f"{here}.name")
        names.add(name)
        sources = [word for word in _SOURCES if part(claim, word) is not None]
        if len(sources) != 1:
            why = (
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
                if sources
                else "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            )
            yield invalid_field(here, go_struct("PodResourceClaim", claim), why)
        for word in sources:
            source = text(claim, word)
            yield from (invalid_field(f"{here}.{word}", source, why) for why in subdomain_errors(source))


def used_claim_errors(resources: Object, place: str, spec: Object) -> Iterator[FieldError]:
    """Yield what is wrong with the `claims` in the `resources` of a container of a pod with this spec."""
    known = sorted({text(one, "name") for one in entries(spec, "resourceClaims")} - {""})
    names: set[str] = set()
    for number, claim in enumerate(entries(resources, "claims")):
        here = f"{place}.claims[{number}]"
        if not (name := text(claim, "name")):
            yield required_field(here)
            continue
        if name in names:
            yield duplicate_field(here, name)
        names.add(name)
        if name not in known:
            listed = f": {', '.join(known)}" if known else " which is empty"
            yield not_found_field(here, name, f"must be one of the names in pod.spec.resourceClaims{listed}")


def pod_status_errors(pod: Object) -> Iterator[FieldError]:
    """Yield what is wrong with what a pod's status says of claims, extended resources and health."""
    spec, status = fields(pod, "spec"), fields(pod, "status")
    containers = {text(one, "name"): one for word in _CONTAINERS for one in entries(spec, word)}
    for word in ("initContainerStatuses", "containerStatuses"):
        for number, one in enumerate(entries(status, word)):
            container = containers.get(text(one, "name"))
            yield from _health_errors(one, container, f"status.{word}[{number}].allocatedResourcesStatus")
    yield from _claim_status_errors(spec, status)
    if (extended := part(status, "extendedResourceClaimStatus")) is not None:
        yield from _extended_errors(extended, containers, "status.extendedResourceClaimStatus")


def _claim_status_errors(spec: Object, status: Object) -> Iterator[FieldError]:
    known = {text(one, "name") for one in entries(spec, "resourceClaims")}
    names: set[str] = set()
    for number, one in enumerate(entries(status, "resourceClaimStatuses")):
        here, name = f"status.resourceClaimStatuses[{number}].name", text(one, "name")
        if name not in known:
            yield invalid_field(here, name, "must match the name of an entry in `spec.resourceClaims`")
        if name in names:
            yield duplicate_field(here, name)
        names.add(name)
        if (made := part(one, "resourceClaimName")) is not None:
            yield from (invalid_field(here, str(made), why) for why in subdomain_errors(str(made)))


def _health_errors(status: object, container: object, place: str) -> Iterator[FieldError]:
    for number, one in enumerate(entries(status, "allocatedResourcesStatus")):
        here, name = f"{place}[{number}]", text(one, "name")
        if container is not None and name not in _reported(container):
            why = "must match one of the container's resource requests"
            if name.startswith("claim:"):
                why = (
                    "must match one of the container's resource claims in a format "
                    "'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"
                )
            yield invalid_field(f"{here}.name", name, why)
        ids: set[str] = set()
        for index, device in enumerate(entries(one, "resources")):
            health, device_id = text(device, "health"), text(device, "resourceID")
            if health not in _HEALTHS:
                yield unsupported_field(f"{here}.resources[{index}].health", health, _HEALTHS)
            if device_id in ids:
                yield duplicate_field(f"{here}.resources[{index}].resourceID", device_id)
            ids.add(device_id)


def _reported(container: object) -> set[str]:
    """Return the names under which the health of a container's devices can be told."""
    used = [(text(one, "name"), text(one, "request")) for one in entries(container, "resources", "claims")]
    claims = {f"claim:{name}/{request}" if request else f"claim:{name}" for name, request in used}
    return claims | fields(container, "resources", "requests").keys()


def _extended_errors(status: object, containers: dict[str, object], place: str) -> Iterator[FieldError]:
    mappings = entries(status, "requestMappings")
    if not mappings:
        yield required_field(f"{place}.requestMappings", "at least one request mapping is required")
    seen: list[list[str]] = []
    for number, one in enumerate(mappings):
        here = f"{place}.requestMappings[{number}]"
        values = container, resource, request = [text(one, word) for word in _OF_MAPPING]
        if container not in containers:
            why = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            yield invalid_field(f"{here}.containerName", container, why)
        elif resource not in fields(containers[container], "resources", "requests"):
            why = (
                "must match the extended resource name of an entry in spec.initContainers.resources.requests "
                "or spec.containers.resources.requests"
            )
            yield invalid_field(f"{here}.resourceName", resource, why)
        yield from (invalid_field(f"{place}.requestName", request, why) for why in label_errors(request))
        if values in seen:
            for word, value in zip(_OF_MAPPING, values, strict=True):
                yield duplicate_field(f"{here}.{word}", value)
        seen.append(values)
    if claim := text(status, "resourceClaimName"):
        yield from (
            invalid_field(f"{place}.resourceClaimName", claim, why) for why in subdomain_errors(claim)
        )
    else:
        yield required_field(f"{place}.resourceClaimName")
