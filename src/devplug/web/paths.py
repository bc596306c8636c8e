"""Paths of Unix sockets: the kernel takes 107 bytes, and a detour leads to those that are longer."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["SOCKET_PATH_LIMIT_BYTES", "within_reach"]

SOCKET_PATH_LIMIT_BYTES: Final = 107
"""The longest that `bind` and `connect` take: `sun_path` holds 108 bytes with its end mark (unix(7))."""


@contextmanager
def within_reach(path: Path) -> Iterator[bytes]:
    """Yield what to bind or connect for the socket at `path`; good while the block lasts.

    A long path is reached through an open descriptor of its folder, by /proc/self/fd (proc(5)). Raises
    `OSError` if the folder cannot be opened.
    """
    name = os.fsencode(path)
    if len(name) <= SOCKET_PATH_LIMIT_BYTES:
        yield name
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield os.fsencode(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
