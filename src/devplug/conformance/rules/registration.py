"""What is right in a registration: its endpoint, its calls of Register over time, its socket's mode. Pure."""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.errors import RegistrationError, quoted
from devplug.kubelet.folder import KUBELET_SOCKET_NAME, dialled_path
from devplug.programs import DEFAULT_DIR
from devplug.wire.limits import SOCKET_PATH_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["endpoint_fault", "longest_overlap_seconds", "loose_bits"]

_OTHERS_WRITE: Final = 0o022


def endpoint_fault(endpoint: str) -> str | None:
    """Return what keeps `endpoint` from being the name of a socket in the plugin folder, or None.

    The kubelet checks nothing of it: it joins it to the folder, cleans the path (server.go) and parses that
    as a URL (client.go), so some faulty ones are dialled elsewhere, and some by luck where they should be.
    """
    if not endpoint:
        return "is empty, so the kubelet dials the folder"
    if endpoint in {".", ".."} or "/" in endpoint:
        return f"is {quoted(endpoint)}, which is a path and no file name"
    if endpoint == KUBELET_SOCKET_NAME:
        return f"is {quoted(endpoint)}, the kubelet's own socket"
    path = Path(DEFAULT_DIR, endpoint)
    try:
        dialled = dialled_path(path)
    except RegistrationError:
        return f"is {quoted(endpoint)}, which the kubelet cannot dial: it has to be good in a URL"
    if dialled != path:
        return f"is {quoted(endpoint)}, for which the kubelet dials {quoted(dialled.name)}: it reads a URL"
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_LIMIT_BYTES:
        return (
            f"makes a path of {length} bytes in {DEFAULT_DIR}, and a socket's has "
            f"{SOCKET_PATH_LIMIT_BYTES} at most"
        )
    return None


def longest_overlap_seconds(spans: Iterable[tuple[float, float]]) -> float:
    """Return for how long two of these were open at once, at most; 0 if they came one after the other."""
    overlaps = (
        min(one_end, other_end) - max(one_start, other_start)
        for (one_start, one_end), (other_start, other_end) in combinations(spans, 2)
    )
    return max((0.0, *overlaps))


def loose_bits(mode: int, umask: int) -> int:
    """Return the bits of a socket's mode that let others write, unless the umask that it was given let them.

    To connect to a socket is to write to it (unix(7)).
    """
    return mode & _OTHERS_WRITE & umask
