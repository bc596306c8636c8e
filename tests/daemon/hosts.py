"""Device nodes to try the daemon with: real ones where this user may make them, else links to /dev/null."""

from __future__ import annotations

import os
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from devplug.daemon.config.loader import ConfigReading, load, read
from devplug.daemon.config.types import Config, Resource
from devplug.daemon.sources.path import PathSource
from devplug.errors import ConfigError

NULL = (1, 3)
UNUSED_MAJOR = 240
"""A major for local use (devices.txt): nothing answers, and nothing opens it here."""


def _may_make_nodes() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.mknod(Path(folder, "null"), 0o20600, os.makedev(*NULL))
        except OSError:
            return False
    return True


MAY_MAKE_NODES = _may_make_nodes()
NO_NODES = "only uid 0 with CAP_MKNOD makes device nodes"
needs_mknod = pytest.mark.skipif(not MAY_MAKE_NODES, reason=NO_NODES)


def char_node(path: Path, minor: int = 0, major: int = UNUSED_MAJOR) -> Path:
    """Make a character device node, and the folders on its way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, 0o20600, os.makedev(major, minor))
    return path


def block_node(path: Path, minor: int = 0, major: int = UNUSED_MAJOR) -> Path:
    """Make a block device node, and the folders on its way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, 0o60600, os.makedev(major, minor))
    return path


def link(path: Path, target: str | Path = "/dev/null") -> Path:
    """Make a link to a device node, which anybody may."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def tree(root: Path, content: Mapping[str, str]) -> None:
    """Make files below `root`; a content that begins with `-> ` makes a link."""
    for name, text in content.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            path.symlink_to(text.removeprefix("-> "))
        else:
            path.write_text(text)


def _file(resources: str) -> str:
    return "version: 1\nresources:\n" + textwrap.indent(textwrap.dedent(resources).strip(), "  ")


def config(text: str) -> Config:
    """Return the configuration that has these resources, written as a YAML list."""
    return load(_file(text), "f.yaml")


def reading(text: str) -> ConfigReading:
    """Return what is read of a file with these resources, which may have mistakes."""
    return read(_file(text))


def resource(rest: str, name: str = "example.com/a") -> Resource:
    """Return a resource with these keys, written between braces."""
    return config(f"- {{name: {name}, {rest}}}").resources[0]


def messages(text: str) -> list[str]:
    """Return what is wrong with a file's text, without the places in the file."""
    try:
        load(text, "f.yaml")
    except ConfigError as error:
        return [str(problem).removeprefix("resources[0].") for problem in error.problems]
    return []


def resources(*texts: str) -> str:
    """Return the text of a file that has resources with these keys, written between braces."""
    named = [f"- {{name: a.b/c{number}, {text}}}\n" for number, text in enumerate(texts)]
    return "version: 1\nresources:\n" + "".join(named)


def source(rest: str) -> PathSource:
    """Return the source of a resource with these keys."""
    one = resource(rest)
    return PathSource(one.name, one.discover.path, one.id, one.allow)
