"""The folder of CDI files that several daemons share: what is removed, and what is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from devplug.cdi.spec import qualified_name, text
from devplug.daemon.cdi.spec_files import CdiFolder, file_name
from tests.daemon.cdi.spec_folders import (
    CAMERA,
    HUGE,
    KIND,
    ONE,
    OTHER_KIND,
    TWO,
    ended_daemon,
    names_in,
    started,
)

REMAINS = ".devplug-0123456789ab-7-01234567.tmp"


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# ── removing ───────────────────────────────────────────────────────────────────────────────────────


def test_only_the_file_of_that_kind_is_removed(cdi: CdiFolder, folder: Path) -> None:
    cdi.write(ONE)
    cdi.write(CAMERA)
    assert cdi.remove(KIND)
    assert not cdi.remove(KIND)
    assert names_in(folder) == [file_name(OTHER_KIND)]
    assert cdi.write(ONE)


def test_an_end_leaves_the_files_because_containers_restart(folder: Path) -> None:
    ended_daemon(folder, ONE)
    assert CdiFolder(folder).read(KIND) == ONE


def test_a_start_removes_what_no_resource_needs_and_leaves_the_rest(cdi: CdiFolder, folder: Path) -> None:
    ended_daemon(folder, ONE, CAMERA)
    foreign = ["nvidia.yaml", "devplug.json", "devplug.io-gpu.json", "spec.123.tmp", ".devplug-notes.tmp"]
    for name in foreign:
        (folder / name).write_text(text(ONE))
    (folder / REMAINS).write_text("{")
    assert cdi.clean([OTHER_KIND], []) == [REMAINS, file_name(KIND)]
    assert names_in(folder) == sorted([*foreign, file_name(OTHER_KIND)])


def test_a_file_with_a_name_that_a_container_may_hold_stays(cdi: CdiFolder, folder: Path) -> None:
    ended_daemon(folder, ONE, CAMERA)
    assert cdi.clean([], [qualified_name(KIND, "one"), qualified_name(OTHER_KIND, "one")]) == [
        file_name(OTHER_KIND)
    ]
    assert cdi.read(KIND) == ONE


def test_a_copy_of_our_file_is_not_ours_and_stays_with_a_warning(
    cdi: CdiFolder, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended_daemon(folder, ONE)
    (folder / file_name(OTHER_KIND)).write_text(text(ONE))
    assert cdi.clean([KIND], []) == []
    assert [record.message for record in caplog.records] == [
        "a CDI file with a name of devplug's was not written by devplug; it is left alone"
    ]


def test_there_is_nothing_to_clean_where_no_folder_is(tmp_path: Path) -> None:
    assert CdiFolder(tmp_path / "none").clean([], []) == []
    assert not (tmp_path / "none").exists()


# ── two daemons on one machine ─────────────────────────────────────────────────────────────────────


def test_a_start_leaves_the_files_of_another_living_daemon(cdi: CdiFolder, folder: Path) -> None:
    cdi.write(ONE)
    other = CdiFolder(folder)
    assert other.clean([], []) == []
    assert not other.remove(KIND)
    cdi.write(TWO)
    assert other.clean([], []) == []
    cdi.close()
    assert other.clean([], []) == [file_name(KIND)]


def test_a_daemon_never_cleans_up_what_it_serves(cdi: CdiFolder) -> None:
    cdi.write(ONE)
    assert cdi.clean([], []) == []
    assert cdi.remove(KIND)


def test_a_successor_takes_the_file_over_and_its_predecessor_cannot_remove_it(folder: Path) -> None:
    old, new = CdiFolder(folder), CdiFolder(folder)
    old.write(ONE)
    assert new.write(ONE), "the lock is the other's, so the file must be made anew"
    assert not old.remove(KIND)
    old.close()
    assert CdiFolder(folder).clean([], []) == []
    assert new.read(KIND) == ONE
    new.close()


def test_files_that_are_kept_open_are_as_many_as_there_are_kinds(cdi: CdiFolder) -> None:
    cdi.write(CAMERA)
    cdi.write(ONE)
    before = open_files()
    for _ in range(5):
        cdi.write(TWO)
        cdi.write(ONE)
        cdi.write(ONE)
        cdi.read(KIND)
        cdi.clean([], [])
    assert open_files() == before
    cdi.close()
    cdi.close()
    assert open_files() == before - 2


READING = """
import sys
from devplug.cdi.spec import text
from devplug.daemon.cdi.spec_files import file_name
from tests.daemon.cdi.spec_folders import HUGE, KIND, ONE, Path
path = Path(sys.argv[1]) / file_name(KIND)
print("reading", flush=True)
seen = set()
while not (path.parent / "stop").exists():
    seen.add(path.read_text())
print(seen <= {text(ONE), text(HUGE)})
"""


def test_a_reader_never_sees_half_a_file(cdi: CdiFolder, folder: Path) -> None:
    cdi.write(ONE)
    with started(READING, folder) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        for _ in range(8):
            cdi.write(HUGE)
            cdi.write(ONE)
        (folder / "stop").touch()
        assert reader.communicate() == ("True\n", "")
