"""Equality of hardware, hardware and its parts, and hardware in files."""

from __future__ import annotations

import pytest

from devplug.holds.hardware import Hardware, Use, marks
from devplug.holds.held_device import Remembered, ledger_memory, ledger_text

RESOURCE = "example.com/any"
FUNCTION, STICK = "0000:3b:00.0", "0403:6001@0000:00:14.0-2.3"
CARD = Hardware(FUNCTION, is_whole=True)
NODE = Hardware(f"{FUNCTION}.renderD0")
DISK = Hardware(f"{FUNCTION}.nvme0.nvme0n1", "eui.1", is_whole=True)
PARTITION = Hardware(f"{FUNCTION}.nvme0.nvme0n1.part1", "eui.1.part1")
USB = Hardware(STICK, "0403:6001:S", is_whole=True)
PORT = Hardware(f"{STICK}.ttyUSB0", "0403:6001:S.ttyUSB0")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (CARD, CARD),
        (CARD, NODE),
        (CARD, DISK),
        (CARD, PARTITION),
        (DISK, PARTITION),
        (CARD, Hardware(FUNCTION, "GPU-1", is_whole=True)),
        (Hardware(FUNCTION, "GPU-1", is_whole=True), Hardware(f"{FUNCTION}.MIG-1", "MIG-1")),
        (Hardware(FUNCTION, "GPU-1", is_whole=True), NODE),
        (DISK, Hardware("elsewhere", "eui.1", is_whole=True)),
        (DISK, Hardware("elsewhere.part1", "eui.1.part1")),
        (USB, PORT),
        (USB, Hardware("0403:6001@elsewhere-1.ttyUSB0", "0403:6001:S.ttyUSB0")),
        (USB, Hardware(f"{STICK}.sd0", "naa.5", is_whole=True)),
        (Hardware(STICK, "0403:6001:", is_whole=True), Hardware(STICK, is_whole=True)),
        (Hardware(STICK, "0403:6001:", is_whole=True), Hardware(f"{STICK}.ttyUSB0")),
    ],
)
def test_hardware_and_its_parts_are_the_same(one: Hardware, other: Hardware) -> None:
    assert one.is_same(other, ())
    assert other.is_same(one, ())
    assert marks(one) & marks(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (CARD, Hardware("0000:3b:00.1", is_whole=True)),
        (CARD, Hardware("0000:3b:00.1.renderD0")),
        (NODE, Hardware(f"{FUNCTION}.card0")),
        (Hardware(f"{FUNCTION}.net0"), Hardware(f"{FUNCTION}.net1")),
        (PARTITION, Hardware(f"{FUNCTION}.nvme0.nvme0n1.part2", "eui.1.part2")),
        (DISK, Hardware(f"{FUNCTION}.nvme0.nvme0n1.part1", "eui.2.part1")),
        (USB, Hardware(STICK, "0403:6001:T", is_whole=True)),
        (USB, Hardware(f"{STICK}.ttyUSB0", "0403:6001:T.ttyUSB0")),
        # A hub, and a hub of the make that is plugged into it.
        (Hardware("05e3:0608@0000:00:14.0-2", "", True), Hardware("05e3:0608@0000:00:14.0-2.3", "", True)),
        (Hardware("05e3:0608@0000:00:14.0-2", "", True), Hardware("05e3:0608@0000:00:14.0-2.3.event0")),
        (USB, Hardware("elsewhere", "0403:6001:S.A", is_whole=True)),
    ],
)
def test_other_hardware_is_not_the_same(one: Hardware, other: Hardware) -> None:
    assert not one.is_same(other, ())
    assert not other.is_same(one, ())


def test_part_of_a_twin_is_recognized_by_its_place_alone() -> None:
    moved = Hardware("0403:6001@elsewhere-1.ttyUSB0", "0403:6001:S.ttyUSB0")
    assert USB.is_same(PORT, {"0403:6001:S"})
    assert not USB.is_same(moved, {"0403:6001:S"})


@pytest.mark.parametrize("hardware", [CARD, NODE, DISK, PARTITION, USB, PORT])
def test_hold_of_this_version_is_read_as_it_was_written(hardware: Hardware) -> None:
    memory = {"id": Remembered(use=Use("name", hardware))}
    assert ledger_memory(ledger_text(RESOURCE, memory).encode(), RESOURCE) == memory
    (held,) = memory.values()
    assert held.use is not None
    assert held.use.hardware == hardware
