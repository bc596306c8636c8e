"""`devplug run`: read the file, serve it until a signal."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from devplug.cli.exits import BAD_INPUT, OK
from devplug.daemon.daemon import serve_config
from devplug.daemon.loading import load, read_config_file
from devplug.logs import show_logs
from devplug.plugin.serving import stop_signals

if TYPE_CHECKING:
    from devplug.daemon.config import Config

__all__ = ["run"]

DEFAULT_CONFIG: Final = "/etc/devplug/config.yaml"


def run(config_file: str | None, plugin_dir: Path) -> int:
    """Serve a configuration until SIGTERM or SIGINT; return the exit code.

    Raises `ConfigError` for a file that cannot be used. Without any file nothing is guessed.
    """
    if config_file is None and not Path(DEFAULT_CONFIG).exists():
        click.echo(
            f"devplug: no configuration: {DEFAULT_CONFIG} does not exist and neither -c nor DEVPLUG_CONFIG "
            "names another file\n"
            "  to serve one:       devplug run -c FILE\n"
            "  to see what it is:  devplug demo",
            err=True,
        )
        return BAD_INPUT
    file = config_file or DEFAULT_CONFIG
    config = load(read_config_file(file), file)
    if plugin_dir.is_dir() and not os.access(plugin_dir, os.W_OK | os.X_OK):
        click.echo(
            f"devplug: no right to create a socket in {plugin_dir}: "
            "run as uid 0, or let this user write there",
            err=True,
        )
        return BAD_INPUT
    show_logs()
    asyncio.run(_serve(config, plugin_dir))
    return OK


async def _serve(config: Config, plugin_dir: Path) -> None:
    async with stop_signals() as stopped, serve_config(config, plugin_dir=plugin_dir):
        await stopped.wait()
