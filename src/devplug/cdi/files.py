"""The files of a CDI folder: regular ones, written whole, and read by runtimes at any time.

Who writes one keeps it open and locked (flock) for as long as nobody else may replace or remove it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.errors import KubeletError
from devplug.kubelet_dir import CDI_DIR
from devplug.linux.trust import check_trusted

if TYPE_CHECKING:
    from collections.abc import Iterator

CDI_FOLDER: Final = Path(CDI_DIR)
"""Where runtimes look for generated specs (pkg/cdi/spec-dirs.go); it is in memory, and empty after a boot."""

SIZE_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""More than a thousand devices with all they can have; a longer file is not ours."""

# As a text: `re` compiles it at its first use, which most daemons never have.
_REMAINS: Final = r"\.devplug-[0-9a-f]{12}-\d+-[0-9a-f]{8}\.tmp"
_ADVICE: Final = {
    errno.ENOENT: "mount the host's /var/run/cdi there (hostPath, DirectoryOrCreate)",
    errno.ENOTDIR: "mount the host's /var/run/cdi there (hostPath, DirectoryOrCreate)",
    errno.EROFS: "mount the host's /var/run/cdi there, and not readOnly",
    errno.EACCES: "run as root, and let SELinux or AppArmor allow it",
    errno.EPERM: "run as root, and let SELinux or AppArmor allow it",
    errno.ENOSPC: "make room in that file system; no file there was changed",
    errno.EDQUOT: "make room in that file system; no file there was changed",
}


def is_remains(name: str) -> bool:
    """Whether a file name is one that `write_locked` writes under before the file gets its own."""
    return re.fullmatch(_REMAINS, name) is not None


def write_locked(folder: Path, name: str, mark: str, content: bytes, *, is_durable: bool = True) -> int:
    """Write a file of a folder whole and durably, in place of an old one; return it open, and locked.

    A reader sees the old file or the new one, whenever it looks and whatever dies meanwhile. `mark` are
    12 hex digits for the name before. Without `is_durable` it need not outlive the machine's next start, and
    no disk is waited for. Makes the folder if only that is missing. Raises `OSError`, and `KubeletError` for
    a folder that other users could change: the runtime does as root what is in it.
    """
    _make_folder(folder)
    check_trusted(folder, f"let only root write there: chown root {folder}; chmod 755 {folder}")
    # Readers take *.json and *.yaml only.
    temporary = folder / f".devplug-{mark}-{os.getpid()}-{os.urandom(4).hex()}.tmp"
    with ExitStack() as undo:
        file = undo.enter_context(temporary.open("xb"))
        undo.callback(temporary.unlink, missing_ok=True)
        # What stays open is open for reading only: else the file system could not be made read-only.
        fd = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
        undo.callback(os.close, fd)
        try_lock(fd)
        os.fchmod(fd, 0o644)  # whatever the umask is: the runtime may run as another user
        file.write(content)
        file.close()  # who watches the folder sees a file moved in, and nothing written to it
        if is_durable:
            os.fsync(fd)
        temporary.rename(folder / name)
        undo.pop_all()
    if not is_durable:
        return fd
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)
    return fd


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir()
    except FileExistsError:
        return
    folder.chmod(0o755)  # whatever the umask is, as with the files


def opened(path: Path) -> int | None:
    """Open a regular file to read it; None for none, and for what only looks like one. Raises `OSError`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO}:
            return None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def content_of(fd: int) -> bytes:
    """Return the content of a file that was just opened, but no more than one of ours can have."""
    with os.fdopen(fd, "rb", closefd=False) as file:
        return file.read(SIZE_LIMIT_BYTES)


def try_lock(fd: int) -> bool:
    """Try to lock an open file, without waiting, for as long as it is open."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_same_file(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether two results are about one file, whatever it is called."""
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


@contextmanager
def explained(folder: Path, doing: str) -> Iterator[None]:
    """Turn an `OSError` about a CDI folder into a `KubeletError` that says what to do."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        advice = _ADVICE.get(error.errno or 0, "look at the file system that it is on")
        raise KubeletError(f"cannot {doing} {folder}: {why}; {advice}") from error
