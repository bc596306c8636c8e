"""The files of a ledger, which keep what was held over a restart.

There is one file for each resource that is remembered, read once and replaced as a whole.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import logging
import os
import re
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from devplug.holds.held_device import ledger_memory, ledger_text, only_text
from devplug.linux.durable_file import remove_remains, write_whole
from devplug.linux.notifier import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from devplug.holds.held_device import Memory, Remembered
    from devplug.holds.ledger import Ledger

logger = logging.getLogger(__name__)

# ── one file ──

_NEVER: Final = -1
_FILES: Final = "held-????????????.json"


def _mark(resource_name: str) -> str:
    return hashlib.sha256(resource_name.encode()).hexdigest()[:12]


def _marks_in(file_name: str) -> list[str]:
    """Return the mark of a resource in the name of its ledger file, or of its lock."""
    return re.findall(r"^(?:held|devplug)-([0-9a-f]{12})\.(?:json|lock)$", file_name)


class LedgerFile:
    """The owner of the ledger file of one resource. It logs errors of the file and raises none.

    It may be written in any thread. `revision` grows with what is to be remembered.
    """

    def __init__(self, folder: Path, resource_name: str) -> None:
        self.path = folder / f"held-{_mark(resource_name)}.json"
        self._resource_name = resource_name
        self._written = _NEVER
        self.fault = ""
        """Why the file could not be written last; empty if it was."""
        self.is_kept = False
        """Whether there is a file while nothing is held, too: one that is missing was lost then."""
        self.is_lost = False
        """Whether the last owner's file was damaged."""
        self.is_missing = False
        self._lock = threading.Lock()

    def read(self) -> Memory | None:
        """Return the last owner's memory; an empty one if there is no file, None if it is damaged."""
        remove_remains(self.path)
        try:
            return ledger_memory(self.path.read_text(encoding="utf-8"), self._resource_name)
        except FileNotFoundError:
            self.is_missing = True
            return {}
        except (OSError, ValueError) as error:
            self.is_lost = True
            logger.warning(
                "cannot read the file of held devices; devices released while devplug was down "
                "are not noticed",
                extra={
                    "resource_name": self._resource_name,
                    "path": str(self.path),
                    "reason": str(error),
                },
            )
            return None

    def is_behind(self, revision: int) -> bool:
        """Whether the file is older than this revision."""
        return self._written < revision

    def note_written(self, revision: int) -> None:
        """Record that the file is up to date at this revision."""
        self._written = revision

    def write(self, revision: int, memory: Callable[[], Memory], *, is_durable: bool = True) -> None:
        """Bring the file up to date, if it is not; the last whole file stays where that fails."""
        with self._lock:
            # A thread may come to it late, with what was true before.
            if not self.is_behind(revision):
                return
            try:
                self._replace(memory(), is_durable=is_durable)
            except OSError as error:
                if not self.fault:
                    logger.warning(
                        "cannot write the file of held devices; a release while devplug is down "
                        "will not be noticed",
                        extra={
                            "resource_name": self._resource_name,
                            "path": str(self.path),
                            "reason": error.strerror,
                        },
                    )
                self.fault = f"cannot write {self.path}: {error.strerror}"
                return
            self.fault = ""
            self._written = revision

    def _replace(self, memory: Memory, *, is_durable: bool) -> None:
        """Write a whole file or none, for its owner alone."""
        if not memory and not self.is_kept:
            self.path.unlink(missing_ok=True)
            return
        write_whole(self.path, ledger_text(self._resource_name, memory), is_durable=is_durable)


class _Other(Struct, frozen=True):
    """What another process has recorded in one file."""

    resource_name: str
    memory: Memory
    version: tuple[int, int, int]
    """Tells the file from the next one at its place."""


def _other(path: Path, before: _Other | None) -> _Other | None:
    """Return what a file of another process says; `before` is what it said last."""
    try:
        status = path.stat()
        version = status.st_ino, status.st_mtime_ns, status.st_size
        if before is not None and before.version == version:
            return before
        text = path.read_text(encoding="utf-8")
    except OSError:
        return None
    try:
        name = only_text(json.loads(text)["resource"])
        return _Other(name, ledger_memory(text, name), version)
    except (LookupError, RecursionError, TypeError, ValueError) as error:
        logger.warning(
            "cannot read a file of held devices; what containers hold of its resource is not known",
            extra={"path": str(path), "reason": str(error)},
        )
        return None if before is None else replace(before, version=version)


def _resource_of(path: Path) -> str:
    """Return the resource name in a ledger file; empty, after a logged warning, if it has none."""
    try:
        return only_text(json.loads(path.read_text(encoding="utf-8"))["resource"])
    except FileNotFoundError:
        return ""
    except (OSError, LookupError, RecursionError, TypeError, ValueError) as error:
        logger.warning(
            "cannot read a file of held devices; what containers hold of its resource is not known",
            extra={"path": str(path), "reason": str(error)},
        )
        return ""


# ── the folder ──

WRITE_PERIOD_SECONDS: Final = 0.25
"""How soon after a change, and at most how often, files are written: many pods may start at once."""


LOCK_WAIT_SECONDS: Final = 0.005
LOCK_TRIES: Final = 400
"""How long, and how often, to wait for another process that allocates: it holds the lock while it writes."""

RETRY_SECONDS: Final = 30.0
"""The wait before files that could not be written are tried again: a full disk has no event."""


