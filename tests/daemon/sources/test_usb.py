"""USB devices: which are meant, what they are called through all plugging, their nodes and facts."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.sources.device import HostDevice
from devplug.devices import HealthState, device_id_fault
from tests.daemon.hosts import needs_mknod
from tests.daemon.machines import Machine, machine_with_usb

FTDI = 'discover: {usb: {vendor: "0403"}}'


def names(found: tuple[HostDevice, ...]) -> list[str]:
    return [one.name for one in found]


def paths(found: HostDevice) -> list[str]:
    return [node.host_path for node in found.nodes]


# ── which USB devices ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("selector", "ids"),
    [
        ('{vendor: "0403"}', ["0403:6001:A1", "0403:6015:B1"]),
        ('{vendor: "0403", product: "6015"}', ["0403:6015:B1"]),
        ('{product: "7523"}', ["1a86:7523@0000:00:14.0-3"]),
        ('{vendor: "1A86"}', ["1a86:7523@0000:00:14.0-3"]),
        ('{serial: "?1"}', ["0403:6001:A1", "0403:6015:B1"]),
        ('{serial: "*"}', ["0403:6001:A1", "0403:6015:B1", "1a86:7523@0000:00:14.0-3"]),
        ('{serial: "a1"}', []),
        ('{interfaceClass: "0E"}', ["1a86:7523@0000:00:14.0-3"]),
        ('[{serial: A1}, {vendor: "0403", product: "6001"}]', ["0403:6001:A1"]),
    ],
)
def test_a_usb_device_is_meant_if_all_keys_of_a_selector_match(
    tmp_path: Path, selector: str, ids: list[str]
) -> None:
    machine, bus = machine_with_usb(tmp_path)
    machine.usb_device(bus, "1", "A1", number=2)
    machine.usb_device(bus, "2", "B1", number=3, idProduct="6015")
    machine.usb_device(bus, "3", number=4, idVendor="1A86", idProduct="7523", interface_class="0e")
    assert names(machine.usb_source(f"discover: {{usb: {selector}}}").look()) == ids


@pytest.mark.parametrize(
    ("selector", "is_meant"),
    [
        ('{vendor: "05e3"}', False),
        ('{serial: "*"}', False),
        ('{vendor: "05e3", product: "0610"}', True),
        ('{interfaceClass: "09"}', True),
    ],
)
def test_a_hub_is_a_device_only_if_it_is_asked_for(tmp_path: Path, selector: str, is_meant: bool) -> None:
    machine, bus = machine_with_usb(tmp_path)
    machine.usb_device(bus, "1", idVendor="05e3", idProduct="0610", bDeviceClass="09", interface_class="09")
    found = machine.usb_source(f"discover: {{usb: {selector}}}").look()
    assert names(found) == ["05e3:0610@0000:00:14.0-1"] * is_meant


def test_a_controllers_own_bus_and_interfaces_are_no_usb_devices(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    usb_device = machine.usb_device(bus, "1", "A1")
    machine.link("/sys/bus/usb/devices/1-1:1.0", machine.interface(usb_device))
    assert machine.usb_source('discover: {usb: {vendor: "1d6b"}}').look() == ()
    assert names(machine.usb_source(FTDI).look()) == ["0403:6001:A1"]


def test_a_machine_without_usb_has_no_usb_devices(tmp_path: Path) -> None:
    assert Machine(tmp_path).usb_source(FTDI).look() == ()


def test_a_usb_device_whose_files_have_begun_to_go_is_not_there(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    usb_device = machine.usb_device(bus, "1", "A1")
    machine.remove(f"{usb_device}/idVendor")
    assert machine.usb_source(FTDI).look() == ()
    assert machine.usb_source('discover: {usb: {serial: "*"}}').look() == ()


# ── what they are called ──────────────────────────────────────────────────────────────────────────


def test_four_identical_sticks_are_four_devices_called_by_their_ports(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine, bus = machine_with_usb(tmp_path)
    for number, ports in enumerate(("1", "2.1", "2.3", "2.10"), 2):
        machine.usb_device(bus, ports, "0001", number=number)
    source = machine.usb_source(FTDI)
    with caplog.at_level(logging.WARNING):
        assert names(source.look()) == [
            f"0403:6001@0000:00:14.0-{ports}" for ports in ("1", "2.1", "2.10", "2.3")
        ]
        source.look()
    assert [record.reason for record in caplog.records] == ["4 are 0403:6001:0001"]  # type: ignore[attr-defined]


def test_usb_devices_of_two_makes_may_have_one_serial_number(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    machine.usb_device(bus, "1", "0001", number=2)
    machine.usb_device(bus, "2", "0001", number=3, idProduct="6015")
    assert names(machine.usb_source(FTDI).look()) == ["0403:6001:0001", "0403:6015:0001"]


def test_a_usb_device_with_a_serial_number_keeps_its_id_in_another_port(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    source = machine.usb_source(FTDI)
    usb_device = machine.usb_device(bus, "1", "A1", number=2)
    before = source.look()
    machine.unplug(usb_device)
    assert source.look() == ()
    machine.usb_device(bus, "3.2", "A1", number=3)
    after = source.look()
    assert names(after) == names(before) == ["0403:6001:A1"]
    assert paths(after[0]) == ["/dev/bus/usb/001/003"] != paths(before[0])


@pytest.mark.parametrize("serial", ["", "0001"])
def test_twins_keep_their_ids_when_the_kernel_numbers_buses_and_devices_anew(
    tmp_path: Path, serial: str
) -> None:
    machine, bus = machine_with_usb(tmp_path)
    source = machine.usb_source(FTDI)
    twins = [machine.usb_device(bus, ports, serial, number=int(ports)) for ports in ("1", "2")]
    before = names(source.look())
    for usb_device in twins:
        machine.unplug(usb_device)
    assert source.look() == ()
    other_bus = machine.usb_bus("/sys/devices/pci0000:00/0000:00:14.0", 7)
    for ports in ("2", "1"):
        machine.usb_device(other_bus, ports, serial, number=9 - int(ports))
    assert names(source.look()) == before == ["0403:6001@0000:00:14.0-1", "0403:6001@0000:00:14.0-2"]


def test_one_that_was_alone_keeps_its_id_beside_a_twin_on_a_bus_with_another_number(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    source = machine.usb_source(FTDI)
    first = machine.usb_device(bus, "1", "A1", number=2)
    source.look()
    machine.usb_device(bus, "2", "A1", number=3)
    assert names(source.look()) == ["0403:6001:A1", "0403:6001@0000:00:14.0-2"]
    machine.unplug(first)
    source.look()
    machine.usb_device(machine.usb_bus("/sys/devices/pci0000:00/0000:00:14.0", 7), "1", "A1", number=2)
    assert names(source.look()) == ["0403:6001:A1", "0403:6001@0000:00:14.0-2"]


def test_both_halves_of_a_controller_count_ports_and_their_usb_devices_differ(tmp_path: Path) -> None:
    machine, slow = machine_with_usb(tmp_path)
    fast = machine.usb_bus("/sys/devices/pci0000:00/0000:00:14.0", 2, " 3.10")
    machine.usb_device(slow, "2")
    machine.usb_device(fast, "2")
    found = machine.usb_source(FTDI).look()
    assert names(found) == ["0403:6001@0000:00:14.0-2", "0403:6001@0000:00:14.0-usb3-2"]


@pytest.mark.parametrize(
    ("controller", "name"),
    [
        ("/sys/devices/platform/soc/fe980000.usb", "0403:6001@fe980000.usb-1"),
        ("/sys/devices/platform/fd500000.dwc3/xhci-hcd.4.auto", "0403:6001@fd500000.dwc3-1"),
        ("/sys/devices/platform/xhci-hcd.4.auto", "0403:6001@xhci-hcd.4.auto-1"),
        ("/sys/devices/platform/dummy_hcd.0", "0403:6001@dummy_hcd.0-1"),
    ],
)
def test_a_controller_that_is_not_on_pci_is_called_as_the_board_says(
    tmp_path: Path, controller: str, name: str
) -> None:
    machine = Machine(tmp_path)
    machine.usb_device(machine.usb_bus(controller), "1")
    assert names(machine.usb_source(FTDI).look()) == [name]


def test_a_template_gives_the_ids_unless_two_would_have_one(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    machine.usb_device(bus, "1", "A1", number=2, product="Dongle")
    rest = f'id: "{{model}}-{{serial}}", {FTDI}'
    assert names(machine.usb_source(rest).look()) == ["Dongle-A1"]
    machine.usb_device(bus, "2", "A1", number=3, product="Dongle")
    assert names(machine.usb_source(rest).look()) == ["0403:6001@0000:00:14.0-1", "0403:6001@0000:00:14.0-2"]


def test_a_serial_number_of_any_text_makes_a_valid_id(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    machine.usb_device(bus, "1", "naïve, 100% /serial " * 5)
    (one,) = machine.usb_source(FTDI).look()
    assert device_id_fault(one.name) is None
    assert one.name.startswith("0403:6001:na_ve")


PLUGGED = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=14)
SERIALS = st.lists(st.sampled_from(["", "0001", "A1", "@0000:00:14.0-1", "ü /"]), min_size=6, max_size=6)


@given(SERIALS, PLUGGED)
def test_ids_are_unique_and_stay_and_come_back_at_the_same_port(
    serials: list[str], plugged: list[tuple[int, bool]]
) -> None:
    """Any USB devices, plugged and unplugged in any order, on buses that may be numbered anew meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        controller = machine.pci("0000:00:14.0")
        buses = [machine.usb_bus(controller, 1), machine.usb_bus(controller, 3)]
        source = machine.usb_source(FTDI)
        present: dict[int, str] = {}
        last: dict[int, str] = {}
        before: dict[int, str] = {}
        for number, (port, is_other_bus) in enumerate(plugged, 2):
            if port in present:
                machine.unplug(present.pop(port))
            else:
                bus = buses[is_other_bus]
                present[port] = machine.usb_device(bus, f"{port + 1}", serials[port], number=number)
            found = {one.hardware: one.name for one in source.look()}
            ids = {at: found[hardware] for at, hardware in present.items()}
            assert len(found) == len(present)
            assert len(set(ids.values())) == len(ids)
            assert not [fault for name in ids.values() if (fault := device_id_fault(name))]
            for at, name in ids.items():
                if at in before:
                    assert name == before[at]
                elif at in last and last[at] not in before.values():
                    assert name == last[at]
            last |= ids
            before = ids


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_nodes_are_those_of_all_interfaces_and_then_the_bus_node(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    usb_device = machine.usb_device(bus, "1", "A1", number=5)
    machine.node(f"{machine.interface(usb_device)}/ttyUSB0", "tty", "ttyUSB0")
    machine.node(f"{usb_device}/1-1:1.1/sound/card1", "sound", "controlC1", "snd/controlC1")
    machine.node(f"{usb_device}/1-1:1.1/input/input3", "input", "event3", "input/event3")
    (one,) = machine.usb_source(FTDI).look()
    assert [(node.host_path, node.subsystem) for node in one.nodes] == [
        ("/dev/ttyUSB0", "tty"),
        ("/dev/input/event3", "input"),
        ("/dev/snd/controlC1", "sound"),
        ("/dev/bus/usb/001/005", "usb"),
    ]
    assert one.facts["file"] == "ttyUSB0"
    assert one.facts["hostPath"] == "/dev/ttyUSB0"


def test_a_hub_has_no_node_of_what_is_plugged_into_it(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    machine.usb_device(bus, "1", number=2, idVendor="05e3", idProduct="0610", bDeviceClass="09")
    usb_device = machine.usb_device(bus, "1.4", "A1", number=3)
    machine.node(machine.interface(usb_device), "tty", "ttyUSB0")
    (hub,) = machine.usb_source('discover: {usb: {vendor: "05e3", product: "0610"}}').look()
    (stick,) = machine.usb_source(FTDI).look()
    assert paths(hub) == ["/dev/bus/usb/001/002"]
    assert paths(stick) == ["/dev/ttyUSB0", "/dev/bus/usb/001/003"]


def test_a_node_that_is_not_there_yet_is_left_out_and_there_at_the_next_look(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    usb_device = machine.usb_device(bus, "1", "A1", number=5)
    machine.node(machine.interface(usb_device), "tty", "ttyUSB0", is_made=False)
    source = machine.usb_source(FTDI)
    assert paths(source.look()[0]) == ["/dev/bus/usb/001/005"]
    machine.remove(f"{machine.interface(usb_device)}/tty")
    machine.node(machine.interface(usb_device), "tty", "ttyUSB0")
    assert paths(source.look()[0]) == ["/dev/ttyUSB0", "/dev/bus/usb/001/005"]


@needs_mknod
def test_a_disk_of_a_usb_device_is_a_block_node(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    usb_device = machine.usb_device(bus, "1", "A1")
    machine.node(f"{machine.interface(usb_device)}/host4/target4:0:0/4:0:0:0", "block", "sdb")
    (one,) = machine.usb_source(FTDI).look()
    assert (one.nodes[0].host_path, one.nodes[0].is_block) == ("/dev/sdb", True)


def test_a_node_is_given_out_by_id_while_the_serial_number_is_the_only_one(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    usb_device = machine.usb_device(bus, "1", "A1", number=2)
    node = machine.node(machine.interface(usb_device), "tty", "ttyUSB0")
    machine.link("/dev/serial/by-id/usb-FTDI_A1-if00-port0", node)
    machine.link("/dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0-port0", node)
    source = machine.usb_source(FTDI)
    (one,) = source.look()
    assert paths(one)[0] == "/dev/serial/by-id/usb-FTDI_A1-if00-port0"
    assert one.nodes[0].real_path == "/dev/ttyUSB0"
    assert (one.facts["file"], one.facts["hostPath"]) == ("ttyUSB0", paths(one)[0])
    twin = machine.usb_device(bus, "2", "A1", number=3)
    by_path = "/dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0-port0"
    assert by_path in [path for one in source.look() for path in paths(one)]
    machine.unplug(twin)
    assert paths(source.look()[0])[0] == by_path


def test_a_usb_device_without_a_serial_number_is_given_out_by_path(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    usb_device = machine.usb_device(bus, "1")
    node = machine.node(machine.interface(usb_device), "tty", "ttyUSB0")
    machine.link("/dev/serial/by-id/usb-1a86_USB2.0-Serial-if00-port0", node)
    machine.link("/dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0-port0", node)
    (one,) = machine.usb_source(FTDI).look()
    assert paths(one)[0].startswith("/dev/serial/by-path/")


# ── facts, NUMA and health ────────────────────────────────────────────────────────────────────────


def test_facts_are_what_the_usb_device_says_of_itself_and_the_controllers_numa_node(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    bus = machine.usb_bus(machine.pci("0000:80:14.0", numa_node="1"))
    usb_device = machine.usb_device(bus, "2.3", "A1", number=5, product="TTL", manufacturer="", urbnum="17")
    (one,) = machine.usb_source(FTDI).look()
    assert one.numa_node == 1
    assert one.hardware == usb_device
    assert dict(one.facts) == {
        "attr.idVendor": "0403",
        "attr.idProduct": "6001",
        "attr.bDeviceClass": "00",
        "attr.product": "TTL",
        "attr.serial": "A1",
        "attr.busnum": "1",
        "attr.devnum": "5",
        "attr.devpath": "2.3",
        "model": "TTL",
        "serial": "A1",
        "file": "005",
        "hostPath": "/dev/bus/usb/001/005",
        "numaNode": 1,
    }


def test_a_usb_device_without_words_has_its_ids_as_model_and_no_serial(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    machine.usb_device(bus, "1")
    (one,) = machine.usb_source(FTDI).look()
    assert one.facts["model"] == "0403:6001"
    assert one.facts.keys().isdisjoint({"serial", "numaNode", "pciAddress"})
    assert one.numa_node is None


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({}, ""),
        ({"authorized": "0", "bConfigurationValue": ""}, "it is not authorized"),
        ({"bConfigurationValue": ""}, "it has no configuration"),
        ({"bConfigurationValue": "0"}, "it has no configuration"),
    ],
)
def test_a_usb_device_that_the_host_holds_back_is_unhealthy(
    tmp_path: Path, attributes: dict[str, str], reason: str
) -> None:
    machine, bus = machine_with_usb(tmp_path)
    usb_device = machine.usb_device(bus, "1")
    for name, text in attributes.items():
        machine.write(f"{usb_device}/{name}", text)
    (one,) = machine.usb_source(FTDI).look()
    assert one.health.state is (HealthState.UNHEALTHY if reason else HealthState.HEALTHY)
    assert one.health.reason.partition(":")[0] == reason


def test_nothing_changes_between_two_looks_at_the_same(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    usb_device = machine.usb_device(bus, "1", "A1", urbnum="17")
    source = machine.usb_source(FTDI)
    before = source.look()
    machine.write(f"{usb_device}/urbnum", "18\n")
    assert source.look() == before


async def test_a_link_that_udev_makes_later_is_noticed_without_an_event_of_the_kernel(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    usb_device = machine.usb_device(bus, "1", "A1")
    node = machine.node(machine.interface(usb_device), "tty", "ttyUSB0")
    (tmp_path / "dev" / "serial" / "by-id").mkdir(parents=True)
    looks = machine.usb_source(FTDI).looks()
    try:
        assert paths((await anext(looks))[0])[0] == "/dev/ttyUSB0"
        machine.link("/dev/serial/by-id/usb-A1", node)
        async with asyncio.timeout(30):
            async for found in looks:
                if paths(found[0])[0] == "/dev/serial/by-id/usb-A1":
                    break
    finally:
        await looks.aclose()
