"""A plugin whose devices pods get by claims: `prepare` and `allocate` answer each request."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec.structs import replace

from devplug.cdi.spec import CdiOwner
from devplug.devices import ContainerResponse, Device, DeviceNode, HealthState
from devplug.dra.taints import NO_EXECUTE, Taint, is_kept_off
from devplug.driver.device_entries import taint_of
from devplug.errors import NotReadyError, UnhealthyDeviceError
from devplug.plugin.contract import offers
from devplug.plugin.service import PluginService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from devplug.dra.taints import Toleration
    from devplug.driver.node_driver import NodeDriver
    from devplug.driver.offer import ClaimRequest
    from devplug.holds.hardware import Use
    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.holds import Holding
    from devplug.plugin.inventory import Inventory
    from devplug.status import DeviceStatus


logger = logging.getLogger(__name__)

_NOTHING = ContainerResponse()


@runtime_checkable
class _WithNodes(Protocol):
    """A plugin that knows the nodes of its devices, also of those that are unhealthy."""

    node_owner: CdiOwner

    async def allocate(self, devices: Sequence[Device], /, first_index: int = 0) -> ContainerResponse:
        """Return what containers get of the devices of a request."""

    def current(self, devices: Sequence[Device], /, first_index: int = 0) -> ContainerResponse | None:
        """Return what containers get of claimed devices now; None if one of them is not there."""

    def uses(self, device_ids: Sequence[str]) -> Mapping[str, Use]:
        """Return what containers get of devices, by ID, as far as it is known."""


class ClaimedPlugin:
    """A plugin of a DRA driver; `on_change` is called when `registered_at` or `fault` may have changed."""

    guard = None
    """There is no other plugin that could take the name: the driver's name is the cluster's."""
    streams = 0

    def __init__(
        self,
        plugin: DevicePlugin,
        inventory: Inventory,
        driver: NodeDriver,
        on_change: Callable[[], None],
        *,
        evicts: bool = False,
        holding: Holding | None = None,
    ) -> None:
        self._holding = holding
        self.resource_name = str(plugin.resource_name)
        self.registered_at: float | None = None
        """Since when the driver is registered, as a Unix time in seconds; None if it is not."""
        self._told: set[str] = set()
        """The annotations of which the log has said that they are left out."""
        self._inventory = inventory
        self._driver = driver
        self._on_change = on_change
        self.service = PluginService(plugin, inventory, on_change, holding)
        driver.add(self, evicts=evicts)

    @property
    def _plugin(self) -> DevicePlugin:
        return self.service.plugin

    @property
    def node_owner(self) -> CdiOwner:
        """The owner of the device nodes in containers."""
        return self._plugin.node_owner if isinstance(self._plugin, _WithNodes) else CdiOwner()

    @property
    def _is_by_device(self) -> bool:
        """Whether containers get each device's own nodes and nothing else, so that each has an entry."""
        return not offers(self._plugin, "allocate")

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet has accepted the driver, and the devices are published."""
        return self._driver.is_registered and not self._driver.fault

    @property
    def driver(self) -> str:
        """The name of the DRA driver."""
        return self._driver.name

    def described(self, devices: tuple[DeviceStatus, ...]) -> tuple[DeviceStatus, ...]:
        """Return the devices' statuses with the claims that use them, and their taints."""
        claims = self._driver.claims_of(self.resource_name)
        effect = self._driver.taint_of(self.resource_name)
        listed = self._inventory.snapshot.devices

        def one(device: DeviceStatus) -> DeviceStatus:
            using = claims.get(device.id, ())
            found = listed.get(device.id)
            is_tainted = found is not None and found.health.state is HealthState.UNHEALTHY
            if not using and not is_tainted:
                return device
            taint = effect if is_tainted else ""
            is_used = any(not claim.has_admin_access for claim in using)
            return replace(device, claims=using, taint=taint, is_held=device.is_held or is_used)

        return tuple(map(one, devices))

    @property
    def fault(self) -> str:
        """What keeps the plugin from being ready; empty if nothing does."""
        if self._inventory.failure:
            return self._inventory.failure
        if not self._inventory.is_ready:
            return "there is no list of devices yet"
        return self._driver.fault or self.service.fault

    async def run(self) -> None:
        """Offer the devices until cancelled; then finish calls in flight."""
        version = 0
        try:
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self._follow_driver())
                while await self._inventory.changed_since(version):
                    version = self._inventory.version
                    self._driver.offer(self.resource_name, tuple(self._inventory.snapshot.devices.values()))
                following.cancel()
        finally:
            self._driver.remove(self.resource_name)
            await self.service.drain()
            self.service.close()

    async def _follow_driver(self) -> None:
        while True:
            change = self._driver.changed.next
            if not self.is_registered:
                self.registered_at = None
            elif self.registered_at is None:
                self.registered_at = time.time()
            self._on_change()
            await change.wait()

    # ── what the driver asks ──

    async def prepare(self, requests: Sequence[ClaimRequest]) -> Sequence[Sequence[ContainerResponse]]:
        """Return what containers get of the devices of each request: all of it with the first device."""
        is_numbered = isinstance(self._plugin, _WithNodes)
        responses = await self.service.allocate(
            [one.device_ids for one in requests],
            [partial(self._is_tolerated, one.tolerations) for one in requests],
            [one.first_index for one in requests] if is_numbered else (),
        )
        self._tell_of_annotations(responses)
        return [
            [self._of_device(id_) for id_ in one.device_ids]
            if self._is_by_device
            else [_without_links(response), *([_NOTHING] * (len(one.device_ids) - 1))]
            for one, response in zip(requests, responses, strict=True)
        ]

    def uses(self, device_ids: Sequence[str]) -> Mapping[str, Use]:
        """Return what containers get of devices, by ID, as far as it is known."""
        if isinstance(self._plugin, _WithNodes):
            return self._plugin.uses(device_ids)
        return {} if self._holding is None else self._holding.uses(device_ids)

    def _of_device(self, device_id: str) -> ContainerResponse:
        """Return what containers get of one device where that depends on no other."""
        return _without_links(ContainerResponse.of(self._inventory.find([device_id])))

    def _is_tolerated(self, tolerations: Sequence[Toleration], device: Device) -> bool:
        """Whether these tolerate the taint that an unhealthy device has in its slice."""
        if not (effect := self._driver.taint_of(self.resource_name)):
            return False
        taint = Taint.of(taint_of(device.health, evicts=effect == NO_EXECUTE))
        return not is_kept_off((taint,), tolerations)

    def _tell_of_annotations(self, responses: Iterable[ContainerResponse]) -> None:
        names = {name for response in responses for name in response.annotations} - self._told
        if names:
            self._told |= names
            logger.warning(
                "containers get no annotations by a claim, as CDI has no way to give them; they are left out",
                extra={"resource_name": self.resource_name, "annotations": sorted(names)},
            )

    async def current(
        self, device_ids: Sequence[str], first_index: int = 0
    ) -> Mapping[str, ContainerResponse | None]:
        """Return what containers get now of a request's devices; None for each that is not there."""
        found: dict[str, ContainerResponse | None] = {}
        for ids in [[id_] for id_ in device_ids] if self._is_by_device else [device_ids]:
            if not self._inventory.snapshot.devices.keys() >= set(ids):
                continue
            with suppress(UnhealthyDeviceError, NotReadyError):  # it may have its nodes: the next list says
                found |= {**dict.fromkeys(ids, _NOTHING), ids[0]: await self._current(ids, first_index)}
        return found

    async def _current(self, device_ids: Sequence[str], first_index: int) -> ContainerResponse | None:
        if isinstance(self._plugin, _WithNodes):
            return self._plugin.current([Device(id_) for id_ in device_ids], first_index)
        return _without_links(await self.service.allocate_again(device_ids))

    async def release(self, device_ids: Sequence[str], *, is_again: bool = False) -> None:
        """Have the plugin clean up devices that no claim uses any more."""
        await self.service.release(device_ids, is_again=is_again)


def _without_links(response: ContainerResponse) -> ContainerResponse:
    """Return a response with the kernel's own nodes: CDI follows no link, as those of /dev/serial/by-id."""
    nodes = [
        DeviceNode(os.path.realpath(one.host_path), one.container_path, one.permissions)
        for one in response.device_nodes
    ]
    if nodes == list(response.device_nodes):
        return response
    return ContainerResponse(
        device_nodes=nodes,
        mounts=response.mounts,
        envs=response.envs,
        annotations=response.annotations,
        cdi_devices=response.cdi_devices,
    )
