"""The reader of the configuration file: its bytes, or why it cannot be read. See `config.loader`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from devplug.daemon.config.document import SIZE_LIMIT_BYTES
from devplug.errors import ConfigError, Problem
from devplug.linux.durable_file import read_regular
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

    Anything but a regular file is refused.
    """
    file = Path(path)
    try:
        return read_regular(file, SIZE_LIMIT_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = Problem(0, 0, "", f"cannot read {file}: {reason}")
        raise ConfigError(str(file), [problem]) from error
