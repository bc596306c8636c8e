"""The collector of a node's status: it follows our processes at their sockets, and asks the kubelet."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from devplug.driver.prepared_claims import STATE_NAME
from devplug.errors import one_line
from devplug.holds.holders import Holders, pod_resources_status
from devplug.kubelet_dir import CHECKPOINT_NAME, REGISTRY_NAME
from devplug.linux.inotify import shared_watcher
from devplug.linux.notifier import Notifier, within
from devplug.linux.trust import UntrustedError, check_trusted
from devplug.monitor.node_view import joined
from devplug.plugin.environment import root_of
from devplug.plugin.resource_lock import LOCK_FOLDER, has_file_of
from devplug.status import STATUS_SOCKETS, process_of
from devplug.web.addresses import UnixAddress
from devplug.web.client import lines
from devplug.web.messages import WebClientError

if TYPE_CHECKING:
    from devplug.status import NodeStatus, ProcessStatus

RESYNC_SECONDS: Final = 5.0
"""How often the folder is looked at without an event, in case one was lost."""

"""In the plugin folder: the kubelet writes it anew in each Allocate and for each list (manager.go)."""

KEPT: Final = ".json"
"""The suffix of the files in which a process of ours remembers a resource over its restart."""

RETRY_SECONDS: Final = 1.0

ANSWER_SECONDS: Final = 3.0
"""How long one look waits for the kubelet, and for each process."""


class Collector:
    """The latest status of a node; lives as long as `run`.

    `plugin_dir` is the folder with `kubelet.sock`, `pod_resources` the kubelet's socket for monitors; both
    absolute. `notifier` tells when `status` may have changed.
    """

    def __init__(self, plugin_dir: Path, pod_resources: Path, *, node_name: str) -> None:
        self.node_name = node_name
        self.notifier = Notifier()
        self._plugin_dir = plugin_dir
        # Else the folder above by its name, also where it is a link.
        self._root = root_of(pod_resources) or Path(os.path.normpath(plugin_dir)).parent
        self._folders = plugin_dir, self._root / REGISTRY_NAME
        self._pod_resources = pod_resources
        self._holders = Holders(
            pod_resources,
            with_allocatable=True,
            clock=lambda: asyncio.get_running_loop().time(),
            on_change=self.notifier.notify,
        )
        self._processes: dict[Path, ProcessStatus] = {}
        self._problems: dict[Path, str] = {}
        self._followed: dict[Path, asyncio.Task[None]] = {}
        self._has_looked = False
        self._left: frozenset[str] = frozenset()

    def status(self) -> NodeStatus:
        """Return the status of the node, from the latest answers."""
        holders = self._holders
        return joined(
            self.node_name,
            time.time(),
            list(self._processes.values()),
            holders.pods if holders.ledger.is_known else None,
            holders.allocatable,
            pod_resources_status(holders),
            sorted(self._problems.values()),
            has_left=self._has_left,
        )

    def _has_left(self, name: str) -> bool:
        """Whether a process of ours has left files of a resource name, or of a driver: that has no `/`."""
        if "/" in name:
            return has_file_of(self._left, name)
        return (self._root / "plugins" / name / STATE_NAME).exists()

    async def run(self) -> None:
        """Follow all processes and the kubelet until cancelled; one that does not answer is tried again."""
        async with asyncio.TaskGroup() as group, shared_watcher() as watcher:
            group.create_task(self._holders.run())
            woken = asyncio.Event()
            with (
                self._holders.needed(),
                watcher.subscribe(woken.set) as subscription,
                watcher.subscribe(self._holders.suspect) as given_out,
            ):
                while True:
                    woken.clear()
                    subscription.arm([str(one / STATUS_SOCKETS) for one in self._folders])
                    given_out.arm([str(self._plugin_dir / CHECKPOINT_NAME)])
                    await self._look(group)
                    await within(RESYNC_SECONDS, woken.wait())

    async def wait_first(self) -> None:
        """Wait until the kubelet and every process that is there have been asked once; in `run`."""
        while not self._is_complete():
            await self.notifier.next.wait()

    def _is_complete(self) -> bool:
        return self._has_looked and not self.unanswered()

    def unanswered(self) -> list[str]:
        """Return the sockets of those that are being asked and have neither answered nor failed yet."""
        pending = self._followed.keys() - self._processes.keys() - self._problems.keys()
        if not self._holders.ledger.is_known and self._holders.trouble is None:
            pending |= {self._pod_resources}
        return sorted(map(str, pending))

    async def _look(self, group: asyncio.TaskGroup) -> None:
        """Begin to follow new sockets, and forget those that are gone."""
        found: set[Path] = set()
        left: set[str] = set()
        for folder in self._folders:
            files, problem = await asyncio.to_thread(_files, folder / LOCK_FOLDER)
            self._note_problem(folder, problem)
            found |= {path for path in files if path.match(STATUS_SOCKETS)}
            left |= {path.name for path in files if path.suffix == KEPT}
        if self._left != left:
            self._left = frozenset(left)
            self.notifier.notify()
        for path in self._followed.keys() - found:
            self._followed.pop(path).cancel()
            self._forget(path)
        for path in sorted(found - self._followed.keys()):
            self._followed[path] = group.create_task(self._follow(path))
        if not self._has_looked:
            self._has_looked = True
            self.notifier.notify()

    def _note_problem(self, path: Path, problem: str) -> None:
        if problem != self._problems.get(path, ""):
            self._problems[path] = problem
            if not problem:
                del self._problems[path]
            self.notifier.notify()

    def _forget(self, path: Path) -> None:
        self._processes.pop(path, None)
        self._problems.pop(path, None)
        self.notifier.notify()

    async def _follow(self, path: Path) -> None:
        """Keep each status that a process sends, until its socket is gone."""
        while True:
            try:
                async with lines(UnixAddress(str(path)), "/status?watch=1") as documents:
                    async for line in documents:
                        self._processes[path] = process_of(line)
                        self._note_problem(path, "")
                        self.notifier.notify()
                problem = f"{path.name}: the process closed the connection"
            except (WebClientError, ValueError) as error:
                problem = f"{path.name}: {one_line(str(error))}"
            self._processes.pop(path, None)
            self._note_problem(path, problem)
            await asyncio.sleep(RETRY_SECONDS)


def _files(folder: Path) -> tuple[set[Path], str]:
    """Return what is in a folder where our processes have files, and what keeps us from seeing it."""
    try:
        found = {*folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError):
        return set(), ""
    except OSError as error:
        why = f"cannot look for plugins in {folder}: {error.strerror}; run as root, as they do"
        return set(), why
    try:
        check_trusted(folder, "name the folder of a kubelet, which only root can change")
    except UntrustedError as error:
        return set(), str(error)
    return found, ""


async def collected(plugin_dir: Path, pod_resources: Path, *, node_name: str) -> NodeStatus:
    """Return a node's status after asking all once; one that does not answer in 3 s is a problem in it."""
    collector = Collector(plugin_dir, pod_resources, node_name=node_name)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(collector.run())
        await within(ANSWER_SECONDS, collector.wait_first())
        status = collector.status()
        late = [f"{one} did not answer within {ANSWER_SECONDS:g} s" for one in collector.unanswered()]
        running.cancel()
    return replace(status, problems=(*status.problems, *late))
