"""The output of commands: whatever is written becomes printable, so that no foreign text moves the cursor.

Names of devices, claims and pods, and errors of API servers, are chosen by others. What rich draws goes past
the stream; its texts are made printable by `output.TerminalConsole`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from devplug.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO


class PrintableStream:
    """A text stream that escapes what a terminal may obey; line ends and tabs stay. Lives as its stream."""

    def __init__(self, stream: TextIO) -> None:
        self.terminal = stream
        """The stream behind it, for who escapes foreign texts itself."""

    def write(self, text: str | bytes) -> int:
        """Write a text, escaped; click writes completions as bytes."""
        if isinstance(text, bytes):
            text = text.decode(errors="backslashreplace")
        lines = text.split("\r\n")  # as in CSV; a lone one would overwrite the line
        self.terminal.write("\r\n".join(printable(line, keep="\n\t") for line in lines))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts, escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- whatever a stream has
        """Return anything else that the stream has; its bytes are written by nobody."""
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.terminal, name)


def guard_output() -> None:
    """Escape all that this process writes to its standard streams from now on."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, PrintableStream):
            setattr(sys, name, PrintableStream(stream))


def terminal_of(stream: TextIO | PrintableStream) -> TextIO:
    """Return the stream behind a guarded one, for what draws with escapes of its own."""
    return stream.terminal if isinstance(stream, PrintableStream) else stream
