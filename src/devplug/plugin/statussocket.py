"""The status socket of a process, beside its plugins' sockets: made when their folder is, and anew if lost.

Only root and the process's own user may read; nothing can be changed over it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from devplug.errors import DevplugError
from devplug.plugin.ownership import LOCK_FOLDER
from devplug.status.places import STATUS_SOCKETS, status_socket_name
from devplug.watching import until_absent, until_present

if TYPE_CHECKING:
    from pathlib import Path

    from devplug.plugin.serving import Serving
    from devplug.web.values import Handler

__all__ = ["serve_status"]

logger = logging.getLogger(__name__)

FIRST_SECONDS: Final = 2.0
"""How long registrations go first: nobody looks at a process that has just begun, and a kubelet waits."""

RETRY_SECONDS: Final = 10.0


async def serve_status(serving: Serving, handle: Handler) -> None:
    """Answer at a status socket below the folder of the plugins' sockets, whenever that exists.

    It lasts until cancelled. Without the socket everything works but `devplug status`, so what keeps it from
    being made is told and no more.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_SECONDS):
            await serving.wait_registered()
    told = ""
    while True:
        await until_present(serving.folder)
        try:
            await _serve_until_lost(serving.folder / LOCK_FOLDER, handle)
            told = ""
        except (OSError, DevplugError) as error:
            if str(error) != told:
                told = str(error)
                logger.warning("no status socket; devplug status cannot ask here", extra={"reason": told})
            await asyncio.sleep(RETRY_SECONDS)


async def _serve_until_lost(folder: Path, handle: Handler) -> None:
    """Serve at a new socket until that is gone.

    Raises `ListenError`, and `OSError` where there are no descriptors left, not even for an import.
    """
    # After the first registration: it is not needed for that, and takes as long as a third of it.
    from devplug.web.addresses import UnixAddress
    from devplug.web.server import serving as listening

    path = folder / status_socket_name(os.getpid(), secrets.token_hex(2))
    try:
        _prepare(folder)  # on the loop: a list of one folder, beside our locks; no probe of a socket waits
        async with listening(UnixAddress(str(path)), handle, name="status"):
            await until_absent(path)
    finally:
        _leave(folder)


def _prepare(folder: Path) -> None:
    """Make the folder, and remove the status sockets that dead processes left behind there."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in folder.parent.glob(STATUS_SOCKETS):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, suppress(OSError):
            probe.settimeout(0)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()


def _leave(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()  # only succeeds for the last owner
