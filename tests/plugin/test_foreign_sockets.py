"""Which sockets of the plugin folder may be another plugin's of a name: dead and live, and whose."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from devplug.plugin.resource_lock import new_socket_name
from devplug.plugin.takeover_detector import foreign_sockets

NAME = "example.com/a"


def listening(stack: ExitStack, path: Path) -> None:
    opened = stack.enter_context(socket.socket(socket.AF_UNIX))
    opened.bind(str(path))
    opened.listen()


def dead(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(path))


def names(folder: Path, own: str = "own.sock") -> list[str]:
    return [one.name for one in foreign_sockets(folder, NAME, own)]


def test_a_live_socket_names_its_process_and_a_dead_one_nobody(short_dir: Path) -> None:
    with ExitStack() as stack:
        listening(stack, short_dir / "live.sock")
        dead(short_dir / "dead.sock")
        os.utime(short_dir / "dead.sock", (5, 5))
        live, gone = foreign_sockets(short_dir, NAME, "own.sock")
        process = f"{os.getpid()} ({Path('/proc/self/comm').read_text().strip()})"
        assert (live.name, live.is_live, live.process) == ("live.sock", True, process)
        assert (gone.name, gone.is_live, gone.process, gone.made_at) == ("dead.sock", False, "", 5)


def test_the_kubelets_socket_our_own_and_those_for_other_names_are_not_foreign(short_dir: Path) -> None:
    own, twin = new_socket_name(NAME), new_socket_name(NAME)
    with ExitStack() as stack:
        for name in ("kubelet.sock", own, twin, new_socket_name("example.com/b"), "vendor.sock"):
            listening(stack, short_dir / name)
        assert sorted(names(short_dir, own)) == sorted([twin, "vendor.sock"])


@pytest.mark.parametrize(
    "name",
    [
        "devplug-.sock",
        "devplug-000000000000-1-abcde.sock.sock",
        "xdevplug-000000000000-1-abcde.sock",
        "devplug-000000000000-1-abcde",
    ],
)
def test_a_name_that_only_looks_like_one_of_ours_hides_nothing(short_dir: Path, name: str) -> None:
    with ExitStack() as stack:
        listening(stack, short_dir / name)
        assert names(short_dir) == [name]


def test_files_folders_and_links_are_no_sockets(short_dir: Path) -> None:
    (short_dir / "kubelet_internal_checkpoint").touch()
    (short_dir / ".devplug").mkdir()
    with ExitStack() as stack:
        listening(stack, short_dir / "vendor.sock")
        (short_dir / "link.sock").symlink_to(short_dir / "vendor.sock")
        assert names(short_dir) == ["vendor.sock"]


def test_of_many_the_eight_newest_are_told(short_dir: Path) -> None:
    for number in range(12):
        dead(short_dir / f"{number:02}.sock")
        os.utime(short_dir / f"{number:02}.sock", (number, number))
    assert names(short_dir) == [f"{number:02}.sock" for number in range(11, 3, -1)]


def test_a_socket_whose_queue_is_full_is_live(short_dir: Path) -> None:
    with ExitStack() as stack:
        opened = stack.enter_context(socket.socket(socket.AF_UNIX))
        opened.bind(str(short_dir / "vendor.sock"))
        opened.listen(0)
        waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
        waiting.connect(str(short_dir / "vendor.sock"))
        (one,) = foreign_sockets(short_dir, NAME, "own.sock")
        assert (one.is_live, one.process) == (True, "")


def test_a_folder_that_is_gone_has_none(short_dir: Path) -> None:
    assert foreign_sockets(short_dir / "gone", NAME, "own.sock") == ()
