"""`devplug new`: a project for a plugin that works, with its tests, image, DaemonSet and CI."""

from __future__ import annotations

import errno
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click

from devplug import __version__
from devplug.cli.exits import BAD_INPUT, OK
from devplug.scaffold.project import TRIAL_NODES, Project, project_faults, project_files

if TYPE_CHECKING:
    from collections.abc import Mapping

_IN_THE_WAY: Final = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})


def write_project(folder: Path, files: Mapping[str, str]) -> None:
    """Make `folder` with these files, by path below it, in one step; an empty folder is replaced.

    The files are written beside it first. Raises `OSError` and changes nothing where `folder` is there and
    is anything but an empty folder, where its parent is not there, and where nothing can be written.
    """
    folder = folder.resolve()
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
        made = Path(beside, folder.name)
        for path, text in files.items():
            file = made / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        made.rename(folder)


def new(name: str, *, resource_name: str | None, directory: str | None) -> int:
    """Write the project `name` and say what to do next; return the exit code."""
    project = Project(name, resource_name or f"example.com/{name}")
    folder = Path(directory or name)
    if faults := project_faults(project):
        # Without a name of its own, a resource is wrong only where the project's name is.
        return _refused(faults if resource_name else faults[:1])
    files = project_files(project, __version__)
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
        return "it exists and is not an empty folder; name another one with --directory"
    return str(error.strerror)
