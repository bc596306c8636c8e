"""Files of others in a plugin folder: sockets that answer, sockets of the dead, and what is no socket."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devplug.plugin.resource_lock import new_socket_name

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class Strangers:
    """Files in a plugin's folder that are not its own; lives until `end`. A kubelet's start ends sockets."""

    folder: Path
    _listening: list[socket.socket] = field(default_factory=list)
    _made: dict[Path, tuple[int, int, int]] = field(default_factory=dict)

    def settle(self, resource_name: str, others: str = "example.org/other") -> None:
        """Put one file of each kind there, some of them under names as this resource's sockets have."""
        self.live("nvidia-gpu.sock")
        self.dead(".hidden.sock")
        self.dead("vendor.sock")
        # Another resource of ours, whose process has died: its own successor cleans that up.
        self.dead(new_socket_name(others))
        # Someone who answers is nobody's remains, whatever the name.
        self.live(new_socket_name(resource_name))
        self.busy(new_socket_name(resource_name))
        for name in ("README", new_socket_name(resource_name)):
            path = self.folder / name
            path.write_text("mine\n")
            self._note(path)
        link = self.folder / new_socket_name(resource_name)
        link.symlink_to("vendor.sock")
        self._note(link)

    def live(self, name: str) -> Path:
        """Make a socket that takes connections."""
        path, listener = self._bound(name)
        listener.listen(64)
        self._listening.append(listener)
        self._note(path)
        return path

    def busy(self, name: str) -> Path:
        """Make a socket that listens and whose queue is full."""
        path, listener = self._bound(name)
        listener.listen(0)
        self._listening.append(listener)
        self._note(path)
        with suppress(BlockingIOError):
            while True:
                waiting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._listening.append(waiting)
                waiting.settimeout(0)
                waiting.connect(str(path))
        return path

    def dead(self, name: str) -> Path:
        """Make a socket whose owner is gone."""
        path, listener = self._bound(name)
        listener.close()
        self._note(path)
        return path

    def missing(self) -> list[str]:
        """Return the names of the files that are gone, or are others now."""
        return sorted(path.name for path, identity in self._made.items() if _identity(path) != identity)

    def names(self) -> frozenset[str]:
        """Return the names of all of them."""
        return frozenset(path.name for path in self._made)

    def end(self) -> None:
        """Remove them all. Safe to repeat."""
        for listener in self._listening:
            listener.close()
        self._listening.clear()
        for path in self._made:
            path.unlink(missing_ok=True)
        self._made.clear()

    def _bound(self, name: str) -> tuple[Path, socket.socket]:
        path = self.folder / name
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        return path, listener

    def _note(self, path: Path) -> None:
        identity = _identity(path)
        assert identity is not None
        self._made[path] = identity


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
