"""The judged plugin's process: its start with our kubelet's folder, its end, its output and its figures."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.conformance.figures import Figures, Scheduling
from devplug.errors import PluginError
from devplug.kubelet_dir import (
    CDI_DIRS,
    KUBELET_PLUGIN_DIR,
    KUBELET_ROOT,
    KUBELET_ROOT_VARIABLE,
    POD_RESOURCES_NAME,
)
from devplug.linux.notifier import within
from devplug.linux.processes import (
    SIGKILL,
    SIGTERM,
    filled,
    last_line,
    process_rows,
    program_environment,
    signal_group,
    signal_process,
    spawn,
    with_folders,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping, Sequence

_KILLED_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Subject:
    """The judged plugin: its command, and how it is to be started."""

    command: tuple[str, ...] = ()
    """In it, `{dir}` becomes the plugin folder and `{work}` an empty folder of each start's own."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to that of the judge; the placeholders work in the values too."""
    resource_name: str | None = None
    """The resource to judge, for a plugin that registers several; else the first that comes."""
    unplug: tuple[str, ...] = ()
    """A command that takes a device away; with the placeholders. Empty if there is none."""
    replug: tuple[str, ...] = ()
    """A command that brings it back."""
    default_dir: bool = False
    """Whether to mount our folders in `KUBELET_ROOT`, in a mount namespace that only the plugin sees."""
    cdi_dirs: tuple[str, ...] = CDI_DIRS
    """Where the container runtime looks for CDI spec files; with `{work}`."""


@dataclass(eq=False, slots=True)
class Program:
    """A started plugin; the one who starts it ends it, with `stop`."""

    child: asyncio.subprocess.Process
    started_at: float
    """Monotonic time."""
    output_file: Path

    @classmethod
    async def start(cls, subject: Subject, folder: Path, work: Path, output_file: Path) -> Program:
        """Start the command where `folder` is its plugin folder. Raises `PluginError` if it cannot be."""
        places = {"{dir}": str(folder), "{work}": str(work)}
        command = [filled(word, places) for word in subject.command]
        if subject.default_dir:
            root = folder.parent
            folders = {KUBELET_PLUGIN_DIR: folder}
            if (pod_resources := root / POD_RESOURCES_NAME).is_dir():
                folders[f"{KUBELET_ROOT}/{POD_RESOURCES_NAME}"] = pod_resources
            command = with_folders(command, folders)
        variables = {
            KUBELET_ROOT_VARIABLE: str(folder.parent),
            **{name: filled(value, places) for name, value in subject.environment.items()},
        }
        return await cls.spawned(command, program_environment(folder, variables), output_file)

    @classmethod
    async def spawned(
        cls, command: Sequence[str], environment: Mapping[str, str], output_file: Path
    ) -> Program:
        """Start a command in this environment. Raises `PluginError` if it cannot be."""
        with output_file.open("ab") as output:
            started_at = time.monotonic()
            child = await spawn(command, output.fileno(), environment)
        return cls(child, started_at, output_file)

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None as long as it runs."""
        return self.child.returncode

    @property
    def pid(self) -> int:
        """The process ID; that of the group too."""
        return self.child.pid

    def output(self) -> str:
        """Return what it has printed so far."""
        return self.output_file.read_text(errors="replace")

    def last_words(self) -> str:
        """Return the line that explains its end, or the last line that it printed."""
        return last_line(self.output())

    def signal(self, number: int) -> None:
        """Send a signal to the process alone, as a container runtime does, and not to its children."""
        signal_process(self.child, number)

    async def wait(self, seconds: float) -> bool:
        """Wait for its end; returns whether it came in time."""
        await within(seconds, self.child.wait())
        return self.child.returncode is not None

    async def stop(self, seconds: float) -> float | None:
        """Ask it to end; return how many seconds that took, None if it had to be killed. Safe to repeat.

        Nothing that it started is left behind.
        """
        begun = time.monotonic()
        self.signal(SIGTERM)
        try:
            in_time = await self.wait(seconds)
            took_seconds = time.monotonic() - begun
        finally:
            self._kill_all()
        await self.wait(_KILLED_SECONDS)
        return took_seconds if in_time else None

    async def kill(self) -> None:
        """End it, with all that it has started, without a chance to clean up."""
        self._kill_all()
        await self.wait(_KILLED_SECONDS)

    def _kill_all(self) -> None:
        signal_group(self.pid, SIGKILL)

    def pids(self) -> Sequence[int]:
        """Return the processes that it consists of."""
        return [pid for pid, _ in process_rows(self.pid)]

    def figures(self) -> Figures:
        """Return what it takes now. Raises `PluginError` if it has ended."""
        rows = list(process_rows(self.pid))
        if not rows:
            raise PluginError(f"the plugin is gone: {self.last_words()}")
        ticks = os.sysconf("SC_CLK_TCK")
        page = os.sysconf("SC_PAGE_SIZE")
        # Fields of proc(5) stat, counted from the third on: utime, stime, num_threads, rss.
        return Figures(
            sum(int(row[21]) for _, row in rows) * page,
            sum(int(row[17]) for _, row in rows),
            sum(_descriptors(pid) for pid, _ in rows),
            sum(int(row[11]) + int(row[12]) for _, row in rows) / ticks,
            scheduling_of(pid for pid, _ in rows),
        )


def _descriptors(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return 0


def scheduling_of(pids: Iterable[int]) -> Scheduling:
    """Return that of the threads that these processes have now."""
    threads = {}
    for pid in pids:
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                ran, waited, _ = (task / "schedstat").read_text().split()
                threads[int(task.name)] = (int(ran) / 1e9, int(waited) / 1e9)
    return Scheduling(threads)
