"""`devplug run`: the process that reads the file, and serves it until a signal."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.cdi.files import CDI_FOLDER
from devplug.cli.exits import BAD_INPUT, OK, say
from devplug.cli.machine import machine_numa_nodes
from devplug.cli.run_options import DEFAULT_CONFIG
from devplug.daemon.config.loader import load
from devplug.daemon.config_file import read_served_file
from devplug.daemon.service import serve_config
from devplug.linux.exhaustion import raise_descriptor_limit
from devplug.linux.signals import stop_signals
from devplug.linux.threads import DaemonThreads, run_loop
from devplug.logs import LEVELS, show_logs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractAsyncContextManager

    from devplug.logs import Form

_THREADS_LIMIT: Final = 4
_IDLE_SECONDS: Final = 0.5
"""Threads wait for disks; a thread that is idle ends, since a daemon has mostly nothing to do."""


def run(
    config_file: str | None,
    plugin_dir: Path,
    pod_resources: Path,
    *,
    cdi_dir: Path = CDI_FOLDER,
    listen: str | None = None,
    log_level: str = "info",
    log_format: Form = "text",
    kube_events: bool = False,
) -> int:
    """Serve a configuration until SIGTERM or SIGINT; return the exit code. SIGHUP has the file read at once.

    Raises `ConfigError` for a file that cannot be used. Without any file nothing is guessed.
    """
    if config_file is None and not Path(DEFAULT_CONFIG).exists():
        say(
            f"devplug: no configuration: {DEFAULT_CONFIG} does not exist and neither -c nor DEVPLUG_CONFIG "
            "names another file\n"
            "  to write one:       devplug discover --propose > devplug.yaml\n"
            "  to serve it:        devplug run -c devplug.yaml\n"
            "  to see what it is:  devplug demo"
        )
        return BAD_INPUT
    file = config_file or DEFAULT_CONFIG
    config = load(read_served_file(file), file)
    if fault := _folder_fault(plugin_dir):
        say(f"devplug: {fault}")
        return BAD_INPUT
    show_logs(LEVELS[log_level], log_format)
    look_again = asyncio.Event()
    serving = serve_config(
        config,
        plugin_dir=plugin_dir,
        pod_resources=pod_resources,
        file=Path(file),
        look_again=look_again,
        listen=listen,
        kube_events=kube_events,
        numa_nodes=machine_numa_nodes(),
        cdi_folder=cdi_dir,
    )
    raise_descriptor_limit()
    run_loop(_until_stopped(serving, look_again))
    return OK


def _folder_fault(plugin_dir: Path) -> str | None:
    """Return why this user cannot serve in the folder, or None; a folder that does not exist may come."""
    try:
        is_folder = stat.S_ISDIR(plugin_dir.stat().st_mode)
        has_right = os.access(plugin_dir, os.W_OK | os.X_OK)
    except PermissionError:
        is_folder, has_right = True, False
    except OSError:
        return None
    if not is_folder:
        return f"{plugin_dir} is not a folder"
    if not has_right:
        return f"no right to create a socket in {plugin_dir}: run as uid 0, or let this user write there"
    return None


async def _until_stopped(serving: AbstractAsyncContextManager[object], look_again: asyncio.Event) -> None:
    threads = DaemonThreads(_THREADS_LIMIT, "devplug-default", idle_seconds=_IDLE_SECONDS, are_short=True)
    asyncio.get_running_loop().set_default_executor(threads)
    with _hang_ups(look_again):
        async with stop_signals() as stopped, serving:
            await stopped.wait()


@contextmanager
def _hang_ups(look_again: asyncio.Event) -> Iterator[None]:
    """Have SIGHUP set an event for a block; after it, it does nothing, or it would break an orderly end.

    On a terminal it keeps its usual effect: there it says that whoever started this has gone.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        yield
        return
    loop = asyncio.get_running_loop()
    # Not by the loop, which at its own end gives the signal its usual effect again.
    signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(look_again.set))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
