"""Who else could put another file where a path leads: folders, links, sticky folders, other users."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from devplug.daemon.guard import node_fault
from devplug.daemon.sources.found import FoundNode
from devplug.daemon.sources.host import Host
from devplug.daemon.sources.replaceable import open_to
from devplug.errors import ForbiddenPathError
from tests.daemon.hosts import link

if TYPE_CHECKING:
    from pathlib import Path

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0, to give files to other users")
SOMEBODY = 1234


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is this user's alone, below a root of its own."""
    (tmp_path / "dev").mkdir(mode=0o755)
    return tmp_path / "dev"


def whom(folder: Path, path: str) -> str:
    return open_to(Host(folder.parent), path)


def test_the_machines_own_nodes_can_be_replaced_by_nobody() -> None:
    for path in ("/dev/null", "/dev", "/", "/dev/devplug-none/x"):
        assert open_to(Host(), path) == ""


def test_a_folder_that_everybody_may_write_to_is_open(folder: Path) -> None:
    (folder / "x").mkdir()
    link(folder / "x" / "a")
    assert whom(folder, "/dev/x/a") == ""
    (folder / "x").chmod(0o757)
    assert whom(folder, "/dev/x/a") == "everybody, who may write to the folder /dev/x"
    folder.chmod(0o777)
    assert whom(folder, "/dev/x/a") == "everybody, who may write to the folder /dev"


def test_in_a_sticky_folder_what_belongs_to_us_is_ours_and_what_is_not_there_is_open(folder: Path) -> None:
    folder.chmod(0o1777)
    (folder / "a").touch()
    assert whom(folder, "/dev/a") == ""
    assert whom(folder, "/dev/b") == "everybody, who may write to the folder /dev"


@needs_root
@pytest.mark.root
def test_a_folder_of_another_user_is_open_to_him(folder: Path) -> None:
    (folder / "x").mkdir()
    link(folder / "x" / "a")
    os.chown(folder / "x", SOMEBODY, 0)
    assert whom(folder, "/dev/x/a") == "user 1234, who owns the folder /dev/x"


@needs_root
@pytest.mark.root
def test_in_a_sticky_folder_what_belongs_to_another_user_is_open_to_him(folder: Path) -> None:
    folder.chmod(0o1777)
    link(folder / "a")
    os.chown(folder / "a", SOMEBODY, 0, follow_symlinks=False)
    assert whom(folder, "/dev/a") == "user 1234, who owns /dev/a"


@needs_root
@pytest.mark.root
def test_a_folder_that_another_group_may_write_to_is_open_to_it(folder: Path) -> None:
    (folder / "x").mkdir()
    (folder / "x").chmod(0o775)
    assert whom(folder, "/dev/x/a") == ""
    os.chown(folder / "x", 0, SOMEBODY)
    assert whom(folder, "/dev/x/a") == "group 1234, who may write to the folder /dev/x"
    (folder / "x").chmod(0o755)
    assert whom(folder, "/dev/x/a") == ""


def test_the_folders_behind_links_count_and_those_before_them_too(folder: Path) -> None:
    (folder / "by-id").mkdir()
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    link(folder / "open" / "b", "/dev/null")
    for target in ("../open/b", "/dev/open/b", "../../dev/./open/b"):
        link(folder / "by-id" / "a", target)
        assert whom(folder, "/dev/by-id/a") == "everybody, who may write to the folder /dev/open"
        (folder / "by-id" / "a").unlink()
    link(folder / "whole", "open")
    assert whom(folder, "/dev/whole/b") == "everybody, who may write to the folder /dev/open"


def test_links_in_a_circle_come_to_an_end(folder: Path) -> None:
    link(folder / "a", "b")
    link(folder / "b", "a")
    assert whom(folder, "/dev/a") == "links in a circle"


def test_no_link_leads_out_of_the_hosts_root(folder: Path) -> None:
    link(folder / "a", "../../../../../../../etc/passwd")
    assert whom(folder, "/dev/a") == ""


def test_a_device_that_others_could_replace_is_not_given(short_dir: Path) -> None:
    (short_dir / "open").mkdir()
    path = link(short_dir / "open" / "a")
    node = FoundNode(str(path), (1, 3))
    assert node_fault(Host(), node) is None
    (short_dir / "open").chmod(0o777)
    with pytest.raises(ForbiddenPathError, match=f'^"{path}" could be replaced by everybody,'):
        node_fault(Host(), node)
