"""What one source sees, told as lines: run in a machine that `umockdev_bed` makes."""

from __future__ import annotations

import asyncio
import ctypes
import json
import signal
import sys

from devplug.daemon.sources.host import Host
from devplug.daemon.sources.kinds import source_of
from tests.daemon.hosts import resource

PR_SET_PDEATHSIG = 1
"""linux/prctl.h"""


async def tell_looks(rest: str) -> None:
    """Write one line per look: what is there, as JSON."""
    async for found in source_of(resource(rest), Host()).looks():
        devices = [
            {
                "id": one.name,
                "numa_node": one.numa_node,
                "nodes": [node.host_path for node in one.nodes],
                "facts": dict(one.facts),
            }
            for one in found
        ]
        sys.stdout.write(json.dumps(devices) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    # umockdev aborts the process that misuses it, and then nobody else ends this one.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    asyncio.run(tell_looks(sys.argv[1]))
