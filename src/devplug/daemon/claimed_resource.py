"""The plugin of a configured resource whose devices pods get by claims."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from devplug.daemon.cdi.resource_spec import kernel_nodes
from devplug.daemon.container_response import owner_of, share_of
from devplug.daemon.resource import ConfiguredPlugin
from devplug.devices import HealthState
from devplug.errors import AllocationError, InvalidRequestError, PluginError, UnhealthyDeviceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.cdi.spec import CdiOwner
    from devplug.daemon.container_response import ContainerShares
    from devplug.devices import ContainerResponse, Device
    from devplug.holds.hardware import Use

__all__ = ["ClaimedResource"]


class ClaimedResource(ConfiguredPlugin):
    """The plugin of one resource with `serve: dra`; what containers get is in the CDI files of claims."""

    @property
    def node_owner(self) -> CdiOwner:
        """Who owns the device nodes in containers."""
        return owner_of(self.resource)

    async def allocate(self, devices: Sequence[Device], /, first_index: int = 0) -> ContainerResponse:
        """Return what containers get; an unhealthy device is among these only where a claim tolerates it."""
        sick = [one for one in devices if one.health.state is HealthState.UNHEALTHY]
        if lost := [one for one in sick if one.id in self.listing.withheld]:
            raise UnhealthyDeviceError(lost[0].health.reason, *lost)
        return await super().allocate(devices, first_index)

    async def _response(self, given: ContainerShares) -> ContainerResponse:
        return self._with_kernel_nodes(given)

    def _with_kernel_nodes(self, given: ContainerShares) -> ContainerResponse:
        try:
            nodes = [node for one in given.shares for node in kernel_nodes(one, self.resource, self._host)]
            return given.response_with(nodes)
        except PluginError as error:
            raise InvalidRequestError(str(error)) from error

    def current(self, devices: Sequence[Device], /, first_index: int = 0) -> ContainerResponse | None:
        """Return what containers get of claimed devices now; None if one of them is not there.

        One that is only unhealthy is there: its node is no other device's.
        """
        names, present = self._names(devices), self.listing.present()
        try:
            return self._with_kernel_nodes(
                self._responses.of(devices, {name: present[name] for name in names}, first_index)
            )
        except (KeyError, AllocationError):
            return None

    def uses(self, device_ids: Sequence[str]) -> Mapping[str, Use]:
        """Return what containers get of devices, by ID, of those that are there."""
        present = self.listing.present()
        found = {one: present.get(self.held.name_of(one)) for one in device_ids}
        uses = {}
        for device_id, one in found.items():
            if one is not None:
                with suppress(PluginError):
                    share = share_of(one, 0, self.resource.expose)
                    uses[device_id] = self._use(share)
        return uses

    async def release(self, devices: Sequence[Device], /) -> None:
        """Run `onRelease` for devices whose claim has ended."""
        await self.held.release(device.id for device in devices)
