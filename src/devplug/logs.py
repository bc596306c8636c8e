"""Log lines: a constant message, then its facts, as text or as JSON; and where they go by default.

A line must come out whatever somebody gave as a fact: what has no text of its own gets one here.
"""

from __future__ import annotations

import json
import logging
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from devplug.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

AUDIT: Final = "devplug.audit"
"""The logger of what was registered, given out and let go: one line each, to be kept longer than others."""

Form: TypeAlias = Literal["text", "json"]

FORMS: Final[tuple[Form, ...]] = ("text", "json")

LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
"""The levels that a person may choose, by the word for each."""

_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest are the facts that the caller gave as `extra`."""

_WORDS: Final = frozenset({"time", "level", "logger", "message", "exception", "stack"})
"""Keys of a JSON line; a fact of that name gets a `_` behind it."""

_WHOLE_LIMIT: Final = 2**63
"""Integers beyond it are written as text: few readers of JSON have room for them."""

TEXT_LIMIT: Final = 4096
"""Longest message, and longest text of a fact, in characters: other programs choose some of them."""

LINE_LIMIT: Final = 16 * 1024
"""Characters of all facts of a record, and of a traceback; container runtimes cut lines at 16 KiB."""

_DEPTH_LIMIT: Final = 4
"""Lists within lists that stay lists; what is deeper, as a list within itself, becomes text."""


class FactFormatter(logging.Formatter):
    """Formats a record as one line: time, level, message, facts; a traceback below it if there is one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
        self._second = -1
        self._time = ""
        """That second as lines have it."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 -- as below
        """Return the time, which is the same for all lines of one second."""
        second = int(record.created)
        if second != self._second:
            self._second, self._time = second, super().formatTime(record, datefmt)
        return self._time

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- the standard library's name
        """Return one line without any traceback, whatever the message quotes."""
        facts = " ".join(f"{name}={_shown(value)}" for name, value in _facts(record))
        line = printable(_middle_cut(super().formatMessage(record)), keep="\t")
        return f"{line}  {facts}" if facts else line

    def formatException(self, ei: Any) -> str:  # noqa: ANN401, N802 -- the standard library's name and type
        """Return a traceback that is bounded and printable: an exception may repeat a foreign text."""
        return printable(_middle_cut(super().formatException(ei)), keep="\n\t")

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 -- the standard library's name
        """Return a stack in the same way."""
        return printable(_middle_cut(stack_info), keep="\n\t")


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line of ASCII.

    `time` (UTC, RFC 3339 with microseconds), `level`, `logger` and `message` come first, then the facts:
    numbers, truth values, texts and lists as such, anything else as its text. `exception` is a traceback,
    `stack` a stack, if the record has one.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields: dict[str, object] = {
            "time": _stamp(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        for name, value in _facts(record):
            fields[_text(name) + "_" * (name in _WORDS)] = _value(value)
        if record.exc_info or record.exc_text:
            fields["exception"] = _middle_cut(record.exc_text or self._traceback(record))
        if record.stack_info:
            fields["stack"] = _middle_cut(_text(record.stack_info))
        return json.dumps(fields, allow_nan=False)

    def _traceback(self, record: logging.LogRecord) -> str:
        if not isinstance(record.exc_info, tuple):
            return _text(record.exc_info)
        return _text(self.formatException(record.exc_info))


REPEAT_SECONDS: Final = 60.0
"""The shortest time between two equal lines of asyncio."""

_KNOWN_LIMIT: Final = 64


class RepeatFilter(logging.Filter):
    """Passes each line of a logger once a minute, with the number of equal lines since then as a fact.

    Lines are equal if their level, the first line of their message and the class of their error are. asyncio
    logs an error for each connection, callback or task that fails, and all may fail for one reason.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[object, ...], list[float]] = {}
        """When the line was passed, and how many were held back since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is passed."""
        error = record.exc_info[0] if record.exc_info else None
        key = (record.levelno, _message(record).partition("\n")[0], error)
        passed = self._known.get(key)
        if passed is not None and 0 <= record.created - passed[0] < REPEAT_SECONDS:
            passed[1] += 1
            return False
        if passed is not None and passed[1]:
            record.repeated = int(passed[1])
        self._known.pop(key, None)
        if len(self._known) >= _KNOWN_LIMIT:
            del self._known[next(iter(self._known))]
        self._known[key] = [record.created, 0]
        return True


