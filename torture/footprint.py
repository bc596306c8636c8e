"""The footprint of a process: descriptors, tasks, threads, memory and log lines; none of it grows."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import threading
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from torture.catalogue import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from torture.catalogue import Trial

# ── what it holds ──

GROWTH_LIMIT_BYTES: Final = 2 * 1024 * 1024

SETTLE_SECONDS: Final = 3.0
"""How long the last of what was closed may take to be gone."""

LATE_DESCRIPTORS: Final = 2
"""Both ends of a connection that is made when it is first called upon, and then stays."""

_POOL_THREADS: Final = "asyncio_"
"""How the threads of a loop's own pool are named. It makes one whenever all that it has are busy, up to a
limit, and keeps it (concurrent/futures/thread.py `_adjust_thread_count`): how many there are is chance."""

_libc = ctypes.CDLL(None)
_M_MMAP_THRESHOLD: Final = -3
# Large blocks go back when they are freed (mallopt(3)): the top of a thread's arena is never trimmed.
_libc.mallopt(_M_MMAP_THRESHOLD, 128 * 1024)


@dataclass(frozen=True, slots=True)
class Holdings:
    """What one process holds at one moment."""

    descriptors: int
    tasks: int
    threads: int
    """Without those of the loop's own pool."""
    resident_bytes: int


def holdings() -> Holdings:
    """Return what this process holds, without what only waits to be collected. Call it on the loop."""
    gc.collect()
    # What the C library keeps for later is not ours; without this, growth would depend on its mood.
    _libc.malloc_trim(0)
    return Holdings(
        len(os.listdir("/proc/self/fd")) - 1,
        len(asyncio.all_tasks()),
        sum(not thread.name.startswith(_POOL_THREADS) for thread in threading.enumerate()),
        resident_bytes(),
    )


def holdings_of(pid: int) -> Holdings:
    """Return what another process holds; it has no tasks that can be seen from here."""
    status = Path(f"/proc/{pid}/status").read_text()
    threads = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Threads:"))
    return Holdings(len(os.listdir(f"/proc/{pid}/fd")), 0, threads, resident_bytes(str(pid)))


def resident_bytes(pid: str = "self") -> int:
    """Return how much memory a process has in use, with what only waits to be collected."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def forget_highest() -> None:
    """Have `highest_bytes` begin anew, without what only waits to be collected (proc_pid_clear_refs(5))."""
    gc.collect()
    _libc.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def highest_bytes() -> int:
    """Return the most memory that this process has had in use."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


@asynccontextmanager
async def nothing_kept(
    trial: Trial,
    *,
    growth_limit_bytes: int = GROWTH_LIMIT_BYTES,
    settle_seconds: float = SETTLE_SECONDS,
) -> AsyncIterator[None]:
    """Hold what the block keeps against I3. Enter it after a warm-up: what is loaded once is no leak."""
    before = holdings()
    yield
    patience = PATIENCE.get()
    growth_limit_bytes = round(growth_limit_bytes * patience)
    after = await _settled(before, settle_seconds * patience, growth_limit_bytes)
    trial.figure("memory growth", f"{(after.resident_bytes - before.resident_bytes) / 1024 / 1024:+.1f} MiB")
    trial.check(
        after.descriptors <= before.descriptors + LATE_DESCRIPTORS,
        f"I3: {before.descriptors} descriptors before, {after.descriptors} after: {_open_files()}",
    )
    trial.check(
        after.tasks <= before.tasks,
        f"I3: {before.tasks} tasks before, {after.tasks} after: {_task_names()}",
    )
    trial.check(
        after.threads <= before.threads,
        f"I3: {before.threads} threads before, {after.threads} after",
    )
    grown = after.resident_bytes - before.resident_bytes
    trial.check(grown <= growth_limit_bytes, f"I3: memory grew by {grown / 1024 / 1024:.1f} MiB")


async def _settled(before: Holdings, seconds: float, growth_limit_bytes: int) -> Holdings:
    """Wait until what was closed is gone, for these seconds at most; return what is held then."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        now = holdings()
        is_back = (
            now.descriptors <= before.descriptors + LATE_DESCRIPTORS
            and now.tasks <= before.tasks
            and now.threads <= before.threads
            and now.resident_bytes - before.resident_bytes <= growth_limit_bytes
        )
        if is_back or asyncio.get_running_loop().time() > deadline:
            return now
        await asyncio.sleep(0.05)


def _open_files() -> str:
    names = []
    for entry in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            names.append(f"{entry} → {os.readlink(f'/proc/self/fd/{entry}')}")
        except OSError:
            continue
    return ", ".join(names[-12:])


def _task_names() -> str:
    return ", ".join(sorted(str(task.get_coro()) for task in asyncio.all_tasks())[:12])


# ── what it logs ──


class Told(logging.Handler):
    """A handler that keeps no line, only how often each constant message came."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.counts: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """How many lines there were."""
        return self.counts.total()

    def emit(self, record: logging.LogRecord) -> None:
        """Count one line."""
        self.counts[str(record.msg)] += 1


@contextmanager
def told(name: str = "devplug") -> Iterator[Told]:
    """Count the lines of a logger and all below it for a block, at the level that a daemon has by default."""
    logger = logging.getLogger(name)
    handler = Told()
    before = logging.root.manager.disable, logger.level, logger.propagate
    logging.disable(logging.NOTSET)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # Or the last resort would write warnings to standard error, which is no part of what is measured.
    logger.propagate = bool(logging.root.handlers)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        disabled, level, logger.propagate = before
        logger.setLevel(level)
        logging.disable(disabled)
