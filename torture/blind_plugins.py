"""Plugins whose process gets no file events.

`python -m torture.blind_plugins instances|watches --seed N --rounds N` is a process of its own,
because the limits are those of a user namespace, which has to be made before there are threads. It prints one
JSON line: the seconds until each change was seen, and what was not.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_CLONE_NEWUSER: Final = 0x10000000
_LIMITS: Final = {
    "instances": Path("/proc/sys/user/max_inotify_instances"),
    "watches": Path("/proc/sys/user/max_inotify_watches"),
}
CANNOT: Final = 77
"""Exit code where there are no user namespaces."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Lose all events, then play; return 0 if that was possible."""
    parser = argparse.ArgumentParser(prog="python -m torture.blind_plugins")
    parser.add_argument("means", choices=_LIMITS)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    chosen = parser.parse_args(arguments)
    try:
        _limit(_LIMITS[chosen.means])
    except OSError as error:
        print(error, file=sys.stderr)
        return CANNOT
    logging.disable(logging.CRITICAL)
    # Only now: gRPC has threads as soon as it is imported.
    from torture.cases.lost_events import unseen_rounds

    with tempfile.TemporaryDirectory(prefix="tt-", dir="/tmp") as folder:
        times, broken = asyncio.run(unseen_rounds(Path(folder), chosen.seed, chosen.rounds))
    print(json.dumps({"times": times, "broken": broken}))
    return 0


def _limit(limit: Path) -> None:
    """Enter a user namespace of our own, and allow nothing of one kind there. Raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(_CLONE_NEWUSER):
        code = ctypes.get_errno()
        raise OSError(code, f"no user namespace: {os.strerror(code)}")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    limit.write_text("0")
    descriptor = libc.inotify_init1(os.O_CLOEXEC)
    if descriptor >= 0:
        watch = libc.inotify_add_watch(descriptor, b"/tmp", 0x100)
        os.close(descriptor)
        if watch >= 0:
            raise OSError(f"{limit} has no effect")


if __name__ == "__main__":
    sys.exit(main())
