"""A configuration as served plugins: one for each resource that this machine has, also after an edit."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import platform
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final

from devplug.daemon.cdi import kind_of
from devplug.daemon.cdifiles import CDI_FOLDER, CdiFolder
from devplug.daemon.cdishelf import names_that_are_held
from devplug.daemon.cluster import ClusterError, extended_resource_names, label_changes
from devplug.daemon.loading import load, read_config_file
from devplug.daemon.machine import Machine
from devplug.daemon.placement import claimed_twice, needs_labels, resources_here
from devplug.daemon.preferring import plugin_of
from devplug.daemon.reloading import file_changes
from devplug.daemon.retired import RetiredPlugin
from devplug.errors import ConfigError, KubeletError, PluginError
from devplug.holders.holders import Holders
from devplug.plugin.serving import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from pathlib import Path

    from devplug.daemon.config import Config, Resource
    from devplug.daemon.configured import ConfiguredPlugin
    from devplug.devices import StrPath
    from devplug.plugin.serving import Serving

__all__ = ["NODE_NAME_VARIABLE", "Daemon", "serve_config"]

logger = logging.getLogger(__name__)

NODE_NAME_VARIABLE: Final = "NODE_NAME"
"""Where a DaemonSet puts the machine's name in Kubernetes; else the host name counts."""

PROBLEMS_LIMIT: Final = 20
"""Most problems of one edit that go into the log; `devplug validate` shows them all."""


class Daemon:
    """What is served of a configuration; lives as long as `serve_config`'s block, changes with the file."""

    def __init__(self, serving: Serving, machine: Machine, group: asyncio.TaskGroup) -> None:
        self._serving = serving
        self._machine = machine
        self._group = group
        self._node_name = os.environ.get(NODE_NAME_VARIABLE) or platform.node()
        self._plugins: dict[str, ConfiguredPlugin] = {}
        self._retired: dict[str, asyncio.Task[None]] = {}
        self._labels: Mapping[str, str] | None = None
        self._label_task: asyncio.Task[None] | None = None
        self._config: Config | None = None
        self._applying = asyncio.Lock()

    async def apply(self, config: Config) -> None:
        """Serve what `config` says from now on; a resource that it has as before is not touched.

        Raises `PluginError` or `KubeletError` if a resource cannot be served.
        """
        self._config = config
        async with self._applying:
            await self._apply(config)
        if self._label_task is None and needs_labels(config, self._node_name):
            self._label_task = self._group.create_task(self._follow_labels())

    async def _follow_labels(self) -> None:
        """Apply the configuration whenever the labels of this machine say something else."""
        async with aclosing(label_changes(self._node_name)) as changes:
            async for labels in changes:
                is_first, self._labels = self._labels is None, labels
                if self._config is None:
                    continue
                try:
                    await self.apply(self._config)
                except (PluginError, KubeletError) as error:
                    logger.error(  # noqa: TRY400 -- the text says it all
                        "a resource of these labels cannot be served", extra={"reason": str(error)}
                    )
                if is_first:
                    await self._tell_claims()

    async def _tell_claims(self) -> None:
        try:
            claimed = await extended_resource_names()
        except ClusterError as error:
            logger.info("nobody knows what DeviceClasses claim", extra={"reason": str(error)})
            return
        if names := claimed_twice(self._plugins, claimed):
            logger.warning(
                "a DRA DeviceClass claims this resource name too; a machine may serve it by one of both only",
                extra={"names": names},
            )

    async def _apply(self, config: Config) -> None:
        resources = resources_here(config, self._node_name, self._labels)
        if skipped := [resource.name for resource in config.resources if resource not in resources]:
            logger.info(
                "resources of other machines are left out", extra={"names": skipped, "node": self._node_name}
            )
        self._open_cdi_folder(resources)
        wanted = {resource.name: resource for resource in resources}
        ranks = {str(resource.name): rank for rank, resource in enumerate(resources)}
        for name in [name for name in self._plugins if name not in wanted]:
            await self._retire(name)
        for name, resource in wanted.items():
            plugin = self._plugins.get(name)
            if plugin is None:
                await self._end_retirement(name)
            elif plugin.resource != resource:
                self._tell_holders(plugin)
                await self._serving.remove(name)
                del self._plugins[name]
            else:
                continue
            self._add(resource, ranks[name])
        self._machine.overlaps.reorder(ranks)

    async def follow(self, file: Path, config: Config) -> None:
        """Apply what `file` says whenever that changes, until cancelled; what is wrong is told instead."""
        last: Config | ConfigError = config
        async for _ in file_changes(file):
            try:
                fresh: Config | ConfigError = load(await asyncio.to_thread(read_config_file, file), str(file))
            except ConfigError as error:
                fresh = error
            if fresh == last or (isinstance(fresh, ConfigError) and str(fresh) == str(last)):
                continue
            if isinstance(fresh, ConfigError):
                _tell_problems(fresh)
            else:
                await self._reload(fresh, file)
            last = fresh

    async def clean_cdi_folder(self, holders: Holders) -> None:
        """Remove the CDI files that earlier daemons left behind, once it is known who holds what."""
        if self._machine.cdi is None:
            return
        with holders.needed():
            await holders.wait(lambda: holders.is_known)
        kinds = [kind_of(name) for name in (*self._plugins, *self._retired)]
        held = await asyncio.to_thread(names_that_are_held, holders.pods)
        removed = await asyncio.to_thread(self._machine.cdi.clean, kinds, held)
        if removed:
            logger.info("removed CDI files that nobody needs any more", extra={"files": removed})

    def _open_cdi_folder(self, resources: Iterable[Resource]) -> None:
        uses_cdi = any(resource.expose.strategy == "cdi" for resource in resources)
        if uses_cdi and self._machine.cdi is None:
            self._machine.cdi = CdiFolder(CDI_FOLDER)

    def _add(self, resource: Resource, rank: int) -> None:
        async def release(ids: Iterable[str]) -> None:
            await self._serving.release(resource.name, ids)

        plugin = plugin_of(resource, self._machine, rank, release)
        self._serving.add(plugin)
        self._plugins[resource.name] = plugin

    async def _reload(self, config: Config, file: Path) -> None:
        last, before = self._config, {name: plugin.resource for name, plugin in self._plugins.items()}
        try:
            await self.apply(config)
        except (PluginError, KubeletError) as error:
            logger.error(  # noqa: TRY400 -- the text says it all
                "the changed configuration cannot be served; the one before stays",
                extra={"reason": str(error)},
            )
            if last is not None:
                await self.apply(last)
            return
        after = {name: plugin.resource for name, plugin in self._plugins.items()}
        logger.info(
            "configuration reloaded",
            extra={
                "file": str(file),
                "added": sorted(after.keys() - before.keys()),
                "changed": sorted(name for name in after if after[name] != before.get(name, after[name])),
                "removed": sorted(before.keys() - after.keys()),
            },
        )

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._label_task is not None:
            self._label_task.cancel()
        for task in self._retired.values():
            task.cancel()
        if self._machine.cdi is not None:
            self._machine.cdi.close()

    # ── what is no more ──

    async def _retire(self, name: str) -> None:
        """Stop serving a resource, or go on for as long as containers hold devices of it."""
        plugin = self._plugins.pop(name)
        held = plugin.custody.held_ids()
        await self._serving.remove(name)
        if not held:
            return
        logger.warning(
            "a resource was removed while devices of it are held; it stays, with all of them Unhealthy, "
            "until they are free",
            extra={"resource_name": name, "devices": sorted(held), "pods": self._pods(name, held)},
        )
        retired = RetiredPlugin(name, plugin.custody)
        self._serving.add(retired)
        self._retired[name] = self._group.create_task(self._see_off(retired))

    async def _see_off(self, retired: RetiredPlugin) -> None:
        await retired.is_over.wait()
        del self._retired[retired.resource_name]
        await self._serving.remove(retired.resource_name)

    async def _end_retirement(self, name: str) -> None:
        if task := self._retired.pop(name, None):
            task.cancel()
            await self._serving.remove(name)

    def _tell_holders(self, plugin: ConfiguredPlugin) -> None:
        """Name the pods that a change does not reach: their containers keep what they were given."""
        name = plugin.resource_name
        if held := plugin.custody.held_ids():
            logger.warning(
                "a resource was changed while devices of it are held; their containers keep what they were "
                "given until their pods are made anew",
                extra={"resource_name": name, "devices": sorted(held), "pods": self._pods(name, held)},
            )

    def _pods(self, name: str, held: Iterable[str]) -> list[str]:
        holders = self._machine.holders
        if holders is None:
            return []
        found = {one for device_id in held for one in holders.holders_of(name, device_id)}
        return sorted({f"{one.namespace}/{one.pod}" for one in found})


