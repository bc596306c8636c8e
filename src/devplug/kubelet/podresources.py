"""The PodResources API: who holds what, told to monitors on a socket of its own (apis/podresources).

What the answers contain is `holdings`'; here is which pods they are about, what is counted, and when a call
is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.errors import KubeletError, LimitError
from devplug.kubelet.holdings import allocatable_resources, pod_devices, pod_resources
from devplug.kubelet.ratelimit import TokenBucket
from devplug.wire.limits import KUBELET_RECEIVE_LIMIT_BYTES
from devplug.wire.podresources import GET, GET_ALLOCATABLE_RESOURCES, LIST, V1ALPHA1_LIST
from devplug.wire.sockets import Listener, unary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from devplug.exchange import AllocatableResources, PodName, PodResources
    from devplug.kubelet.devicemanager import DeviceManager
    from devplug.kubelet.metrics import KubeletMetrics
    from devplug.kubelet.podtable import PodTable
    from devplug.kubelet.settings import KubeletSettings

__all__ = ["PodResourcesServer"]

_CALLS_PER_SECOND: Final = 100
_CALLS_AT_ONCE: Final = 10
"""Of all monitors together (podresources/constants.go)."""

_SEND_LIMIT_BYTES: Final = 2**31 - 1
"""grpc-go's default: a monitor with much to read raises its own limit."""


class PodResourcesServer:
    """The server at `pod-resources/kubelet.sock`. Lives from `open` to `close`.

    Both versions of the API share the socket and one limit of calls. Calls that `settings` leave out are
    answered as by the kubelets that never had them, UNIMPLEMENTED, and like all unknown calls are not
    limited; kubelets that had them switched off by a feature gate said UNKNOWN instead.
    """

    def __init__(
        self,
        socket: Path,
        pods: PodTable,
        devices: DeviceManager,
        metrics: KubeletMetrics,
        settings: KubeletSettings,
    ) -> None:
        self._socket = socket
        self._pods = pods
        self._devices = devices
        self._metrics = metrics
        self._settings = settings
        self._bucket = TokenBucket(
            per_second=_CALLS_PER_SECOND,
            size=_CALLS_AT_ONCE,
            counted_at_seconds=settings.clock(),
        )
        later_calls = {
            "get": unary(GET, self._get),
            "allocatable": unary(GET_ALLOCATABLE_RESOURCES, self._get_allocatable_resources),
        }
        self._listener = Listener(
            socket,
            (
                unary(LIST, self._list),
                unary(V1ALPHA1_LIST, self._list_v1alpha1),
                *(call for name, call in later_calls.items() if name not in settings.pod_resources_without),
            ),
            receive_limit_bytes=KUBELET_RECEIVE_LIMIT_BYTES,
            send_limit_bytes=_SEND_LIMIT_BYTES,
            admit_call=self._admit_call,
            by_rename=True,
        )

    async def open(self) -> None:
        """Listen, in a folder that only its owner and group can enter (cri-client util_unix.go).

        Raises `KubeletError` if the folder cannot be made or does not take the socket.
        """
        folder = self._socket.parent
        try:
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise KubeletError(f"cannot make the folder {folder}: {error.strerror}") from error
        await self._listener.bind()

    async def close(self, *, orderly: bool = False) -> None:
        """End; the socket stays and refuses connections, unless it is `orderly`. Safe to repeat."""
        await self._listener.close(keep_file=not orderly)

    def _admit_call(self) -> None:
        """Let a call in, or refuse it before it is counted (apis/grpc/ratelimit.go)."""
        bucket = self._bucket.taken(self._settings.clock())
        if bucket is None:
            raise LimitError("rejected by rate limit")
        self._bucket = bucket

    # ── v1 ──

    async def _list(self, _: None) -> Sequence[PodResources]:
        self._metrics.count_pod_resources_call("list", "v1")
        self._devices.free_inactive()
        return pod_resources(
            self._pods.active(),
            self._devices.ledger,
            self._settings.machine,
            compat=self._settings.compat,
        )

    async def _get(self, asked: PodName) -> PodResources:
        """Serve Get; the devices of ended pods are not freed by it."""
        self._metrics.count_pod_resources_call("get", "v1")
        bound = self._pods.named(asked.namespace, asked.name)
        if bound is None or bound.status.is_terminal:
            self._metrics.count_pod_resources_error("get", "v1")
            raise KubeletError(f"pod {asked.name} in namespace {asked.namespace} not found")
        (found,) = pod_resources(
            (bound.pod,),
            self._devices.ledger,
            self._settings.machine,
            compat=self._settings.compat,
        )
        return found

    async def _get_allocatable_resources(self, _: None) -> AllocatableResources:
        self._metrics.count_pod_resources_call("get_allocatable", "v1")
        return allocatable_resources(self._devices.ledger, self._settings.machine)

    # ── v1alpha1 ──

    async def _list_v1alpha1(self, _: None) -> Sequence[PodResources]:
        """Serve the older List: of every pod, also those that have ended."""
        # It counts as a call, but not as a list (server_v1alpha1.go).
        self._metrics.pod_resources_requests.labels("v1alpha1").inc()
        self._devices.free_inactive()
        return pod_devices(self._pods.known(), self._devices.ledger)
