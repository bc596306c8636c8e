"""The daemon: a configuration as served plugins, one for each resource that this machine has.

An edit is applied to them: the plugin of a changed resource is replaced behind the same socket.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from devplug.cdi.spec import kind_of
from devplug.daemon.cdi.resource_spec import names_that_are_held
from devplug.daemon.config.selectors import Discover
from devplug.daemon.config.types import Resource
from devplug.daemon.placement import placement_of
from devplug.daemon.resource import ClaimedResource, ConfiguredPlugin
from devplug.devices import Device
from devplug.errors import KubeletError, PluginError
from devplug.holds.decide import Face
from devplug.k8s.resource_names import ResourceName
from devplug.linux.inotify import until_present
from devplug.plugin.drivers import NODE_NAME_VARIABLE
from devplug.plugin.resource_lock import ResourceLock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from devplug.daemon.config.types import Config
    from devplug.daemon.context import DaemonContext
    from devplug.daemon.placement import Placement
    from devplug.errors import DevplugError
    from devplug.holds.hardware import Use
    from devplug.holds.holders import Holders
    from devplug.plugin.serving import Serving


logger = logging.getLogger(__name__)

LEFT_SECONDS: Final = 10.0
"""How long a resource is left to a process that may only be starting again."""


def plugin_of(
    resource: Resource, context: DaemonContext, before: ConfiguredPlugin | None = None, driver: str = ""
) -> ConfiguredPlugin:
    """Return the plugin of a resource; `driver` is the DRA driver that serves it, if one does."""
    kind = ClaimedResource if resource.serve == "dra" else ConfiguredPlugin
    return kind(resource, context, before, driver)


# ── the daemon ────────────────────────────────────────────────────────────────────────────────────


class _Retired(Struct):
    """A face that the file has no more, and the task that waits until its devices are free."""

    plugin: ConfiguredPlugin
    seeing_off: asyncio.Task[None]
    is_published: bool
    """Whether a ResourceSlice may still offer its free devices: a scheduler goes by that."""


class _Edit(Struct, frozen=True):
    """The new configuration of a resource that is being checked, and the task that waits for that."""

    plugin: ConfiguredPlugin
    checking: asyncio.Task[None]


class Daemon:
    """The plugins of a configuration; lives as long as `serve_config`'s block, changes with the file."""

    def __init__(self, serving: Serving, context: DaemonContext, group: asyncio.TaskGroup) -> None:
        self._serving = serving
        serving.drivers.whereabouts = context.ownership.whereabouts
        self._context = context
        self._group = group
        self.node_name = os.environ.get(NODE_NAME_VARIABLE) or platform.node()
        """The machine's name in Kubernetes."""
        self._plugins: dict[str, ConfiguredPlugin] = {}
        self._edits: dict[str, _Edit] = {}
        """The edits that are not in effect yet, by resource name."""
        self._retired: dict[Face, _Retired] = {}
        self._labels: Mapping[str, str] | None = None
        self._label_task: asyncio.Task[None] | None = None
        self._config: Config | None = None
        self._applying = asyncio.Lock()
        self._has_started = False
        self._begun: set[str] = set()
        """The names of the resources that this process was to serve at any time."""
        self.unserved: dict[str, str] = {}
        """Why a resource is not served as the file says now, by resource name; empty if all are."""

    @property
    def config(self) -> Config | None:
        """The configuration in effect; None before the first."""
        return self._config

    @property
    def faces(self) -> Mapping[Face, ConfiguredPlugin]:
        """The served plugins, with retired ones."""
        retired = {face: one.plugin for face, one in self._retired.items()}
        return {plugin.face: plugin for plugin in self._plugins.values()} | retired

    @property
    def device_plugins(self) -> Mapping[str, ConfiguredPlugin]:
        """The plugins of the faces that are device plugins, by resource name."""
        return {face.resource_name: plugin for face, plugin in self.faces.items() if not face.driver}

    def resources(self) -> Mapping[str, Resource]:
        """Return the resources of the configuration, by name, also as edits that wait have them."""
        edited = {name: edit.plugin.resource for name, edit in self._edits.items()}
        return {name: plugin.resource for name, plugin in self._plugins.items()} | edited

    @property
    def checking(self) -> tuple[str, ...]:
        """The resources whose new configuration is being checked."""
        return tuple(sorted(name for name in self._edits if name in self._serving.waiting))

    async def apply(self, config: Config) -> None:
        """Serve `config` from now on; an unchanged resource is not touched.

        Raises `PluginError` or `KubeletError` if a resource cannot be served.
        """
        self._config = config
        async with self._applying:
            await self._apply(config)
        if self._label_task is None and placement_of(config, self.node_name, None).waiting:
            self._label_task = self._group.create_task(self._follow_labels())

    async def _follow_labels(self) -> None:
        """Apply the configuration again whenever the labels of this machine's Node change."""
        from devplug.daemon.cluster import label_changes

        async with aclosing(label_changes(self.node_name)) as changes:
            async for labels in changes:
                self._labels = labels
                if self._config is None:
                    continue
                try:
                    await self.apply(self._config)
                except (PluginError, KubeletError) as error:
                    logger.error(  # noqa: TRY400 -- the text says it all
                        "a resource for the new labels of this Node cannot be served",
                        extra={"reason": str(error)},
                    )

    async def _apply(self, config: Config) -> None:
        placement = placement_of(config, self.node_name, self._labels)
        if skipped := [resource.name for resource in placement.elsewhere]:
            logger.info(
                "resources for other Nodes are not served here",
                extra={"names": skipped, "node": self.node_name},
            )
        if waiting := [resource.name for resource in placement.waiting]:
            logger.info(
                "resources with a nodeSelector wait until the labels of this Node are read",
                extra={"names": waiting, "node": self.node_name},
            )
        undecided = [resource.name for resource in placement.waiting if driver_of(config, resource)]
        if config.driver:  # of the others it is known in a moment
            others = [resource.name for resource in placement.here if driver_of(config, resource)]
            self._serving.drivers.note_undecided(config.driver, [*undecided, *others])
        try:
            await self._serve_all(config, placement)
        finally:
            if config.driver:
                self._serving.drivers.note_undecided(config.driver, undecided)

    async def _serve_all(self, config: Config, placement: Placement) -> None:
        wanted = {resource.name: resource for resource in placement.here}
        # What waits for labels is served as before until they are read.
        kept = {*wanted, *(resource.name for resource in placement.waiting)}
        left = {} if self._has_started else self._serving.drivers.left_behind(config.driver or "")
        self._context.ownership.reorder(resource.name for resource in config.resources)
        self.unserved = {name: why for name, why in self.unserved.items() if name in kept}
        for name in [name for name in self.resources() if name not in kept]:
            self._withdraw(name)
        for name, resource in wanted.items():
            driver = driver_of(config, resource)
            if name not in self._begun:
                await self._serve_as_before(resource, config, left)
            self._begun.add(name)
            if (moving := self._newest(name)) is not None and moving.face.driver != driver:
                logger.info(
                    "a resource moves between device plugin and DRA; devices that containers hold follow "
                    "when they are released",
                    extra={"resource_name": name, "serve": resource.serve},
                )
                self._withdraw(name)
            if self.resources().get(name) != resource:
                self._serve(resource, driver)
        if not self._has_started:
            self._serve_left_behind(left)
        self._has_started = True

    def _newest(self, name: str) -> ConfiguredPlugin | None:
        """Return the plugin of a resource, also one that is being checked."""
        edit = self._edits.get(name)
        return self._plugins.get(name) if edit is None else edit.plugin

    def _serve_left_behind(self, left: Mapping[str, Iterable[str]]) -> None:
        """Keep resources registered that are configured no more, while containers hold their devices.

        The process before this one served them: the configuration was edited meanwhile. `left` has those of
        claims, by driver.
        """
        holders, folder = self._context.holders, self._serving.folder
        faces = [] if holders is None else [Face(name) for name in holders.left_behind()]
        faces += [Face(name, driver) for driver, found in left.items() for name in sorted(found)]
        for face in faces:
            name, driver = face
            if face not in self.faces and (driver or ResourceLock(folder, name).is_free()):
                left_resource = Resource(name=ResourceName(name), discover=Discover())
                self._retire(self._begin(left_resource, driver), is_left=True)

    async def _serve_as_before(
        self, resource: Resource, config: Config, left: Mapping[str, Collection[str]]
    ) -> None:
        """Serve a resource also by each driver, or as a device plugin, by which containers hold its devices.

        The process before this one gave them out: a rollout, or an end while they were to be released.
        `left` has the resources of claims in use, by driver.
        """
        driver = driver_of(config, resource)
        held = {
            one: frozenset[str]() for one, names in left.items() if one != driver and resource.name in names
        }
        other = "" if driver else config.driver
        if config.driver and other is not None and other not in held:
            held[other] = await held_before(self._context, resource.name, other)
        for one, ids in held.items():
            if ids or resource.name in left.get(one, ()):
                plugin = self._begin(resource, one)
                plugin.held.give(map(Device, ids))
                self._retire(plugin)

    def _serve(self, resource: Resource, driver: str) -> None:
        """Serve a resource, in place of the plugin of the same name if there is one."""
        name, face = resource.name, Face(resource.name, driver)
        self.unserved.pop(name, None)
        self._drop_edit(name)
        before = self._plugins.get(name)
        others = [one for one in self._retired.values() if one.plugin.resource_name == name]
        if before is None and any(one.is_published and one.plugin.face != face for one in others):
            self.unserved[name] = LEAVES_SLICES
            return
        if before is None and face in self._retired:
            before = self._retired[face].plugin
        if before is None:
            self._plugins[name] = self._begin(resource, driver, may_fail=self._has_started)
        elif before.is_retired or before.resource != resource:
            plugin = plugin_of(resource, self._context, before, driver)
            checking = self._group.create_task(self._check(plugin, before))
            self._edits[name] = _Edit(plugin, checking)

    def _drop_edit(self, name: str) -> None:
        """Give up the edit of a resource that is not in effect yet."""
        if edit := self._edits.pop(name, None):
            edit.checking.cancel()

    async def _check(self, plugin: ConfiguredPlugin, before: ConfiguredPlugin) -> None:
        """Have the new configuration of a resource answer once it is complete."""
        name, evicts = plugin.resource_name, plugin.resource.when_unhealthy == "evict"
        try:
            await self._serving.replace(plugin, evicts=evicts, dra=plugin.face.driver)
        except PluginError as error:
            self._refuse(name, error)
        else:
            if retired := self._retired.pop(plugin.face, None):
                retired.seeing_off.cancel()
            self._plugins[name] = plugin
            self._warn_of_holders(before)
        del self._edits[name]

    def _refuse(self, name: str, error: DevplugError) -> None:
        logger.error(
            "reload failed for a resource; its previous configuration stays in effect",
            extra={"resource_name": name, "reason": str(error)},
        )
        self.unserved[name] = str(error)

    def _begin(self, resource: Resource, driver: str, *, may_fail: bool = True) -> ConfiguredPlugin:
        """Begin to serve a resource by a driver, or as a device plugin; return its plugin."""
        name, face = resource.name, Face(resource.name, driver)
        resource = replace(resource, serve="dra" if driver else "devicePlugin")
        if (holders := self._context.holders_of(resource)) is not None:
            was_killed = ResourceLock(self._serving.folder, name).is_left()
            holders.own(name, is_waiting=True, was_killed=was_killed)

        def give_up(error: DevplugError) -> None:
            self._refuse(name, error)
            if self._plugins.get(name) is plugin:
                del self._plugins[name]
            elif retired := self._retired.pop(face, None):
                retired.seeing_off.cancel()
            self._forget(face)

        try:
            plugin = plugin_of(resource, self._context, driver=driver)
            self._serving.add(
                plugin,
                on_failure=give_up if may_fail else None,
                held_ids=plugin.held.held_ids,
                on_turn=None if holders is None else partial(holders.begin, name),
                on_wanted=plugin.give_way,
                dra=driver,
                evicts=resource.when_unhealthy == "evict",
            )
        except (PluginError, KubeletError):
            self._forget(face)
            raise
        return plugin

    async def follow_left(self, holders: Holders) -> None:
        """Keep a resource registered that an ended process has left, while containers hold its devices.

        As after a rollout with a surge in which the resource was renamed. A process that comes back within a
        moment keeps its resources.
        """
        seen = frozenset[str]()
        while True:
            await holders.wait(lambda seen=seen: holders.left != seen)  # type: ignore[misc]
            if seen := holders.left:
                await asyncio.sleep(LEFT_SECONDS)
                async with self._applying:
                    self._serve_left_behind({})

    async def learn_holders(self, holders: Holders, socket: Path) -> None:
        """Ask once who holds what; then remove the CDI files that earlier daemons left behind."""
        await until_present(socket)
        with holders.needed():
            await holders.wait(lambda: holders.ledger.is_known)
        for plugin in self._plugins.values():
            plugin.held.changed.set()
        if (cdi := self._context.cdi) is None:
            return
        kinds = [*map(kind_of, self.device_plugins)]
        if (checkpoint := await holders.checkpoint()) is None:
            return
        # A kubelet that has not heard from the API server yet lists static pods only.
        held = await asyncio.to_thread(names_that_are_held, (*holders.pods, *checkpoint))
        try:
            removed = await asyncio.to_thread(cdi.clean, kinds, held)
        except KubeletError as error:
            logger.warning("cannot remove old CDI files", extra={"reason": str(error)})
            return
        if removed:
            logger.info("removed CDI files that no container uses", extra={"files": removed})

    async def clean_elsewhere(self, use: Use, may_be_left: bool) -> str | None:  # noqa: FBT001 -- a callback
        """Have hardware cleaned as the resource says that finds it now; return why that failed, "" if it did
        not, None if no resource finds the hardware.

        One without `onRelease` leaves it as it is if it `may_be_left`, and else does not count.
        """
        found = [(plugin, one) for plugin in self._plugins.values() for one in plugin.found_of(use)]
        for plugin, one in found:
            if plugin.resource.on_release is not None:
                return await plugin.held.clean(one)
        return "" if found and may_be_left else None

    def give_up_edits(self) -> None:
        """Give up what is not in effect yet: everything ends."""
        for name in [*self._edits]:
            self._drop_edit(name)

    def close(self) -> None:
        """Cancel all waiting tasks."""
        if self._label_task is not None:
            self._label_task.cancel()
        for retired in self._retired.values():
            retired.seeing_off.cancel()
        if self._context.cdi is not None:
            self._context.cdi.close()

    # ── what is no more ──

    def _withdraw(self, name: str) -> None:
        """Serve a resource no more, nor its edit that is not in effect yet."""
        self._drop_edit(name)
        if plugin := self._plugins.pop(name, None):
            self._retire(plugin)

    def _retire(self, plugin: ConfiguredPlugin, *, is_left: bool = False) -> None:
        """Give out no more devices of a resource; it ends when no container holds one."""
        name, face = plugin.resource_name, plugin.face
        self._serving.drivers.set_evicts(face, evicts=False)
        plugin.retire(is_left=is_left)
        if held := plugin.held.held_ids():
            logger.warning(
                "containers hold devices of a resource that the file does not serve this way any more; it "
                "allocates none, and ends when they are released",
                extra={"resource_name": name, "devices": sorted(held), "pods": self._pods(name, held)},
            )
        seeing_off = self._group.create_task(self._see_off(plugin))
        self._retired[face] = _Retired(plugin, seeing_off, is_published=bool(face.driver))

    async def _see_off(self, plugin: ConfiguredPlugin) -> None:
        name, face = plugin.resource_name, plugin.face
        if face.driver:
            await self._serving.drivers.driver(face.driver).until_unpublished(face.resource_name)
            self._retired[face].is_published = False
            await self._serve_after(name)
        await plugin.is_over.wait()
        if face.driver:
            await self._serving.drivers.driver(face.driver).until_unpublished(face.resource_name)
        while True:
            # One that is checked takes its place, or fails.
            while (edit := self._edits.get(name)) and edit.plugin.face == face:
                await asyncio.wait((edit.checking,))
            async with self._applying:
                if (edit := self._edits.get(name)) and edit.plugin.face == face:
                    continue
                del self._retired[face]
                await self._serving.remove(name, face.driver)
                self._forget(face)
                return

    async def _serve_after(self, name: str) -> None:
        """Serve a resource as the file says that waited until its devices have left the slices."""
        async with self._applying:
            if self.unserved.get(name) == LEAVES_SLICES and self._config is not None:
                try:
                    await self._apply(self._config)
                except (PluginError, KubeletError) as error:
                    self._refuse(name, error)

    def _forget(self, face: Face) -> None:
        self._context.ownership.leave(face)
        if self._context.holders is not None and not face.driver:
            self._context.holders.disown(face.resource_name)

    def _warn_of_holders(self, plugin: ConfiguredPlugin) -> None:
        """Log the pods that a change does not reach: their containers keep the old answer."""
        name = plugin.resource_name
        if held := plugin.held.held_ids():
            logger.warning(
                "a resource was changed while containers hold its devices; the change reaches them when "
                "their pods are made anew",
                extra={"resource_name": name, "devices": sorted(held), "pods": self._pods(name, held)},
            )

    def _pods(self, name: str, held: Iterable[str]) -> list[str]:
        holders = self._context.holders
        if holders is None:
            return []
        found = {one for device_id in held for one in holders.ledger.holders_of(name, device_id)}
        return sorted({f"{one.namespace}/{one.pod}" for one in found})


