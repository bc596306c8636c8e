"""A death of this process at one of its durable steps: what Python calls the system with can be counted.

The interpreter tells of each call that opens, names, locks or removes a file before it makes it (PEP 578).
A process that dies there has done all that came before, and nothing of what comes after. Such a hook cannot
be taken away again, so it belongs into a process of its own.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS: Final = frozenset(
    {"open", "os.chmod", "os.mkdir", "os.remove", "os.rename", "fcntl.flock", "subprocess.Popen"}
)
"""The events that are steps; of those with a path, only below the folders that are followed."""

_OF_DESCRIPTORS: Final = frozenset({"os.chmod", "fcntl.flock"})


def follow_steps(folders: tuple[str, ...], reached: Callable[[], object]) -> None:
    """Call `reached` before each step below these folders, in any thread, from now on and for ever."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in STEPS:
            return
        match arguments[0]:
            case int():
                is_step = event in _OF_DESCRIPTORS
            case str() | os.PathLike() as path:
                is_step = event == "subprocess.Popen" or os.fspath(path).startswith(folders)
            case _:
                is_step = False
        if is_step:
            reached()

    sys.addaudithook(hook)


def die_at(step: int, folders: tuple[str, ...]) -> None:
    """Kill this process before the step of this number from now on, the first being 0."""
    left = step

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    follow_steps(folders, count)
