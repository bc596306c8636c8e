"""`devplug run`: read the file, serve it until a signal."""

from __future__ import annotations

import asyncio
import os
import stat
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from devplug.cli.exits import BAD_INPUT, OK
from devplug.daemon.grammar.loading import load, read_config_file
from devplug.daemon.serving import serve_config
from devplug.logs import LEVELS, show_logs
from devplug.plugin.serving import stop_signals

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from devplug.logs import Form

__all__ = ["run"]

DEFAULT_CONFIG: Final = "/etc/devplug/config.yaml"


def run(
    config_file: str | None,
    plugin_dir: Path,
    pod_resources: Path,
    *,
    listen: str | None = None,
    log_level: str = "info",
    log_format: Form = "text",
    kube_events: bool = False,
) -> int:
    """Serve a configuration until SIGTERM or SIGINT; return the exit code.

    Raises `ConfigError` for a file that cannot be used. Without any file nothing is guessed.
    """
    if config_file is None and not Path(DEFAULT_CONFIG).exists():
        click.echo(
            f"devplug: no configuration: {DEFAULT_CONFIG} does not exist and neither -c nor DEVPLUG_CONFIG "
            "names another file\n"
            "  to write one:       devplug discover --propose > devplug.yaml\n"
            "  to serve it:        devplug run -c devplug.yaml\n"
            "  to see what it is:  devplug demo",
            err=True,
        )
        return BAD_INPUT
    file = config_file or DEFAULT_CONFIG
    config = load(read_config_file(file), file)
    if fault := _folder_fault(plugin_dir):
        click.echo(f"devplug: {fault}", err=True)
        return BAD_INPUT
    if kube_events and find_spec("lightkube") is None:
        click.echo("devplug: --kube-events needs lightkube; install devplug[k8s]", err=True)
        return BAD_INPUT
    show_logs(LEVELS[log_level], log_format)
    serving = serve_config(
        config,
        plugin_dir=plugin_dir,
        pod_resources=pod_resources,
        file=Path(file),
        listen=listen,
        kube_events=kube_events,
    )
    asyncio.run(_until_stopped(serving))
    return OK


def _folder_fault(plugin_dir: Path) -> str | None:
    """Return what keeps this user from serving in the folder, or None; one that does not exist may come."""
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


async def _until_stopped(serving: AbstractAsyncContextManager[object]) -> None:
    async with stop_signals() as stopped, serving:
        await stopped.wait()
