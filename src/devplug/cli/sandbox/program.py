"""A program that runs in the sandbox and on this terminal: its environment, its signals, its exit code."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import click

from devplug.errors import PluginError
from devplug.programs import (
    cannot_run,
    filled,
    signal_group,
    surroundings,
    wants_default_dir,
    with_default_dir,
)
from devplug.sandbox.containers.warden import Warden
from devplug.sandbox.place import PLACE_VARIABLE
from devplug.watching import until_absent

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Self

    from devplug.sandbox.place import Place

__all__ = ["run_program", "until_down"]

_GRACE_SECONDS: Final = 10.0
"""How long a program may take to end when its sandbox does."""

_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE: Final = 2
"""How many signals are passed on before the program is killed."""


async def run_program(
    place: Place,
    node: str,
    command: Sequence[str],
    until: Callable[[], Coroutine[None, None, None]],
) -> int:
    """Run a program as one of a node's until it ends, or until `until` does; return its exit code.

    One that is ended by signal N has 128 + N, as in a shell. Nothing that it has started is left behind, even
    if we are killed. Raises `PluginError` if it cannot be started.
    """
    async with Warden.watching() as warden:
        with _SignalsPassedOn() as signals:
            child = await _start(place, node, command)
            warden.watch([child.pid])
            try:
                signals.send_to(child.pid)
                code = await _end_with(child, until())
            finally:
                signal_group(child.pid, signal.SIGKILL)
                await child.wait()
                warden.watch([])
    return code if code >= 0 else 128 - code


async def until_down(place: Place, pid: int) -> None:
    """Wait until a sandbox of another process takes its record away, or until that process was killed."""
    loop, killed = asyncio.get_running_loop(), asyncio.Event()
    with ExitStack() as stack:
        with suppress(ProcessLookupError):  # it may be known by another ID, or to nobody, in this namespace
            handle = os.pidfd_open(pid)
            stack.callback(os.close, handle)
            loop.add_reader(handle, killed.set)
            stack.callback(loop.remove_reader, handle)
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(until_absent(place.record_file)), group.create_task(killed.wait())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for one in waits:
                one.cancel()


async def _start(place: Place, node: str, command: Sequence[str]) -> asyncio.subprocess.Process:
    plugin_dir = place.node(node).plugin_dir
    places = {"{dir}": str(plugin_dir), "{dev}": str(place.devices), "{node}": node}
    words = [filled(word, places) for word in command]
    if wants_default_dir(command):
        if shutil.which(words[0]) is None:
            raise PluginError(f"cannot run {words[0]}: No such file or directory")
        words = with_default_dir(words, plugin_dir)
    variables = {
        "DEVPLUG_KUBELET_ROOT": str(place.node(node).folder),
        "DEVPLUG_SANDBOX_DEV": str(place.devices),
        PLACE_VARIABLE: str(place.folder),
        "KUBECONFIG": str(place.kubeconfig),
        "NODE_NAME": node,
    }
    try:
        return await asyncio.create_subprocess_exec(
            *words,
            # A group of its own has its signals from us alone; it could not read from the terminal.
            stdin=asyncio.subprocess.DEVNULL if os.isatty(0) else None,
            env=surroundings(plugin_dir, variables),
            process_group=0,
        )
    except OSError as error:
        raise cannot_run(words, error) from error


async def _end_with(child: asyncio.subprocess.Process, until: Coroutine[None, None, None]) -> int:
    async with asyncio.TaskGroup() as group:
        ended, over = group.create_task(child.wait()), group.create_task(until)
        await asyncio.wait((ended, over), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            click.echo("devplug: the sandbox is down, and so the program is ended", err=True)
            signal_group(child.pid, signal.SIGTERM)
            await asyncio.wait((ended,), timeout=_GRACE_SECONDS)
            signal_group(child.pid, signal.SIGKILL)
        over.cancel()
        return await ended


class _SignalsPassedOn:
    """What we are told by signals while the block lasts, for the group of a program that is started in it.

    In what is started before, signals that a background job ignores (SIGINT in a script's) stay ignored, and
    it would not end by them.
    """

    def __init__(self) -> None:
        self._seen: list[int] = []
        self._group: int | None = None
        # Who ignores the end of the terminal wants that for the program, too: nohup.
        is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._taken = [number for number in _PASSED_ON if not (is_nohup and number is signal.SIGHUP)]

    def __enter__(self) -> Self:
        for number in self._taken:
            asyncio.get_running_loop().add_signal_handler(number, self._pass_on, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._taken:
            asyncio.get_running_loop().remove_signal_handler(number)

    def send_to(self, group: int) -> None:
        """Pass on what came until now, and what comes."""
        self._group = group
        for number in self._seen:
            signal_group(group, number)

    def _pass_on(self, number: int) -> None:
        self._seen.append(number)
        if self._group is not None:
            signal_group(self._group, number if len(self._seen) <= _PATIENCE else signal.SIGKILL)
