"""The CDI folder and our files in it, which are written whole. Their content is in `spec`.

A file is locked (flock) for as long as the daemon that wrote it lives, so two daemons on one machine never
clean up each other's.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import re
import secrets
import stat
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.daemon.cdi.spec import faults, parse, qualified_name, text
from devplug.errors import KubeletError, PluginError, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from devplug.daemon.cdi.spec import CdiSpec

__all__ = ["CDI_FOLDER", "CdiFolder", "file_name"]

CDI_FOLDER: Final = Path("/var/run/cdi")
"""Where runtimes look for generated specs (pkg/cdi/spec-dirs.go); it is in memory, and empty after a boot."""

SIZE_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""More than a thousand devices with all they can have; a longer file is not ours."""

_OURS: Final = re.compile(r"devplug\.[A-Za-z0-9._-]+-[0-9a-f]{12}\.json")
_OUR_REMAINS: Final = re.compile(r"\.devplug-[0-9a-f]{12}-\d+-[0-9a-f]{8}\.tmp")
_ADVICE: Final = {
    errno.ENOENT: "mount the host's /var/run/cdi there (hostPath, DirectoryOrCreate)",
    errno.ENOTDIR: "mount the host's /var/run/cdi there (hostPath, DirectoryOrCreate)",
    errno.EROFS: "mount the host's /var/run/cdi there, and not readOnly",
    errno.EACCES: "run as root, and let SELinux or AppArmor allow it",
    errno.EPERM: "run as root, and let SELinux or AppArmor allow it",
    errno.ENOSPC: "make room in that file system; the file there is still the old one",
    errno.EDQUOT: "make room in that file system; the file there is still the old one",
}

logger = logging.getLogger(__name__)