def _tell_problems(error: ConfigError) -> None:
    logger.error(
        "the changed configuration is wrong; the one before stays",
        extra={"file": error.file, "problems": len(error.problems)},
    )
    for line in error.lines()[:PROBLEMS_LIMIT]:
        logger.error(line)


@asynccontextmanager
async def serve_config(
    config: Config,
    *,
    plugin_dir: StrPath | None = None,
    pod_resources: Path | None = None,
    file: Path | None = None,
) -> AsyncIterator[Serving]:
    """Serve every resource of `config` that this machine has, until the block is left.

    `pod_resources` is the kubelet's socket for monitors, without which nobody knows who holds what. What
    `file` says later is applied, too. Raises what `devplug.serve` raises.
    """
    machine = Machine()
    async with serve(plugin_dir=plugin_dir) as serving, asyncio.TaskGroup() as group:
        tasks = []
        if pod_resources is not None:
            machine.holders = Holders(pod_resources, _ledger_file(serving.folder, file))
            tasks.append(group.create_task(machine.holders.run()))
        daemon = Daemon(serving, machine, group)
        try:
            await daemon.apply(config)
            if machine.holders is not None:
                tasks.append(group.create_task(daemon.clean_cdi_folder(machine.holders)))
            if file is not None:
                tasks.append(group.create_task(daemon.follow(file, config)))
            yield serving
        finally:
            daemon.close()
            for task in tasks:
                task.cancel()


def _ledger_file(folder: Path, file: Path | None) -> Path:
    """Return where one daemon remembers what is held: another one of this folder has another file."""
    mark = hashlib.sha256(str(file.absolute() if file else "").encode()).hexdigest()[:12]
    return folder / ".devplug" / f"held-{mark}.json"
