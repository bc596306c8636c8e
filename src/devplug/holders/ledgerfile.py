"""The file that takes what was held of one resource over a restart: read once, replaced as a whole."""

from __future__ import annotations

import hashlib
import logging
import threading
from typing import TYPE_CHECKING, Final

from devplug.holders.ledgertext import memory_of, text_of
from devplug.holders.wholefile import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devplug.holders.values import Memory

__all__ = ["LedgerFile"]

logger = logging.getLogger(__name__)

_NEVER: Final = -1


class LedgerFile:
    """The owner of the ledger file of one resource. No error of the file gets out of it.

    It may be written in any thread. `revision` grows with what is to be remembered.
    """

    def __init__(self, folder: Path, resource_name: str) -> None:
        mark = hashlib.sha256(resource_name.encode()).hexdigest()[:12]
        self._path = folder / f"held-{mark}.json"
        self._resource_name = resource_name
        self._written = _NEVER
        self._cannot_write = False
        self._lock = threading.Lock()

    def read(self) -> Memory | None:
        """Return what the last owner left, nothing held if there is no file, None if it is damaged."""
        try:
            return memory_of(self._path.read_text(encoding="utf-8"), self._resource_name)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            logger.warning(
                "cannot read who held devices before; releases until now go unnoticed",
                extra={
                    "resource_name": self._resource_name,
                    "path": str(self._path),
                    "reason": str(error),
                },
            )
            return None

    def is_behind(self, revision: int) -> bool:
        """Whether the file does not say yet what it should at this revision."""
        return self._written < revision

    def note_written(self, revision: int) -> None:
        """Note that the file says already what it should at this revision."""
        self._written = revision

    def write(self, revision: int, memory: Callable[[], Memory]) -> None:
        """Bring the file up to date, if it is not; the last whole file stays where that fails.

        Where nothing is held, there is no file.
        """
        with self._lock:
            # A thread may come to it late, with what was true before.
            if not self.is_behind(revision):
                return
            try:
                self._replace(memory())
            except OSError as error:
                if not self._cannot_write:
                    logger.warning(
                        "cannot write who holds devices; a release while this program is down goes unnoticed",
                        extra={
                            "resource_name": self._resource_name,
                            "path": str(self._path),
                            "reason": error.strerror,
                        },
                    )
                self._cannot_write = True
                return
            self._cannot_write = False
            self._written = revision

    def _replace(self, memory: Memory) -> None:
        """Write a whole file or none, for its owner alone."""
        if not memory:
            self._path.unlink(missing_ok=True)
            return
        write_whole(self._path, text_of(self._resource_name, memory))
