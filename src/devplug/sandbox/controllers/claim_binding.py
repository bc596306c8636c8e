"""The binding of claims: what the scheduler writes into them before, instead of and after it binds a pod.

The order is that of SP PreBind: finalizer, then allocation and reservation, then the pod (D89).
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.dra.extended_resources import extended_claim
from devplug.dra.objects import FINALIZER
from devplug.dra.results import with_share_ids
from devplug.dra.scheduling import BINDING_TIMEOUT_SECONDS, binding_failure, bound, claim_names, is_ready
from devplug.k8s.objects import Object, entries, fields, text
from devplug.k8s.times import stamp
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.registry import PODS, RESOURCE_CLAIMS
from devplug.sandbox.scheduler import DevicesChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from devplug.dra.objects import Claim, Json
    from devplug.sandbox.registry import Registry
    from devplug.sandbox.scheduler import ClaimSnapshot, PendingPod, Placement

POLL_SECONDS: Final = 5.0
"""How often the scheduler looks whether binding conditions are true (D90)."""

_LATE: Final = "device binding timeout"


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod whose claims are allocated, and which waits until they are ready."""

    pod: PendingPod
    node: str
    claims: tuple[str, ...]
    since_seconds: float
    due_seconds: float
    """When it is looked at again."""

    @property
    def made(self) -> tuple[str, ...]:
        """Those of its claims that the scheduler made, for extended resources."""
        return tuple(name for name in self.claims if name not in self.pod.claims)


def extended_resources_of(pod: Object) -> frozenset[str]:
    """Return the resources that a pod has from the claim which the scheduler made for it (D91)."""
    mappings = entries(fields(pod, "status", "extendedResourceClaimStatus"), "requestMappings")
    return frozenset(text(one, "resourceName") for one in mappings)


class ClaimBinder:
    """The writer of claims; it lives as long as the scheduler, whose snapshot has at once what it wrote."""

    def __init__(
        self, registry: Registry, claims: ClaimSnapshot, note: Callable[[DevicesChange | None], None]
    ) -> None:
        self._registry = registry
        self._claims = claims
        self._note = note

    def allocate(self, pod: Json, placement: Placement) -> tuple[str, ...]:
        """Write the allocations and reservations of a pod; return the names of its claims.

        Raises `StatusError`; then the pod has no reservation any more.
        """
        namespace = pod["metadata"]["namespace"]
        given = {claim.uid: allocation for claim, allocation in placement.fit.allocations}
        own = [name for name in claim_names(pod).values() if name]
        made: list[str] = []
        try:
            for name in own:
                claim = self._claims.claim(namespace, name)
                self._write(pod, name, given.get(claim.uid) if claim else None)
            if extended := placement.fit.extended:
                new = extended_claim(pod, extended.requests)
                name = text(self._registry.create(RESOURCE_CLAIMS, namespace, new), "metadata", "name")
                made.append(name)
                self._write(pod, name, given[""])
                mappings = list(extended.mappings)
                self._set_extended(pod, {"resourceClaimName": name, "requestMappings": mappings})
        except StatusError:
            self.release(namespace, pod["metadata"]["uid"], own, made)
            raise
        return (*own, *made)

    def problem(self, waiting: WaitingPod, now_seconds: float) -> str | None:
        """Return why a pod cannot be bound; empty if it has to wait, None if it can."""
        claims = [self._claims.claim(waiting.pod.namespace, name) for name in waiting.claims]
        for claim in claims:
            if claim is not None and (failure := binding_failure(claim)):
                return failure
        if all(claim is None or is_ready(claim) for claim in claims):
            return None
        return _LATE if now_seconds - waiting.since_seconds >= BINDING_TIMEOUT_SECONDS else ""

    def release(self, namespace: str, pod_uid: str, own: Iterable[str], made: Iterable[str]) -> None:
        """Take the reservations of a pod back that is not bound (SP Unreserve).

        A claim that was `made` for its extended resources is deleted: the next attempt makes another one.
        """

        def released(claim: Json) -> Json:
            status = claim.get("status") or {}
            others = [one for one in status.get("reservedFor") or () if one.get("uid") != pod_uid]
            return {**claim, "status": {**status, "reservedFor": others}}

        for name in own:
            with suppress(StatusError):
                self._update(namespace, name, released, "status")
        for name in made:
            with suppress(StatusError):
                self._delete(namespace, name)

    def clear(self, claim: Claim) -> None:
        """Take an allocation back that keeps a pod from its nodes (D89)."""

        def cleared(found: Json) -> Json:
            status = dict(found.get("status") or {})
            for word in ("allocation", "reservedFor"):
                status.pop(word, None)
            return {**found, "status": status}

        with suppress(StatusError):
            self._update(claim.namespace, claim.name, cleared, "status")

    def _write(self, pod: Json, name: str, allocation: Json | None) -> None:
        namespace = pod["metadata"]["namespace"]
        if allocation is not None:
            timed = {**allocation, "allocationTimestamp": stamp(self._registry.now)}
            allocation = with_share_ids(timed, lambda: str(uuid.uuid4()))

        def written(found: Json) -> Json:
            return bound(found, pod, allocation)

        found = self._registry.get(RESOURCE_CLAIMS, namespace, name)
        if FINALIZER not in entries(found, "metadata", "finalizers"):
            self._update(namespace, name, lambda old: {**old, "metadata": written(old)["metadata"]})
        self._update(namespace, name, written, "status")

    def _update(self, namespace: str, name: str, change: Callable[[Json], Json], part_name: str = "") -> None:
        found = self._registry.update(RESOURCE_CLAIMS, namespace, name, change, part_name=part_name)
        self._note(self._claims.put_claim(dict(found)))

    def _delete(self, namespace: str, name: str) -> None:
        """Delete a claim that nobody uses; its finalizer goes first."""

        def bare(claim: Json) -> Json:
            kept = [one for one in entries(claim, "metadata", "finalizers") if one != FINALIZER]
            return {**claim, "metadata": {**claim["metadata"], "finalizers": kept}}

        found = self._registry.update(RESOURCE_CLAIMS, namespace, name, bare)
        self._registry.delete(RESOURCE_CLAIMS, namespace, name)
        self._claims.remove_claim(dict(found))
        self._note(DevicesChange())

    def _set_extended(self, pod: Json, extended: Json) -> None:
        metadata = pod["metadata"]
        status = {**fields(pod, "status"), "extendedResourceClaimStatus": extended}
        self._registry.set_status(PODS, metadata["namespace"], metadata["name"], status)
