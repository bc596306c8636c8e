"""Many `devplug run`, each in a process of its own: forked, as 200 starts of Python take two minutes.

`python -m torture.daemon_fleet ROOT NAME…` serves each of these resources, from a file of its own, until
SIGTERM; then it prints with which codes they have ended. All of them end with it, however it ends.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from devplug.cli.run import run
from torture.daemons import config_text

# What each would load by itself after the fork.
import devplug.daemon.sources.kinds  # isort: skip # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def main(root: Path, names: Sequence[str]) -> None:
    """Run one daemon for each of these resources until SIGTERM."""
    # Nothing is collected that was there before: or each daemon would have its own copy of all pages.
    gc.freeze()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    children = [_forked(root, name) for name in names]
    signal.sigwait({signal.SIGTERM})
    for child in children:
        os.kill(child, signal.SIGTERM)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps(codes), flush=True)


def _forked(root: Path, name: str) -> int:
    """Fork one daemon, and return its process ID."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    code = 3
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(code)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        word = name.rpartition("/")[2]
        file = root / f"{word}.yaml"
        file.write_text(config_text(f"{{name: {name}, discover: {{static: {{ids: [a0]}}}}}}"))
        log = os.open(root / f"{word}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for output in (sys.stdout, sys.stderr):
            os.dup2(log, output.fileno())
        code = run(str(file), root / "device-plugins", root / "pod-resources" / "kubelet.sock")
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
