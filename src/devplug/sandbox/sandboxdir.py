"""The folder of a sandbox: its layout, the sandbox that is up in it, and its devices.

One process is up in a folder at a time; the kernel's lock says which, so a sandbox that was killed leaves
nothing to clean up.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from devplug.errors import DevplugError, quoted
from devplug.k8s.objects import entries, part, text, whole
from devplug.kubelet_dir import REGISTRY_NAME
from devplug.linux.processes import node_folders
from devplug.linux.trust import UntrustedError, check_trusted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SANDBOX_DIR_VARIABLE: Final = "DEVPLUG_SANDBOX_DIR"
"""Names the folder where no option does."""

_SOCKET_PATH_BYTES: Final = 107
"""The longest path of a Unix socket (unix(7): 108 with the zero byte)."""

_LONGEST_SOCKET_NAME: Final = "devplug-0123456789ab-4194304-cacao.sock"
"""As long as the names that our own plugins give their sockets, with the largest process ID."""

_PLUGGED_LIMIT_BYTES: Final = 63
"""The longest name of a device that can be plugged in: it may become a device ID."""

_ROOT: Final = PurePosixPath("/")
_PRIVATE: Final = 0o700
_CLAIM_TRIES: Final = 5
_CLAIM_PAUSE_SECONDS: Final = 0.02


class SandboxDirError(DevplugError):
    """A folder cannot be a sandbox's, or not now; the text says what to change."""


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """What other programs need to know of a running sandbox; `sandbox.json` while it is up."""

    pid: int
    server: str
    """The URL as it is in the kubeconfig."""
    token: str
    started: str
    """The time, as the API writes it."""
    nodes: tuple[str, ...]
    certificate: str = ""
    """The file with the certificate that the server shows; empty without TLS."""
    rbac: bool = False
    """Whether roles decide what users may do."""


@dataclass(frozen=True, slots=True)
class NodeDir:
    """The folders of one node: what `/var/lib/kubelet` has on a real one."""

    folder: Path

    @property
    def plugin_dir(self) -> Path:
        """Where plugins register and have their sockets."""
        return self.folder / "device-plugins"

    @property
    def plugins_registry(self) -> Path:
        """Where the kubelet finds plugins by their sockets."""
        return self.folder / REGISTRY_NAME

    @property
    def pod_resources_socket(self) -> Path:
        """Where monitors ask who holds what."""
        return self.folder / "pod-resources" / "kubelet.sock"

    @property
    def cdi(self) -> Path:
        """Where the node's runtime looks for CDI files: `/var/run/cdi` on a real one."""
        return self.folder / "cdi"

    @property
    def manifests(self) -> Path:
        """Where the kubelet finds static pods: `/etc/kubernetes/manifests` on a real node."""
        return self.folder / "manifests"

    def mounts(self, paths: Iterable[str]) -> dict[str, Path]:
        """Return what a container finds at the paths of the node that it mounts, as far as it is here.

        Of a path above one of our folders that is our folder; for a path below, a folder is made. For a file,
        such as a socket, the folder around it is meant.
        """
        found = {}
        for path in (path for path in map(PurePosixPath, paths) if ".." not in path.parts):
            for known, folder in node_folders(self.folder, self.cdi).items():
                place = PurePosixPath(known)
                if place.is_relative_to(path) and path != _ROOT:
                    found[known] = folder
                elif path.is_relative_to(place):
                    inside = path.relative_to(place)
                    if (folder / inside).exists() and not (folder / inside).is_dir():
                        inside = inside.parent
                    (folder / inside).mkdir(parents=True, exist_ok=True)
                    found[str(place / inside)] = folder / inside
        return dict(sorted(found.items()))

    def make(self) -> None:
        """Make the folders."""
        for folder in (
            self.cdi,
            self.manifests,
            self.plugin_dir,
            self.plugins_registry,
            self.pod_resources_socket.parent,
        ):
            folder.mkdir(parents=True, exist_ok=True)


def default_folder(environment: Mapping[str, str], uid: int) -> Path:
    """Return the folder of this user's sandbox where none is named.

    Systemd's folder for what runs is used if it is there and this user's: `sudo` may leave another's.
    """
    if named := environment.get(SANDBOX_DIR_VARIABLE):
        return Path(named)
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    with suppress(OSError):
        if runtime.startswith("/") and Path(runtime).stat().st_uid == uid:
            return Path(runtime, "devplug-sandbox")
    return Path(f"/tmp/devplug-sandbox-{uid}")  # noqa: S108 -- made with mode 0700, refused if another's


