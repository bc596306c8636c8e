"""The file that takes a ledger over a restart: read once, replaced as a whole when there is something new."""

from __future__ import annotations

import logging
from pathlib import Path
from tempfile import NamedTemporaryFile

from devplug.holders.ledgertext import memory_of, text_of
from devplug.holders.values import Memory

__all__ = ["LedgerFile"]

logger = logging.getLogger(__name__)


class LedgerFile:
    """The owner of one ledger file; without a path it keeps nothing. No error of the file gets out of it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._written = Memory()
        self._cannot_write = False

    def read(self) -> Memory:
        """Return what the last process left; a damaged file is as good as none."""
        if self._path is None:
            return Memory()
        try:
            self._written = memory_of(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return Memory()
        except (OSError, ValueError) as error:
            logger.warning(
                "cannot read who held devices before; releases until now go unnoticed",
                extra={"path": str(self._path), "reason": str(error)},
            )
        return self._written

    def write(self, memory: Memory) -> None:
        """Bring the file up to date, if it is not; the last whole file stays where that fails."""
        if self._path is None or memory == self._written:
            return
        try:
            _replace(self._path, text_of(memory))
        except OSError as error:
            if not self._cannot_write:
                logger.warning(
                    "cannot write who holds devices; a release while this program is down goes unnoticed",
                    extra={"path": str(self._path), "reason": error.strerror},
                )
            self._cannot_write = True
            return
        self._cannot_write = False
        self._written = memory


def _replace(path: Path, text: str) -> None:
    """Write a whole file or none, for its owner alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=".", delete=False) as file:
        try:
            file.write(text)
            file.close()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
