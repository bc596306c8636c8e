"""`devplug new`: a project for a plugin that works, with its tests, image, DaemonSet and CI."""

from __future__ import annotations

import errno
import shlex
from pathlib import Path
from typing import Final

import click

from devplug.cli.exits import BAD_INPUT, OK
from devplug.scaffold.project import TRIAL_NODES, Project, project_faults, project_files
from devplug.scaffold.writing import write_project

__all__ = ["new"]

_IN_THE_WAY: Final = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})


def new(name: str, *, resource_name: str | None, directory: str | None) -> int:
    """Write the project `name` and say what to do next; return the exit code."""
    project = Project(name, resource_name or f"example.com/{name}")
    folder = Path(directory or name)
    if faults := project_faults(project):
        # Without a name of its own, a resource is wrong only where the project's name is.
        return _refused(faults if resource_name else faults[:1])
    files = project_files(project)
    try:
        write_project(folder, files)
    except OSError as error:
        return _refused([f"cannot make {folder}: {_reason(folder, error)}"])
    click.echo(f"made {folder}:")
    for path in sorted(files):
        click.echo(f"  {path}")
    click.echo(
        "next:\n"
        f"  cd {shlex.quote(str(folder))} && python -m pip install --editable . pytest\n"
        "  python -m pytest\n"
        f"  devplug verify -- python -m {project.package} {' '.join(TRIAL_NODES)}"
    )
    return OK


def _refused(faults: list[str] | tuple[str, ...]) -> int:
    for fault in faults:
        click.echo(f"devplug: {fault}", err=True)
    return BAD_INPUT


def _reason(folder: Path, error: OSError) -> str:
    parent = folder.absolute().parent
    if not parent.is_dir():
        return f"{parent} is no folder; make it first"
    if error.errno in _IN_THE_WAY:
        return "it is there already, and is no empty folder; name another one with --directory"
    return str(error.strerror)
