"""devplug: Kubernetes device plugins, end to end. These names are all that a plugin's author needs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devplug.attributes import Partition, Version
    from devplug.devices import ContainerResponse, Device, DeviceNode, Health, Mount, stable_id
    from devplug.errors import AllocationError, DevplugError, PluginError, UnhealthyDeviceError
    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.discovery import DeviceFeed, watch_paths
    from devplug.plugin.serving import Serving, run, serve

__all__ = [
    "AllocationError",
    "ContainerResponse",
    "Device",
    "DeviceFeed",
    "DeviceNode",
    "DevicePlugin",
    "DevplugError",
    "Health",
    "Mount",
    "Partition",
    "PluginError",
    "Serving",
    "UnhealthyDeviceError",
    "Version",
    "run",
    "serve",
    "stable_id",
    "watch_paths",
]

__version__ = "0.1.0"

_HOMES = {
    "attributes": ("Partition", "Version"),
    "devices": ("ContainerResponse", "Device", "DeviceNode", "Health", "Mount", "stable_id"),
    "errors": ("AllocationError", "DevplugError", "PluginError", "UnhealthyDeviceError"),
    "plugin.contract": ("DevicePlugin",),
    "plugin.discovery": ("DeviceFeed", "watch_paths"),
    "plugin.serving": ("Serving", "run", "serve"),
}
_HOME_OF = {name: f"devplug.{module}" for module, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # a type checker would take any misspelt name for granted

    def __getattr__(name: str) -> object:
        """Import a public name at its first use (PEP 562), so that `import devplug` loads no gRPC."""
        if name not in _HOME_OF:
            raise AttributeError(f"module 'devplug' has no attribute {name!r}")
        return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    """Return the public names; they exist before their first use."""
    return sorted(__all__)
