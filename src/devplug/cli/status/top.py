"""`devplug top`: the devices of a node on a whole terminal, drawn anew with each change and each key."""

from __future__ import annotations

import asyncio
import enum
import os
import re
import signal
import sys
import termios
import time
import tty
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click
from rich.live import Live

from devplug.cli.exits import BAD_INPUT, OK
from devplug.cli.output import TerminalConsole, rich_text
from devplug.cli.status.nodes import Follower
from devplug.cli.status.views.problems import essence
from devplug.cli.status.views.screen import (
    CHANGES_LIMIT,
    View,
    after_key,
    page_rows,
    screen_lines,
    shown_groups,
)
from devplug.linux.signals import stop_signals
from devplug.monitor.history import differences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devplug.cli.status.report import StatusQuery
    from devplug.cli.status.views.tables import DeviceGroup
    from devplug.monitor.history import Change
    from devplug.status import NodeStatus

_KEY: Final = re.compile(r"\x1b(\[[0-9;]*[A-Za-z~]|O[A-Za-z])?|.", re.DOTALL)
_BEGUN: Final = re.compile(r"\x1b(\[[0-9;]*|O)?$")
_READ_BYTES: Final = 1024
PACE_SECONDS: Final = 0.1
"""Changes of a node that come within this time are drawn as one; keys are not kept waiting."""

TICK_SECONDS: Final = 1.0
"""How often the ages are drawn anew."""


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────


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
def _keys_read(fd: int, press: Callable[[Key | str], None]) -> Iterator[None]:
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


# ── screen ────────────────────────────────────────────────────────────────────────────────────────


def top(query: StatusQuery) -> int:
    """Show nodes on the terminal until `q`, SIGTERM or Ctrl-C; return the exit code."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo("devplug: top needs a terminal; for files and pipes: devplug status -w", err=True)
        return BAD_INPUT
    if fault := query.fault():
        click.echo(f"devplug: {fault}", err=True)
        return BAD_INPUT
    query.keep_logs_quiet()
    asyncio.run(_run(query))
    return OK


async def _run(query: StatusQuery) -> None:
    follower = Follower(query.nodes)
    console = TerminalConsole(highlight=False, no_color=True if query.color == "never" else None)
    loop = asyncio.get_running_loop()
    async with stop_signals(has_terminal=True) as stopped, asyncio.TaskGroup() as group:
        shown = _Screen(query, follower, console, stopped.set)
        tasks = [group.create_task(follower.run()), group.create_task(shown.follow())]
        tasks.append(group.create_task(shown.draw_often()))
        with (
            Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live,
            _keys_read(sys.stdin.fileno(), shown.press),
        ):
            shown.live = live
            shown.draw()
            loop.add_signal_handler(signal.SIGWINCH, shown.draw)
            try:
                await stopped.wait()
            finally:
                loop.remove_signal_handler(signal.SIGWINCH)
                shown.live = None
        for task in tasks:
            task.cancel()


class _Screen:
    """What is on the screen: a view, the last statuses, what has changed. Lives as long as the command."""

    def __init__(
        self, query: StatusQuery, follower: Follower, console: TerminalConsole, end: Callable[[], None]
    ) -> None:
        self.live: Live | None = None
        self._query = query
        self._follower = follower
        self._console = console
        self._end = end
        self._view = View()
        self._nodes: tuple[NodeStatus, ...] = query.of(follower.statuses())
        self._changes: list[deque[Change]] = [deque(maxlen=CHANGES_LIMIT) for _ in self._nodes]
        self._groups: list[DeviceGroup] = []
        self._choose()

    def _choose(self) -> None:
        self._groups = shown_groups(self._nodes[self._view.node], self._view)

    async def follow(self) -> None:
        """Draw whatever changes, until cancelled. What is there at the start is no change."""
        await self._follower.wait_first()
        self._nodes = self._query.of(self._follower.statuses())
        while True:
            changed = self._follower.notifier.next
            before, self._nodes = self._nodes, self._query.of(self._follower.statuses())
            for place, (was, node) in enumerate(zip(before, self._nodes, strict=True)):
                if essence(was) != essence(node):
                    self._changes[place].extend(differences(was, node))
            self._choose()
            self.draw()
            await changed.wait()
            await asyncio.sleep(PACE_SECONDS)

    async def draw_often(self) -> None:
        """Keep the ages new, until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.draw()

    def press(self, key: Key | str) -> None:
        """Do what a key says."""
        view = after_key(
            self._view,
            key.name if isinstance(key, Key) else key,
            resources=[one.name for one in self._nodes[self._view.node].resources],
            rows=len(self._groups),
            page=page_rows(self._console.height),
            nodes=len(self._nodes),
        )
        if view is None:
            self._end()
            return
        if view != self._view:
            self._view = view
            self._choose()
            self.draw()

    def draw(self) -> None:
        """Draw the screen as it is now."""
        if self.live is None:
            return
        width, height = self._console.size
        lines = screen_lines(
            self._nodes[self._view.node],
            self._view,
            self._groups,
            self._changes[self._view.node],
            time.time(),
            width=width,
            height=height,
            nodes=len(self._nodes),
        )
        self.live.update(rich_text(lines), refresh=True)
