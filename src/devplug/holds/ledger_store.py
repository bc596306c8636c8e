"""The files of a ledger, one for each resource, read once and replaced as a whole."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import re
import threading
from contextlib import asynccontextmanager, suppress
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from devplug.holds.held_device import Recorded, ledger_memory, ledger_text, recorded
from devplug.linux.durable_file import read_state, remove_remains, write_whole
from devplug.linux.notifier import Event, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from devplug.holds.held_device import Memory
    from devplug.holds.ledger import Ledger


logger = logging.getLogger(__name__)

# ── one file ──

_NEVER: Final = -1


class LedgerFile:
    """The ledger file of one resource, which any thread may write. It logs errors and raises none."""

    def __init__(self, folder: Path, resource_name: str, owner: str = "") -> None:
        self._owner = owner
        self._path = self.path = folder / f"held-{resource_mark(resource_name)}.json"
        self._resource_name = resource_name
        self._written = _NEVER
        self.fault = ""
        """Why the file could not be written last; empty if it was."""
        self.is_kept = False
        """Whether there is a file while nothing is held, too: one that is missing was lost then."""
        self.is_lost = False
        """Whether the last owner's file was damaged."""
        self.is_missing = False
        self.is_begun = True
        """Whether it may be written: not while another process may serve the resource."""
        self._read_stamp: object = _NEVER
        self._lock = threading.Lock()

    def read(self) -> Memory | None:
        """Return the last owner's memory; an empty one if there is no file, None if it is damaged."""
        if self.is_begun:
            remove_remains(self._path)
        self.is_missing = self.is_lost = False
        self._read_stamp = self._stamp()
        try:
            return ledger_memory(read_state(self._path), self._resource_name)
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
                    "path": str(self._path),
                    "reason": str(error),
                },
            )
            return None

    def _stamp(self) -> object:
        with suppress(OSError):
            status = self._path.stat()
            return status.st_ino, status.st_mtime_ns, status.st_size
        return None

    def has_changed(self) -> bool:
        """Whether another process has written since `read`."""
        return self._stamp() != self._read_stamp

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
            if not (self.is_begun and self.is_behind(revision)):
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
                            "path": str(self._path),
                            "reason": error.strerror,
                        },
                    )
                self.fault = f"cannot write {self._path}: {error.strerror}"
                return
            self.fault = ""
            self._written = revision

    def _replace(self, memory: Memory, *, is_durable: bool) -> None:
        """Write a whole file or none, for its owner alone."""
        if not memory and not self.is_kept:
            self._path.unlink(missing_ok=True)
            return
        write_whole(self._path, ledger_text(self._resource_name, memory, self._owner), is_durable=is_durable)


