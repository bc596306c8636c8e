"""The nodes that are shown: where their sockets are, and how they are followed.

They are this machine's, or those of a sandbox.
"""

from __future__ import annotations

import asyncio
import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from devplug.cli.machine import pod_resources_socket
from devplug.cli.options import plugin_folder
from devplug.linux.notifier import Notifier
from devplug.monitor.collector import Collector
from devplug.plugin.drivers import NODE_NAME_VARIABLE
from devplug.sandbox.sandboxdir import SandboxDir, SandboxDirError, default_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.status import NodeStatus

FIRST_SECONDS: Final = 3.0
"""How long the first table waits for sockets that do not answer."""


# ── folders ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class NodeFolders:
    """The paths of the sockets of one node's plugins and its kubelet."""

    name: str
    plugin_dir: Path
    pod_resources: Path


def machine_folders(kubelet_root: str, plugin_dir: Path) -> NodeFolders:
    """Return this machine's folders."""
    name = os.environ.get(NODE_NAME_VARIABLE) or platform.node()
    return NodeFolders(name, plugin_dir.absolute(), pod_resources_socket(kubelet_root))


def sandbox_folders(folder: str, names: Sequence[str]) -> list[NodeFolders]:
    """Return the folders of these nodes of a sandbox, or of all; raises `UsageError` if it is not up."""
    place = SandboxDir(Path(folder))
    record = place.running()
    if record is None:
        raise click.UsageError(f"no sandbox is up in {place.folder}; start one: devplug sandbox up")
    if unknown := sorted({*names} - {*record.nodes}):
        raise click.UsageError(f"the sandbox has no node {unknown[0]}; it has {', '.join(record.nodes)}")
    nodes = [(name, place.node(name)) for name in record.nodes if not names or name in names]
    return [NodeFolders(name, one.plugin_dir, one.pod_resources_socket) for name, one in nodes]


def folder_fault(folders: NodeFolders) -> str:
    """Return why this user cannot look into a plugin folder; empty if he can."""
    folder = folders.plugin_dir
    try:
        if not folder.exists():
            return f"no kubelet here ({folder} does not exist); {_elsewhere()}"
        if not folder.is_dir():
            return f"{folder} is not a folder"
        has_right = os.access(folder, os.R_OK | os.X_OK)
    except PermissionError:
        has_right = False
    return "" if has_right else f"no right to look into {folder}: run as root"


def no_answer(folders: NodeFolders, problems: Sequence[str]) -> str:
    """Return the message for a node whose sockets do not answer."""
    why = "".join(f"\n  {problem}" for problem in problems)
    return (
        f"no devplug daemon answers in {folders.plugin_dir}, nor the kubelet at "
        f"{folders.pod_resources}{why}\n"
        f"  {'' if os.geteuid() == 0 else 'run as root, or '}{_elsewhere()}"
    )


def _elsewhere() -> str:
    place = SandboxDir(default_folder(os.environ, os.geteuid()))
    with suppress(SandboxDirError):
        if place.running() is not None:
            return f"a sandbox is up: --dir {place.folder}"
    return "another folder: --kubelet-root DIR; a sandbox: --dir DIR (devplug sandbox up)"


def chosen_folders(
    context: click.Context,
    kubelet_root: str,
    plugin_dir: str | None,
    folder: str | None,
    names: Sequence[str],
) -> tuple[list[NodeFolders], bool]:
    """Return which nodes are meant, and whether they are all of a sandbox's; raises `UsageError`.

    What is written out wins over the environment. A program in a sandbox finds both there and means its node.
    """
    root_source, dir_source, folder_source = map(
        context.get_parameter_source, ("kubelet_root", "plugin_dir", "folder")
    )
    is_machine = ParameterSource.COMMANDLINE in {root_source, dir_source}
    is_sandbox = folder_source is ParameterSource.COMMANDLINE
    if is_machine and is_sandbox:
        raise click.UsageError(
            "--dir names a sandbox, --kubelet-root and --plugin-dir name a machine's folder; give one"
        )
    is_inside = ParameterSource.ENVIRONMENT in {root_source, dir_source} and not names
    if folder and not is_machine and (is_sandbox or not is_inside):
        return sandbox_folders(folder, names), not names
    if names:
        raise click.UsageError("--node needs --dir, which names the sandbox that has the node")
    return [machine_folders(kubelet_root, plugin_folder(context, kubelet_root, plugin_dir))], False


# ── collectors ────────────────────────────────────────────────────────────────────────────────────


class Follower:
    """Follows nodes; lives as long as `run`, and `notifier` tells when the status of one may have changed."""

    def __init__(self, nodes: Sequence[NodeFolders]) -> None:
        self.nodes = tuple(nodes)
        self.notifier = Notifier()
        self._collectors = [
            Collector(one.plugin_dir, one.pod_resources, node_name=one.name) for one in self.nodes
        ]

    def statuses(self) -> tuple[NodeStatus, ...]:
        """Return how the nodes are, in their order."""
        return tuple(one.status() for one in self._collectors)

    async def run(self) -> None:
        """Follow them until cancelled."""
        async with asyncio.TaskGroup() as group:
            for one in self._collectors:
                group.create_task(one.run())
                group.create_task(self._relay(one))

    async def wait_first(self) -> None:
        """Wait until `run` has asked every socket, but not long for one that does not answer."""
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                for one in self._collectors:
                    await one.wait_first()
        except TimeoutError:
            return

    async def _relay(self, collector: Collector) -> None:
        while True:
            await collector.notifier.next.wait()
            self.notifier.notify()