# ── the change of a resource between device plugin and claims ──


LEAVES_SLICES: Final = "it is served once no ResourceSlice offers its devices for claims any more"
"""Why a resource that claims used is not served in another way yet: a scheduler goes by the slices that there
are, and a claim may get what they have."""


def driver_of(config: Config, resource: Resource) -> str:
    """Return the DRA driver by which a resource is served; empty for a device plugin."""
    return (config.driver or "") if resource.serve == "dra" else ""


async def held_before(context: DaemonContext, resource_name: str, driver: str) -> frozenset[str]:
    """Return the device IDs of a resource that containers hold by a DRA driver, or by a device plugin.

    The latter if `driver` is empty. The machine tells that at once, also to a daemon that has just begun, as
    after a rollout.
    """
    if not driver:
        return frozenset() if context.holders is None else await _allocated(context.holders, resource_name)
    if context.cdi is None:
        return frozenset()
    return await asyncio.to_thread(_claimed, context.cdi.folder, driver, resource_name)


async def _allocated(holders: Holders, resource_name: str) -> frozenset[str]:
    """Return what the kubelet's checkpoint names.

    It may name more than is held: the kubelet drops what an ended pod had when it next writes the file.
    """
    return frozenset(
        device_id
        for pod in await holders.checkpoint() or ()
        for container in pod.containers
        for devices in container.devices
        if devices.resource_name == resource_name
        for device_id in devices.device_ids
    )


def _claimed(folder: Path, driver: str, resource_name: str) -> frozenset[str]:
    """Return what the CDI files of claims name: a container can start with a device while one is there."""
    from devplug.driver.prepared_claims import published_uses

    devices = (device for use in published_uses(driver, folder) for device in use.devices)
    return frozenset(one.device_id for one in devices if one.resource_name == resource_name)
