"""udev's links: which one a node is given out by, and which nodes are not there."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.sources.device import HostDeviceNode
from devplug.daemon.sources.device_nodes import StableLinks, nodes_with_links, stable_links
from devplug.daemon.sources.host import Host
from tests.daemon.hosts import NULL, char_node, link, needs_mknod, tree
from tests.daemon.machines import Machine

NONE = StableLinks({}, {})


def linked(root: Path, *links: str, to: str = "/dev/ttyUSB0") -> StableLinks:
    machine = Machine(root)
    for path in links:
        machine.link(path, to)
    return stable_links(machine.host)


def test_by_id_is_better_than_by_path(tmp_path: Path) -> None:
    links = linked(tmp_path, "/dev/serial/by-path/a", "/dev/serial/by-id/usb-long")
    assert links.of("/dev/ttyUSB0", is_unique=True) == "/dev/serial/by-id/usb-long"


def test_by_id_is_not_used_where_another_usb_device_says_the_same(tmp_path: Path) -> None:
    links = linked(tmp_path, "/dev/serial/by-path/a", "/dev/serial/by-id/usb-long")
    assert links.of("/dev/ttyUSB0", is_unique=False) == "/dev/serial/by-path/a"


def test_a_node_without_links_has_its_own_path(tmp_path: Path) -> None:
    links = linked(tmp_path, "/dev/serial/by-id/usb-long")
    assert links.of("/dev/ttyUSB0", is_unique=False) == "/dev/ttyUSB0"
    assert links.of("/dev/ttyUSB1", is_unique=True) == "/dev/ttyUSB1"
    assert stable_links(Host(tmp_path / "none")) == NONE


def test_the_shortest_of_several_links_counts_and_then_the_first_of_the_alphabet(tmp_path: Path) -> None:
    names = ("usb-bbb", "usb-a", "usb-c", "usb-aaaa")
    links = linked(tmp_path, *(f"/dev/disk/by-id/{name}" for name in names), to="/dev/sda")
    assert links.of("/dev/sda", is_unique=True) == "/dev/disk/by-id/usb-a"


def test_an_absolute_link_and_one_two_folders_up_lead_to_the_same(tmp_path: Path) -> None:
    tree(
        tmp_path, {"dev/input/by-id/event": "-> /dev/input/event0", "dev/snd/by-path/card": "-> ../controlC0"}
    )
    links = stable_links(Host(tmp_path))
    assert links.of("/dev/input/event0", is_unique=True) == "/dev/input/by-id/event"
    assert links.of("/dev/snd/controlC0", is_unique=True) == "/dev/snd/by-path/card"


def test_a_name_that_cannot_be_printed_is_no_link_to_give_out(tmp_path: Path) -> None:
    assert linked(tmp_path, "/dev/serial/by-id/a\x1b[0m") == NONE


def test_what_is_no_link_among_the_links_is_passed_over(tmp_path: Path) -> None:
    tree(tmp_path, {"dev/serial/by-id/file": "", "dev/serial/by-path": "a file", "dev/null": ""})
    assert stable_links(Host(tmp_path)) == NONE


def test_a_node_has_both_its_paths(tmp_path: Path) -> None:
    link(tmp_path / "dev" / "ttyUSB0")
    links = linked(tmp_path, "/dev/serial/by-id/a")
    (node,) = nodes_with_links(
        Host(tmp_path), [HostDeviceNode("/dev/ttyUSB0", NULL, subsystem="tty")], links, is_unique=True
    )
    assert node == HostDeviceNode("/dev/serial/by-id/a", NULL, subsystem="tty", real_path="/dev/ttyUSB0")
    assert node.file_name == "ttyUSB0"


def test_nodes_that_are_not_there_or_are_no_nodes_are_left_out(tmp_path: Path) -> None:
    tree(tmp_path, {"dev/ttyUSB1": "a file"})
    wanted = [HostDeviceNode("/dev/ttyUSB0", (188, 0)), HostDeviceNode("/dev/ttyUSB1", (188, 1))]
    assert nodes_with_links(Host(tmp_path), wanted, NONE, is_unique=True) == ()


@needs_mknod
def test_a_node_that_has_another_number_than_the_kernel_says_is_left_out(tmp_path: Path) -> None:
    char_node(tmp_path / "dev" / "ttyUSB0", 7)
    right, wrong = HostDeviceNode("/dev/ttyUSB0", (240, 7)), HostDeviceNode("/dev/ttyUSB0", (240, 8))
    block = HostDeviceNode("/dev/ttyUSB0", (240, 7), is_block=True)
    assert nodes_with_links(Host(tmp_path), [wrong, block, right], NONE, is_unique=True) == (right,)


@given(st.permutations(["by-id/b", "by-id/a", "by-id/long", "by-path/c", "by-path/bb"]))
def test_the_order_in_which_links_appear_does_not_matter(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        links = linked(Path(folder), *(f"/dev/serial/{name}" for name in names))
    assert links.of("/dev/ttyUSB0", is_unique=True) == "/dev/serial/by-id/a"
    assert links.of("/dev/ttyUSB0", is_unique=False) == "/dev/serial/by-path/c"
