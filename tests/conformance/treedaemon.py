"""Serves a configuration on a machine made of files: `python -m tests.conformance.treedaemon FILE ROOT CDI`.

It is `devplug run` but for the host's root and the CDI folder, which nobody chooses in production.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from devplug.daemon.cdi.spec_files import CdiFolder
from devplug.daemon.config.loader import load
from devplug.daemon.config_reader import read_config_file
from devplug.daemon.context import DaemonContext
from devplug.daemon.daemon import Daemon
from devplug.daemon.sources.host import Host
from devplug.linux.signals import stop_signals
from devplug.logs import show_logs
from devplug.plugin.resource_lock import LOCK_FOLDER
from devplug.plugin.serving import serve


async def main(file: Path, root: Path, cdi: Path) -> None:
    cdi.mkdir(exist_ok=True)
    config = load(read_config_file(file), str(file))
    async with stop_signals() as stopped, serve() as serving, asyncio.TaskGroup() as group:
        machine = DaemonContext(Host(root), cdi=CdiFolder(cdi), memory=serving.folder / LOCK_FOLDER)
        daemon = Daemon(serving, machine, group)
        try:
            await daemon.apply(config)
            await stopped.wait()
        finally:
            await serving.close()
            daemon.close()


if __name__ == "__main__":
    show_logs()
    asyncio.run(main(*map(Path, sys.argv[1:4])))
