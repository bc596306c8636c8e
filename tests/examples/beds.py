"""What the examples are tried on: their commands, and folders with device nodes that anybody may make."""

from __future__ import annotations

import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def command(file: str, *arguments: object) -> list[str]:
    """Return what runs an example as its page says."""
    return [sys.executable, str(EXAMPLES / file), *map(str, arguments)]


def nodes(folder: Path, *names: str) -> Path:
    """Make links to a device node in a folder, and return that."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).symlink_to("/dev/null")
    return folder