def _read(path: Path) -> Recorded | None:
    """Return what a ledger file has; None, after a logged warning, if it is damaged."""
    try:
        return recorded(read_state(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        logger.warning(
            "cannot read a file of held devices; what containers hold of its resource is not known",
            extra={"path": str(path), "reason": str(error)},
        )
        return None


# ── the folder ──

WRITE_PERIOD_SECONDS: Final = 0.25
"""How soon after a change, and at most how often, files are written: many pods may start at once."""


RETRY_SECONDS: Final = 30.0
"""The wait before files that could not be written are tried again: a full disk has no event."""


LOCK_WAIT_SECONDS: Final = 0.005
LOCK_TRIES: Final = 400
"""How long, and how often, to wait for another process that allocates: it holds the lock while it writes."""

_MARKED: Final = re.compile(r"(?:held-|devplug-)([0-9a-f]{12})\.(?:json|lock)")


def _is_locked(fd: int) -> bool:
    """Try to take the lock of a file, and return whether it is ours."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def resource_mark(resource_name: str) -> str:
    """Return the mark of a resource in the names of files."""
    return hashlib.sha256(resource_name.encode()).hexdigest()[:12]


class LedgerFolder:
    """The files of the owned resources of one ledger; without a folder nothing is kept.

    Programs of one machine share the folder; the program that serves a resource owns its file.
    """

    def __init__(
        self,
        folder: Path | None,
        ledger: Ledger,
        on_faults: Callable[[], None] = lambda: None,
        owner: str = "",
    ) -> None:
        self._owner = owner
        self._folder = self.path = folder
        self._on_faults = on_faults
        self._ledger = ledger
        self._files: dict[str, LedgerFile | None] = {}
        self._marks: set[str] = set()
        """The marks of the owned resources."""
        self._scanned_at = 0
        self._has_others = False
        self.others: OtherFiles[Recorded] = OtherFiles(f"{folder}/*", self._other_paths, _read)
        """By path: the resources of other processes, with what each of them remembers."""
        self._changed = Event()

    def own(self, resource_name: str, now: float, *, is_waiting: bool = False) -> None:
        """Read the file of a resource and keep it up to date; if `is_waiting`, from `begin` on."""
        if resource_name in self._files:
            raise ValueError(f"{resource_name} is owned already")
        if self._folder is None:
            self._files[resource_name] = None
            return
        file = self._files[resource_name] = LedgerFile(self._folder, resource_name, self._owner)
        file.is_begun = not is_waiting
        self._recall(resource_name, file, now)

    def begin(self, resource_name: str, now: float) -> None:
        """Keep the file of a resource up to date from now on, as no other process serves it any more."""
        file = self._files.get(resource_name)
        if file is not None and not file.is_begun:
            file.is_begun = True
            self._recall(resource_name, file, now)
        elif file is not None and not file.path.exists():
            file.note_written(_NEVER)  # somebody has removed it with its folder
            self._changed.set()

    def _recall(self, resource_name: str, file: LedgerFile, now: float) -> None:
        if file.is_begun:
            self._marks.add(resource_mark(resource_name))
            self._scanned_at = 0
        if not file.has_changed():
            self._changed.set()
            return
        read = file.read()
        if read is not None:
            self._ledger.recall(resource_name, read, now)
            known = self._ledger.memory(resource_name)
            if known == read or not (known or read):
                file.note_written(self._ledger.revision(resource_name))
        self._changed.set()

    def is_owned(self, resource_name: str) -> bool:
        """Whether `own` was called for a resource."""
        return resource_name in self._files

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

    def left_behind(self, booked: Iterable[str]) -> list[str]:
        """Return the resources that another daemon left; `booked` ones also with unreadable files."""
        if self._folder is None:
            return []
        found = {path: _read(path) for path in self._other_paths()}
        names = {one.resource_name for one in found.values() if one and one.owner != IN_CODE}
        read = {path.name for path, one in found.items() if one}
        with suppress(OSError):
            marks = {mark[1] for mark in map(_MARKED.fullmatch, os.listdir(self._folder)) if mark}  # noqa: PTH208 -- names alone
            unread = {one for one in booked if f"held-{resource_mark(one)}.json" not in read}
            names.update(one for one in unread if resource_mark(one) in marks)
        return sorted(names - self._files.keys())

    def _other_paths(self) -> list[Path]:
        if self._folder is None:
            return []
        own = {file.path for file in self._files.values() if file and file.is_begun}
        # Not Path.glob, which raises without the right to read the folder.
        found = map(Path, glob(f"{escape(str(self._folder))}/held-????????????.json"))  # noqa: PTH207
        return sorted(set(found) - own)

    def has_others(self) -> bool:
        """Whether another process has, or had, a resource in this folder."""
        if self._folder is None:
            return False
        with suppress(OSError):
            changed_at = self._folder.stat().st_mtime_ns
            if changed_at != self._scanned_at:
                self._scanned_at = changed_at
                found = [_MARKED.fullmatch(name) for name in os.listdir(self._folder)]  # noqa: PTH208 -- names alone
                self._has_others = any(one[1] not in self._marks for one in found if one)
        return self._has_others

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the folder's lock for a block; raises `TimeoutError` if another process keeps it."""
        fd = -1
        with suppress(OSError):  # no folder: no process has recorded anything
            if self._folder is not None:
                fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            tries = 0
            while fd >= 0 and not _is_locked(fd):
                tries += 1
                if tries > LOCK_TRIES:
                    raise TimeoutError(f"another process holds the lock of {self._folder}")
                await asyncio.sleep(LOCK_WAIT_SECONDS)
            yield
        finally:
            if fd >= 0:
                os.close(fd)

    def disown(self, resource_name: str) -> None:
        """Write what is not written yet, and leave the file of a resource alone from now on."""
        if file := self._files.pop(resource_name, None):
            self._write(resource_name, file)
        self._marks.discard(resource_mark(resource_name))
        self._scanned_at = 0

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
                if (
                    file
                    and file.is_begun
                    and file.is_behind(revision)
                    and self._files.get(resource_name) is file
                ):
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


# ── the files that other processes of this node write about what they hold, read again when they change ──


IN_CODE: Final = "code"
"""The owner of what a plugin in code records: only that program can serve its resource and its driver."""

Content = TypeVar("Content")


class OtherFiles(Generic[Content]):
    """The content of other processes' files, of which `watched` is a glob and `paths` returns the paths.

    `read` returns None for a file that cannot be read: its content before counts on.
    """

    def __init__(
        self, watched: str, paths: Callable[[], Iterable[Path]], read: Callable[[Path], Content | None]
    ) -> None:
        self.watched = watched
        self.revision = 0
        """A number that changes with `contents`."""
        self.contents: Mapping[Path, Content] = {}
        self._paths = paths
        self._read = read
        self._stamps: Mapping[Path, tuple[int, int, int]] = {}

    def refresh(self) -> bool:
        """Read what has changed; return whether anything has."""
        stamps = {}
        for path in self._paths():
            try:
                status = path.stat()
            except OSError:
                continue
            stamps[path] = status.st_ino, status.st_mtime_ns, status.st_size
        if stamps == self._stamps:
            return False
        contents: dict[Path, Content] = {}
        for path, stamp in stamps.items():
            before = self.contents.get(path)
            content = before if stamp == self._stamps.get(path) else self._read(path)
            if (content := before if content is None else content) is not None:
                contents[path] = content
        self._stamps, self.contents = stamps, contents
        self.revision += 1
        return True
