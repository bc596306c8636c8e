"""`devplug top`: the devices of a node on a whole terminal, drawn anew with each change and each key."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.live import Live

from devplug.cli.exits import BAD_INPUT, OK
from devplug.cli.looking.following import Follower
from devplug.cli.looking.keys import Key, keys_read
from devplug.cli.looking.showing import rich_text
from devplug.cli.looking.views.judging import essence
from devplug.cli.looking.views.screen import (
    CHANGES_LIMIT,
    View,
    after_key,
    page_rows,
    screen_lines,
    shown_groups,
)
from devplug.monitor.differences import differences
from devplug.plugin.serving import stop_signals

if TYPE_CHECKING:
    from collections.abc import Callable

    from devplug.cli.looking.looked import Looked
    from devplug.cli.looking.views.grouping import Group
    from devplug.monitor.differences import Change
    from devplug.status.values import NodeStatus

__all__ = ["top"]

PACE_SECONDS: Final = 0.1
"""Changes of a node that come within this time are drawn as one; keys are not kept waiting."""

TICK_SECONDS: Final = 1.0
"""How often the ages are drawn anew."""


def top(looked: Looked) -> int:
    """Show nodes on the terminal until `q`, SIGTERM or Ctrl-C; return the exit code."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo("devplug: top needs a terminal; for files and pipes: devplug status -w", err=True)
        return BAD_INPUT
    if fault := looked.fault():
        click.echo(f"devplug: {fault}", err=True)
        return BAD_INPUT
    looked.keep_logs_quiet()
    asyncio.run(_run(looked))
    return OK


async def _run(looked: Looked) -> None:
    follower = Follower(looked.nodes)
    console = Console(highlight=False, no_color=True if looked.color == "never" else None)
    loop = asyncio.get_running_loop()
    async with stop_signals(has_terminal=True) as stopped, asyncio.TaskGroup() as group:
        shown = _Screen(looked, follower, console, stopped.set)
        tasks = [group.create_task(follower.run()), group.create_task(shown.follow())]
        tasks.append(group.create_task(shown.draw_often()))
        with (
            Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live,
            keys_read(sys.stdin.fileno(), shown.press),
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

    def __init__(self, looked: Looked, follower: Follower, console: Console, end: Callable[[], None]) -> None:
        self.live: Live | None = None
        self._looked = looked
        self._follower = follower
        self._console = console
        self._end = end
        self._view = View()
        self._nodes: tuple[NodeStatus, ...] = looked.of(follower.statuses())
        self._changes: list[deque[Change]] = [deque(maxlen=CHANGES_LIMIT) for _ in self._nodes]
        self._groups: list[Group] = []
        self._choose()

    def _choose(self) -> None:
        self._groups = shown_groups(self._nodes[self._view.node], self._view)

    async def follow(self) -> None:
        """Draw whatever changes, until cancelled. What is there at the start is no change."""
        await self._follower.wait_first()
        self._nodes = self._looked.of(self._follower.statuses())
        while True:
            changed = self._follower.pulse.next
            before, self._nodes = self._nodes, self._looked.of(self._follower.statuses())
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
