"""Exhausted resources of the process or the machine: descriptors, threads, memory, watches, disk space.

Whoever meets one keeps what it has, logs it once, and tries again: no event signals that there is room again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from devplug.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
"""The wait before the next try."""

SILENCE_SECONDS: Final = 60.0
"""The shortest time between two lines about one shortage."""

# ── errors ──

_ERRNOS: Final = frozenset(
    {
        errno.EMFILE,  # descriptors of the process
        errno.ENFILE,  # descriptors of the machine
        errno.ENOMEM,
        errno.ENOBUFS,  # memory for sockets
        errno.ENOSPC,  # disk space, inotify watches, epoll watches
        errno.EDQUOT,
        errno.EAGAIN,  # processes, by fork(2)
    }
)


def is_exhausted(error: BaseException) -> bool:
    """Whether an error, its direct cause, or each error of a group reports an exhausted resource."""
    if _is_exhausted(error):
        return True
    return error.__cause__ is not None and is_exhausted(error.__cause__)


def _is_exhausted(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_exhausted, error.exceptions))
    if isinstance(error, OSError):
        return error.errno in _ERRNOS
    if isinstance(error, ImportError):  # of a shared object, which dlopen(3) could not open or map
        return any(os.strerror(number) in str(error) for number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM))
    # CPython has no class of its own for pthread_create(3) that fails.
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "start new thread" in str(error)
    )


def reason_of(error: BaseException) -> str:
    """Return the words for the first error that is not a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


class Shortage:
    """A warning about an exhausted resource, logged at most once a minute, whichever part reports it."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._paces: WeakKeyDictionary[asyncio.AbstractEventLoop, Pace] = WeakKeyDictionary()
        self._held_back = 0

    def report(self, error: BaseException, **facts: object) -> None:
        """Log the warning, or count it for the next one. Call it on the loop."""
        loop = asyncio.get_running_loop()
        pace = self._paces.setdefault(loop, Pace(1 / SILENCE_SECONDS, 1))
        if pace.wait_seconds(loop.time()):
            self._held_back += 1
            return
        pace.spend(loop.time())
        if self._held_back:
            facts["repeated"] = self._held_back
        self._held_back = 0
        logger.warning(self._message, extra={**facts, "error": reason_of(error)})


# ── the limit of descriptors ──

_original: tuple[int, int] | None = None
"""The soft and hard limit with which the process was started, once the soft one is raised."""


def raise_descriptor_limit() -> None:
    """Raise the soft limit of descriptors to the hard limit, as Go's runtime does (os/rlimit.go).

    Container runtimes and systemd start processes with a soft limit of 1,024, because of select(2).
    """
    global _original  # noqa: PLW0603 -- the limit belongs to the process as well
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _original = _original or (soft, hard)


@contextmanager
def original_descriptor_limit() -> Iterator[None]:
    """Give programs that are started in this block the soft limit with which this process was started.

    The block must not wait. The limit is lowered for its duration, since a function between fork and exec is
    unsafe beside threads; if more descriptors are in use than the lower limit allows, it stays as it is.
    """
    raised = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _original is None or not _is_below(_original[0]):
        yield
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (_original[0], raised[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, raised)


_SPARE_DESCRIPTORS: Final = 32
"""Descriptors that other threads and the start of a program may need meanwhile."""


def _is_below(limit: int) -> bool:
    """Whether the next descriptors are well below a limit: the kernel uses the lowest free numbers."""
    try:
        probe = os.open("/", os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(probe)
    return probe + _SPARE_DESCRIPTORS < limit
