"""Which devices of a resource were given out and not cleaned since, for the next daemon."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from devplug.holders.wholefile import write_whole

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

__all__ = ["DirtyFile"]

logger = logging.getLogger(__name__)


class DirtyFile:
    """A small JSON file of one resource, which has one writer; there is none while nothing is dirty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cannot_write = False

    def read(self) -> frozenset[str]:
        """Return the names; none, with a warning, of a file that is damaged."""
        try:
            names = json.loads(self._path.read_text(encoding="utf-8"))
            if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
                raise ValueError("it is not a list of names")
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError) as error:
            logger.warning(
                "cannot read which devices are to be cleaned; they are given out as they are",
                extra={"path": str(self._path), "reason": str(error)},
            )
            return frozenset()
        return frozenset(names)

    def write(self, names: Collection[str]) -> None:
        """Make the file say `names`; a reader sees it as it was, or as it is, and so after a power cut.

        Blocks until the disk has it: a device is remembered before a container has it.
        """
        try:
            if names:
                write_whole(self._path, json.dumps(sorted(names)) + "\n")
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            if not self._cannot_write:
                logger.warning(
                    "cannot write which devices are to be cleaned; a restart forgets it",
                    extra={"path": str(self._path), "reason": error.strerror},
                )
            self._cannot_write = True
        else:
            self._cannot_write = False