def _facts(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    left = _Room()
    return ((name, left.cut(value)) for name, value in vars(record).items() if name not in _PLAIN)


class _Room:
    """What is left of `LINE_LIMIT` for one record."""

    def __init__(self) -> None:
        self._left = LINE_LIMIT
        self._floor = 0
        """What the fact that is cut now has to leave of it."""

    def cut(self, value: object, depth: int = 0) -> object:
        """Return a fact that fits: a text may lose its end, a list its last items."""
        if depth == 0:
            self._floor = max(0, self._left - TEXT_LIMIT)
        try:
            if value is None or isinstance(value, bool | float):
                return value
            if isinstance(value, list | tuple) and depth < _DEPTH_LIMIT:
                return self._cut_list(value, depth)
            if isinstance(value, int) and -_WHOLE_LIMIT <= int(value) < _WHOLE_LIMIT:
                return value
        except Exception:  # noqa: BLE001, S110 -- as in `_value`; its text is taken below
            pass
        text = _text(value)
        limit = max(self._left - self._floor, 0)
        self._left -= min(len(text), limit)
        if len(text) > limit:
            return f"{text[:limit]}... ({len(text)} characters)"
        return value if isinstance(value, str) else text

    def _cut_list(self, value: Sequence[object], depth: int) -> Sequence[object]:
        items: list[object] = []
        for one in value:
            if self._left <= self._floor:
                items.append(f"... and {len(value) - len(items)} more")
                break
            self._left -= 4  # quotes, comma and blank
            items.append(self.cut(one, depth + 1))
        return tuple(items) if isinstance(value, tuple) else items


def _middle_cut(text: str) -> str:
    """Return a text that keeps its beginning and its end."""
    if len(text) <= LINE_LIMIT:
        return text
    half = LINE_LIMIT // 2
    return f"{text[:half]} ... ({len(text) - 2 * half} characters left out) ... {text[-half:]}"


def _stamp(seconds: float) -> str:
    try:
        time = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # a machine without a clock may have any time
        time = datetime.fromtimestamp(0, UTC)
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    try:
        return _middle_cut(_text(record.getMessage()))
    except Exception:  # noqa: BLE001 -- arguments that do not fit; what was meant is still worth reading
        return _text(record.msg)


def _value(value: object, depth: int = 0) -> object:
    """Return a fact as JSON can have it."""
    try:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int) and -_WHOLE_LIMIT <= int(value) < _WHOLE_LIMIT:
            return int(value)
        if isinstance(value, float) and math.isfinite(value):
            return float(value)
        if isinstance(value, list | tuple) and depth < _DEPTH_LIMIT:
            return [_value(one, depth + 1) for one in value]
    except Exception:  # noqa: BLE001 -- as with texts: a kind of number or list that somebody made
        return _text(value)
    return _text(value)


def _text(value: object) -> str:
    """Return the text of anything, with an escape where a character cannot be written."""
    try:
        text = str(value)
        return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
    except Exception as error:  # noqa: BLE001 -- anybody's __str__, which must not cost us the line
        return f"<{type(value).__name__} without a text: {type(error).__name__}>"


def _shown(value: object) -> str:
    text = _text(value)
    is_plain = text.isprintable() and not (" " in text or '"' in text or "=" in text)
    return text if text and is_plain else json.dumps(text, ensure_ascii=not text.isprintable())


def show_logs(level: int = logging.INFO, form: Form = "text") -> None:
    """Send log lines to standard error, unless the program has set up logging itself.

    Lines below `level` are left out, but for the audit lines: those are always written.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    # Nothing of the format needs them, and finding the caller costs more than the line (logging HOWTO).
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else FactFormatter())
    root.addHandler(handler)
    # The libraries' own debug lines say nothing of devices.
    root.setLevel(max(level, logging.INFO))
    logging.getLogger("devplug").setLevel(level)
    logging.getLogger(AUDIT).setLevel(min(level, logging.INFO))
    logging.getLogger("asyncio").addFilter(RepeatFilter())
