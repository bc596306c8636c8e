"""Options that several commands have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from devplug.sandbox.place import Place

__all__ = ["color", "place_of", "sandbox_dir"]

color = click.option(
    "--color",
    envvar="DEVPLUG_COLOR",
    type=click.Choice(["auto", "never"]),
    default="auto",
    show_default=True,
    help="Colour and progress: on a terminal, or not at all.",
)
sandbox_dir = click.option(
    "--dir",
    "folder",
    metavar="DIR",
    envvar="DEVPLUG_SANDBOX_DIR",
    help="The sandbox's folder. Default: devplug-sandbox in $XDG_RUNTIME_DIR, or in /tmp with the user's ID.",
)


def place_of(folder: str | None) -> Place:
    """Return the sandbox's folder that is meant."""
    import os
    from pathlib import Path

    from devplug.sandbox.place import Place, default_folder

    return Place(Path(folder) if folder else default_folder(os.environ, os.geteuid()))
