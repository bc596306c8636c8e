"""The folder of CDI files of a test bed, with what was written to it."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from devplug.conformance.dra.cdi_rules import defined_names, is_spec_file, read_by_runtimes
from devplug.linux.inotify import EventKind, FileEvent, shared_watcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["CdiFolder", "watched_cdi_folder"]


class CdiFolder:
    """The folder, whose changes are noted as long as its `watched_cdi_folder` block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written_in_place: list[str] = []
        """Names that runtimes read, of files that were written under them instead of renamed to them."""

    def note(self, event: FileEvent) -> None:
        """Note one event."""
        name = Path(event.path).name
        if event.kind is EventKind.WRITTEN and is_spec_file(name):
            self.written_in_place.append(name)

    def files(self) -> dict[str, bytes]:
        """Return every file of the folder with its content."""
        found = {}
        for path in sorted(self.path.iterdir()):
            with suppress(OSError):
                found[path.name] = path.read_bytes()
        return found

    def defined(self) -> list[str]:
        """Return the fully qualified names that a runtime finds here."""
        return defined_names(read_by_runtimes(self.files()).values())


@asynccontextmanager
async def watched_cdi_folder(path: Path) -> AsyncIterator[CdiFolder]:
    """Watch the folder `path`, which exists."""
    folder = CdiFolder(path)
    async with shared_watcher() as watcher:
        with watcher.subscribe(lambda: None, folder.note) as subscription:
            subscription.arm([f"{path}/*"], writes_in=str(path))
            yield folder
