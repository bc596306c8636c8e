"""Serve a configuration: the daemon, and what stands around it, from the first list to the last call."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from devplug.daemon.auditing import audit_holders
from devplug.daemon.cdi.files import CDI_FOLDER, CdiFolder
from devplug.daemon.comparing import compare_holders, compare_lists
from devplug.daemon.configfile import ConfigFile
from devplug.daemon.daemon import Daemon
from devplug.daemon.machine import Machine
from devplug.holders.asking import CHECKPOINT_NAME
from devplug.holders.holders import Holders
from devplug.plugin.ownership import LOCK_FOLDER
from devplug.plugin.serving import pages_at, served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from devplug.daemon.grammar.config import Config
    from devplug.daemon.reporting import Reporter
    from devplug.devices import StrPath
    from devplug.plugin.serving import Serving
    from devplug.probes import Probes
    from devplug.web.values import Answer, Request

__all__ = ["serve_config"]


class _Probes:
    """The daemon's pages, made when they are first asked for: until then their modules cost a start time."""

    def __init__(
        self, serving: Serving, daemon: Daemon, holders: Holders | None, config_file: ConfigFile | None
    ) -> None:
        self._told = serving, daemon, holders, config_file

    @cached_property
    def reporter(self) -> Reporter:
        """Who puts together what they say."""
        from devplug.daemon.reporting import Reporter

        return Reporter(*self._told)

    @cached_property
    def _pages(self) -> Probes:
        return self.reporter.probes()

    async def answer(self, request: Request) -> Answer:
        """Answer one request."""
        return await self._pages.answer(request)


@asynccontextmanager
async def serve_config(
    config: Config,
    *,
    plugin_dir: StrPath | None = None,
    pod_resources: Path | None = None,
    file: Path | None = None,
    look_again: asyncio.Event | None = None,
    listen: str | None = None,
    kube_events: bool = False,
    numa_nodes: tuple[int, ...] = (),
) -> AsyncIterator[Serving]:
    """Serve every resource of `config` that this machine has, until the block is left.

    `pod_resources` is the absolute path of the kubelet's socket for monitors, without which nobody knows who
    holds what. What `file` says later is applied, too; setting `look_again` has it read, which is done by
    itself where the kernel tells of an edit. There is a status socket in `.devplug` in the plugin folder;
    `listen` is a further address of its pages, as of `devplug.serve`. With `kube_events` the cluster is told
    what happens, as Events and a condition of the Node. `numa_nodes` are those that the kubelet knows, none
    if that is not known: the log tells of devices on others. Raises what `devplug.serve` raises.
    """
    async with served(plugin_dir=plugin_dir) as serving, asyncio.TaskGroup() as group:
        memory = serving.folder / LOCK_FOLDER
        holders = None
        if pod_resources is not None:
            clock = asyncio.get_running_loop().time
            holders = Holders(
                pod_resources,
                memory,
                checkpoint=serving.folder / CHECKPOINT_NAME,
                rewrite_checkpoint=serving.repeat_list,
                clock=clock,
                on_change=serving.pulse.beat,
            )
        machine = Machine(
            holders=holders,
            cdi=CdiFolder(CDI_FOLDER),
            memory=memory,
            numa_nodes=numa_nodes,
            on_look=lambda name, seconds: serving.tally(name).look_seconds.observe(seconds),
            on_change=serving.pulse.beat,
        )
        daemon = Daemon(serving, machine, group)
        config_file = None if file is None else ConfigFile(file, daemon, serving.pulse.beat, look_again)
        probes = _Probes(serving, daemon, holders, config_file)
        tasks = []
        try:
            await daemon.apply(config)
            if holders is not None and pod_resources is not None:
                tasks.append(group.create_task(holders.run()))
                tasks.append(group.create_task(daemon.learn_holders(holders, pod_resources)))
                tasks.append(group.create_task(audit_holders(holders, lambda: daemon.plugins)))
                lists = compare_lists(serving.folder, lambda: serving.guards, pod_resources)
                tasks.append(group.create_task(lists))
                tasks.append(
                    group.create_task(
                        compare_holders(holders, lambda: serving.guards, lambda: daemon.plugins)
                    ),
                )
            if config_file is not None:
                tasks.append(group.create_task(config_file.follow(config)))
            if kube_events:
                from devplug.daemon.kubeevents.reporting import tell_cluster

                status = probes.reporter.status
                tasks.append(group.create_task(tell_cluster(status, serving.pulse, daemon.node_name)))
            serving.tell(probes.answer)
            async with pages_at(listen, probes.answer):
                yield serving
        finally:
            # What is given out in the last calls has to be remembered, too.
            await serving.close()
            daemon.close()
            for task in tasks:
                task.cancel()
