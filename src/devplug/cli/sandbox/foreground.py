"""`devplug sandbox up` and `run`: a sandbox in this process, and programs in it or in another's."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import TYPE_CHECKING

import click

from devplug.cli.exits import OK
from devplug.cli.sandbox.greeting import exports, greeting
from devplug.cli.sandbox.program import run_program, until_down
from devplug.errors import quoted
from devplug.logs import show_logs
from devplug.sandbox.place import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.sandbox.cluster import Sandbox
    from devplug.sandbox.place import Record
    from devplug.sandbox.settings import SandboxSettings

__all__ = ["run", "up"]


def up(settings: SandboxSettings, command: Sequence[str]) -> int:
    """Run a sandbox until a signal, until `down`, or until a command ends; return the exit code."""
    show_logs()
    return asyncio.run(_up(settings, command))


async def _up(settings: SandboxSettings, command: Sequence[str]) -> int:
    from devplug.plugin.serving import stop_signals
    from devplug.sandbox.cluster import Sandbox

    place = Place(settings.folder)
    if command:
        async with Sandbox(settings).running() as sandbox:
            record = _record(place)
            told = greeting(place, record, os.environ, ends_with="the end of the command", has_next=False)
            click.echo(told, err=True)  # what goes to the standard output is the command's
            return await run_program(place, record.nodes[0], command, sandbox.wait_down)
    async with stop_signals() as stopped, Sandbox(settings).running() as sandbox:
        click.echo(greeting(place, _record(place), os.environ, ends_with="Ctrl-C"))
        await _stopped_or_down(stopped, sandbox)
    return OK


async def _stopped_or_down(stopped: asyncio.Event, sandbox: Sandbox) -> None:
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(stopped.wait()), group.create_task(sandbox.wait_down())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()


def run(place: Place, node: str | None, command: Sequence[str]) -> int:
    """Run a program in the sandbox that is up, or in one for it alone; return its exit code."""
    record = place.running()
    if record is None:
        show_logs(logging.WARNING)
        return asyncio.run(_run_in_own(place, node, command))
    return asyncio.run(
        run_program(place, _node(record, node), command, partial(until_down, place, record.pid))
    )


async def _run_in_own(place: Place, node: str | None, command: Sequence[str]) -> int:
    from devplug.sandbox.cluster import Sandbox
    from devplug.sandbox.settings import SandboxSettings

    async with Sandbox(SandboxSettings(folder=place.folder)).running() as sandbox:
        record = _record(place)
        chosen = _node(record, node)
        told = "\n".join(f"  {line}" for line in exports(place, os.environ))
        click.echo(f"devplug: no sandbox was up; this one lives as long as the program:\n{told}", err=True)
        return await run_program(place, chosen, command, sandbox.wait_down)


def _record(place: Place) -> Record:
    record = place.running()
    assert record is not None, "a sandbox that is up has told so"
    return record


def _node(record: Record, name: str | None) -> str:
    if name is None:
        return record.nodes[0]
    if name not in record.nodes:
        raise click.UsageError(f"the sandbox has no node {quoted(name)}; there is {', '.join(record.nodes)}")
    return name
