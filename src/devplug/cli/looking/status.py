"""`devplug status`: what a node's plugins and kubelet tell at this moment, or whatever changes of it."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Final, cast

import click
from rich.live import Live

from devplug.cli.exits import BAD_INPUT, FAILED, OK
from devplug.cli.looking.following import Follower
from devplug.cli.looking.places import no_answer
from devplug.cli.looking.showing import Terminal, rich_text
from devplug.cli.looking.views.judging import answers, essence, wrongs
from devplug.cli.looking.views.tables import csv_text
from devplug.cli.looking.views.words import Cell, Tone, clock, printable
from devplug.cli.printing import print_value
from devplug.monitor.collecting import collected
from devplug.monitor.differences import differences
from devplug.plugin.serving import stop_signals
from devplug.status.text import node_value
from devplug.yamltext import yaml_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devplug.cli.looking.looked import Looked
    from devplug.cli.looking.places import NodeFolders
    from devplug.status.values import NodeStatus
    from devplug.yamltext import Value

__all__ = ["status", "watch"]

PACE_SECONDS: Final = 0.1
"""Changes that come within this time are shown as one."""

TICK_SECONDS: Final = 1.0
"""How often the ages on a terminal are drawn anew; nobody is asked for that."""


def status(looked: Looked) -> int:
    """Print how the nodes are; return 0 if all is well, 1 if something is wrong, 2 if nobody answers."""
    if fault := looked.fault():
        click.echo(f"devplug: {fault}", err=True)
        return BAD_INPUT
    looked.keep_logs_quiet()
    everything = asyncio.run(_all_collected(looked.nodes))
    if not any(map(answers, everything)):
        for folders, one in zip(looked.nodes, everything, strict=True):
            click.echo(f"devplug: {no_answer(folders, one.problems)}", err=True)
        return BAD_INPUT
    shown = looked.of(everything)
    if looked.resources and not any(one.resources for one in shown):
        names = ", ".join(dict.fromkeys(one.name for node in everything for one in node.resources))
        asked = " or ".join(looked.resources)
        click.echo(f"devplug: no resource matches {asked}; there are: {names or 'none'}", err=True)
        return FAILED
    _print(looked, shown)
    return FAILED if any(map(wrongs, shown)) else OK


async def _all_collected(nodes: Sequence[NodeFolders]) -> list[NodeStatus]:
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(collected(one.plugin_dir, one.pod_resources, node_name=one.name))
            for one in nodes
        ]
    return [one.result() for one in asked]


def _print(looked: Looked, nodes: Sequence[NodeStatus]) -> None:
    if looked.output == "csv":
        click.echo(csv_text(nodes, unhealthy=looked.unhealthy), nl=False)
    elif looked.output in {"json", "yaml"}:
        values = [node_value(one) for one in nodes]
        print_value(cast("Value", {"nodes": values} if looked.is_listed else values[0]), looked.output)
    else:
        terminal = Terminal(color=looked.color)
        terminal.print(looked.lines(nodes, time.time(), terminal.width))


# ── watching ──────────────────────────────────────────────────────────────────────────────────────


def watch(looked: Looked) -> int:
    """Print how the nodes are, and again whatever changes, until SIGTERM or Ctrl-C; return the exit code.

    On a terminal the table is drawn over, elsewhere each change is a line of its own. As JSON and YAML each
    document is one node as it is then.
    """
    if fault := looked.fault():
        click.echo(f"devplug: {fault}", err=True)
        return BAD_INPUT
    looked.keep_logs_quiet()
    asyncio.run(_watch(looked))
    return OK


async def _watch(looked: Looked) -> None:
    terminal = Terminal(color=looked.color)
    follower = Follower(looked.nodes)
    lost: BrokenPipeError | None = None
    async with stop_signals() as stopped, asyncio.TaskGroup() as group:
        tasks = [group.create_task(follower.run()), group.create_task(_beat_at(stopped, follower))]
        try:
            await follower.wait_first()
            if looked.output in {"json", "yaml"}:
                await _follow(looked, follower, stopped, _documents(looked.output))
            elif terminal.is_live:
                await _draw(looked, follower, stopped, terminal)
            else:
                terminal.print(looked.lines(looked.of(follower.statuses()), time.time(), terminal.width))
                await _follow(looked, follower, stopped, _print_changes)
        except BrokenPipeError as error:
            lost = error
        finally:
            for task in tasks:
                task.cancel()
    if lost is not None:
        raise lost  # outside of the group, for click to end quietly


async def _beat_at(stopped: asyncio.Event, follower: Follower) -> None:
    await stopped.wait()
    follower.pulse.beat()


async def _follow(
    looked: Looked,
    follower: Follower,
    stopped: asyncio.Event,
    show: Callable[[NodeStatus | None, NodeStatus], None],
) -> None:
    """Call `show` with a node before and after each of its changes, and first with None and as it is."""
    before: list[NodeStatus | None] = [None] * len(looked.nodes)
    while not stopped.is_set():
        changed = follower.pulse.next
        for place, node in enumerate(looked.of(follower.statuses())):
            was = before[place]
            if was is None or essence(was) != essence(node):
                show(was, node)
                before[place] = node
        await changed.wait()
        await asyncio.sleep(PACE_SECONDS)


def _documents(output: str) -> Callable[[NodeStatus | None, NodeStatus], None]:
    def show(_: NodeStatus | None, node: NodeStatus) -> None:
        value = node_value(node)
        click.echo(
            json.dumps(value) if output == "json" else f"---\n{yaml_text(cast('Value', value))}",
            nl=output == "json",
        )

    return show


def _print_changes(before: NodeStatus | None, node: NodeStatus) -> None:
    if before is None:
        return
    for change in differences(before, node):
        click.echo(f"{clock(change.at)} {printable(change.line)}")


async def _draw(looked: Looked, follower: Follower, stopped: asyncio.Event, terminal: Terminal) -> None:
    with Live(console=terminal.console, auto_refresh=False, vertical_overflow="crop") as live:
        while not stopped.is_set():
            changed = follower.pulse.next
            nodes = looked.of(follower.statuses())
            lines = looked.lines(nodes, time.time(), terminal.width)
            room = terminal.height - 1
            if len(lines) > room:
                more = len(lines) - room + 1
                lines = [*lines[: room - 1], (Cell(f"{more} more lines; devplug top scrolls", Tone.DIM),)]
            live.update(rich_text(lines), refresh=True)
            try:
                async with asyncio.timeout(TICK_SECONDS):
                    await changed.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(PACE_SECONDS)
