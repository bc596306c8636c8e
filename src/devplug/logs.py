"""How log lines look: a constant message, then its facts. Used only where nobody set up logging."""

from __future__ import annotations

import json
import logging
from typing import Final

__all__ = ["AUDIT", "FactFormatter", "show_logs"]

AUDIT: Final = "devplug.audit"
"""The logger of what was registered, given out and let go: one line each, to be kept longer than others."""

_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest are the facts that the caller gave as `extra`."""


class FactFormatter(logging.Formatter):
    """Formats a record as one line: time, level, message, facts; a traceback below it if there is one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- the standard library's name
        """Return the line without any traceback."""
        facts = " ".join(
            f"{name}={_shown(value)}" for name, value in vars(record).items() if name not in _PLAIN
        )
        line = super().formatMessage(record)
        return f"{line}  {facts}" if facts else line


def _shown(value: object) -> str:
    text = str(value)
    is_plain = text.isprintable() and not set(text) & {" ", '"', "="}
    return text if text and is_plain else json.dumps(text, ensure_ascii=not text.isprintable())


def show_logs(level: int = logging.INFO) -> None:
    """Send log lines to standard error, unless the program has set up logging itself."""
    root = logging.getLogger()
    if root.handlers:
        return
    # Nothing of the format needs them, and finding the caller costs more than the line (logging HOWTO).
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001
    handler = logging.StreamHandler()
    handler.setFormatter(FactFormatter())
    root.addHandler(handler)
    root.setLevel(level)
