"""What the demo is set on: this machine's devices, and the configuration that serves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from devplug.daemon.sources.path import PathSource

if TYPE_CHECKING:
    from devplug.cli.hotplug import HotPlug
    from devplug.daemon.grammar.config import Config

__all__ = ["demo_config", "devices_here", "shared_here"]

_SHARED: Final = (("fuse", "/dev/fuse"), ("kvm", "/dev/kvm"), ("tun", "/dev/net/tun"))
_REPLICAS: Final = 10


def shared_here() -> list[tuple[str, str]]:
    """Return kind and path of the devices on this machine that many may use at once."""
    return [(kind, path) for kind, path in _SHARED if Path(path).exists()]


def devices_here(config: Config) -> list[dict[str, Any]]:
    """Return a row for each device that the configuration finds on this machine."""
    return [
        {
            "resource": resource.name,
            "device": found.name,
            "node": found.nodes[0].host_path,
            "numa_node": found.numa_node,
            "health": "Healthy",
            "replicas": resource.share.replicas,
        }
        for resource in config.resources
        for found in PathSource(resource.name, resource.discover.path).look()
    ]


def demo_config(present: list[tuple[str, str]], plug: HotPlug, firmware: Path) -> str:
    """Return the configuration of the demo: what is shared, and the kind of device that comes and goes."""
    shared = "".join(
        f"""
  - name: example.com/{kind}
    discover: {{path: {path}}}
    share: {{replicas: {_REPLICAS}, maxPerContainer: 1}}"""
        for kind, path in present
    )
    host_path = json.dumps(str(firmware).replace("{", "{{").replace("}", "}}"), ensure_ascii=False)
    return f"""version: 1
resources:{shared}
  - name: example.com/{plug.kind}
    discover: {{path: "{plug.glob}"}}
    expose:
      containerPath: "/dev/{plug.kind}{{index}}"
      env: {{DEVICES: "{{containerPaths}}"}}
      mounts: [{{hostPath: {host_path}, containerPath: /lib/firmware/demo, readOnly: true}}]
    whenUnplugged: {{keepUnhealthyFor: 0s}}
"""
