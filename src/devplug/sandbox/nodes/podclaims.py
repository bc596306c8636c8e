"""The claims of a node's pods: read from the registry, prepared for each pod, and unprepared before its end.

When a pod's containers may start and when it may end is `podlifecycle`'s; the calls to drivers are the
kubelet's. After pkg/kubelet/kuberuntime/kuberuntime_manager.go SyncPod and kubelet.go SyncTerminatingPod.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from devplug.errors import KubeletError
from devplug.k8s.objects import Object, fields, part, text
from devplug.k8s.times import later
from devplug.kubelet.dra.claim_objects import ClaimError
from devplug.kubelet.dra.manager import PREPARE_AGAIN_SECONDS, PREPARE_FAILED, UNPREPARE_AGAIN_SECONDS
from devplug.kubelet.manifests import PodReader
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.fieldselectors import field_selector
from devplug.sandbox.api.watchlog import Selection
from devplug.sandbox.registry import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devplug.kubelet.pods import Pod
    from devplug.sandbox.nodes.podcontainers import NodeContext, PodContainers
    from devplug.sandbox.registry import Registry

_CANCELED: Final = (
    "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources: "
    "rpc error: code = Canceled desc = context canceled"
)
"""What is said of a prepare that the end of its pod has cancelled (kuberuntime_manager.go)."""


_AT_ONCE: Final = datetime.min.replace(tzinfo=UTC)


class NodeClaims:
    """The claims and slices of the cluster, as the kubelet of one node gets at them; lives as long as that.

    Both methods raise `KubeletError` while `is_reachable` returns false: the API server is away then.
    """

    def __init__(self, registry: Registry, node_name: str, is_reachable: Callable[[], bool]) -> None:
        self._registry = registry
        self._node_name = node_name
        self._is_reachable = is_reachable

    async def get_claim(self, namespace: str, name: str) -> Mapping[str, object]:
        """Return a ResourceClaim; raises `KubeletError` with the API server's text."""
        self._reach()
        try:
            return self._registry.get(RESOURCE_CLAIMS, namespace, name)
        except StatusError as error:
            raise KubeletError(str(error)) from error

    async def remove_slices(self, driver: str | None) -> None:
        """Remove the node's ResourceSlices of one driver, or all; raises `KubeletError` without a Node."""
        self._reach()
        if self._registry.find(NODES, "", self._node_name) is None:
            raise KubeletError(f'node "{self._node_name}" not found')
        asked = f"spec.nodeName={self._node_name}" + (f",spec.driver={driver}" if driver else "")
        for one in self._registry.all(
            RESOURCE_SLICES, Selection(fields=field_selector(asked, RESOURCE_SLICES))
        ):
            with suppress(StatusError):
                self._registry.delete(RESOURCE_SLICES, "", text(one, "metadata", "name"))

    def _reach(self) -> None:
        if not self._is_reachable():
            raise KubeletError("the API server is away")


class PodClaims:
    """The claims of one pod on its node; lives as long as the pod's worker.

    What fails is tried again: a prepare with the pod's next periodic sync or when somebody changes the pod,
    an unprepare after a backoff.
    """

    def __init__(self, containers: PodContainers, context: NodeContext) -> None:
        self._containers = containers
        self._context = context
        self._starts_at: datetime | None = None
        self._refused: Object = {}
        self._unprepares_at: datetime | None = None
        self._preparing: asyncio.Timeout | None = None
        """What ends a prepare under way."""

    @property
    def starts_at(self) -> datetime | None:
        """When claims that could not be prepared are tried again; None if nothing keeps the pod waiting."""
        if self._starts_at is not None and _asked(self._containers.pod) != self._refused:
            self._starts_at = None
        return self._starts_at

    @property
    def unprepares_at(self) -> datetime | None:
        """From when on its claims may be unprepared; None if the kubelet has none for it."""
        if not self._are_any:
            return None
        uid = text(self._containers.pod, "metadata", "uid")
        if not self._context.kubelet.dra.claims.names_of(uid):
            return None
        return self._unprepares_at or _AT_ONCE

    @property
    def is_preparing(self) -> bool:
        """Whether a prepare is under way that nobody has cancelled."""
        return self._preparing is not None

    def kubelet_started(self) -> None:
        """Have all tried at once, as a kubelet does after its start."""
        self._starts_at = self._unprepares_at = None

    async def prepare(self) -> bool:
        """Have the claims prepared for a new sandbox of the pod; return whether that may start."""
        if not self._are_any:
            return True
        try:
            async with asyncio.timeout(None) as self._preparing:
                await self._context.kubelet.dra.prepare(self._pod())
        except TimeoutError:
            self._containers.event("Warning", PREPARE_FAILED, _CANCELED)
            return False
        except ClaimError as error:
            # Of a kubelet that went away meanwhile nobody hears; the next one tries at once.
            if self._context.is_up.is_set():
                self._containers.event("Warning", PREPARE_FAILED, str(error))
                self._starts_at = later(self._context.registry.now, PREPARE_AGAIN_SECONDS)
                self._refused = _asked(self._containers.pod)
            return False
        finally:
            self._preparing = None
        return True

    def cancel_prepare(self) -> None:
        """End a prepare under way, if there is one, with its call to the driver (pod_workers.go cancelFn)."""
        preparing, self._preparing = self._preparing, None
        if preparing is not None:
            preparing.reschedule(0)

    async def unprepare(self) -> None:
        """Have the claims unprepared that no other pod uses; what fails is tried again, without an event."""
        try:
            await self._context.kubelet.dra.unprepare(self._pod())
        except ClaimError:
            self._unprepares_at = later(self._context.registry.now, UNPREPARE_AGAIN_SECONDS)

    @property
    def _are_any(self) -> bool:
        pod = self._containers.pod
        return bool(part(pod, "spec", "resourceClaims") or part(pod, "status", "extendedResourceClaimStatus"))

    def _pod(self) -> Pod:
        """Return the pod as it is now: its status may name claims that were made after its admission."""
        pod = self._containers.pod
        return replace(PodReader(pod).pod(text(pod, "metadata", "uid")), is_static=self._context.is_static)


def _asked(pod: Object) -> Object:
    """Return that of a pod whose change is a reason to sync it (config.go podsDifferSemantically)."""
    metadata = fields(pod, "metadata")
    asked = {name: metadata.get(name) for name in ("annotations", "labels", "deletionTimestamp")}
    return {**asked, "spec": fields(pod, "spec")}
