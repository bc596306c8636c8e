"""A ResourceClaim as the kubelet reads it for a pod, and why the pod may not use it. Pure.

The texts are those that end in a pod's event (cm/dra/manager.go, dynamic-resource-allocation/resourceclaim).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from devplug.errors import KubeletError
from devplug.wire.dra import ClaimName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devplug.kubelet.claim_references import PodClaim
    from devplug.kubelet.pods import Pod


class ClaimError(KubeletError):
    """A pod's claims cannot be prepared or unprepared now; the kubelet tries again."""


@dataclass(frozen=True, slots=True)
class KnownClaim:
    """One claim by its names."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> tuple[str, str]:
        """Its key in the claim cache: namespace and name."""
        return self.namespace, self.name

    @property
    def in_call(self) -> ClaimName:
        """Its name in a call to a driver."""
        return ClaimName(self.namespace, self.uid, self.name)


@dataclass(frozen=True, slots=True)
class Claim(KnownClaim):
    """What the kubelet reads in a ResourceClaim."""

    drivers: tuple[str, ...] | None
    """The drivers of its allocation's results; None if it is not allocated."""
    reserved_for: frozenset[str] = frozenset()
    """The UIDs in `status.reservedFor`."""
    controller_uid: str = ""
    """Of the object that owns it as its controller; empty without one."""


def read_claim(document: Mapping[str, Any]) -> Claim:
    """Return the claim that an object of resource.k8s.io/v1 describes."""
    metadata, status = document["metadata"], document.get("status") or {}
    allocation = status.get("allocation")
    results = ((allocation or {}).get("devices") or {}).get("results") or ()
    owners = (owner for owner in metadata.get("ownerReferences") or () if owner.get("controller"))
    return Claim(
        metadata.get("namespace", "default"),
        metadata["name"],
        metadata["uid"],
        None if allocation is None else tuple(dict.fromkeys(result["driver"] for result in results)),
        frozenset(consumer["uid"] for consumer in status.get("reservedFor") or ()),
        next((owner["uid"] for owner in owners), ""),
    )


def claim_names(pod: Pod) -> Iterator[tuple[PodClaim | None, str]]:
    """Yield the claims of a pod by name, in the order of its spec; the one for extended resources last.

    That one comes with None. A claim that the pod turned out not to need is left out. Raises `ClaimError` for
    one that was not made yet.
    """
    for one in pod.resource_claims:
        if one.is_missing:
            raise ClaimError(f'pod "{pod.namespace}/{pod.name}": ResourceClaim not created yet')
        if one.claim_name is not None:
            yield one, one.claim_name
    if pod.extended_claim is not None:
        yield None, pod.extended_claim.claim_name


def used_claim(pod: Pod, pod_claim: PodClaim | None, claim: Claim) -> Claim:
    """Return a claim that a pod may use; raises `ClaimError` for any other."""
    if pod_claim is not None and pod_claim.is_generated and claim.controller_uid != pod.uid:
        raise ClaimError(
            f"ResourceClaim {claim.namespace}/{claim.name} was not created for pod "
            f"{pod.namespace}/{pod.name} (pod is not owner)"
        )
    if pod.uid not in claim.reserved_for:
        raise ClaimError(
            f"pod {pod.name} ({pod.uid}) is not allowed to use ResourceClaim {claim.name} ({claim.uid})"
        )
    if claim.drivers is None:
        raise ClaimError(f"ResourceClaim {claim.name}: not allocated")
    return claim
