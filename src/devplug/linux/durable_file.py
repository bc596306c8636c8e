"""A durable file: small, replaced as a whole and synced to the disk, to survive a power cut.

What another program may have put in its place is read with bounds.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from glob import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

STATE_LIMIT_BYTES: Final = 8 * 1024 * 1024
"""The size of a state file that is read: 10,000 devices of one resource that are all held need 5 MiB."""

STATE_VALUES_LIMIT: Final = 384 * 1024
"""The values of a state file in JSON that is read: each takes some 150 bytes of memory. 10,000 devices that
are all held have 210,000."""


class NoStateError(OSError):
    """A file that no program of ours can have written."""


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """Return the content of a regular file. It waits for no other program, and touches no device.

    Raises `OSError` for a file that cannot be read: `NoStateError` for all other kinds of files, and for one
    with more bytes than the limit.
    """
    # Before it is opened: a device might react.
    _check_regular(path.stat())
    # Not blocking, in case a pipe was put there since: then the second look refuses it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        _check_regular(status)
        # Not read before: a sparse file has any size.
        if status.st_size > limit_bytes or len(content := file.read(limit_bytes + 1)) > limit_bytes:
            raise NoStateError(errno.EFBIG, f"it has more than {limit_bytes} bytes")
    return content


def _check_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise NoStateError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise NoStateError(errno.EINVAL, "it is not a regular file")


def read_state(path: Path) -> bytes:
    """Return the content of a state file in JSON, within bounds. Raises `OSError` as `read_regular` does."""
    content = read_regular(path, STATE_LIMIT_BYTES)
    if sum(map(content.count, (b"[", b"{", b","))) > STATE_VALUES_LIMIT:
        raise NoStateError(errno.EFBIG, f"it has more than {STATE_VALUES_LIMIT} values")
    return content


def write_whole(path: Path, content: str, *, is_durable: bool = True) -> None:
    """Write `content` to a file that only its owner can read; make its folder if it is missing.

    However this process ends, the file has its old content or all of the new; once this returns, the new.
    If it is durable, this holds for the end of the machine too, and the call blocks until the disk has it.
    Raises `OSError`, and leaves the file as it was then.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # No name that another process may write to, also one of another container that has the same process ID.
    spare = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    descriptor = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 -- a descriptor has no path
            file.write(content)
            file.flush()
            # Before it gets its name: some file systems keep the name first, and an empty file under it.
            if is_durable:
                os.fsync(descriptor)
        spare.replace(path)
    except BaseException:
        spare.unlink(missing_ok=True)
        raise
    if not is_durable:
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove_remains(path: Path) -> None:
    """Remove what writers of `path` left that died on the way; raises nothing.

    Only for the one writer of `path`, before it writes.
    """
    with suppress(OSError):
        for spare in path.parent.glob(f".{escape(path.name)}.????????"):
            spare.unlink(missing_ok=True)