class LedgerFolder:
    """The files of the owned resources of one ledger, and lives as long; without a folder it keeps nothing.

    Programs of one machine share the folder, so each resource has a file of its own, which the program that
    serves the resource owns.
    """

    def __init__(
        self, folder: Path | None, ledger: Ledger, on_faults: Callable[[], None] = lambda: None
    ) -> None:
        self._folder = folder
        self._on_faults = on_faults
        self._ledger = ledger
        self._files: dict[str, LedgerFile | None] = {}
        self._changed = asyncio.Event()
        self._others: dict[str, _Other] = {}
        """What other processes have recorded, by file name."""
        self.others_revision = 0
        """A number that changes whenever `held_by_others` does."""

    def own(self, resource_name: str, now: float) -> None:
        """Read the file of a resource into the ledger, and keep it up to date from now on.

        Raises `ValueError` for a resource that is owned.
        """
        if resource_name in self._files:
            raise ValueError(f"{resource_name} is owned already")
        if self._folder is None:
            self._files[resource_name] = None
            return
        file = self._files[resource_name] = LedgerFile(self._folder, resource_name)
        read = file.read()
        if read is not None:
            self._ledger.recall(resource_name, read, now)
            known = self._ledger.memory(resource_name)
            if known == read or not (known or read):
                file.note_written(self._ledger.revision(resource_name))
        self._changed.set()

    def file(self, resource_name: str) -> LedgerFile | None:
        """Return the file of an owned resource; None without a folder."""
        return self._files.get(resource_name)

    def write_now(self, resource_name: str) -> str:
        """Write what has changed of one resource, for a process that dies; return why that failed, or ""."""
        if (file := self._files.get(resource_name)) is None:
            return ""
        revision, memory = self._ledger.revision(resource_name), self._ledger.memory_later(resource_name)
        file.write(revision, memory, is_durable=False)
        return file.fault

    # ── what other processes hold ──

    def watched(self) -> list[str]:
        """Return the pattern of the files whose changes `read_others` reads."""
        return [] if self._folder is None else [str(self._folder / _FILES)]

    def held_by_others(self) -> Iterator[tuple[str, str, Remembered]]:
        """Yield resource name, ID and hold of each ID that another process has recorded."""
        for other in self._others.values():
            for device_id, remembered in other.memory.items():
                yield other.resource_name, device_id, remembered

    def read_others(self) -> bool:
        """Read the files of other processes that have changed; return whether one has.

        A file that cannot be read leaves what was read of it before.
        """
        if self._folder is None:
            return False
        mine = {file.path.name for file in self._files.values() if file}
        found: dict[str, _Other] = {}
        for path in self._folder.glob(_FILES):
            if path.name not in mine and (other := _other(path, self._others.get(path.name))) is not None:
                found[path.name] = other
        if found == self._others:
            return False
        self._others = found
        self.others_revision += 1
        return True

    def has_others(self) -> bool:
        """Whether another process serves, or has served, a resource of this node."""
        if self._folder is None:
            return False
        mine = {_mark(name) for name in self._files}
        with suppress(OSError):
            return any(mark not in mine for path in self._folder.iterdir() for mark in _marks_in(path.name))
        return False

    async def lock(self) -> int:
        """Wait until no other process allocates, and keep them from it; return what `unlock` takes.

        The lock is one of the whole folder, and of its processes only. Raises `TimeoutError`.
        """
        if self._folder is None:
            return -1
        try:
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return -1  # nobody has recorded anything
        tries = 0
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if tries == LOCK_TRIES:
                    os.close(descriptor)
                    raise TimeoutError(f"another process holds the lock of {self._folder}") from None
            else:
                return descriptor
            tries += 1
            try:
                await asyncio.sleep(LOCK_WAIT_SECONDS)
            except BaseException:
                os.close(descriptor)
                raise

    def unlock(self, descriptor: int) -> None:
        """Let other processes allocate again."""
        if descriptor >= 0:
            os.close(descriptor)

    def left_behind(self) -> list[str]:
        """Return the resources of which another process has left holds, sorted, without those owned here."""
        if self._folder is None:
            return []
        found = {_resource_of(path) for path in self._folder.glob(_FILES)}
        return sorted(found - self._files.keys() - {""})

    def disown(self, resource_name: str) -> None:
        """Write what is not written yet, and leave the file of a resource alone from now on."""
        if file := self._files.pop(resource_name, None):
            self._write(resource_name, file)

    def faults(self) -> dict[str, str]:
        """Return why files cannot be written, by resource name."""
        return {name: file.fault for name, file in self._files.items() if file and file.fault}

    def note_changed(self) -> None:
        """Make `run` write the files soon."""
        self._changed.set()

    async def run(self) -> None:
        """Write what has changed, in a thread, until cancelled. No error of a file ends it."""
        while True:
            is_any_faulty = any(file and file.fault for file in self._files.values())
            await within(RETRY_SECONDS if is_any_faulty else None, self._changed.wait())
            self._changed.clear()
            faults = self.faults()
            for resource_name, file in list(self._files.items()):
                revision = self._ledger.revision(resource_name)
                # It may have been disowned while another one was written.
                if file and file.is_behind(revision) and self._files.get(resource_name) is file:
                    memory = self._ledger.memory_later(resource_name)
                    await asyncio.to_thread(file.write, revision, memory)
            if self.faults() != faults:
                self._on_faults()
            await asyncio.sleep(WRITE_PERIOD_SECONDS)

    def write(self) -> None:
        """Write what has changed, at once."""
        for resource_name, file in self._files.items():
            if file:
                self._write(resource_name, file)

    def _write(self, resource_name: str, file: LedgerFile) -> None:
        file.write(self._ledger.revision(resource_name), self._ledger.memory_later(resource_name))