class SandboxDir:
    """The folder of a sandbox, whether one is up in it or not; nothing is made or opened until asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.kubeconfig = self.folder / "kubeconfig"
        self.record_file = self.folder / "sandbox.json"
        self.lock_file = self.folder / "lock"
        self.devices = self.folder / "dev"
        """Each entry is a device that is plugged in."""
        self.logs = self.folder / "logs"
        """What the programs of containers print."""
        self.accounts = self.folder / "accounts"
        """The kubeconfigs of pods, of which the programs of one get theirs."""
        self.own_log = self.folder / "sandbox.log"
        """What a sandbox in the background prints."""

    def node(self, name: str) -> NodeDir:
        """Return the folders of a node."""
        return NodeDir(self.folder / "nodes" / name)

    # ── who is up ──

    def running(self) -> SandboxRecord | None:
        """Return what is known of the sandbox that is up here; None if none is, or not yet.

        Raises `SandboxDirError` for a folder that others could have made or filled.
        """
        if not self._is_there():
            return None
        try:
            found = json.loads(self.record_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not self.is_claimed():
            return None  # it was killed
        return SandboxRecord(
            whole(found, "pid"),
            text(found, "server"),
            text(found, "token"),
            text(found, "started"),
            tuple(map(str, entries(found, "nodes"))),
            text(found, "certificate"),
            part(found, "rbac") is True,
        )

    def is_claimed(self) -> bool:
        """Whether a sandbox is up here, starts or ends; raises `SandboxDirError` as `running` does."""
        if not self._is_there():
            return False
        try:
            fd = os.open(self.lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(fd)

    def prepare(self, node_count: int = 1) -> None:
        """Make the folder, or make sure that it is ours and nobody else may look into it.

        Raises `SandboxDirError`.
        """
        self._refuse_long_path(node_count)
        try:
            self.folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        except OSError as error:
            raise SandboxDirError(
                f"cannot make {self.folder} ({error.strerror}); name another with --dir"
            ) from error
        self._is_there()
        if not self.lock_file.exists() and any(self.folder.iterdir()):
            raise SandboxDirError(
                f"{self.folder} has other things in it; name an empty folder, or one to be made"
            )
        os.close(os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # the mark of ours

    @contextmanager
    def claimed(self, *, node_count: int = 1, keeps: bool = False) -> Iterator[None]:
        """Hold the folder for one sandbox; raises `SandboxDirError` if it cannot be had.

        What a former one has left is removed first, and what this one has made at the end; with `keeps`, the
        nodes' folders stay, in which the kubelets remember who holds what.
        """
        self.prepare(node_count)
        fd = self._lock()
        try:
            self._clear(keeps=keeps)
            self.devices.mkdir(exist_ok=True)
            self.logs.mkdir()
            yield
        finally:
            self._clear(keeps=keeps)
            os.close(fd)

    def announce(self, record: SandboxRecord) -> None:
        """Write the record of the running sandbox. Call it last, with the folder claimed."""
        self.write_private(self.record_file, json.dumps(asdict(record), indent=2) + "\n")

    def write_private(self, file: Path, content: str) -> None:
        """Write a file of this folder that only this user may read; it is there as a whole or not at all."""
        new = file.with_name(f".{file.name}.new")
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as opened:
            opened.write(content)
        new.replace(file)

    # ── devices ──

    def plugged(self) -> list[str]:
        """Return the names of the devices that are plugged in."""
        try:
            return sorted(entry.name for entry in self.devices.iterdir())
        except OSError:
            return []

    def plug(self, names: list[str]) -> list[str]:
        """Plug devices in, links to a device that everybody may use; return those that were not there."""
        _check(names)
        added = []
        for name in names:
            with suppress(FileExistsError):
                (self.devices / name).symlink_to("/dev/null")
                added.append(name)
        return added

    def unplug(self, names: list[str]) -> list[str]:
        """Pull devices out; return those that were there."""
        _check(names)
        removed = []
        for name in names:
            with suppress(FileNotFoundError):
                (self.devices / name).unlink()
                removed.append(name)
        return removed

    # ── inside ──

    def _is_there(self) -> bool:
        """Whether the folder is there; raises `SandboxDirError` if what is in it may be another user's.

        Its kubeconfig names commands that kubectl starts, so it is asked before any file of it is opened.
        """
        try:
            found = self.folder.lstat()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise SandboxDirError(
                f"cannot look at {self.folder} ({error.strerror}); name another folder with --dir"
            ) from error
        if stat.S_ISLNK(found.st_mode):
            raise SandboxDirError(f"{self.folder} is a link; name the folder itself with --dir")
        if not stat.S_ISDIR(found.st_mode):
            raise SandboxDirError(f"{self.folder} is not a folder; name another with --dir")
        if found.st_uid != os.geteuid():
            raise SandboxDirError(
                f"{self.folder} belongs to uid {found.st_uid}, and what is in it is not trusted; "
                "name another folder with --dir"
            )
        if found.st_mode & 0o077:
            raise SandboxDirError(
                f"others may look into {self.folder}, where the access token lies: chmod 700 {self.folder}"
            )
        try:
            check_trusted(self.folder, "name another folder with --dir")
        except UntrustedError as error:
            raise SandboxDirError(str(error)) from error
        return True

    def _refuse_long_path(self, node_count: int) -> None:
        deepest = self.node(f"worker-{max(0, node_count - 1)}").plugin_dir / _LONGEST_SOCKET_NAME
        over = len(os.fsencode(deepest)) - _SOCKET_PATH_BYTES
        if over > 0:
            by = "1 byte" if over == 1 else f"{over} bytes"
            raise SandboxDirError(
                f"{self.folder} is {by} too long for the sockets in it; name a shorter one with --dir"
            )

    def _lock(self) -> int:
        fd = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for _ in range(_CLAIM_TRIES):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_CLAIM_PAUSE_SECONDS)  # somebody may only have looked whether it is held
            else:
                return fd
        os.close(fd)
        if record := self.running():
            raise SandboxDirError(
                f"a sandbox is up in {self.folder} (process {record.pid}); "
                "end it with devplug sandbox down, or name another folder with --dir"
            )
        raise SandboxDirError(f"a sandbox starts or ends in {self.folder}; try again")

    def _clear(self, *, keeps: bool) -> None:
        for file in (self.record_file, self.kubeconfig):
            file.unlink(missing_ok=True)
        for folder in (self.accounts, self.devices, self.logs, *(() if keeps else (self.folder / "nodes",))):
            shutil.rmtree(folder, ignore_errors=True)


def _check(names: list[str]) -> None:
    for name in names:
        if not name or name.startswith((".", "-")) or "/" in name or not name.isprintable():
            raise SandboxDirError(f"{quoted(name)} is no name for a device; write a word, as in tty0")
        if len(name.encode()) > _PLUGGED_LIMIT_BYTES:
            raise SandboxDirError(f"{quoted(name)} has more than {_PLUGGED_LIMIT_BYTES} bytes")
