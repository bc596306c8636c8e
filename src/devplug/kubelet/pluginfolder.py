"""The plugin folder on disk: what the kubelet removes there, where it finds a socket, the checkpoint file."""

from __future__ import annotations

import errno
import logging
import os
import posixpath
import re
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from devplug.errors import KubeletError, RegistrationError
from devplug.kubelet.gotext import go_quoted
from devplug.kubelet_dir import CHECKPOINT_NAME, KUBELET_ROOT, KUBELET_SOCKET
from devplug.wire.sockets import UNIX_SOCKETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.wire.sockets import Sockets

logger = logging.getLogger(__name__)

DAMAGED_NAME: Final = f"{CHECKPOINT_NAME}.damaged"
"""Where the last checkpoint is kept that could not be used."""

CHECKPOINT_LIMIT_BYTES: Final = 256 * 1024 * 1024
"""Some hundred times what a full node with large responses has."""


class PluginFolder:
    """The folder that kubelet and plugins share, as `/var/lib/kubelet/device-plugins`. Holds nothing open.

    `sockets` is what its sockets are made and called with.
    """

    def __init__(self, path: Path, sockets: Sockets = UNIX_SOCKETS) -> None:
        self.path = path
        self.sockets = sockets

    @property
    def kubelet_socket(self) -> Path:
        """Where plugins register."""
        return self.path / KUBELET_SOCKET

    def prepare(self) -> None:
        """Make the folder and remove every socket in it (manager.go CleanupPluginDirectory).

        Sockets with a leading dot go too, and links to sockets. Folders, regular files, the checkpoint and
        links to nowhere stay. Raises `KubeletError` if something cannot be removed, or if a file that is no
        socket has the name of ours: the real kubelet ends then.
        """
        try:
            self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
            for path in self._sockets():
                path.unlink()
        except OSError as error:
            raise KubeletError(f"cannot clean {self.path}: {error}") from error
        if os.path.lexists(self.kubelet_socket):
            raise KubeletError(f"listen unix {self.kubelet_socket}: bind: address already in use")

    def socket_path(self, endpoint: str) -> Path:
        """Return where a plugin's socket should be: joined to the folder and cleaned, no more (server.go).

        So `/x.sock` is under the folder too, `../x.sock` is outside, and an empty endpoint is the folder.
        """
        return Path(posixpath.normpath(f"{self.path}/{endpoint}"))

    def read_checkpoint(self) -> bytes | None:
        """Return the checkpoint file's content; None if there is none. Raises `OSError`.

        That also for a pipe, which would be waited for without end, and for what no kubelet writes.
        """
        path = self.path / CHECKPOINT_NAME
        try:
            if not (path.is_file() or path.is_dir()) and path.exists():
                raise OSError(errno.EINVAL, "it is not a regular file", str(path))
            if (size := path.stat().st_size) > CHECKPOINT_LIMIT_BYTES:
                raise OSError(errno.EFBIG, f"it has {size} bytes", str(path))
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def keep_checkpoint_aside(self) -> None:
        """Keep a checkpoint that cannot be used under a second name, which the next write leaves alone.

        The real kubelet loses it then. Raises `OSError`.
        """
        aside = self.path / DAMAGED_NAME
        aside.unlink(missing_ok=True)
        aside.hardlink_to(self.path / CHECKPOINT_NAME)

    def write_checkpoint(self, content: bytes) -> None:
        """Replace the checkpoint file in one step, mode 0600 (filestore.go writeFile). Raises `OSError`.

        This blocks until the disk has it, and so does the real kubelet: a plugin that sends lists without
        need pays for it in both.
        """
        replace_file(self.path / CHECKPOINT_NAME, content)

    def _sockets(self) -> Iterator[Path]:
        for path in sorted(self.path.iterdir()):
            if path.name == CHECKPOINT_NAME:
                continue
            try:
                mode = path.stat().st_mode
            except OSError as error:
                logger.warning(
                    "cannot examine a file in the plugin folder; it stays there",
                    extra={"path": str(path)},
                    exc_info=error,
                )
                continue
            if stat.S_ISSOCK(mode):
                yield path


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file in one step, mode 0600, and wait until the disk has it. Raises `OSError`."""
    descriptor, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 -- a descriptor has no path
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def endpoint_path(endpoint: str, root: Path) -> Path:
    """Return where a kubelet whose folder is `root` finds the service socket that a plugin names.

    A plugin that has this folder mounted at `KUBELET_ROOT` names a path there.
    """
    named = Path(endpoint)
    return root / named.relative_to(KUBELET_ROOT) if Path(KUBELET_ROOT) in named.parents else named


def dialled_path(path: Path) -> Path:
    """Return the path that the kubelet's dial really ends at: Go's gRPC parses it as a URL first (client.go).

    What follows `#` or `?` is lost, and `%20` is a space. Raises `RegistrationError` for what is not a URL.
    """
    text = str(path)
    if any(character < " " or character == "\x7f" for character in text):
        raise RegistrationError(
            f"failed to dial device plugin: parse {go_quoted(f'passthrough:///{text}')}: "
            "net/url: invalid control character in URL",
        )
    before_fragment = text.partition("#")[0]
    if broken := re.search(r"%(?![0-9A-Fa-f]{2}).{0,2}", before_fragment):
        raise RegistrationError(
            f"failed to dial device plugin: parse {go_quoted(f'passthrough:///{text}')}: "
            f"invalid URL escape {go_quoted(broken.group())}",
        )
    return Path(unquote(before_fragment.partition("?")[0], errors="surrogateescape"))