def _mark(kind: str) -> str:
    return hashlib.sha256(kind.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def file_name(kind: str) -> str:
    """Return the name of the file of a kind: vendor and class, as is the custom, and a hash; it always fits.

    The hash tells it from the file of somebody whose domain begins as our vendors do.
    """
    return f"{kind.replace('/', '-')[:200]}-{_mark(kind)}.json"


class CdiFolder:
    """Our files in one CDI folder; lives as long as the daemon. Each kind is used by one task.

    Every call waits for the disk; calls for different kinds may be in different threads. If a file
    cannot be written, `KubeletError` says what to do.
    """

    def __init__(self, folder: Path = CDI_FOLDER) -> None:
        self.folder = folder
        self._locked: dict[str, int] = {}
        """By kind, the open file that is ours."""

    def has_file(self, kind: str) -> bool:
        """Whether there is a file under our name for a kind."""
        return (self.folder / file_name(kind)).exists()

    def read(self, kind: str) -> CdiSpec | None:
        """Return the spec in our file of a kind, or None if there is none."""
        with self._explained("read"):
            return self._spec(file_name(kind))

    def write(self, spec: CdiSpec) -> bool:
        """Make our file of the spec's kind say `spec`, and return whether that changed anything on the disk.

        A reader sees the old file or the new one, whenever it looks and whatever dies meanwhile. Raises
        `PluginError` with all faults of a spec that runtimes would drop; the old file stays then, too.
        """
        if wrong := faults(spec):
            raise PluginError(*(f"CDI spec {quoted(spec.kind)}: {fault}" for fault in wrong))
        content = text(spec).encode()
        with self._explained("write"):
            self._make_folder()
            if self._has(spec.kind, content):
                return False
            self._replace(spec.kind, content)
        return True

    def remove(self, kind: str) -> bool:
        """Remove our file of a kind, unless another daemon has it, and return whether one was removed.

        Only for a kind of which no container holds a device any more.
        """
        with self._explained("remove from"):
            return self._remove(file_name(kind), kind)

    def clean(self, keep_kinds: Collection[str], keep_names: Collection[str]) -> list[str]:
        """Remove the files of earlier daemons, and return their names; call it at start.

        That is: files of kinds that are no resource now, and halves of files. A file stays if it has one of
        `keep_names` (qualified names that a container may still hold), if the daemon that wrote it is alive,
        or if its name is ours and its content is not, which is logged. Call it only once it is known who
        holds what.
        """
        with self._explained("clean"):
            try:
                names = sorted(os.listdir(self.folder))  # noqa: PTH208
            except FileNotFoundError:
                return []
            remains = [name for name in names if _OUR_REMAINS.fullmatch(name)]
            stale = [name for name in names if _OURS.fullmatch(name)]
            removed = [name for name in remains if self._remove(name)]
            for name in stale:
                spec = self._spec(name)
                if spec is None:
                    logger.warning(
                        "a CDI file with a name of devplug's was not written by devplug; it is left alone",
                        extra={"path": str(self.folder / name)},
                    )
                elif not self._is_wanted(spec, keep_kinds, keep_names) and self._remove(name, spec.kind):
                    removed.append(name)
        return removed

    def close(self) -> None:
        """Unlock the files, which stay: containers that restart still need them. Safe to repeat."""
        while self._locked:
            os.close(self._locked.popitem()[1])

    # ── one file ──────────────────────────────────────────────────────────────────────────────────

    def _is_wanted(self, spec: CdiSpec, keep_kinds: Collection[str], keep_names: Collection[str]) -> bool:
        if spec.kind in keep_kinds or spec.kind in self._locked:
            return True
        return any(qualified_name(spec.kind, device.name) in keep_names for device in spec.devices)

    def _spec(self, name: str) -> CdiSpec | None:
        """Return the spec of a file whose name and content are both ours."""
        fd = self._open(name)
        if fd is None:
            return None
        try:
            spec = parse(_content(fd))
        finally:
            os.close(fd)
        return spec if spec is not None and file_name(spec.kind) == name else None

    def _has(self, kind: str, content: bytes) -> bool:
        """Whether the file is ours, locked, and has this content. Raises if another program owns it."""
        name = file_name(kind)
        path = self.folder / name
        fd = self._open(name)
        if fd is None:
            if os.path.lexists(path):
                raise KubeletError(
                    f"{path} is not a regular file, but devplug must write one there; move it away"
                )
            return False
        try:
            there = _content(fd)
            old = parse(there)
            # An empty file is what a power cut leaves behind on some file systems.
            if there and (old is None or old.kind != kind):
                raise KubeletError(f"{path} was not written by devplug, which must write there; move it away")
            is_right = there == content and stat.S_IMODE(os.fstat(fd).st_mode) == 0o644
            if is_right and (self._is_held(kind, fd) or _lock(fd)):
                if not self._is_held(kind, fd):
                    self._hold(kind, os.dup(fd))
                return True
        finally:
            os.close(fd)
        return False

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir()
        except FileExistsError:
            return
        self.folder.chmod(0o755)  # whatever the umask is, as with the files

    def _replace(self, kind: str, content: bytes) -> None:
        # Readers take *.json and *.yaml only.
        temporary = self.folder / f".devplug-{_mark(kind)}-{os.getpid()}-{secrets.token_hex(4)}.tmp"
        with ExitStack() as undo:
            file = undo.enter_context(temporary.open("xb"))
            undo.callback(temporary.unlink, missing_ok=True)
            # What stays open is open for reading only: else the file system could not be made read-only.
            fd = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
            undo.callback(os.close, fd)
            _lock(fd)
            os.fchmod(fd, 0o644)  # whatever the umask is: the runtime may run as another user
            file.write(content)
            file.flush()
            os.fsync(fd)
            temporary.rename(self.folder / file_name(kind))
            undo.pop_all()
            file.close()
        self._hold(kind, fd)
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _remove(self, name: str, kind: str = "") -> bool:
        """Remove a file, if no other daemon has it locked and, for a `kind`, if it still says that one."""
        fd = self._open(name)
        if fd is None:
            return False
        try:
            if not (self._is_held(kind, fd) or _lock(fd)):
                return False
            path = self.folder / name
            if not _is_same(os.fstat(fd), path.lstat()):
                return False  # replaced since, by one that is alive
            if kind:
                spec = parse(_content(fd))
                if spec is None or spec.kind != kind:
                    return False
            path.unlink()
        except FileNotFoundError:
            return False
        finally:
            os.close(fd)
        if kind in self._locked:
            os.close(self._locked.pop(kind))
        return True

    def _open(self, name: str) -> int | None:
        """Open a regular file to read it; None for none, and for what only looks like one."""
        try:
            fd = os.open(self.folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO}:
                return None
            raise
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        return None

    def _is_held(self, kind: str, fd: int) -> bool:
        """Whether an open file is the one that we have locked; the lock cannot tell two opens apart."""
        ours = self._locked.get(kind)
        return ours is not None and _is_same(os.fstat(ours), os.fstat(fd))

    def _hold(self, kind: str, fd: int) -> None:
        if kind in self._locked:
            os.close(self._locked.pop(kind))
        self._locked[kind] = fd

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        """Turn an `OSError` into a `KubeletError` that says what to do."""
        try:
            yield
        except OSError as error:
            why = error.strerror or str(error)
            advice = _ADVICE.get(error.errno or 0, "look at the file system that it is on")
            raise KubeletError(f"cannot {doing} {self.folder}: {why}; {advice}") from error


def _content(fd: int) -> bytes:
    with os.fdopen(fd, "rb", closefd=False) as file:
        return file.read(SIZE_LIMIT_BYTES)


def _lock(fd: int) -> bool:
    """Try to lock an open file, without waiting, for as long as it is open."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
