"""The CDI spec of one resource: the names that containers hold stay in it, and up to date."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from devplug.cdi.spec import (
    CdiDevice,
    CdiSpec,
    device_name,
    kind_of,
    qualified_name,
    response_device,
    unplugged,
)
from devplug.daemon.container_response import owner_of, share_of
from devplug.daemon.path_check import nodes_below, real_path_of
from devplug.devices import ContainerResponse, DeviceNode
from devplug.errors import AllocationError, KubeletError, PluginError
from devplug.holds.hardware import REPLICA_MARK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from devplug.daemon.cdi.spec_files import CdiFolder
    from devplug.daemon.config.types import Resource
    from devplug.daemon.container_response import Share
    from devplug.daemon.sources.device import HostDevice
    from devplug.daemon.sources.host import Host
    from devplug.wire.values import PodResources

logger = logging.getLogger(__name__)


def name_of(found_name: str, index: int) -> str:
    """Return the CDI name of a device at a rank in its container: with another rank it may be another file.

    An ID has no space, so no two of these are the same.
    """
    return device_name(f"{found_name} {index}" if index else found_name)


def names_that_are_held(pods: Iterable[PodResources]) -> set[str]:
    """Return every qualified name of ours that a listed container may have, of any resource."""
    names: set[str] = set()
    for pod in pods:
        for container in pod.containers:
            # A device that is on several NUMA nodes is listed several times; more ranks do no harm.
            counts = Counter(
                devices.resource_name for devices in container.devices for _ in devices.device_ids
            )
            for devices in container.devices:
                for device_id in devices.device_ids:
                    kind = kind_of(devices.resource_name)
                    for name in {device_id, device_id.rpartition(REPLICA_MARK)[0] or device_id}:
                        ranks = range(counts[devices.resource_name])
                        names.update(qualified_name(kind, name_of(name, index)) for index in ranks)
    return names


def kernel_nodes(share: Share, resource: Resource, host: Host) -> list[DeviceNode]:
    """Return the nodes of a share, and those below folders, by their own paths: CDI follows no link.

    Each path is resolved again, as it may have changed. Raises `AllocationError` where one leads elsewhere.
    """
    nodes = []
    for node in share.device_nodes:
        found_node = next(one for one in share.found.nodes if one.host_path == node.host_path)
        real_path = real_path_of(host, found_node, share.found)
        nodes.append(DeviceNode(real_path, node.container_path, node.permissions))
    for folder in resource.expose.directories:
        below = nodes_below(host, folder, resource)
        nodes += [DeviceNode(path, path, resource.expose.permissions) for path in below]
    return nodes


class _Item(Struct, frozen=True):
    """One name that was given out, and its device; `found_name` is None if that is not known any more."""

    device: CdiDevice
    found_name: str | None = None
    index: int = 0
    resource: Resource | None = None
    """The resource as it was when the container got the name; None if that is not known any more."""


class ResourceCdiSpec:
    """Our spec file for one resource; lives as long as that is served, over all edits; its only writer.

    A container that restarts has its CDI names looked up again, so they are rewritten when a device comes
    back as another file, and point to nothing while it is gone.
    """

    def __init__(self, resource: Resource, folder: CdiFolder, host: Host) -> None:
        self.resource = resource
        """The resource as it is now."""
        self._folder = folder
        self._host = host
        self._kind = kind_of(resource.name)
        old = folder.read(self._kind)
        self._writing = asyncio.Lock()
        self._in_thread: asyncio.Future[Exception | None] | None = None
        self._logged_error = ""
        self._items = {device.name: _Item(device) for device in (old.devices if old else ())}

    async def publish(self, shares: Sequence[Share], resource: Resource | None = None) -> list[str]:
        """Return names for the device nodes of these shares, once runtimes can look them up.

        `resource` is as it was when the call began, as an edit may have come since. Raises `AllocationError`
        if the file cannot be written, if CDI cannot express the device, and if a node has been replaced since
        the last scan.
        """
        names = []
        resource = resource or self.resource
        for share in shares:
            if device := self._device(share, resource):
                self._items[device.name] = _Item(device, share.found.name, share.index, resource)
                names.append(qualified_name(self._kind, device.name))
        try:
            await self._write()
        except (KubeletError, PluginError) as error:
            raise AllocationError(str(error)) from error
        return names

    async def refresh(self, present: Mapping[str, HostDevice], held: Collection[str] | None) -> None:
        """Update the spec: present devices point to their nodes, and free ones are removed.

        `held` are the found devices that a container may hold; None if that is not known.
        """
        if not self._items:
            return
        self._recognise(present if held is None else held)
        for cdi_name, item in list(self._items.items()):
            if held is not None and item.found_name not in held:
                del self._items[cdi_name]
                continue
            found = present.get(item.found_name) if item.found_name is not None else None
            fresh = None if found is None else self._fresh(found, item)
            self._items[cdi_name] = replace(item, device=fresh or unplugged(item.device))
        try:
            await self._write()
        except (KubeletError, PluginError) as error:
            if str(error) != self._logged_error:
                self._logged_error = str(error)
                extra = {"resource_name": self.resource.name, "reason": self._logged_error}
                logger.error("cannot write the CDI file of a resource", extra=extra)  # noqa: TRY400 -- it is no bug

    def _recognise(self, names: Iterable[str]) -> None:
        """Find the devices of the names in an earlier daemon's file.

        A rank is below the number of that container's devices, which all are in the file.
        """
        unknown = {cdi_name for cdi_name, item in self._items.items() if item.found_name is None}
        if not unknown:
            return
        for name in names:
            for index in range(len(self._items)):
                if (cdi_name := name_of(name, index)) in unknown:
                    self._items[cdi_name] = _Item(self._items[cdi_name].device, name, index)

    def _fresh(self, found: HostDevice, item: _Item) -> CdiDevice | None:
        resource = item.resource or self.resource
        try:
            return self._device(share_of(found, item.index, resource.expose), resource)
        except (AllocationError, PluginError):
            return None

    def _device(self, share: Share, resource: Resource) -> CdiDevice | None:
        """Return the CDI device of a share; None if it has no device node."""
        nodes = ContainerResponse(device_nodes=kernel_nodes(share, resource, self._host))
        device = response_device(name_of(share.found.name, share.index), nodes, owner_of(resource))
        return device if device.nodes else None

    async def _write(self) -> None:
        """Write the file.

        If the caller is cancelled, the thread goes on, and a later write waits until it has ended:
        else the older one might be the last to replace the file.
        """
        async with self._writing:
            if self._in_thread is not None and not self._in_thread.done():
                await asyncio.wait((self._in_thread,))
            devices = tuple(self._items[name].device for name in sorted(self._items))
            self._in_thread = asyncio.get_running_loop().run_in_executor(None, self._replace, devices)
            await asyncio.wait((self._in_thread,))
            if failure := self._in_thread.result():
                raise failure

    def _replace(self, devices: tuple[CdiDevice, ...]) -> Exception | None:
        """Write or remove the file, in a thread; return the error, as the caller may be gone."""
        try:
            if devices:
                self._folder.write(CdiSpec(self._kind, devices))
            else:
                self._folder.remove(self._kind)
        except Exception as error:  # noqa: BLE001 -- raised by who waits, if somebody does
            return error
        return None
