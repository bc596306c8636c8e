"""`devplug new` as people meet it: a folder, three commands to go on with, and refusals that help."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from devplug.scaffold.project import Project, project_files
from tests.cli.programs import DEVPLUG, devplug, environment

if TYPE_CHECKING:
    from pathlib import Path


def new_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEVPLUG, "new", *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def files_in(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_project_is_made_in_the_current_folder(tmp_path: Path) -> None:
    ran = new_in(tmp_path, "my-fpga")
    assert (ran.returncode, ran.stderr) == (0, "")
    files = project_files(Project("my-fpga", "example.com/my-fpga"))
    assert files_in(tmp_path / "my-fpga") == files
    first, *others = ran.stdout.splitlines()
    assert first == "made my-fpga:"
    assert others[: len(files)] == [f"  {path}" for path in sorted(files)]
    assert others[len(files) :] == [
        "next:",
        "  cd my-fpga && python -m pip install --editable . pytest",
        "  python -m pytest",
        "  devplug verify -- python -m my_fpga /dev/null /dev/zero /dev/full",
    ]


def test_the_resource_and_the_folder_can_be_named(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    ran = devplug("new", "my-fpga", "--resource", "fpga.example.com/card", "--directory", folder)
    assert ran.returncode == 0
    assert files_in(folder) == project_files(Project("my-fpga", "fpga.example.com/card"))
    assert f"\n  cd '{folder}' && " in ran.stdout


def test_the_empty_current_folder_can_be_taken(tmp_path: Path) -> None:
    assert new_in(tmp_path, "my-fpga", "--directory", ".").returncode == 0
    assert "pyproject.toml" in os.listdir(tmp_path)  # noqa: PTH208


@pytest.mark.parametrize(
    ("arguments", "refusals"),
    [
        (["my_fpga"], ['name "my_fpga" must be ']),
        (["x" * 64], [f'name "{"x" * 59}..." has 64 characters']),
        (["json"], ['name "json" would hide the Python package json; write "json-plugin"']),
        (["My", "--resource", "my"], ['name "My" must be ', 'resource name "my" needs a domain']),
        (["my", "--resource", "kubernetes.io/my"], ['resource name "kubernetes.io/my" contains ']),
        (["my", "--directory", "no/my"], ["cannot make no/my: "]),
        (["my", "--directory", "full"], ["cannot make full: it is there already, and is no empty folder"]),
        (["my", "--directory", "full/a"], ["cannot make full/a: it is there already"]),
    ],
)
def test_what_cannot_be_made_is_refused_with_what_to_change(
    arguments: list[str], refusals: list[str], tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("kept")
    ran = new_in(tmp_path, *arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    lines = ran.stderr.splitlines()
    assert len(lines) == len(refusals)
    assert [line for line, refusal in zip(lines, refusals, strict=True) if refusal not in line] == []
    assert files_in(tmp_path) == {"full/a": "kept"}
