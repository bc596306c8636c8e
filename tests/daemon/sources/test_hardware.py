"""What sysfs tells of one device: attributes, links, parents, the nodes below it, and its NUMA node."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.sources.device import HostDeviceNode
from devplug.daemon.sources.hardware import (
    SysDevice,
    cpus_of_list,
    cpus_of_mask,
    device_at,
    device_of_node,
    devices_of_subsystem,
    natural,
    node_of_cpus,
)
from devplug.daemon.sources.host import Host
from tests.daemon.hosts import tree
from tests.daemon.machines import Machine

CARD = "/sys/devices/pci0000:00/0000:00:03.0"


def card(root: Path, **attributes: str) -> SysDevice:
    tree(root / CARD[1:], {name: f"{text}\n" for name, text in attributes.items()})
    (root / CARD[1:]).mkdir(parents=True, exist_ok=True)
    return SysDevice(Host(root), CARD)


# ── attributes, links and parents ─────────────────────────────────────────────────────────────────


def test_an_attribute_is_text_without_the_white_space_around_it(tmp_path: Path) -> None:
    device = card(tmp_path, vendor="0x8086", note=" a b \0")
    assert device.attribute("vendor") == "0x8086"
    assert device.attribute("note") == "a b"
    assert device.number("vendor", 16) == 0x8086
    assert device.number("note") is None
    assert device.attribute("none") is None


def test_an_attribute_of_a_folder_of_the_device_can_be_read_and_none_outside_it(tmp_path: Path) -> None:
    tree(tmp_path, {f"{CARD[1:]}/power/control": "auto\n", "sys/devices/pci0000:00/secret": "x\n"})
    device = SysDevice(Host(tmp_path), CARD)
    assert device.attribute("power/control") == "auto"
    assert device.attribute("../secret") is None


def test_a_folder_and_a_name_with_a_nul_are_no_attributes(tmp_path: Path) -> None:
    tree(tmp_path, {f"{CARD[1:]}/power/control": "auto\n"})
    assert SysDevice(Host(tmp_path), CARD).attribute("power") is None
    assert SysDevice(Host(tmp_path), CARD).attribute("\0") is None


def test_parents_come_nearest_first_and_end_at_the_top(tmp_path: Path) -> None:
    device = SysDevice(Host(tmp_path), f"{CARD}/usb1/1-2")
    assert [one.name for one in device.parents()] == ["usb1", "0000:00:03.0", "pci0000:00"]


def test_the_nearest_pci_function_is_found_without_links_too(tmp_path: Path) -> None:
    tree(tmp_path, {f"{CARD[1:]}/usb1/1-2/uevent": ""})
    usb_device = SysDevice(Host(tmp_path), f"{CARD}/usb1/1-2")
    nearest = usb_device.nearest("pci")
    assert nearest is not None
    assert nearest.path == CARD
    assert usb_device.nearest("usb") is None


def test_the_domain_behind_intels_vmd_has_five_digits(tmp_path: Path) -> None:
    assert SysDevice(Host(tmp_path), "/sys/devices/pci10000:e0/10000:e1:00.0").subsystem == "pci"


@pytest.mark.parametrize("names", [["video2", "video10"], ["1-1:1.2", "1-1:1.10"], ["a", "a²", "b"]])
def test_names_are_sorted_as_people_do(names: list[str]) -> None:
    assert sorted([names[-1], *names[:-1]], key=natural) == names


def test_a_device_is_found_by_a_path_with_links_on_the_way(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = machine.pci("0000:00:03.0")
    machine.link("/sys/class/net/eth0/device", folder)
    assert device_at(machine.host, "/sys/class/net/eth0/device") == SysDevice(machine.host, folder)
    assert device_at(machine.host, "/sys/class/net/eth1/device") is None


def test_a_link_out_of_sysfs_leads_to_no_device(tmp_path: Path) -> None:
    tree(tmp_path, {"etc/passwd": "", "sys/class/a/b": "-> ../../../etc", "sys/class/a/c": "-> /etc"})
    assert devices_of_subsystem(Host(tmp_path), "a") == []
    assert device_at(Host(tmp_path), "/sys/class/a/b") is None


def test_a_root_that_is_itself_behind_a_link_shows_the_same_devices(tmp_path: Path) -> None:
    Machine(tmp_path / "real").pci("0000:00:03.0")
    (tmp_path / "link").symlink_to("real")
    host = Host(tmp_path / "link")
    assert [one.path for one in devices_of_subsystem(host, "pci")] == [CARD]
    assert device_at(host, "/sys/bus/pci/devices/0000:00:03.0") == SysDevice(host, CARD)


def test_a_subsystem_that_is_none_has_no_devices(tmp_path: Path) -> None:
    for name in ("", ".", "..", "../bus", "none"):
        assert devices_of_subsystem(Host(tmp_path), name) == []


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_has_the_kernels_path_and_number(tmp_path: Path) -> None:
    device = card(tmp_path, uevent="MAJOR=13\nMINOR=64\nDEVNAME=input/event0")
    assert device.node() == HostDeviceNode("/dev/input/event0", (13, 64), subsystem="pci")


def test_a_device_without_a_number_has_no_node(tmp_path: Path) -> None:
    assert card(tmp_path, uevent="DRIVER=e1000e").node() is None


def test_a_device_of_neither_bus_nor_class_has_the_node_of_its_name(tmp_path: Path) -> None:
    folder = f"{CARD}/vdpa0/vhost-vdpa-0"
    tree(tmp_path / folder[1:], {"dev": "511:0\n", "uevent": ""})
    node = SysDevice(Host(tmp_path), folder).node()
    assert node == HostDeviceNode("/dev/vhost-vdpa-0", (511, 0), subsystem="vhost-vdpa")


def test_nodes_below_come_in_the_order_of_interfaces_and_not_of_their_numbers(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = machine.pci("0000:00:03.0")
    machine.node(f"{folder}/a:1.10", "tty", "ttyUSB0")
    machine.node(f"{folder}/a:1.2", "tty", "ttyUSB9")
    machine.node(f"{folder}/other", "tty", "ttyUSB3")
    nodes = SysDevice(machine.host, folder).nodes_below(lambda name: name == "other")
    assert [node.host_path for node in nodes] == ["/dev/ttyUSB9", "/dev/ttyUSB0"]


def test_children_are_found_through_class_folders(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = machine.pci("0000:00:03.0")
    machine.node(folder, "tty", "ttyS10")
    machine.node(folder, "tty", "ttyS9")
    assert [one.name for one in SysDevice(machine.host, folder).children()] == ["ttyS9", "ttyS10"]


def test_a_nodes_device_is_found_by_its_number(tmp_path: Path) -> None:
    tree(tmp_path, {"sys/dev/char/240:7": "-> ../../devices/chip0", "sys/devices/chip0/dev": "240:7\n"})
    host = Host(tmp_path)
    assert device_of_node(host, HostDeviceNode("/dev/a", (240, 7))) == SysDevice(host, "/sys/devices/chip0")
    assert device_of_node(host, HostDeviceNode("/dev/a", (240, 7), is_block=True)) is None


# ── NUMA ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_numa_node_is_the_nearest_parents(tmp_path: Path) -> None:
    card(tmp_path, numa_node="1", local_cpulist="8-15")
    assert SysDevice(Host(tmp_path), f"{CARD}/usb1/1-2").numa_node == 1


def test_a_numa_node_without_processors_is_not_believed(tmp_path: Path) -> None:
    tree(tmp_path, {"sys/devices/pci0000:00/numa_node": "1\n"})
    assert card(tmp_path, numa_node="0", local_cpulist="").numa_node == 1
    assert card(tmp_path / "b", numa_node="0", local_cpus="00000000,00000000").numa_node is None


@pytest.mark.parametrize(
    ("attributes", "numa_node"),
    [
        ({"numa_node": "-1", "local_cpulist": "8-11"}, 8),
        ({"numa_node": "-1", "local_cpus": "00000000,0000ff00"}, 8),
        ({"local_cpus": "f"}, 0),
        ({"numa_node": "-1", "local_cpulist": "0-15"}, None),
        ({"numa_node": "-1", "local_cpulist": "7-8"}, None),
        ({"numa_node": "-1", "local_cpulist": "nonsense"}, None),
        ({"numa_node": "-1"}, None),
        ({}, None),
    ],
)
def test_local_processors_tell_the_numa_node_that_no_number_does(
    tmp_path: Path, attributes: dict[str, str], numa_node: int | None
) -> None:
    Machine(tmp_path).numa(node0="0-7", node8="8-15", node255="")
    assert card(tmp_path, **attributes).numa_node == numa_node


def test_the_number_counts_more_than_the_local_processors(tmp_path: Path) -> None:
    Machine(tmp_path).numa(node0="0-7", node1="8-15")
    assert card(tmp_path, numa_node="1", local_cpulist="0-3").numa_node == 1


def test_a_machine_with_one_numa_node_says_nothing_by_its_processors(tmp_path: Path) -> None:
    Machine(tmp_path).numa(node0="0-7", node1="")
    assert card(tmp_path, numa_node="-1", local_cpulist="0-3").numa_node is None


@pytest.mark.parametrize("text", ["a", "3-1", "1-2-3", "0-65536", "99999999999", "-1", "0x1"])
def test_what_is_no_list_of_processors_is_none(text: str) -> None:
    assert cpus_of_list(text) is None


@pytest.mark.parametrize("text", ["", "g", "0x", ",", "1,,2", "f" * 20_000])
def test_what_is_no_mask_of_processors_is_none(text: str) -> None:
    assert cpus_of_mask(text) is None


@given(st.sets(st.integers(0, 200)))
def test_a_list_and_a_mask_of_the_same_processors_are_the_same_set(numbers: set[int]) -> None:
    cpus = sum(1 << number for number in numbers)
    digits = f"{cpus:064x}"
    groups = ",".join(digits[at : at + 8] for at in range(0, 64, 8))
    assert cpus_of_list(",".join(map(str, sorted(numbers)))) == cpus == cpus_of_mask(groups)


@given(st.integers(0, 255), st.dictionaries(st.integers(0, 300), st.integers(0, 255), max_size=5))
def test_a_numa_node_has_all_the_processors_or_it_is_not_the_one(cpus: int, nodes: dict[int, int]) -> None:
    node = node_of_cpus(cpus, nodes)
    fitting = [name for name, of_node in nodes.items() if cpus & of_node == cpus]
    is_decided = cpus != 0 and len([of_node for of_node in nodes.values() if of_node]) > 1
    assert node == (min(fitting, default=None) if is_decided else None)
