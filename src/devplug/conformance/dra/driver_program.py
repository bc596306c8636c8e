"""The judged DRA driver: its command, the folders of one start and what is written there, the running one."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from devplug.conformance.dra.cdi_rules import defined_names, is_spec_file, read_by_runtimes
from devplug.conformance.program import Program
from devplug.k8s.podaccount import PodAccess
from devplug.linux.inotify import EventKind, FileEvent, shared_watcher
from devplug.linux.processes import can_mount, filled, node_folders, with_folders

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from devplug.k8s.objects import Object


@dataclass(frozen=True, slots=True)
class DriverSubject:
    """The judged driver: its command, and how it is to be started.

    In the words of the command and the values of the environment, `{root}` becomes the kubelet's folder, with
    `plugins_registry` and `plugins` in it, `{cdi}` the folder of CDI files, `{kubeconfig}` the file for the
    API server, `{node}` the node's name, `{pod}` the UID of the driver's pod, `{work}` an empty folder. The
    variables KUBELET_ROOT, CDI_ROOT, KUBECONFIG, NODE_NAME and POD_UID have the first five as well, and
    DEVPLUG_KUBELET_ROOT, DEVPLUG_PLUGIN_DIR and DEVPLUG_CDI_DIR lead drivers of devplug's SDK there.
    """

    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to that of the judge."""
    unplug: tuple[str, ...] = ()
    """A command that takes a device away; with the placeholders. Empty if there is none."""
    replug: tuple[str, ...] = ()
    """A command that brings it back."""


@dataclass(frozen=True, slots=True)
class DriverPlace:
    """Where one start of a driver finds everything."""

    root: Path
    cdi: Path
    work: Path
    kubeconfig: Path
    node_name: str
    pod_uid: str
    output_file: Path
    access: PodAccess = field(default_factory=PodAccess)
    """The in-cluster configuration of the driver's pod; without it, drivers have only the kubeconfig."""

    @property
    def registry(self) -> Path:
        """`plugins_registry`."""
        return self.root / "plugins_registry"

    @property
    def placeholders(self) -> Mapping[str, str]:
        """What the words of a subject's commands may have in them, and what it becomes."""
        return {
            "{root}": str(self.root),
            "{cdi}": str(self.cdi),
            "{work}": str(self.work),
            "{kubeconfig}": str(self.kubeconfig),
            "{node}": self.node_name,
            "{pod}": self.pod_uid,
        }


class Running(Protocol):
    """A driver that was started; the one who starts it ends it."""

    started_at: float
    """Monotonic time."""

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None as long as it runs."""

    def last_words(self) -> str:
        """Return the line that explains its end, or the last line that it printed."""

    async def wait(self, seconds: float) -> bool:
        """Wait for its end; returns whether it came in time."""

    async def stop(self, seconds: float) -> float | None:
        """Ask it to end; return how many seconds that took, None if it had to be killed. Safe to repeat."""

    async def kill(self) -> None:
        """End it without a chance to clean up."""


Launch: TypeAlias = "Callable[[DriverPlace], Awaitable[Running]]"
"""Starts the driver once more. Raises `PluginError` if it cannot be started."""


def program_of(subject: DriverSubject) -> Launch:
    """Return what starts the subject's command as a program."""

    async def launch(place: DriverPlace) -> Program:
        """Start it; as root with the judge's folders at the paths that nodes have, for the driver alone."""
        places = place.placeholders
        environment = {
            **os.environ,
            **place.access.variables,
            "PYTHONUNBUFFERED": "1",
            "NODE_NAME": place.node_name,
            "KUBECONFIG": str(place.kubeconfig),
            "POD_UID": place.pod_uid,
            "KUBELET_ROOT": str(place.root),
            "CDI_ROOT": str(place.cdi),
            "DEVPLUG_KUBELET_ROOT": str(place.root),
            "DEVPLUG_PLUGIN_DIR": str(place.root / "device-plugins"),
            "DEVPLUG_CDI_DIR": str(place.cdi),
            **{name: filled(value, places) for name, value in subject.environment.items()},
        }
        command = [filled(word, places) for word in subject.command]
        if can_mount():
            command = with_folders(command, {**node_folders(place.root, place.cdi), **place.access.folders})
        return await Program.spawned(command, environment, place.output_file)

    return launch


class CdiFolder:
    """The folder of CDI files, whose changes are noted as long as its `watched_cdi_folder` block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written_in_place: list[str] = []
        """Names that runtimes read, of files that were written under them instead of renamed to them."""

    def note(self, event: FileEvent) -> None:
        """Note one event."""
        name = Path(event.path).name
        if event.kind is EventKind.WRITTEN and is_spec_file(name):
            self.written_in_place.append(name)

    def files(self) -> dict[str, bytes]:
        """Return every file of the folder with its content."""
        found = {}
        for path in sorted(self.path.iterdir()):
            with suppress(OSError):
                found[path.name] = path.read_bytes()
        return found

    def defined(self) -> list[str]:
        """Return the fully qualified names that a runtime finds here."""
        return defined_names(read_by_runtimes(self.files()).values())

    def defining(self) -> dict[str, Object]:
        """Return the objects in the files that define devices, by the name of the file."""
        return {name: one for name, one in read_by_runtimes(self.files()).items() if defined_names([one])}


@asynccontextmanager
async def watched_cdi_folder(path: Path) -> AsyncIterator[CdiFolder]:
    """Watch the folder `path`, which exists."""
    folder = CdiFolder(path)
    async with shared_watcher() as watcher:
        with watcher.subscribe(lambda: None, folder.note) as subscription:
            subscription.arm([f"{path}/*"], writes_in=str(path))
            yield folder
