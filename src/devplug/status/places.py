"""Where processes tell how they are: the names of their status sockets."""

from __future__ import annotations

from typing import Final

__all__ = ["STATUS_SOCKETS", "status_socket_name"]

STATUS_SOCKETS: Final = ".devplug/status-*.sock"
"""Below the plugin folder, as a glob: each process of ours has one of its own."""


def status_socket_name(process: int, token: str) -> str:
    """Return the file name of a process's status socket; `token` keeps a successor with its ID apart."""
    return f"status-{process}-{token}.sock"
