"""Keys of a terminal: what the bytes mean, and the mode in which they come one by one."""

from __future__ import annotations

import asyncio
import enum
import os
import re
import termios
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Key", "keys_in", "keys_read"]


class Key(enum.Enum):
    """A key that is no character."""

    UP = enum.auto()
    DOWN = enum.auto()
    PAGE_UP = enum.auto()
    PAGE_DOWN = enum.auto()
    HOME = enum.auto()
    END = enum.auto()


_SEQUENCES: Final = {
    "[A": Key.UP,
    "OA": Key.UP,
    "[B": Key.DOWN,
    "OB": Key.DOWN,
    "[5~": Key.PAGE_UP,
    "[6~": Key.PAGE_DOWN,
    "[H": Key.HOME,
    "OH": Key.HOME,
    "[1~": Key.HOME,
    "[F": Key.END,
    "OF": Key.END,
    "[4~": Key.END,
}
"""What follows ESC, as xterm and the Linux console send it."""

_KEY: Final = re.compile(r"\x1b(\[[0-9;]*[A-Za-z~]|O[A-Za-z])?|.", re.DOTALL)
_BEGUN: Final = re.compile(r"\x1b(\[[0-9;]*|O)?$")
_READ_BYTES: Final = 1024


def keys_in(text: str) -> tuple[list[Key | str], str]:
    """Return the keys of what came from a terminal, and the begin of one of which the rest has to come.

    A key that we have no use for is left out.
    """
    begun = _BEGUN.search(text)
    whole = text[: begun.start()] if begun else text
    found = [_SEQUENCES.get(one[1:]) if one.startswith("\x1b") else one for one in _matches(whole)]
    return [one for one in found if one is not None], begun.group() if begun else ""


def _matches(text: str) -> Iterator[str]:
    return (match.group() for match in _KEY.finditer(text))


@contextmanager
def keys_read(fd: int, press: Callable[[Key | str], None]) -> Iterator[None]:
    """Call `press` for each key while the block lasts; then the terminal is as before.

    Ctrl-C stays a signal. Ctrl-Z does nothing: a shell would come back to a screen that is not its own.
    """
    loop = asyncio.get_running_loop()
    before = termios.tcgetattr(fd)
    kept = ""

    def read() -> None:
        nonlocal kept
        came = os.read(fd, _READ_BYTES)
        if not came:
            loop.remove_reader(fd)
            press("q")  # the terminal is gone
        keys, kept = keys_in(kept + came.decode("utf-8", "replace"))
        for key in keys:
            press(key)

    tty.setcbreak(fd)
    mode = termios.tcgetattr(fd)
    mode[6][termios.VSUSP] = b"\0"
    termios.tcsetattr(fd, termios.TCSANOW, mode)
    loop.add_reader(fd, read)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSAFLUSH, before)
