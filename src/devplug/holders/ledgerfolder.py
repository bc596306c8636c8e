"""Which resources of a ledger are remembered, and when their files are written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from devplug.holders.ledgerfile import LedgerFile

if TYPE_CHECKING:
    from pathlib import Path

    from devplug.holders.ledger import Ledger

__all__ = ["WRITE_PERIOD_SECONDS", "LedgerFolder"]

WRITE_PERIOD_SECONDS: Final = 0.25
"""How soon after a change, and at most how often, files are written: many pods may start at once."""


class LedgerFolder:
    """The files of the owned resources of one ledger, and lives as long; without a folder it keeps nothing.

    Programs of one machine share the folder, so each resource has a file of its own, and the one who serves
    it owns that.
    """

    def __init__(self, folder: Path | None, ledger: Ledger) -> None:
        self._folder = folder
        self._ledger = ledger
        self._files: dict[str, LedgerFile | None] = {}
        self._changed = asyncio.Event()

    def own(self, resource_name: str, now: float) -> None:
        """Read the file of a resource into the ledger, and keep it up to date from now on.

        Raises `ValueError` for a resource that is owned.
        """
        if resource_name in self._files:
            raise ValueError(f"{resource_name} is owned already")
        if self._folder is None:
            self._files[resource_name] = None
            return
        file = self._files[resource_name] = LedgerFile(self._folder, resource_name)
        read = file.read()
        if read is not None:
            self._ledger.recall(resource_name, read, now)
            known = self._ledger.memory(resource_name)
            if known == read or not (known or read):
                file.note_written(self._ledger.revision(resource_name))
        self._changed.set()

    def disown(self, resource_name: str) -> None:
        """Write what is not written yet, and leave the file of a resource alone from now on."""
        if file := self._files.pop(resource_name, None):
            self._write(resource_name, file)

    def note_changed(self) -> None:
        """Have the files looked after, soon."""
        self._changed.set()

    async def run(self) -> None:
        """Write what has changed, in a thread, until cancelled. No error of a file ends it."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            for resource_name, file in list(self._files.items()):
                revision = self._ledger.revision(resource_name)
                # It may have been disowned while another one was written.
                if file and file.is_behind(revision) and self._files.get(resource_name) is file:
                    memory = self._ledger.memory_later(resource_name)
                    await asyncio.to_thread(file.write, revision, memory)
            await asyncio.sleep(WRITE_PERIOD_SECONDS)

    def write(self) -> None:
        """Write what has changed, at once."""
        for resource_name, file in self._files.items():
            if file:
                self._write(resource_name, file)

    def _write(self, resource_name: str, file: LedgerFile) -> None:
        file.write(self._ledger.revision(resource_name), self._ledger.memory_later(resource_name))
