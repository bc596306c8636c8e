"""The folder in which plugins are found by their sockets: what is watched there, and what is in it."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from devplug.wire.sockets import socket_identity

if TYPE_CHECKING:
    from devplug.watching import Subscription

__all__ = ["RegistryFolder"]

logger = logging.getLogger(__name__)


class RegistryFolder:
    """`plugins_registry` and the folders below it, as far as they have been seen. Lives from `open` on.

    A file whose name begins with a dot is no plugin's socket, and neither is anything but a socket. A folder
    with a dot is passed over when it appears, and watched when it was there before, as in the real kubelet
    (pluginwatcher/plugin_watcher.go).
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.sockets: dict[str, tuple[int, int, int] | None] = {}
        """The sockets that were seen and not yet lost, with what told each file from another."""
        self._folders: dict[str, None] = {}
        self._subscription: Subscription | None = None

    def make(self) -> None:
        """Make the folder if it is missing; raises `OSError`."""
        Path(self.path).mkdir(mode=0o755, parents=True, exist_ok=True)

    def open(self, subscription: Subscription) -> list[str]:
        """Watch it all by `subscription` from now on, and return the sockets that are there."""
        self._subscription = subscription
        return self._take_in(self.path)

    def look_again(self) -> list[str]:
        """Take everything in anew, and return the sockets that are there."""
        self.sockets.clear()
        self._folders.clear()
        return self._take_in(self.path)

    def appeared(self, path: str) -> list[str]:
        """Return the sockets that came with a new file: itself, or those below it."""
        if _is_hidden(path):
            return []
        try:
            mode = Path(path).stat().st_mode
        except OSError as error:
            logger.warning("cannot look at a file", extra={"path": path, "reason": error.strerror})
            return []
        if stat.S_ISDIR(mode):
            return self._take_in(path)
        if not stat.S_ISSOCK(mode):
            return []
        self.sockets[path] = socket_identity(Path(path))
        return [path]

    def gone(self, path: str) -> None:
        """Forget a file, and watch a folder no longer, with those below it."""
        self.sockets.pop(path, None)
        lost = [folder for folder in self._folders if folder == path or folder.startswith(f"{path}/")]
        for folder in lost:
            del self._folders[folder]
        if lost:
            self._arm()

    def _take_in(self, folder: str) -> list[str]:
        """Watch a folder and those below it, each before it is read, and return the sockets in them."""
        found: list[str] = []
        level = [folder]
        while level:
            self._folders.update(dict.fromkeys(level))
            self._arm()
            below: list[str] = []
            for each in level:
                for entry in _entries(each):
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
                    elif not _is_hidden(entry.path) and Path(entry.path).is_socket():
                        self.sockets[entry.path] = socket_identity(Path(entry.path))
                        found.append(entry.path)
            level = below
        return found

    def _arm(self) -> None:
        assert self._subscription is not None
        self._subscription.arm_folders(self._folders)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """Return what is in a folder. In a link to one nothing is found, as filepath.Walk in Go follows none."""
    path = Path(folder)
    if path.is_symlink():
        return []
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        logger.warning("cannot read a folder", extra={"path": folder, "reason": error.strerror})
        return []


def _is_hidden(path: str) -> bool:
    return Path(path).name.startswith(".")
