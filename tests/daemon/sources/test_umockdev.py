"""USB adapters, cameras and FPGA cards come and go in machines that umockdev makes: events, /sys and /dev.

Trees of files have no events, and a kernel may have no USB: here the sources see and hear both.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

SYSTEM_PYTHON = "/usr/bin/python3"
TESTS = Path(__file__).parents[1]
BED = TESTS / "umockdev_bed.py"


def _fault() -> str | None:
    """Return why no machine can be made here, or None."""
    if shutil.which("umockdev-wrapper") is None:
        return "no umockdev-wrapper; on Debian: apt-get install umockdev gir1.2-umockdev-1.0 python3-gi"
    tried = subprocess.run(
        ["umockdev-wrapper", SYSTEM_PYTHON, BED, "true"],
        input="",
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return (
        f"umockdev cannot be used from {SYSTEM_PYTHON}: {tried.stderr[-200:]}" if tried.returncode else None
    )


FAULT = _fault()
pytestmark = pytest.mark.skipif(FAULT is not None, reason=FAULT or "")


class Machine:
    """A made machine and one source in it."""

    def __init__(self, bed: asyncio.subprocess.Process) -> None:
        self._bed = bed

    def add(self, *devices: str) -> None:
        self._send({"add": devices})

    def remove(self, folder: str) -> None:
        self._send({"remove": folder})

    def start(self) -> None:
        self._send({"start": True})

    async def looks_like(self, claim: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Return the first look from now on of which a claim holds."""
        assert self._bed.stdout is not None
        seen: list[list[dict[str, Any]]] = []
        try:
            while line := await self._bed.stdout.readline():
                seen.append(json.loads(line))
                if claim(seen[-1]):
                    return seen[-1]
        finally:
            sys.stdout.write(f"looks: {seen}\n")
        raise AssertionError("the source has ended")

    async def has(self, *ids: str) -> dict[str, dict[str, Any]]:
        """Return the devices by ID, as soon as they are exactly these."""
        look = await self.looks_like(lambda devices: [one["id"] for one in devices] == sorted(ids))
        return {one["id"]: one for one in look}

    async def has_nodes(self, nodes: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
        """Return the devices by ID, as soon as they are these with these nodes.

        A device that is plugged in comes before its nodes, so a look may fall between them.
        """
        look = await self.looks_like(lambda devices: {one["id"]: one["nodes"] for one in devices} == nodes)
        return {one["id"]: one for one in look}

    def _send(self, message: dict[str, Any]) -> None:
        assert self._bed.stdin is not None
        self._bed.stdin.write(json.dumps(message).encode() + b"\n")


@asynccontextmanager
async def machine(rest: str, *devices: str) -> AsyncIterator[Machine]:
    """A machine with these devices, and a source with these keys that looks at it."""
    looks = [sys.executable, "-m", "tests.daemon.umockdev_looks", rest]
    bed = await asyncio.create_subprocess_exec(
        *("umockdev-wrapper", SYSTEM_PYTHON, str(BED), *looks),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=TESTS.parent.parent,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    made = Machine(bed)
    try:
        made.add(*devices)
        made.start()
        yield made
    finally:
        assert bed.stdin is not None
        assert bed.stdout is not None
        bed.stdin.close()
        await bed.stdout.read()
        await bed.wait()


# ── what machines consist of ──────────────────────────────────────────────────────────────────────


def device(
    folder: str, subsystem: str, node: str = "", number: tuple[int, int] = (0, 0), **attributes: str
) -> str:
    """Return one device in umockdev's format; `node` is its name below /dev."""
    lines = [f"P: {folder.removeprefix('/sys')}", f"E: SUBSYSTEM={subsystem}"]
    if node:
        lines.insert(1, f"N: {node}")
        lines += [f"E: DEVNAME=/dev/{node}", f"E: MAJOR={number[0]}", f"E: MINOR={number[1]}"]
        attributes |= {"dev": f"{number[0]}:{number[1]}"}
    lines += [f"A: {name.rstrip('_')}={text}\\n" for name, text in attributes.items()]
    return "\n".join([*lines, ""])


CONTROLLER = "/sys/devices/pci0000:80/0000:80:14.0"
BUS = f"{CONTROLLER}/usb1"
USB = (
    device(CONTROLLER, "pci", numa_node="1", local_cpulist="0-1", class_="0x0c0330"),
    device(BUS, "usb", "bus/usb/001/001", (189, 0), version=" 2.00", bDeviceClass="09"),
)
ADAPTERS = 'discover: {usb: {vendor: "0403"}}, expose: {deviceNodes: [tty]}'
CAMERAS = 'discover: {sysfs: {subsystem: video4linux, attributes: {index: "0"}}}'
FPGAS = 'discover: {pci: {class: "1200"}}'


def usb_device(port: int, number: int, **attributes: str) -> str:
    """A USB device in a port, as the bus's device of this number."""
    return device(
        f"{BUS}/1-{port}",
        "usb",
        f"bus/usb/001/{number:03}",
        (189, number - 1),
        bConfigurationValue="1",
        devnum=f"{number}",
        busnum="1",
        **attributes,
    )


def adapter(port: int, number: int, tty: int, serial: str = "SER0001") -> tuple[str, ...]:
    """A serial adapter with its interface, its converter and its terminal."""
    face = f"{BUS}/1-{port}/1-{port}:1.0"
    return (
        usb_device(port, number, idVendor="0403", idProduct="6001", serial=serial),
        device(face, "usb", bInterfaceNumber="00", bInterfaceClass="ff"),
        device(f"{face}/ttyUSB{tty}", "usb-serial", port_number="0"),
        device(f"{face}/ttyUSB{tty}/tty/ttyUSB{tty}", "tty", f"ttyUSB{tty}", (188, tty)),
    )


def camera(port: int, number: int, first: int, serial: str) -> tuple[str, ...]:
    """A camera: its picture and, beside that, its metadata."""
    face = f"{BUS}/1-{port}/1-{port}:1.0"
    return (
        usb_device(port, number, idVendor="046d", idProduct="082d", serial=serial),
        device(face, "usb", bInterfaceNumber="00", bInterfaceClass="0e"),
        *(
            device(
                f"{face}/video4linux/video{first + index}",
                "video4linux",
                f"video{first + index}",
                (81, first + index),
                index=f"{index}",
                name="Eye",
            )
            for index in (0, 1)
        ),
    )


def fpga(slot: str, number: int, numa_node: int) -> tuple[str, ...]:
    """A card of Intel's make: its function, and below it a region with the management and one port."""
    card = f"/sys/devices/pci0000:{slot}/0000:{slot}:00.0"
    region = f"{card}/fpga_region/region{number}"
    return (
        device(
            card,
            "pci",
            vendor="0x8086",
            device="0x09c4",
            numa_node=f"{numa_node}",
            local_cpulist="0-1",
            class_="0x120000",
        ),
        device(region, "fpga_region"),
        device(f"{region}/dfl-fme.{number}", "platform", f"dfl-fme.{number}", (240, number)),
        device(
            f"{region}/dfl-port.{number}", "platform", f"dfl-port.{number}", (241, number), afu_id="d8424dc4"
        ),
    )


# ── what happens in them ──────────────────────────────────────────────────────────────────────────


async def test_an_adapter_that_is_plugged_in_is_found_with_its_terminal_and_its_numa_node() -> None:
    async with machine(ADAPTERS, *USB) as made:
        await made.has()
        made.add(*adapter(1, 5, 0))
        found = await made.has_nodes({"0403:6001:SER0001": ["/dev/ttyUSB0", "/dev/bus/usb/001/005"]})
        assert found["0403:6001:SER0001"]["numa_node"] == 1


async def test_an_adapter_that_comes_back_under_other_numbers_keeps_its_id() -> None:
    async with machine(ADAPTERS, *USB, *adapter(1, 5, 0)) as made:
        await made.has_nodes({"0403:6001:SER0001": ["/dev/ttyUSB0", "/dev/bus/usb/001/005"]})
        made.remove(f"{BUS}/1-1")
        await made.has()
        made.add(*adapter(2, 6, 1))
        await made.has_nodes({"0403:6001:SER0001": ["/dev/ttyUSB1", "/dev/bus/usb/001/006"]})


async def test_two_adapters_with_one_serial_number_keep_their_ids_in_whatever_order_they_come_back() -> None:
    first, second = "0403:6001:SER0001", "0403:6001@0000:80:14.0-2"
    async with machine(ADAPTERS, *USB) as made:
        made.add(*adapter(1, 5, 0))
        await made.has(first)
        made.add(*adapter(2, 6, 1))
        await made.has(first, second)
        made.remove(f"{BUS}/1-1")
        await made.has(second)
        made.remove(f"{BUS}/1-2")
        await made.has()
        made.add(*adapter(2, 7, 2))
        await made.has(second)
        made.add(*adapter(1, 8, 3))
        await made.has_nodes(
            {
                first: ["/dev/ttyUSB3", "/dev/bus/usb/001/008"],
                second: ["/dev/ttyUSB2", "/dev/bus/usb/001/007"],
            }
        )


async def test_a_camera_is_one_device_although_it_has_two_nodes() -> None:
    name = "046d:082d:EYE1.video0"
    async with machine(CAMERAS, *USB, *camera(1, 5, 0, "EYE1")) as made:
        found = await made.has(name)
        assert found[name]["nodes"] == ["/dev/video0"]
        assert found[name]["numa_node"] == 1


async def test_cameras_keep_their_ids_when_they_come_back_in_another_order() -> None:
    one, other = "046d:082d:EYE1.video0", "046d:082d:EYE2.video0"
    async with machine(CAMERAS, *USB, *camera(1, 5, 0, "EYE1"), *camera(2, 6, 2, "EYE2")) as made:
        await made.has(one, other)
        made.remove(f"{BUS}/1-1")
        await made.has(other)
        made.remove(f"{BUS}/1-2")
        await made.has()
        made.add(*camera(2, 7, 4, "EYE2"))
        await made.has(other)
        made.add(*camera(1, 8, 6, "EYE1"))
        await made.has_nodes({one: ["/dev/video6"], other: ["/dev/video4"]})


async def test_an_fpga_card_is_found_lost_and_found_again_with_all_its_nodes() -> None:
    async with machine(FPGAS, *fpga("3b", 0, 0), *fpga("af", 1, 1)) as made:
        found = await made.has("0000:3b:00.0", "0000:af:00.0")
        assert {id_: one["numa_node"] for id_, one in found.items()} == {"0000:3b:00.0": 0, "0000:af:00.0": 1}
        assert found["0000:af:00.0"]["nodes"] == ["/dev/dfl-fme.1", "/dev/dfl-port.1"]
        made.remove("/sys/devices/pci0000:af/0000:af:00.0")
        await made.has("0000:3b:00.0")
        made.add(*fpga("af", 2, 1))
        await made.has_nodes(
            {
                "0000:3b:00.0": ["/dev/dfl-fme.0", "/dev/dfl-port.0"],
                "0000:af:00.0": ["/dev/dfl-fme.2", "/dev/dfl-port.2"],
            }
        )


async def test_an_fpga_region_is_a_device_with_its_port() -> None:
    rest = 'discover: {sysfs: {subsystem: fpga_region, attributes: {vendor: "0x8086"}}}'
    async with machine(rest) as made:
        await made.has()
        made.add(*fpga("3b", 0, 1))
        await made.looks_like(
            lambda devices: (
                [(one["numa_node"], one["nodes"]) for one in devices]
                == [(1, ["/dev/dfl-fme.0", "/dev/dfl-port.0"])]
            )
        )
        made.remove("/sys/devices/pci0000:3b/0000:3b:00.0")
        await made.has()
