"""The kubelet's handle on one registered plugin: its calls, and whether it has been stopped (endpoint.go)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from devplug.errors import AllocationError, RemoteError
from devplug.kubelet.resources import grace_is_over
from devplug.wire.methods import ALLOCATE, GET_PREFERRED_ALLOCATION, PRE_START_CONTAINER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.devices import ContainerResponse
    from devplug.exchange import PluginOptions, PreferenceRequest
    from devplug.wire.sockets import Peer

__all__ = ["Endpoint"]


@dataclass(slots=True)
class Endpoint:
    """One registered plugin. Lives until the next registration of its name, or the end of the grace period.

    It uses a connection that `registration` owns. One that was restored from the checkpoint has none: it is
    stopped from the start, and its options are unknown.
    """

    resource_name: str
    peer: Peer | None
    options: PluginOptions | None
    stopped_at_seconds: float | None = None
    """When the plugin was lost; None as long as it is there."""

    def is_expired(self, now_seconds: float) -> bool:
        """Whether the plugin has been gone for longer than the grace period."""
        return grace_is_over(self.stopped_at_seconds, now_seconds)

    @property
    def wants_pre_start(self) -> bool:
        """Whether PreStartContainer has to be called; not while the options are unknown."""
        return self.options is not None and self.options.pre_start_required

    async def allocate(self, device_ids: Sequence[str]) -> Sequence[ContainerResponse]:
        """Call Allocate for one container, without a deadline, as the kubelet does.

        Raises `AllocationError` if the plugin is stopped, `RemoteError` if it refuses.
        """
        return await self._connection().call(ALLOCATE, [tuple(device_ids)])

    async def prefer(self, request: PreferenceRequest) -> Sequence[str]:
        """Return what the plugin prefers; nothing if it does not offer that. There is no deadline.

        Raises `AllocationError` in the words of manager.go callGetPreferredAllocationIfAvailable.
        """
        if self.options is None or not self.options.preferred_allocation_available:
            return ()
        try:
            containers = await self._connection().call(GET_PREFERRED_ALLOCATION, [request])
        except (AllocationError, RemoteError) as error:
            raise AllocationError(
                f"device plugin GetPreferredAllocation rpc failed with err: {error}",
            ) from error
        return containers[0] if containers else ()

    async def pre_start(self, device_ids: Sequence[str], timeout_seconds: float) -> None:
        """Call PreStartContainer; raises `AllocationError`, also when the time is over."""
        try:
            await self._connection().call(
                PRE_START_CONTAINER,
                tuple(device_ids),
                timeout_seconds=timeout_seconds,
            )
        except (AllocationError, RemoteError) as error:
            raise AllocationError(f"device plugin PreStartContainer rpc failed with err: {error}") from error

    def _connection(self) -> Peer:
        if self.peer is None or self.stopped_at_seconds is not None:
            # Go prints the whole struct here; programs can only match the end of the text.
            raise AllocationError(f"endpoint &{{{self.resource_name}}} has been stopped")
        return self.peer
