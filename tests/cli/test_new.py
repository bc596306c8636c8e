"""`devplug new` as people meet it: a folder, three commands to go on with, and refusals that help."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from devplug import __version__
from devplug.cli.new import write_project
from devplug.scaffold.project import Project, project_files
from tests.cli.programs import DEVPLUG, devplug, environment


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
    files = project_files(Project("my-fpga", "example.com/my-fpga"), __version__)
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
    assert files_in(folder) == project_files(Project("my-fpga", "fpga.example.com/card"), __version__)
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
        (["my", "--directory", "full"], ["cannot make full: it exists and is not an empty folder"]),
        (["my", "--directory", "full/a"], ["cannot make full/a: it exists"]),
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


FILES = {"a": "one\n", "b/c/d": "zwei é\n"}


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_all_files_are_written_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_project(tmp_path / "made", FILES)
    assert tree(tmp_path) == {f"made/{path}": text for path, text in FILES.items()}
    assert os.listdir(tmp_path) == ["made"]  # noqa: PTH208 -- hidden ones too


def test_others_may_read_what_the_umask_lets_them(tmp_path: Path) -> None:
    write_project(tmp_path / "made", FILES)
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "made").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_empty_folder_is_taken_also_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    write_project(tmp_path / "link", FILES)
    assert tree(tmp_path / "empty") == FILES


@pytest.mark.parametrize("what", ["a folder with a file", "a file"])
def test_what_is_in_the_way_stays_as_it_is(what: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    kept = made
    if what == "a folder with a file":
        made.mkdir()
        kept = made / "mine"
    kept.write_text("kept")
    before = tree(tmp_path)
    with pytest.raises(OSError, match=r"not empty|Not a directory"):
        write_project(made, FILES)
    assert tree(tmp_path) == before
    assert os.listdir(tmp_path) == ["made"]  # noqa: PTH208


def test_nothing_is_left_of_a_project_that_cannot_be_written_to_its_end(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        write_project(tmp_path / "made", {"a": "one\n", "a/b": "a is no folder"})
    assert list(tmp_path.iterdir()) == []
