"""A durable file: small, replaced as a whole and synced to the disk, to survive a power cut."""

from __future__ import annotations

import os
from contextlib import suppress
from glob import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["remove_remains", "write_whole"]


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
