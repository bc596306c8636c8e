"""What all who start a plugin's program have in common."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from devplug.errors import PluginError
from devplug.kubelet_dir import KUBELET_PLUGIN_DIR
from devplug.linux.processes import (
    SIGKILL,
    SIGTERM,
    filled,
    last_line,
    process_rows,
    program_environment,
    signal_group,
    signal_process,
    spawn,
    stat_fields,
    wants_default_dir,
    with_folders,
)

MAY_MOUNT = wants_default_dir(["plugin"])


def test_placeholders_are_filled_wherever_they_stand() -> None:
    assert filled("--dir={dir}:{dir}/{other}", {"{dir}": "/x"}) == "--dir=/x:/x/{other}"


@pytest.mark.parametrize(
    ("command", "environment", "told"),
    [
        (["plugin"], {}, False),
        (["plugin", "--dir={dir}"], {}, True),
        (["plugin"], {"PLUGIN_DIR": "{dir}"}, True),
        ([], {}, True),
    ],
)
def test_only_a_plugin_that_is_told_no_folder_needs_the_compiled_in_one(
    command: list[str], environment: Mapping[str, str], *, told: bool
) -> None:
    assert wants_default_dir(command, environment) is (MAY_MOUNT and not told)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a right up that only root has")
def test_root_without_the_right_to_mount_does_without() -> None:
    script = "from devplug.linux.processes import wants_default_dir; print(wants_default_dir(['plugin']))"
    without = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]
    words = [*without, sys.executable, "-c", script]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.skipif(not MAY_MOUNT, reason="needs the right to mount")
def test_a_plugin_can_find_our_folder_at_the_compiled_in_path_alone(tmp_path: Path) -> None:
    (tmp_path / "mark-of-this-test").touch()
    command = with_folders(["ls", KUBELET_PLUGIN_DIR], {KUBELET_PLUGIN_DIR: tmp_path})
    assert "mark-of-this-test" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert not Path(KUBELET_PLUGIN_DIR, "mark-of-this-test").exists()


@pytest.mark.skipif(not MAY_MOUNT, reason="needs the right to mount")
def test_no_folder_of_a_kubelet_is_left_on_the_machine(tmp_path: Path) -> None:
    (tmp_path / "found").touch()
    path = Path(KUBELET_PLUGIN_DIR).parent / "of-this-test"
    command = with_folders(["ls", str(path)], {str(path): tmp_path})
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "found\n"
    assert not path.exists()


@pytest.mark.skipif(not MAY_MOUNT, reason="needs the right to mount")
def test_several_folders_are_mounted_for_one_program(tmp_path: Path) -> None:
    first, second, place = tmp_path / "a folder", tmp_path / "second", tmp_path / "place"
    for folder in (first, second, place):
        folder.mkdir()
    (first / "inner").mkdir()
    (second / "found").touch()
    command = with_folders(["ls", str(place / "inner")], {str(place): first, str(place / "inner"): second})
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "found\n"
    assert not list(place.iterdir())


def test_a_program_is_told_the_plugin_folder_and_what_is_added_wins(tmp_path: Path) -> None:
    told = program_environment(tmp_path, {"PYTHONUNBUFFERED": "0", "MORE": "x"})
    assert {**os.environ, **told} == told | {"MORE": "x"}
    assert (told["DEVPLUG_PLUGIN_DIR"], told["PYTHONUNBUFFERED"]) == (str(tmp_path), "0")


async def test_a_program_and_what_it_starts_is_one_group() -> None:
    reader, writer = os.pipe()
    child = await spawn(["sh", "-c", "sleep 1000 & echo $!; wait"], writer)
    os.close(writer)
    with os.fdopen(reader) as printed:
        other = int(printed.readline())
    assert {pid for pid, _ in process_rows(child.pid)} == {child.pid, other}
    assert int(stat_fields(other)[2]) == child.pid
    signal_group(child.pid, SIGKILL)
    assert await child.wait() == -SIGKILL


async def test_a_group_that_is_gone_is_signalled_in_vain() -> None:
    child = await spawn(["true"], 2)
    await child.wait()
    signal_group(child.pid, SIGKILL)


async def test_what_cannot_be_run_is_named() -> None:
    with pytest.raises(PluginError, match="cannot run '/no such/plugin' -v: No such file or directory"):
        await spawn(["/no such/plugin", "-v"], 2)


def test_the_last_line_is_the_last_that_says_something() -> None:
    assert last_line("one\n  two \n\n \n") == "two"
    assert last_line("\n") == "it printed nothing"


async def test_a_program_that_ends_while_it_is_signalled_keeps_its_exit_code() -> None:
    # Whether asyncio or its watcher finds the end first is a race that asyncio often loses.
    for _ in range(20):
        child = await spawn(["sh", "-c", "exit 7"], subprocess.DEVNULL)
        while _runs(child.pid):
            pass
        signal_process(child, SIGTERM)
        assert await child.wait() == 7


def _runs(pid: int) -> bool:
    try:
        return stat_fields(pid)[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("starting\npanic: no device\n\ngoroutine 1 [running]:\nmain.main()\n", "panic: no device"),
        (
            "fatal error: concurrent map writes\n\ngoroutine 7:\n\t/x.go:1",
            "fatal error: concurrent map writes",
        ),
        ("F1128 03:00:01.5 1 main.go:9] no node\ngoroutine 1\n", "F1128 03:00:01.5 1 main.go:9] no node"),
        ("E1128 03:00:01.5 1 main.go:9] once\nbye\n", "bye"),
        ("\n", "it printed nothing"),
    ],
)
def test_the_line_that_explains_an_end_is_quoted(output: str, line: str) -> None:
    assert last_line(output) == line
