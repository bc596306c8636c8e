"""The machine that a command is started on: the socket of its kubelet, and its NUMA nodes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from devplug.daemon.sources.host import Host

SANDBOX_DIR_VARIABLE: Final = "DEVPLUG_SANDBOX_DIR"
"""The variable that names the folder of a sandbox; set for each program in one."""


def machine_numa_nodes(host: Host | None = None) -> tuple[int, ...]:
    """Return the NUMA nodes that the kubelet here knows; none in a sandbox, whose nodes have their own."""
    from devplug.daemon.sources.hardware import numa_nodes
    from devplug.daemon.sources.host import Host

    return () if os.environ.get(SANDBOX_DIR_VARIABLE) else numa_nodes(host or Host())


def pod_resources_socket(kubelet_root: str) -> Path:
    """Return the kubelet's socket for monitors, absolute."""
    return Path(kubelet_root, "pod-resources", "kubelet.sock").absolute()
