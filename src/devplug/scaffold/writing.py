"""How a project comes to disk: all of it or nothing."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["write_project"]


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
