"""A command on a terminal of its own: what it draws, what is typed, and how it leaves the terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.programs import DEVPLUG, environment

PATIENCE_SECONDS = 30.0
_HOME = "\x1b[H"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\r")


class Drawn:
    """A command that runs on a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, slave: int) -> None:
        self.process = process
        self.raw = ""
        """All that came, with what moves the cursor."""
        self._master = master
        self._slave = slave

    def until(self, claim: Callable[[str], object]) -> str:
        """Return the first picture from now on of which the claim is true."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            for picture in self.raw.split(_HOME):
                if claim(text := _ESCAPES.sub("", picture)):
                    self.raw = self.raw[self.raw.rindex(picture) :]
                    return text
            self._read(deadline)

    def latest(self, end: str) -> str:
        """Return the last whole picture, one that has `end` in it; nothing before the first."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._has_more():
            self._read(deadline)
        *_, before, last = ["", *self.raw.split(_HOME)]
        self.raw = _HOME.join((before, last))
        text = _ESCAPES.sub("", last)
        return text if end in text else _ESCAPES.sub("", before)

    def type(self, text: str) -> None:
        """Press keys; what was drawn before is forgotten."""
        self.raw = ""
        os.write(self._master, text.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Make the terminal larger or smaller."""
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.raw = ""
        self.process.send_signal(signal.SIGWINCH)

    def mode(self) -> list[object]:
        """Return how the terminal is set."""
        return termios.tcgetattr(self._slave)

    def ended(self) -> int:
        """Read to the end of the command; return its exit code."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None:
            self._read(deadline, seconds=0.05)
        while self._has_more():
            self._read(deadline)
        return self.process.returncode

    def _has_more(self) -> bool:
        return bool(select.select([self._master], [], [], 0)[0])

    def _read(self, deadline: float, *, seconds: float | None = None) -> None:
        left = deadline - time.monotonic()
        if left <= 0 or (seconds is None and self.process.poll() is not None and not self._has_more()):
            raise AssertionError(f"it never came; there was: {self.raw[-3000:]!r}")
        if select.select([self._master], [], [], min(left, seconds or 1.0))[0]:
            self.raw += os.read(self._master, 65536).decode(errors="replace")


@contextmanager
def drawn(*arguments: str | Path, columns: int = 80, lines: int = 24) -> Iterator[Drawn]:
    """Start `devplug` on a terminal of this size; it is dead when the block is left."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = subprocess.Popen(
        [*DEVPLUG, *map(str, arguments)],
        # The size is the terminal's, whatever that of who runs the tests is.
        env={
            name: value
            for name, value in environment(TERM="xterm-256color").items()
            if name not in {"LINES", "COLUMNS"}
        },
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    try:
        yield Drawn(process, master, slave)
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)
