"""Where processes tell how they are: the folders and the names of their status sockets."""

from __future__ import annotations

from typing import Final

__all__ = ["REGISTRY_NAME", "STATUS_SOCKETS", "status_socket_name"]

REGISTRY_NAME: Final = "plugins_registry"
"""The folder, beside the plugin folder, in which a kubelet finds plugins by their sockets."""

STATUS_SOCKETS: Final = ".devplug/.status-*.sock"
"""Below the folder in which a process has its plugins' sockets, as a glob: each process has one of its own.
The plugin watcher passes over names that begin with a dot, and asks at every other socket below
`plugins_registry` (plugin_watcher.go)."""


def status_socket_name(process: int, token: str) -> str:
    """Return the file name of a process's status socket; `token` keeps a successor with its ID apart."""
    return f".status-{process}-{token}.sock"
