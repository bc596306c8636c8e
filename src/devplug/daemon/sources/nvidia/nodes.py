"""The device nodes of a GPU or MIG instance: its own, those of its capabilities, and the driver's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from devplug.daemon.sources.host import NotADeviceNodeError

if TYPE_CHECKING:
    from devplug.daemon.sources.found import FoundNode
    from devplug.daemon.sources.host import Host
    from devplug.daemon.sources.nvidia.gpus import Gpu, MigInstance

__all__ = ["own_nodes", "shared_nodes"]

DRIVER_NODES: Final = (
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
)
"""What every container with a GPU gets, as far as it exists: the control node, memory that CPU and GPU share,
its profiler, and display modes."""


def shared_nodes(host: Host) -> tuple[FoundNode, ...]:
    """Return the nodes of the driver itself."""
    nodes = (_node(host, path, is_shared=True) for path in DRIVER_NODES)
    return tuple(node for node in nodes if node is not None)


def own_nodes(host: Host, gpu: Gpu, instance: MigInstance | None) -> tuple[tuple[FoundNode, ...], str | None]:
    """Return the nodes of a GPU or of one of its MIG instances, and what is wrong with them, or None.

    A MIG device is reached through the GPU's node, the one for its GPU instance and the one for its compute
    instance ("Device Nodes and Capabilities" in NVIDIA's MIG user guide). Only the last is its alone.
    """
    if gpu.minor is None:
        return (), "the driver names no device node for it"
    paths = {f"/dev/nvidia{gpu.minor}": instance is not None}
    if instance is not None:
        folder = f"/proc/driver/nvidia/capabilities/gpu{gpu.minor}/mig/gi{instance.gpu_instance}"
        of_compute_instance = f"{folder}/ci{instance.compute_instance}/access"
        for access in (f"{folder}/access", of_compute_instance):
            minor = _capability_minor(host, access)
            if minor is None:
                return (), f"{access} names no device node"
            paths[f"/dev/nvidia-caps/nvidia-cap{minor}"] = access != of_compute_instance
    nodes = {path: _node(host, path, is_shared=is_shared) for path, is_shared in paths.items()}
    missing = next((path for path, node in nodes.items() if node is None), None)
    fault = f"{missing} is missing; nvidia-modprobe makes it" if missing else None
    return tuple(node for node in nodes.values() if node is not None), fault


def _node(host: Host, path: str, *, is_shared: bool) -> FoundNode | None:
    try:
        node = host.node(path)
    except NotADeviceNodeError:
        return None
    return replace(node, is_shared=is_shared) if node is not None else None


def _capability_minor(host: Host, access: str) -> int | None:
    """Return the minor of the node that grants a capability, from the file that the driver has for it."""
    try:
        with open(host.inside(access), encoding="ascii") as file:  # noqa: PTH123
            lines = [line.partition(":") for line in file]
    except (OSError, UnicodeDecodeError):
        return None
    minor = next((value.strip() for key, _, value in lines if key == "DeviceFileMinor"), "")
    return int(minor) if minor.isdigit() else None
