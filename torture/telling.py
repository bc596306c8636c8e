"""What the product logs while a case plays, counted: it must not grow with what a peer does."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Told", "told"]


class Told(logging.Handler):
    """A handler that keeps no line, only how often each constant message came."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.counts: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """How many lines there were."""
        return self.counts.total()

    def emit(self, record: logging.LogRecord) -> None:
        """Count one line."""
        self.counts[str(record.msg)] += 1


@contextmanager
def told(name: str = "devplug") -> Iterator[Told]:
    """Count the lines of a logger and all below it for a block, at the level that a daemon has by default."""
    logger = logging.getLogger(name)
    handler = Told()
    before = logging.root.manager.disable, logger.level, logger.propagate
    logging.disable(logging.NOTSET)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # Or the last resort would write warnings to standard error, which is no part of what is measured.
    logger.propagate = bool(logging.root.handlers)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        disabled, level, logger.propagate = before
        logger.setLevel(level)
        logging.disable(disabled)
