"""Serves a configuration on a machine made of files: `python -m tests.conformance.treedaemon FILE ROOT CDI`.

It is `devplug run` but for the host's root and the CDI folder, which nobody chooses in production.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from devplug.daemon.config.loader import load
from devplug.daemon.config_file import read_config_file
from devplug.daemon.service import serve_config
from devplug.daemon.sources.host import Host
from devplug.linux.signals import stop_signals
from devplug.logs import show_logs
from devplug.plugin.environment import pod_resources_at


async def main(file: Path, root: Path, cdi: Path) -> None:
    cdi.mkdir(exist_ok=True)
    config = load(read_config_file(file), str(file))
    socket = pod_resources_at(None)
    async with (
        stop_signals() as stopped,
        serve_config(config, pod_resources=socket, cdi_folder=cdi, host=Host(root)),
    ):
        await stopped.wait()


if __name__ == "__main__":
    show_logs()
    asyncio.run(main(*map(Path, sys.argv[1:4])))
