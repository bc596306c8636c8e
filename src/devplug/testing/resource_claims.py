"""The ResourceClaims of a test's cluster: allocated by the test, read by the kubelet and by drivers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from devplug.errors import KubeletError
from devplug.k8s.objects import text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from devplug.k8s.account import Account
    from devplug.kubelet.pods import Pod
    from devplug.sandbox.scripted_api_server import ScriptedApiServer

NODE_NAME: Final = "test-node"
"""The name of the Node to DRA drivers, and of their pool of devices."""


class ResourceClaims:
    """Claims by namespace and name, and the removals of ResourceSlices. Lives as long as its kubelet.

    It stands for the API server, the scheduler and the claim controller, as far as a kubelet needs them. It
    may be used from any thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._claims: dict[tuple[str, str], dict[str, Any]] = {}
        self._removed: list[str | None] = []
        self._server: ClaimServer | None = None
        self._on_loop: Callable[[Callable[[], Any]], Any] = lambda function: function()

    def serve_at(self, server: ClaimServer, on_loop: Callable[[Callable[[], Any]], Any]) -> None:
        """Have an API server that drivers read the claims of; `on_loop` calls a function on its loop."""
        with self._lock:
            self._server, self._on_loop = server, on_loop
            claims = list(self._claims.values())
        for claim in claims:
            self._stored(claim)

    def _stored(self, claim: dict[str, Any], *, is_new: bool = True) -> None:
        """Store a claim at the API server, if there is one."""
        if self._server is not None:
            server = self._server
            self._on_loop(lambda: server.store(claim, is_new=is_new))

    def allocate(
        self,
        name: str,
        driver: str,
        *devices: str,
        namespace: str = "default",
        request: str = "device",
        pool: str | None = None,
        parameters: Mapping[str, object] | None = None,
    ) -> Mapping[str, Any]:
        """Make a claim that these devices of a driver are allocated to; return its object.

        `devices` are names in the driver's ResourceSlices; of a driver of devplug's SDK also IDs of devices.
        `pool` is the pool that has them in the slices, if it is not named, or else "pool".
        `parameters` are what the claim configures the driver with. A second call with the same name adds
        another request, or another driver's devices, to the claim.
        """
        server = self._server
        slices = self._on_loop(server.slices) if server is not None else ()
        chosen = [_published(slices, driver, device) or ("pool", device) for device in devices]
        with self._lock:
            claim = self._claims.setdefault((namespace, name), _empty(namespace, name))
            allocated = claim["status"]["allocation"]["devices"]
            allocated["results"] += (
                {"request": request, "driver": driver, "pool": pool or its_pool, "device": device}
                for its_pool, device in chosen
            )
            claim["spec"]["devices"]["requests"].append(
                {"name": request, "exactly": {"deviceClassName": driver, "count": len(devices)}}
            )
            if parameters is not None:
                opaque = {"driver": driver, "parameters": dict(parameters)}
                allocated["config"].append({"source": "FromClaim", "requests": [request], "opaque": opaque})
        self._stored(claim)
        return claim

    def delete(self, name: str, namespace: str = "default") -> None:
        """Take a claim away; raises `KeyError` if it is not there."""
        with self._lock:
            del self._claims[namespace, name]
        if (server := self._server) is not None:
            self._on_loop(lambda: server.delete(name))

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
            claims = list(self._claims.values())
        for claim in claims:
            self._stored(claim, is_new=False)

    def release(self, pod: Pod) -> None:
        """Take a pod's reservations back."""
        with self._lock:
            for claim in self._claims.values():
                consumers = claim["status"]["reservedFor"]
                claim["status"]["reservedFor"] = [one for one in consumers if one["uid"] != pod.uid]
            claims = list(self._claims.values())
        for claim in claims:
            self._stored(claim, is_new=False)

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


def _published(slices: Sequence[Mapping[str, Any]], driver: str, device: str) -> tuple[str, str] | None:
    """Return pool and name of a device in the slices of a driver, by its name or by its ID of the SDK."""
    from devplug.driver.device_entries import device_name

    for one in (found["spec"] for found in slices if found["spec"]["driver"] == driver):
        for published in one.get("devices", ()):
            resource = published.get("attributes", {}).get("resource", {}).get("string", "")
            if published["name"] in {device, device_name(resource, device)}:
                return one["pool"]["name"], published["name"]
    return None


# ── the API server of drivers ──


class ClaimServer:
    """An API server with the claims of a test; lives as long as its `claim_server` block."""

    def __init__(self, api: ScriptedApiServer, root: Path) -> None:
        self._api = api
        self._root = root
        self._kubeconfig = root / "kubeconfig"
        self._kubeconfig.write_text(api.kubeconfig, encoding="utf-8")

    def account(self) -> Account:
        """Return the account of a driver in this process."""
        from devplug.k8s.account import chosen_account

        return chosen_account(str(self._kubeconfig), None)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of a driver's program."""
        return {
            "KUBECONFIG": str(self._kubeconfig),
            "NODE_NAME": NODE_NAME,
            "DEVPLUG_CDI_DIR": str(self._root / "cdi"),
        }

    def slices(self) -> Sequence[Mapping[str, Any]]:
        """Return all ResourceSlices."""
        return self._api.slices()

    def store(self, claim: dict[str, Any], *, is_new: bool) -> None:
        """Store a claim, or its new status. A new claim gets the UID that the API server gives it."""
        name = claim["metadata"]["name"]
        if not is_new:
            self._api.replace(
                "ResourceClaim", name, lambda old: {**old, "status": claim["status"]}, part="status"
            )
            return
        self._api.delete("ResourceClaim", name)
        stored = self._api.create("ResourceClaim", {**claim, "metadata": {"name": name}})
        claim["metadata"]["uid"] = text(stored, "metadata", "uid")

    def delete(self, name: str) -> None:
        """Remove a claim."""
        self._api.delete("ResourceClaim", name)


@asynccontextmanager
async def claim_server(node_name: str, root: Path) -> AsyncIterator[ClaimServer]:
    """Have an API server for the drivers of a node; its kubeconfig is in the folder `root`."""
    from devplug.sandbox.scripted_api_server import scripted_api_server

    async with scripted_api_server(node_name, lambda: None) as api:
        yield ClaimServer(api, root)
