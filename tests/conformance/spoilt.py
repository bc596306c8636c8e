"""Parts of answers as a wrong plugin sends them: made without the rules of `devplug.devices`."""

from __future__ import annotations

from pathlib import Path

from devplug.devices import ContainerResponse, DeviceNode, Mount


def node(host_path: str, container_path: str = "", permissions: str = "rw") -> DeviceNode:
    return DeviceNode.as_received(
        host_path=host_path, container_path=container_path or host_path, permissions=permissions
    )


def mount(host_path: Path | str, container_path: str) -> Mount:
    return Mount.as_received(host_path=str(host_path), container_path=container_path, read_only=True)


def changed(response: ContainerResponse, **fields: object) -> ContainerResponse:
    """Return the response with some fields replaced."""
    kept = {name: getattr(response, name) for name in ContainerResponse.__dataclass_fields__}
    return ContainerResponse.as_received(**{**kept, **fields})
