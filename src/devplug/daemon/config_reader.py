"""The reader of the configuration file: its bytes, or why it cannot be read. See `config.loader`."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from devplug.daemon.config.document import SIZE_LIMIT_BYTES
from devplug.errors import ConfigError, Problem
from devplug.linux.trust import UntrustedError, check_trusted, sudo_users

if TYPE_CHECKING:
    from devplug.devices import StrPath

__all__ = ["read_config_file", "read_served_file"]


def read_served_file(path: StrPath) -> bytes:
    """Return the bytes of a file that is to be served; raises `ConfigError`, also if others could change it.

    Who writes it chooses what containers get, and commands that are started here.
    """
    advice = f"give it to root or to the user of this process, and let no other write: chmod go-w {path}"
    try:
        check_trusted(path, advice, users=sudo_users(), trusts_read_only=True)
    except UntrustedError as error:
        raise ConfigError(str(path), [Problem(0, 0, "", str(error))]) from error
    return read_config_file(path)


def read_config_file(path: StrPath) -> bytes:
    """Return the bytes of the file at `path`, or raise `ConfigError` that says why it cannot be read.

    Anything but a regular file is refused before it is opened: a pipe would block, a device might react.
    """
    file = Path(path)
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise OSError(errno.EINVAL, "it is a folder" if file.is_dir() else "it is not a regular file")
        # Not blocking, in case somebody put a pipe there since: then the second look refuses it.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            content = opened.read(SIZE_LIMIT_BYTES + 1)
            if len(content) > SIZE_LIMIT_BYTES:
                raise OSError(errno.EFBIG, f"it has more than {SIZE_LIMIT_BYTES} bytes")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = Problem(0, 0, "", f"cannot read {file}: {reason}")
        raise ConfigError(str(file), [problem]) from error
    return content
