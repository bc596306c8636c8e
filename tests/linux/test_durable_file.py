"""Files whose promises outlive the power: the disk has the content before the name, and both in the end."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devplug.holds.held_device import Remembered
from devplug.holds.ledger_store import LedgerFile
from devplug.linux.durable_file import write_whole


def write_ledger(folder: Path) -> None:
    LedgerFile(folder, "example.com/a").write(1, lambda: {"a": Remembered()})


def read_ledger(folder: Path) -> object:
    return LedgerFile(folder, "example.com/a").read()


def done_for(write: Callable[[], None]) -> list[str]:
    """Return, in their order, the steps of a write that matter when the power goes."""
    steps: list[str] = []

    def note(_frame: object, event: str, called: Any) -> None:
        if event == "c_call" and called in {os.fsync, os.replace, os.unlink}:
            steps.append(called.__name__)

    sys.setprofile(note)
    try:
        write()
    finally:
        sys.setprofile(None)
    return steps


def test_the_disk_has_the_content_before_the_name_and_the_name_before_it_is_relied_upon(
    tmp_path: Path,
) -> None:
    assert done_for(lambda: write_ledger(tmp_path)) == ["fsync", "replace", "fsync"]


def test_what_a_killed_writer_left_is_removed_by_the_next_owner_and_nothing_else(tmp_path: Path) -> None:
    write_ledger(tmp_path)
    (path,) = tmp_path.iterdir()
    path.with_name(f".{path.name}.0123abcd").touch()
    other = tmp_path / ".other.json.0123abcd"
    other.touch()
    read_ledger(tmp_path)
    assert sorted(tmp_path.iterdir()) == [other, path]


def test_what_is_remembered_of_devices_is_its_owners_alone_also_where_an_older_version_wrote(
    tmp_path: Path,
) -> None:
    for mode in (0o644, 0o600):
        write_ledger(tmp_path)
        (path,) = (path for path in tmp_path.iterdir() if path.suffix == ".json")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(mode)


def test_a_file_is_its_owners_alone_and_nothing_is_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    write_whole(path, "first")
    write_whole(path, "second")
    assert path.read_text() == "second"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_whole(path, "first")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\udcff")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]
