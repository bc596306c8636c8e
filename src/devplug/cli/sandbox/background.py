"""`devplug sandbox up --detach`: a sandbox in a process of its own that runs on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from devplug.cli.exits import FAILED, OK
from devplug.cli.sandbox.greeting import greeting
from devplug.sandbox.place import Place, PlaceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.sandbox.settings import SandboxSettings

__all__ = ["up"]

_START_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.05
_LAST_LINES: Final = 20


def up(settings: SandboxSettings, arguments: Sequence[str], *, ends_with: str) -> int:
    """Start `devplug sandbox up` with these arguments, and return when it is up or has failed.

    What it prints goes to a file in its folder. `ends_with` is what ends it, for people.
    """
    place = Place(settings.folder)
    place.prepare(settings.nodes)
    if place.is_claimed():
        raise PlaceError(
            f"a sandbox is up in {place.folder}; "
            "end it with devplug sandbox down, or name another folder with --dir"
        )
    with place.own_log.open("wb") as log:
        child = subprocess.Popen(  # noqa: S603 -- ourselves
            # -P: what lies in the current folder is no part of the sandbox.
            [sys.executable, "-P", "-m", "devplug", "sandbox", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SECONDS
    while child.poll() is None:
        record = place.running()
        if record is not None and record.pid == child.pid:
            click.echo(greeting(place, record, os.environ, ends_with=ends_with))
            return OK
        if time.monotonic() > deadline:
            child.kill()
        time.sleep(_LOOK_SECONDS)
    said = place.own_log.read_text(encoding="utf-8", errors="replace").splitlines()
    click.echo("\n".join(said[-_LAST_LINES:]), err=True)
    return child.returncode if child.returncode > 0 else FAILED
