"""The CDI files of resources, one for each. Their content is in `devplug.cdi.spec`.

A file is locked (flock) for as long as the daemon that wrote it lives, so two daemons on one machine never
clean up each other's.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
from typing import TYPE_CHECKING, Final

from devplug.cdi.files import (
    CDI_FOLDER,
    content_of,
    explained,
    is_remains,
    is_same_file,
    opened,
    try_lock,
    write_locked,
)
from devplug.cdi.spec import faults, parse, qualified_name, text
from devplug.errors import KubeletError, PluginError, quoted

if TYPE_CHECKING:
    from collections.abc import Collection
    from contextlib import AbstractContextManager
    from pathlib import Path

    from devplug.cdi.spec import CdiSpec

# A pattern as a text: `re` compiles and keeps it at its first use, which most daemons never have.
_OURS: Final = r"devplug\.[A-Za-z0-9._-]+-[0-9a-f]{12}\.json"

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
            if self._has(spec.kind, content):
                return False
            self._hold(spec.kind, write_locked(self.folder, file_name(spec.kind), _mark(spec.kind), content))
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
            remains = [name for name in names if is_remains(name)]
            stale = [name for name in names if re.fullmatch(_OURS, name)]
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
        fd = opened(self.folder / name)
        if fd is None:
            return None
        try:
            spec = parse(content_of(fd))
        finally:
            os.close(fd)
        return spec if spec is not None and file_name(spec.kind) == name else None

    def _has(self, kind: str, content: bytes) -> bool:
        """Whether the file is ours, locked, and has this content. Raises if another program owns it."""
        name = file_name(kind)
        path = self.folder / name
        fd = opened(self.folder / name)
        if fd is None:
            if os.path.lexists(path):
                raise KubeletError(
                    f"{path} is not a regular file, but devplug must write one there; move it away"
                )
            return False
        try:
            there = content_of(fd)
            old = parse(there)
            # An empty file is what a power cut leaves behind on some file systems.
            if there and (old is None or old.kind != kind):
                raise KubeletError(f"{path} was not written by devplug, which must write there; move it away")
            is_right = there == content and stat.S_IMODE(os.fstat(fd).st_mode) == 0o644
            if is_right and (self._is_held(kind, fd) or try_lock(fd)):
                if not self._is_held(kind, fd):
                    self._hold(kind, os.dup(fd))
                return True
        finally:
            os.close(fd)
        return False

    def _remove(self, name: str, kind: str = "") -> bool:
        """Remove a file, if no other daemon has it locked and, for a `kind`, if it still says that one."""
        fd = opened(self.folder / name)
        if fd is None:
            return False
        try:
            if not (self._is_held(kind, fd) or try_lock(fd)):
                return False
            path = self.folder / name
            if not is_same_file(os.fstat(fd), path.lstat()):
                return False  # replaced since, by one that is alive
            if kind:
                spec = parse(content_of(fd))
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

    def _is_held(self, kind: str, fd: int) -> bool:
        """Whether an open file is the one that we have locked; the lock cannot tell two opens apart."""
        ours = self._locked.get(kind)
        return ours is not None and is_same_file(os.fstat(ours), os.fstat(fd))

    def _hold(self, kind: str, fd: int) -> None:
        if kind in self._locked:
            os.close(self._locked.pop(kind))
        self._locked[kind] = fd

    def _explained(self, doing: str) -> AbstractContextManager[None]:
        return explained(self.folder, doing)
