"""The daemon: a configuration as served plugins, one for each resource that this machine has.

An edit is applied to them. A resource with several devices may prefer which are given together: see
`preference`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from contextlib import aclosing
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from devplug.cdi.spec import kind_of
from devplug.daemon.cdi.resource_spec import names_that_are_held
from devplug.daemon.changeover import DRAINING, draining_of, driver_of, held_before
from devplug.daemon.config.selectors import Discover
from devplug.daemon.config.types import Resource
from devplug.daemon.container_response import found_name
from devplug.daemon.placement import placement_of
from devplug.daemon.resource import ConfiguredPlugin
from devplug.daemon.sources.hardware import numa_distances
from devplug.devices import Device
from devplug.errors import KubeletError, PluginError
from devplug.k8s.resource_names import ResourceName
from devplug.linux.inotify import until_present
from devplug.plugin.drivers import NODE_NAME_VARIABLE
from devplug.plugin.resource_lock import ResourceLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from devplug.daemon.config.types import Config
    from devplug.daemon.context import DaemonContext
    from devplug.daemon.placement import Placement
    from devplug.daemon.preference import Candidate
    from devplug.errors import DevplugError
    from devplug.holds.hardware import Use
    from devplug.holds.holders import Holders
    from devplug.plugin.serving import Serving

logger = logging.getLogger(__name__)


# ── the plugin of a resource ──────────────────────────────────────────────────────────────────────


def plugin_of(
    resource: Resource,
    context: DaemonContext,
    before: ConfiguredPlugin | None = None,
) -> ConfiguredPlugin:
    """Return the plugin of a resource.

    Raises `KubeletError` if the resource needs a CDI folder that cannot be read.
    """
    if resource.serve == "dra":
        from devplug.daemon.claimed_resource import ClaimedResource

        return ClaimedResource(resource, context, before)
    may_choose = resource.prefer != "none" and (
        resource.share.replicas > 1 or resource.share.max_per_container != 1
    )
    kind = PreferringPlugin if may_choose else ConfiguredPlugin
    return kind(resource, context, before)


class PreferringPlugin(ConfiguredPlugin):
    """A plugin that answers GetPreferredAllocation."""

    async def prefer(
        self, available: Sequence[Device], must_include: Sequence[Device], size: int, /
    ) -> Sequence[Device]:
        """Return the devices that go best together, as `prefer` of the file says."""
        from devplug.daemon.preference import preferred

        by_id = {device.id: device for device in (*must_include, *available)}
        chosen = preferred(
            self.resource.prefer,
            [self._candidate(device.id, device.numa_nodes) for device in by_id.values()],
            [device.id for device in must_include],
            size,
            all_devices=[
                self._candidate(device_id, ())
                for name in self.listing.known
                for device_id in self.listing.ids_of(name)
            ],
            numa_distances=numa_distances(self.context.host),
        )
        return [by_id[device_id] for device_id in chosen]

    def _candidate(self, device_id: str, numa_nodes: tuple[int, ...]) -> Candidate:
        from devplug.daemon.preference import Candidate

        name = found_name(device_id, self.resource.share.replicas)
        known = self.listing.known.get(name)
        if known is None:
            return Candidate(device_id, name, numa_nodes)
        found = known.found
        nodes = numa_nodes or (() if found.numa_node is None else (found.numa_node,))
        return Candidate(device_id, name, nodes, found.hardware, found.links)


# ── the daemon ────────────────────────────────────────────────────────────────────────────────────


class _Retired(Struct, frozen=True):
    """A resource that was removed from the file, and the task that waits until its devices are free."""

    plugin: ConfiguredPlugin
    seeing_off: asyncio.Task[None]


class Daemon:
    """The plugins of a configuration; lives as long as `serve_config`'s block, changes with the file."""

    def __init__(self, serving: Serving, context: DaemonContext, group: asyncio.TaskGroup) -> None:
        self._serving = serving
        self._context = context
        self._group = group
        self.node_name = os.environ.get(NODE_NAME_VARIABLE) or platform.node()
        """The machine's name in Kubernetes."""
        self._plugins: dict[str, ConfiguredPlugin] = {}
        self._retired: dict[str, _Retired] = {}
        self._labels: Mapping[str, str] | None = None
        self._label_task: asyncio.Task[None] | None = None
        self._config: Config | None = None
        self._applying = asyncio.Lock()
        self._has_started = False
        self._begun: set[str] = set()
        """The names of the resources that this process was to serve at any time."""
        self._drivers: dict[str, str] = {}
        """The DRA driver that serves a resource, by its name; empty for a device plugin."""
        self.unserved: dict[str, str] = {}
        """Why a resource is not served as the file says now, by resource name; empty if all are."""

    @property
    def config(self) -> Config | None:
        """The configuration in effect; None before the first."""
        return self._config

    @property
    def plugins(self) -> Mapping[str, ConfiguredPlugin]:
        """The served plugins, by resource name, with retired ones."""
        return {**self._plugins, **{name: retired.plugin for name, retired in self._retired.items()}}

    def resources(self) -> Mapping[str, Resource]:
        """Return the resources that are served now, by name; without those that were retired."""
        return {name: plugin.resource for name, plugin in self._plugins.items()}

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
        from devplug.daemon.cluster import label_changes, warn_of_device_classes

        async with aclosing(label_changes(self.node_name)) as changes:
            async for labels in changes:
                is_first, self._labels = self._labels is None, labels
                if self._config is None:
                    continue
                try:
                    await self.apply(self._config)
                except (PluginError, KubeletError) as error:
                    logger.error(  # noqa: TRY400 -- the text says it all
                        "a resource for the new labels of this Node cannot be served",
                        extra={"reason": str(error)},
                    )
                if is_first:
                    await warn_of_device_classes([name for name, one in self._drivers.items() if not one])

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
            self._serving.note_undecided(config.driver, [*undecided, *others])
        try:
            await self._serve_all(config, placement)
        finally:
            if config.driver:
                self._serving.note_undecided(config.driver, undecided)

    async def _serve_all(self, config: Config, placement: Placement) -> None:
        wanted = {resource.name: resource for resource in placement.here}
        # What waits for labels is served as before until they are read.
        kept = {*wanted, *(resource.name for resource in placement.waiting)}
        self._context.ownership.reorder(resource.name for resource in config.resources)
        self.unserved = {name: why for name, why in self.unserved.items() if name in kept}
        for name in [name for name in self._plugins if name not in kept]:
            self._retire(self._plugins.pop(name))
        for name, resource in wanted.items():
            driver = driver_of(config, resource)
            if config.driver and name not in self._begun:
                await self._serve_as_before(resource, "" if driver else config.driver)
            self._begun.add(name)
            plugin = self._plugins.get(name)
            if self._drivers.get(name, driver) != driver:
                if plugin is not None:
                    logger.info(
                        "a resource moves between device plugin and DRA; first its devices have to be free",
                        extra={"resource_name": name, "serve": resource.serve},
                    )
                    self._retire(self._plugins.pop(name), is_moving=True)
                self.unserved[name] = draining_of(self._drivers[name])
            elif plugin is None or plugin.resource != resource:
                await self._serve(resource)
        if not self._has_started:
            self._serve_left_behind()
        self._has_started = True

    def _serve_left_behind(self) -> None:
        """Keep resources registered that are configured no more, while containers hold their devices.

        The process before this one served them: the configuration was edited meanwhile.
        """
        if (holders := self._context.holders) is None:
            return
        for name in holders.left_behind():
            if name not in self.plugins and ResourceLock(self._serving.folder, name).is_free():
                resource = Resource(name=ResourceName(name), discover=Discover())
                self._drivers[name] = ""
                plugin = self._made(resource, None)
                self._add(plugin, lambda _: None)
                self._retire(plugin)

    async def _serve_as_before(self, resource: Resource, other: str) -> None:
        """Serve a resource at first by another driver, or a device plugin, if containers hold devices by it.

        The process before this one gave them out: a rollout, or an end while they were to be released.
        """
        if held := await held_before(self._context, resource.name, other):
            self._drivers[resource.name] = other
            await self._serve(replace(resource, serve="dra" if other else "devicePlugin"))
            self._plugins[resource.name].held.give(map(Device, held))

    async def _serve(self, resource: Resource) -> None:
        """Serve a resource, in place of the plugin of the same name if there is one."""
        name = resource.name
        self.unserved.pop(name, None)
        before = self._plugins.pop(name, None)
        if before is not None:
            self._warn_of_holders(before)
        elif retired := self._retired.pop(name, None):
            retired.seeing_off.cancel()
            before = retired.plugin
        if before is not None:
            await self._serving.remove(name, is_replaced=True)
        try:
            plugin = self._made(resource, before)
            put_back = self._put_back(plugin, before) if self._has_started else None
            self._add(plugin, put_back)
        except (PluginError, KubeletError):
            if before is not None:
                self._restore(before)
            else:
                self._forget(name)
            raise
        self._plugins[name] = plugin

    def claimed_ids(self, resource_name: str) -> frozenset[str]:
        """Return the device IDs of a resource that claims use, of one that a DRA driver serves."""
        driver = self._drivers.get(resource_name, "")
        return self._serving.claimed_ids(driver, resource_name) if driver else frozenset()

    def _add(
        self, plugin: ConfiguredPlugin, on_failure: Callable[[DevplugError], None] | None = None
    ) -> None:
        self._serving.add(
            plugin,
            on_failure=on_failure,
            held_ids=plugin.held.held_ids,
            dra=self._drivers[plugin.resource_name],
            evicts=plugin.resource.when_unhealthy == "evict",
        )

    def _made(self, resource: Resource, before: ConfiguredPlugin | None) -> ConfiguredPlugin:
        if self._config is not None:
            self._drivers.setdefault(resource.name, driver_of(self._config, resource))
        if before is None and (holders := self._context.holders_of(resource)) is not None:
            holders.own(resource.name)
        return plugin_of(resource, self._context, before)

    def _put_back(
        self, plugin: ConfiguredPlugin, before: ConfiguredPlugin | None
    ) -> Callable[[DevplugError], None]:
        """Return the callback for a changed resource that cannot be served: it restores the one before."""

        def put_back(error: DevplugError) -> None:
            logger.error(
                "reload failed for a resource; its previous configuration stays in effect",
                extra={"resource_name": plugin.resource_name, "reason": str(error)},
            )
            if self._plugins.get(plugin.resource_name) is plugin:
                self.unserved[plugin.resource_name] = str(error)
                del self._plugins[plugin.resource_name]
                if before is not None:
                    self._restore(before)
                else:
                    self._forget(plugin.resource_name)

        return put_back

    def _restore(self, plugin: ConfiguredPlugin) -> None:
        """Serve again what was removed a moment ago."""
        self._add(plugin)
        if plugin.is_retired:
            self._retire(plugin)
        else:
            self._plugins[plugin.resource_name] = plugin

    async def learn_holders(self, holders: Holders, socket: Path) -> None:
        """Ask once who holds what; then remove the CDI files that earlier daemons left behind."""
        await until_present(socket)
        with holders.needed():
            await holders.wait(lambda: holders.is_known)
        for plugin in self._plugins.values():
            plugin.held.changed.set()
        if (cdi := self._context.cdi) is None:
            return
        kinds = [kind_of(name) for name in (*self._plugins, *self._retired)]
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

    def hand_over(self, use: Use) -> None:
        """Have hardware cleaned by the resource that finds it now, before a container gets it."""
        for plugin in self._plugins.values():
            for name in plugin.names_of(use):
                plugin.held.adopt(name)

    def close(self) -> None:
        """Cancel all waiting tasks."""
        if self._label_task is not None:
            self._label_task.cancel()
        for retired in self._retired.values():
            retired.seeing_off.cancel()
        if self._context.cdi is not None:
            self._context.cdi.close()

    # ── what is no more ──

    def _retire(self, plugin: ConfiguredPlugin, *, is_moving: bool = False) -> None:
        """Give out no more devices of a resource; it ends when no container holds one."""
        name = plugin.resource_name
        plugin.retire(is_moving=is_moving)
        if held := plugin.held.held_ids():
            logger.warning(
                "containers hold devices of a resource that the file does not serve this way any more; it "
                "allocates none, and ends when they are released",
                extra={"resource_name": name, "devices": sorted(held), "pods": self._pods(name, held)},
            )
        self._retired[name] = _Retired(plugin, self._group.create_task(self._see_off(plugin)))

    async def _see_off(self, plugin: ConfiguredPlugin) -> None:
        await plugin.is_over.wait()
        name = plugin.resource_name
        if driver := self._drivers.get(name):
            await self._serving.until_unpublished(driver, name)
        async with self._applying:
            del self._retired[name]
            await self._serving.remove(name)
            self._forget(name)
            if self.unserved.pop(name, "").startswith(DRAINING) and self._config is not None:
                await self._apply(self._config)

    def _forget(self, name: str) -> None:
        self._drivers.pop(name, None)
        self._context.ownership.leave(name)
        if self._context.holders is not None:
            self._context.holders.disown(name)

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
        found = {one for device_id in held for one in holders.holders_of(name, device_id)}
        return sorted({f"{one.namespace}/{one.pod}" for one in found})
