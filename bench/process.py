"""A plugin's process as the system sees it: start, stop, memory, processor time."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.kubelet import MissingError
from devplug.errors import PluginError
from devplug.programs import SIGKILL, SIGTERM, last_line, signal_group, spawn, stat_fields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

STOP_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Stopped:
    """How a process went after SIGTERM."""

    seconds: float
    exit_code: int | None
    """None if it had to be killed."""


@dataclass(slots=True)
class Process:
    """A running plugin; lives as long as its `running` block, at most."""

    child: asyncio.subprocess.Process
    started_at: float
    output: Path

    def memory_bytes(self) -> tuple[int, int]:
        """Return what is resident, and its share where pages are shared (RSS, PSS)."""
        try:
            rollup = Path(f"/proc/{self.child.pid}/smaps_rollup").read_text().splitlines()
        except OSError as error:
            raise self._gone() from error
        sizes = {line.partition(":")[0]: line.split()[1] for line in rollup if line.endswith(" kB")}
        return int(sizes["Rss"]) * 1024, int(sizes["Pss"]) * 1024

    def threads(self) -> int:
        """Return the number of its threads."""
        return int(self._stat()[17])

    def processor_seconds(self) -> float:
        """Return the time that all its threads have had, in user and kernel mode."""
        user, system = self._stat()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def last_words(self) -> str:
        """Return the last line that it printed."""
        return last_line(self.output.read_text(errors="replace"))

    async def stop(self) -> Stopped:
        """Send SIGTERM and wait for the end; after 15 s kill it."""
        asked = time.monotonic()
        if self.child.returncode is None:
            self.child.send_signal(SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                code = await self.child.wait()
        except TimeoutError:
            signal_group(self.child.pid, SIGKILL)
            await self.child.wait()
            return Stopped(STOP_SECONDS, None)
        return Stopped(time.monotonic() - asked, code)

    def _stat(self) -> list[str]:
        try:
            return stat_fields(self.child.pid)
        except OSError as error:
            raise self._gone() from error

    def _gone(self) -> MissingError:
        return MissingError(f"the plugin is gone: {self.last_words()}")


@asynccontextmanager
async def running(command: Sequence[str], output: Path) -> AsyncIterator[Process]:
    """Run `command`, its output in a file; it is stopped when the block is left."""
    with output.open("wb") as log:
        started_at = time.monotonic()
        try:
            child = await spawn(command, log.fileno())
        except PluginError as error:
            raise MissingError(str(error)) from error
    process = Process(child, started_at, output)
    try:
        yield process
    finally:
        await process.stop()
        signal_group(child.pid, SIGKILL)  # what it has started may not run into the next measurement
