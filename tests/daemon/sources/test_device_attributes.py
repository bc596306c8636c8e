"""What claims can know of found devices: one name for one fact, whatever kind of source has found it."""

from __future__ import annotations

from pathlib import Path

import pytest

from devplug.attribute_rules import attribute_faults
from devplug.daemon.device_list import DeviceList, ScanResult, attributes_of, facts_for_claims
from devplug.daemon.sources.device import HostDevice, HostDeviceNode
from devplug.driver.device_entries import device_entry
from tests.daemon.hosts import needs_mknod, resource
from tests.daemon.machines import Machine, machine_with_usb

FTDI = 'discover: {usb: {vendor: "0403"}}'


def usb_device(root: Path) -> HostDevice:
    machine, bus = machine_with_usb(root)
    machine.usb_device(bus, "1", "A1", number=2, product="UART")
    (found,) = machine.usb_source(FTDI).look()
    return found


@needs_mknod
def test_a_usb_device_has_its_numbers_its_serial_and_the_root_of_its_controller(
    tmp_path: Path,
) -> None:
    assert attributes_of(usb_device(tmp_path)) == {
        "id": "0403:6001:A1",
        "vendor": "0403",
        "product": "6001",
        "model": "UART",
        "serial": "A1",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
    }


@needs_mknod
def test_a_pci_function_has_its_numbers_as_the_file_writes_them(tmp_path: Path) -> None:
    """In sysfs they begin with 0x."""
    machine = Machine(tmp_path)
    machine.numa(node0="0-3", node1="4-7")
    machine.pci("0000:00:01.0", driver="pcieport", **{"class": "0x060400"})
    machine.pci("0000:3b:00.0", "0000:00:01.0", "dfl-pci", vendor="0x8086", device="0x09c4", numa_node="1")
    (found,) = machine.pci_source('discover: {pci: {device: "09c4"}}').look()
    assert attributes_of(found) == {
        "id": "0000:3b:00.0",
        "vendor": "8086",
        "product": "09c4",
        "model": "8086:09c4",
        "driver": "dfl-pci",
        "pciAddress": "0000:3b:00.0",
        "numaNode": 1,
        "resource.kubernetes.io/numaNode": 1,
        "resource.kubernetes.io/pciBusID": "0000:3b:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
    }


@pytest.mark.parametrize(
    ("hardware", "root"),
    [
        ("/sys/devices/pci0000:00/0000:00:01.0/0000:3b:00.0", "pci0000:00"),
        ("/sys/devices/pci10000:e0/10000:e0:06.0", "pci10000:e0"),
        ("/sys/devices/platform/axi/pci0001:80/0001:80:00.0", "pci0001:80"),
        ("/sys/devices/platform/serial8250", None),
        ("", None),
    ],
)
def test_the_pcie_root_is_the_part_of_the_folder_that_has_its_name(hardware: str, root: str | None) -> None:
    found = attributes_of(HostDevice("a", hardware=hardware))
    assert found.get("resource.kubernetes.io/pcieRoot") == root


def test_the_capacity_of_a_disk_is_its_size_in_bytes() -> None:
    """The kernel counts in 512 bytes (include/linux/blk_types.h, SECTOR_SIZE)."""
    facts = {"attr.size": "2097152"}
    disk = HostDevice("a", (HostDeviceNode("/dev/vda", (254, 0), is_block=True),), facts=facts)
    assert facts_for_claims(disk).capacity == {"size": 2**30}
    other = HostDevice("a", (HostDeviceNode("/dev/tty0", (4, 0)),), facts=facts, capacity={"memory": 1})
    assert facts_for_claims(other).capacity == {"memory": 1}


def test_a_device_of_which_nothing_else_is_known_has_its_id() -> None:
    """As one that is found by its path: a selector can choose it by that alone."""
    assert attributes_of(HostDevice("a")) == {"id": "a"}


@pytest.mark.parametrize(
    ("address", "bus_id"),
    [
        ("0000:3b:00.7", "0000:3b:00.7"),
        ("10000:e0:06.0", None),
        ("3b:00.0", None),
        ("0000:3B:00.0", None),
        ("", None),
    ],
)
def test_the_pci_bus_id_is_an_address_in_the_form_of_the_standard(address: str, bus_id: str | None) -> None:
    """k8s.io/dynamic-resource-allocation/deviceattribute: extended BDF notation, a domain of four digits."""
    found = attributes_of(HostDevice("a", facts={"pciAddress": address}))
    assert found.get("resource.kubernetes.io/pciBusID") == bus_id


def test_names_of_files_are_no_attributes() -> None:
    """The kernel numbers them anew at each re-plug: each would be a write of a slice."""
    found = HostDevice("a", facts={"file": "ttyUSB0", "hostPath": "/dev/ttyUSB0"})
    assert attributes_of(found) == {"id": "a"}


@needs_mknod
def test_only_a_resource_of_a_driver_has_them(tmp_path: Path) -> None:
    """A device plugin's list stays as it was."""
    scan = ScanResult([usb_device(tmp_path)], now=0.0)
    (plain,) = DeviceList(resource(FTDI)).update(scan)
    (known,) = DeviceList(resource(FTDI), is_claimed=True).update(scan)
    assert plain.attributes == {}
    assert known.attributes["serial"] == "A1"
    assert [*attribute_faults(known.attributes)] == []
    assert device_entry("devices.example.com", "example.com/serial", known).dropped == {}
