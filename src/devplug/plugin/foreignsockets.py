"""The sockets in a plugin folder that are not devplug's: where another plugin of a name may be."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.errors import one_line
from devplug.plugin.ownership import is_of_another_name
from devplug.status.values import ForeignSocket
from devplug.trust import peer_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["foreign_sockets"]

KUBELET_SOCKET: Final = "kubelet.sock"

LOOKED_AT: Final = 1_000
"""At how many files of the folder it looks at most: whoever makes more is not found by a longer list."""

TOLD: Final = 8


def foreign_sockets(folder: Path, resource_name: str, own: str) -> tuple[ForeignSocket, ...]:
    """Return the sockets that may be of another plugin of this name, the newest first; at most eight.

    Those that devplug has made for other names are left out, and so is `own`, the file name of ours. Each is
    connected to for a moment, which a server does not notice; nothing is sent.
    """
    found = sorted(_foreign(folder, resource_name, own), key=lambda one: (-one.made_at, one.name))
    return tuple(found[:TOLD])


def _foreign(folder: Path, resource_name: str, own: str) -> Iterator[ForeignSocket]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, LOOKED_AT)]
    except OSError:
        return
    for name in names:
        if name in {KUBELET_SOCKET, own} or is_of_another_name(name, resource_name):
            continue
        with suppress(OSError):
            status = (folder / name).lstat()
            if stat.S_ISSOCK(status.st_mode):
                listener = _listener(folder / name)
                yield ForeignSocket(
                    name=name,
                    is_live=listener is not None,
                    made_at=status.st_mtime,
                    process=listener or "",
                )


def _listener(path: Path) -> str | None:
    """Return who listens at a socket, "" if that cannot be seen from here; None if nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(str(path))
        except BlockingIOError:  # its queue is full, so there is one
            return ""
        except OSError:
            return None
        process = peer_of(probe).process
    if not process:  # it is in another container, whose processes have no numbers here
        return ""
    try:
        return f"{process} ({one_line(Path(f'/proc/{process}/comm').read_text())})"
    except (OSError, ValueError):
        return str(process)
