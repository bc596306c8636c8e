"""The ResourceClaims of a test's cluster: allocated by the test, read by the kubelet and by drivers."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from devplug.errors import KubeletError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.kubelet.pods import Pod

__all__ = ["ResourceClaims"]


class ResourceClaims:
    """Claims by namespace and name, and the removals of ResourceSlices. Lives as long as its kubelet.

    It stands for the API server, the scheduler and the claim controller, as far as a kubelet needs them. It
    may be used from any thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._claims: dict[tuple[str, str], dict[str, Any]] = {}
        self._removed: list[str | None] = []

    def allocate(
        self,
        name: str,
        driver: str,
        *devices: str,
        namespace: str = "default",
        request: str = "device",
        pool: str = "pool",
        parameters: Mapping[str, object] | None = None,
    ) -> Mapping[str, Any]:
        """Make a claim that these devices of a driver are allocated to; return its object.

        `parameters` are what the claim configures the driver with. A second call with the same name adds
        another request, or another driver's devices, to the claim.
        """
        with self._lock:
            claim = self._claims.setdefault((namespace, name), _empty(namespace, name))
            allocated = claim["status"]["allocation"]["devices"]
            allocated["results"] += (
                {"request": request, "driver": driver, "pool": pool, "device": device} for device in devices
            )
            claim["spec"]["devices"]["requests"].append(
                {"name": request, "exactly": {"deviceClassName": driver, "count": len(devices)}}
            )
            if parameters is not None:
                opaque = {"driver": driver, "parameters": dict(parameters)}
                allocated["config"].append({"source": "FromClaim", "requests": [request], "opaque": opaque})
            return claim

    def delete(self, name: str, namespace: str = "default") -> None:
        """Take a claim away; raises `KeyError` if it is not there."""
        with self._lock:
            del self._claims[namespace, name]

    @property
    def removed_slices(self) -> Sequence[str | None]:
        """The drivers whose ResourceSlices the kubelet removed, in order; None for all of the node's."""
        with self._lock:
            return tuple(self._removed)

    # ── for the kubelet ──

    def reserve(self, pod: Pod) -> None:
        """Reserve the claims of a pod for it, as the scheduler does; one that is not there is passed over."""
        names = [one.claim_name for one in pod.resource_claims]
        if pod.extended_claim is not None:
            names.append(pod.extended_claim.claim_name)
        consumer = {"resource": "pods", "name": pod.name, "uid": pod.uid}
        with self._lock:
            for name in names:
                claim = self._claims.get((pod.namespace, name or ""))
                if claim is not None and consumer not in claim["status"]["reservedFor"]:
                    claim["status"]["reservedFor"].append(consumer)

    def release(self, pod: Pod) -> None:
        """Take a pod's reservations back."""
        with self._lock:
            for claim in self._claims.values():
                consumers = claim["status"]["reservedFor"]
                claim["status"]["reservedFor"] = [one for one in consumers if one["uid"] != pod.uid]

    async def get_claim(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return a claim's object; raises `KubeletError` in the API server's words."""
        with self._lock:
            claim = self._claims.get((namespace, name))
        if claim is None:
            raise KubeletError(f'resourceclaims.resource.k8s.io "{name}" not found')
        return claim

    async def remove_slices(self, driver: str | None) -> None:
        """Note the removal."""
        with self._lock:
            self._removed.append(driver)


def _empty(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": namespace, "name": name, "uid": str(uuid4())},
        "spec": {"devices": {"requests": []}},
        "status": {"allocation": {"devices": {"results": [], "config": []}}, "reservedFor": []},
    }
