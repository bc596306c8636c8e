"""`devplug status`: what a node's plugins and kubelet report now, and each change of it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import click
from rich.live import Live

from devplug.cli.exits import BAD_INPUT, FAILED, OK
from devplug.cli.output import Printer, print_value, rich_text
from devplug.cli.status.nodes import Follower, folder_fault, no_answer
from devplug.cli.status.views.problems import answers, essence, problems_of
from devplug.cli.status.views.tables import chosen, csv_text, node_lines
from devplug.cli.status.views.text import Cell, Tone, clock
from devplug.errors import printable
from devplug.k8s.yaml import yaml_text
from devplug.linux.notifier import within
from devplug.linux.signals import stop_signals
from devplug.monitor.collector import collected
from devplug.monitor.history import differences
from devplug.status import node_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devplug.cli.status.nodes import NodeFolders
    from devplug.cli.status.views.text import Line
    from devplug.k8s.yaml import Value
    from devplug.status import NodeStatus

PACE_SECONDS: Final = 0.1
"""Changes that come within this time are shown as one."""

TICK_SECONDS: Final = 1.0
"""How often the ages on a terminal are drawn anew, without asking any socket."""


# ── query ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusQuery:
    """One command's question; lives as long as the command."""

    nodes: tuple[NodeFolders, ...]
    resources: tuple[str, ...] = ()
    """Globs; every resource without any."""
    unhealthy: bool = False
    """Whether only devices are listed that are not healthy."""
    output: str = "table"
    color: str = "auto"
    is_listed: bool = False
    """Whether programs get a list of nodes, as of a sandbox, and not the one that was asked for."""

    def fault(self) -> str:
        """Return why the node cannot be looked at; empty if it can."""
        return next((fault for one in self.nodes if (fault := folder_fault(one))), "")

    def keep_logs_quiet(self) -> None:
        """Drop log lines: what the monitor logs is part of the status as well."""
        logging.getLogger("devplug").addHandler(logging.NullHandler())

    def of(self, statuses: Sequence[NodeStatus]) -> tuple[NodeStatus, ...]:
        """Return statuses with the resources that are asked for."""
        return tuple(chosen(one, self.resources) for one in statuses)

    def lines(self, statuses: Sequence[NodeStatus], now: float, width: int | None) -> list[Line]:
        """Return the tables of all nodes."""
        lines: list[Line] = []
        for folders, one in zip(self.nodes, statuses, strict=True):
            if len(statuses) > 1:
                lines += [()] if lines else []
                lines.append((Cell(f"on {one.name}", Tone.HEAD),))
            lines += node_lines(
                one,
                now,
                str(folders.plugin_dir),
                width=width,
                wide=self.output == "wide",
                unhealthy=self.unhealthy,
            )
        return lines


# ── report ────────────────────────────────────────────────────────────────────────────────────────


def status(query: StatusQuery) -> int:
    """Print how the nodes are; return 0 if all is well, 1 if something is wrong, 2 if nobody answers."""
    if fault := query.fault():
        click.echo(f"devplug: {fault}", err=True)
        return BAD_INPUT
    query.keep_logs_quiet()
    everything = asyncio.run(_all_collected(query.nodes))
    if not any(map(answers, everything)):
        for folders, one in zip(query.nodes, everything, strict=True):
            click.echo(f"devplug: {no_answer(folders, one.problems)}", err=True)
        return BAD_INPUT
    shown = query.of(everything)
    if query.resources and not any(one.resources for one in shown):
        names = ", ".join(dict.fromkeys(one.name for node in everything for one in node.resources))
        asked = " or ".join(query.resources)
        click.echo(f"devplug: no resource matches {asked}; there are: {names or 'none'}", err=True)
        return FAILED
    _print(query, shown)
    return FAILED if any(map(problems_of, shown)) else OK


async def _all_collected(nodes: Sequence[NodeFolders]) -> list[NodeStatus]:
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(collected(one.plugin_dir, one.pod_resources, node_name=one.name))
            for one in nodes
        ]
    return [one.result() for one in asked]


def _print(query: StatusQuery, nodes: Sequence[NodeStatus]) -> None:
    if query.output == "csv":
        click.echo(csv_text(nodes, unhealthy=query.unhealthy), nl=False)
    elif query.output in {"json", "yaml"}:
        values = [node_value(one) for one in nodes]
        print_value(cast("Value", {"nodes": values} if query.is_listed else values[0]), query.output)
    else:
        printer = Printer(color=query.color)
        printer.lines(query.lines(nodes, time.time(), printer.width))


# ── watching ──────────────────────────────────────────────────────────────────────────────────────


def watch(query: StatusQuery) -> int:
    """Print how the nodes are, and again whatever changes, until SIGTERM or Ctrl-C; return the exit code.

    On a terminal the table is drawn over, elsewhere each change is a line of its own. As JSON and YAML each
    document is one node as it is then.
    """
    if fault := query.fault():
        click.echo(f"devplug: {fault}", err=True)
        return BAD_INPUT
    query.keep_logs_quiet()
    asyncio.run(_watch(query))
    return OK


async def _watch(query: StatusQuery) -> None:
    printer = Printer(color=query.color)
    follower = Follower(query.nodes)
    lost: BrokenPipeError | None = None
    async with stop_signals() as stopped, asyncio.TaskGroup() as group:
        tasks = [group.create_task(follower.run()), group.create_task(_beat_at(stopped, follower))]
        try:
            await follower.wait_first()
            if query.output in {"json", "yaml"}:
                await _follow(query, follower, stopped, _documents(query.output))
            elif printer.is_live:
                await _draw(query, follower, stopped, printer)
            else:
                printer.lines(query.lines(query.of(follower.statuses()), time.time(), printer.width))
                await _follow(query, follower, stopped, _print_changes)
        except BrokenPipeError as error:
            lost = error
        finally:
            for task in tasks:
                task.cancel()
    if lost is not None:
        raise lost  # outside of the group, for click to end quietly


async def _beat_at(stopped: asyncio.Event, follower: Follower) -> None:
    await stopped.wait()
    follower.notifier.notify()


async def _follow(
    query: StatusQuery,
    follower: Follower,
    stopped: asyncio.Event,
    show: Callable[[NodeStatus | None, NodeStatus], None],
) -> None:
    """Call `show` with a node before and after each of its changes, and first with None and as it is."""
    before: list[NodeStatus | None] = [None] * len(query.nodes)
    while not stopped.is_set():
        changed = follower.notifier.next
        for place, node in enumerate(query.of(follower.statuses())):
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


async def _draw(query: StatusQuery, follower: Follower, stopped: asyncio.Event, printer: Printer) -> None:
    with Live(console=printer.console, auto_refresh=False, vertical_overflow="crop") as live:
        while not stopped.is_set():
            changed = follower.notifier.next
            nodes = query.of(follower.statuses())
            lines = query.lines(nodes, time.time(), printer.width)
            room = printer.console.height - 1
            if len(lines) > room:
                more = len(lines) - room + 1
                lines = [*lines[: room - 1], (Cell(f"{more} more lines; devplug top scrolls", Tone.DIM),)]
            live.update(rich_text(lines), refresh=True)
            if await within(TICK_SECONDS, changed.wait()):
                await asyncio.sleep(PACE_SECONDS)
