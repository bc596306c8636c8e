"""A project comes to disk in one step, or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from devplug.scaffold.writing import write_project

if TYPE_CHECKING:
    from pathlib import Path

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
