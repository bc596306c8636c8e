"""The claims of a pod: what its spec asks for by ResourceClaims, and what its status says of them. Pure.

What is no such thing in a manifest is passed over here: the API server has checked it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class ContainerClaim:
    """An entry of a container's `resources.claims`."""

    name: str
    """Of the entry in `spec.resourceClaims`."""
    request: str = ""
    """The one request of the claim that the container uses; empty for all."""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """An entry of `spec.resourceClaims`, with the claim that stands for it."""

    name: str
    claim_name: str | None = None
    """Of the ResourceClaim; None where the pod turned out to need none."""
    is_generated: bool = False
    """Whether the claim was made for this pod, from a template."""
    is_missing: bool = False
    """Whether it has yet to be made."""


@dataclass(frozen=True, slots=True)
class RequestMapping:
    """What a request of the claim for extended resources is for."""

    container_name: str
    resource_name: str
    request_name: str = ""


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    """The claim that stands for a pod's extended resources: `status.extendedResourceClaimStatus`."""

    claim_name: str
    mappings: tuple[RequestMapping, ...] = ()


@dataclass(frozen=True, slots=True)
class ResourceHealth:
    """One device in `allocatedResourcesStatus`."""

    resource_id: str
    health: str
    """`Healthy`, `Unhealthy` or `Unknown`."""
    message: str = ""


def read_container_claims(resources: Mapping[str, Any]) -> tuple[ContainerClaim, ...]:
    """Return the claims in a container's `resources`."""
    return tuple(
        ContainerClaim(_text(one, "name"), _text(one, "request")) for one in _maps(resources.get("claims"))
    )


def read_pod_claims(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[PodClaim, ...]:
    """Return the claims of a pod, in the order of its spec."""
    made = {_text(one, "name"): one for one in _maps(status.get("resourceClaimStatuses"))}

    def claim(entry: Mapping[str, Any]) -> PodClaim:
        name = _text(entry, "name")
        if "resourceClaimTemplateName" in entry:
            return PodClaim(
                name,
                _text(made.get(name, {}), "resourceClaimName") or None,
                is_generated=True,
                is_missing=name not in made,
            )
        return PodClaim(name, _text(entry, "resourceClaimName") or None)

    return tuple(claim(entry) for entry in _maps(spec.get("resourceClaims")))


def read_extended_claim(status: Mapping[str, Any]) -> ExtendedClaim | None:
    """Return the claim for extended resources that a pod's status names; None without one."""
    extended = status.get("extendedResourceClaimStatus")
    if not isinstance(extended, Mapping):
        return None
    return ExtendedClaim(
        _text(extended, "resourceClaimName"),
        tuple(
            RequestMapping(_text(one, "containerName"), _text(one, "resourceName"), _text(one, "requestName"))
            for one in _maps(extended.get("requestMappings"))
        ),
    )


def _maps(value: object) -> Iterator[Mapping[str, Any]]:
    for one in value if isinstance(value, list | tuple) else ():
        if isinstance(one, Mapping):
            yield one


def _text(owner: Mapping[str, Any], key: str) -> str:
    value = owner.get(key)
    return value if isinstance(value, str) else ""
