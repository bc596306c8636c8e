"""A machine made of files: device nodes below a root folder of our own, and resources that find them."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.daemon.grammar.loading import load
from devplug.daemon.sources.host import Host

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from devplug.daemon.configured import ConfiguredPlugin
    from devplug.daemon.grammar.config import Resource
    from torture.catalogue import Trial

__all__ = ["MAJOR", "Hardware", "discovered", "may_make_nodes", "resource_of"]

MAJOR: Final = 240
"""A major for local use (devices.txt): nothing answers, and nothing opens it here."""


def may_make_nodes(trial: Trial) -> bool:
    """Whether this process may make device nodes where the case plays; told in its figures if not."""
    with tempfile.TemporaryDirectory(dir=trial.folder) as folder:
        try:
            os.mknod(Path(folder, "node"), 0o600 | stat.S_IFCHR, os.makedev(MAJOR, 0))
        except OSError as error:
            trial.figure("left out", f"no device node can be made here: {error.strerror}")
            return False
    return True


def resource_of(rest: str, name: str = "example.com/a") -> Resource:
    """Return a resource of a configuration with these keys, written between braces."""
    return load(f"version: 1\nresources:\n- {{name: {name}, {rest}}}\n", "case.yaml").resources[0]


@dataclass(frozen=True, slots=True)
class Hardware:
    """The device nodes below a root folder. Paths are those of the host: `/dev/serial/by-id/x`."""

    root: Path

    @property
    def host(self) -> Host:
        """Return the machine as the daemon sees it."""
        return Host(self.root)

    def at(self, path: str) -> Path:
        """Return where a path of the host is for this process."""
        return Path(f"{self.root}{path}")

    def node(self, path: str, minor: int, *, is_block: bool = False) -> None:
        """Make a device node, and the folders on its way."""
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(place, 0o600 | (stat.S_IFBLK if is_block else stat.S_IFCHR), os.makedev(MAJOR, minor))

    def link(self, path: str, target: str) -> None:
        """Make a link, and the folders on its way."""
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def remove(self, *paths: str) -> None:
        """Remove what is at these paths."""
        for path in paths:
            self.at(path).unlink()

    def minor(self, path: str) -> int | None:
        """Return the minor of the character device that a path leads to now; None if it is none."""
        try:
            found = self.at(path).stat()
        except OSError:
            return None
        return os.minor(found.st_rdev) if stat.S_ISCHR(found.st_mode) else None


@asynccontextmanager
async def discovered(plugin: ConfiguredPlugin) -> AsyncIterator[None]:
    """Have a plugin know its devices for a block."""
    ready = asyncio.Event()

    async def follow() -> None:
        async for _ in plugin.devices():
            ready.set()

    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow())
        await ready.wait()
        yield
        following.cancel()
