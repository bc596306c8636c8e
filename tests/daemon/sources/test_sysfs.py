"""Devices of kernel subsystems: which match, which nodes are theirs, their facts."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from devplug.daemon.sources.host import Host
from tests.daemon.hosts import needs_mknod
from tests.daemon.machines import Machine, machine_with_usb
from tests.daemon.sources.sysfs import SHORT, find, names, paths, source
from tests.daemon.systrees import USB, camera, interface, listed
from tests.kerneldevices import loop_device, needs_uevents, vcs_device, zram_device

# ── which devices match ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("selector", "kernel_names"),
    [
        ('{subsystem: video4linux, attributes: {index: "0"}}', ["video2", "video0"]),
        (
            '{subsystem: video4linux, attributes: {idVendor: "046d", product: "E*"}}',
            ["video2", "video0", "video1"],
        ),
        ("{subsystem: drm, name: 'card*'}", ["card0", "card1"]),
        ("{subsystem: block, attributes: {model: Fast*}}", ["nvme3n2", "nvme3n1"]),
        ("{subsystem: block, name: 'nvme3n1p*', attributes: {model: Fast*}}", ["nvme3n1p2"]),
        ("{subsystem: block, attributes: {dm/uuid: LVM-*}}", ["dm-0"]),
        ("{subsystem: hidraw, attributes: {HID_UNIQ: 'a4:*'}}", ["hidraw1"]),
        ("{subsystem: tty, attributes: {subsystem: tty, type: '[24]'}}", ["ttyS0", "ttyS1"]),
        ("{subsystem: block, attributes: {../serial: '*'}}", []),
        ("{subsystem: block, attributes: {'dm/../../serial': '*'}}", []),
        ("{subsystem: nothing}", []),
        ('{subsystem: "../class/block"}', []),
    ],
)
def test_an_attribute_is_the_devices_or_its_nearest_parents(
    machine: Machine, selector: str, kernel_names: list[str]
) -> None:
    found = find(machine, selector)
    assert [one.hardware.rpartition("/")[2] for one in found] == kernel_names


@needs_mknod
def test_the_drivers_name_is_an_attribute(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for address, driver in (("0000:03:00.0", "amdgpu"), ("0000:04:00.0", "nouveau")):
        card = machine.pci(address, driver=driver)
        listed(machine, f"{card}/drm/renderD{address[6]}", "drm", node=f"dri/{address}")
    assert names(find(machine, "{subsystem: drm, attributes: {driver: amd*}}")) == ["0000:03:00.0.renderD0"]


def test_the_nearest_parent_that_has_an_attribute_decides(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    card = machine.pci("0000:03:00.0", vendor="0x1002")
    listed(machine, f"{card}/hwmon/hwmon0", "hwmon", {"vendor": "0x9999"})
    assert find(machine, "{subsystem: hwmon, attributes: {vendor: '0x1002'}}") == ()
    assert names(find(machine, "{subsystem: hwmon, attributes: {vendor: '0x9999'}}")) == [
        "0000:03:00.0.hwmon0"
    ]


def test_a_device_that_two_selectors_match_is_one(machine: Machine) -> None:
    selectors = "[{subsystem: tpmrm}, {subsystem: tpmrm, name: tpmrm0}]"
    assert names(find(machine, selectors)) == ["tpmrm0"]


def test_a_serial_port_without_a_chip_is_no_device(machine: Machine) -> None:
    assert names(find(machine, "{subsystem: tty, name: 'ttyS*'}")) == ["00:05.ttyS0", "ttyS1"]


# ── nodes ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("{subsystem: tpmrm}", [["/dev/tpmrm0"]]),
        ("{subsystem: fpga_region}", [["/dev/dfl-fme.2", "/dev/dfl-port.3"]]),
        ("{subsystem: sound}", [["/dev/snd/controlC1", "/dev/snd/pcmC1D0c"]]),
        ("{subsystem: input, attributes: {name: Pad}}", [["/dev/input/event9"]]),
        ("{subsystem: input, name: event9}", [["/dev/input/event9"]]),
        ("{subsystem: leds}", [[]]),
        ("{subsystem: hwmon}", [[]]),
        ("{subsystem: drm, name: 'card0*'}", [["/dev/dri/card0"]]),
        ("{subsystem: drm, name: '*HDMI*'}", []),
        (
            "{subsystem: infiniband}",
            [
                [
                    "/dev/infiniband/uverbs3",
                    "/dev/infiniband/issm3",
                    "/dev/infiniband/umad3",
                    "/dev/infiniband/rdma_cm",
                ]
            ],
        ),
    ],
)
def test_a_device_has_its_own_node_or_those_of_what_hangs_on_it(
    machine: Machine, selector: str, expected: list[list[str]]
) -> None:
    assert paths(find(machine, selector)) == expected


def test_the_connection_manager_of_rdma_belongs_to_nobody(machine: Machine) -> None:
    (adapter,) = find(machine, "{subsystem: infiniband}")
    assert [node.is_shared for node in adapter.nodes] == [False, False, False, True]


@needs_mknod
def test_a_device_is_not_listed_before_its_node_is_there(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    listed(machine, "/sys/devices/virtual/misc/late", "misc", node="late")
    machine.remove("/dev/late")
    one = source(machine.host, "discover: {sysfs: {subsystem: misc}}")
    assert one.look() == ()
    os.mknod(tmp_path / "dev/late", 0o20600, os.makedev(240, 1))
    assert names(one.look()) == ["late"]


@needs_mknod
def test_a_node_of_another_number_is_not_the_devices(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    listed(machine, "/sys/devices/virtual/misc/late", "misc", node="late")
    machine.remove("/dev/late")
    os.mknod(tmp_path / "dev/late", 0o20600, os.makedev(240, 77))
    assert find(machine, "{subsystem: misc}") == ()


@needs_mknod
def test_a_region_that_lost_its_nodes_is_not_a_device_without_nodes(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    card = listed(machine, "/sys/devices/platform/card/things/thing0", "things")
    part = listed(machine, f"{card}/part.0", "platform", node="part.0")
    one = source(machine.host, "discover: {sysfs: {subsystem: things}}")
    assert paths(one.look()) == [["/dev/part.0"]]
    machine.remove(part)
    assert one.look() == ()


def test_a_region_without_its_port_yet_is_not_listed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    listed(machine, "/sys/devices/platform/card/fpga_region/region0", "fpga_region")
    assert find(machine, "{subsystem: fpga_region}") == ()


@needs_mknod
def test_what_is_going_away_is_not_looked_at_half(tmp_path: Path) -> None:
    """The kernel removes `uevent` first and the serial number after it: the ID would be another one."""
    machine = Machine(tmp_path)
    folder = listed(
        machine, f"{machine.pci('0000:5e:00.0')}/nvme/nvme0", "nvme", {"serial": "S1"}, node="nvme0"
    )
    one = source(machine.host, "discover: {sysfs: {subsystem: nvme}}")
    assert names(one.look()) == ["S1"]
    machine.remove(f"{folder}/uevent")
    machine.remove(f"{folder}/serial")
    assert one.look() == ()


@pytest.mark.parametrize("subsystem", ["block", "scsi_generic", "nvme-generic"])
def test_a_disk_is_given_out_only_where_raw_disks_are_allowed(
    machine: Machine, subsystem: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert find(machine, f"{{subsystem: {subsystem}}}", "allow: []") == ()
    reasons = {record.__dict__["reason"] for record in caplog.records}
    assert all(
        reason.endswith("reads and writes a whole disk; write allow: [rawDisks]") for reason in reasons
    )
    assert find(machine, f"{{subsystem: {subsystem}}}") != ()


def test_the_machines_memory_is_never_given_out(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = listed(machine, "/sys/devices/virtual/mem/mem", "mem")
    machine.write(f"{folder}/uevent", "MAJOR=1\nMINOR=1\nDEVNAME=mem\n")
    one = source(machine.host, "discover: {sysfs: {subsystem: mem}}")
    assert (one.look(), one.look()) == ((), ())
    assert [record.__dict__["reason"] for record in caplog.records] == [
        '"/dev/mem" is the machine\'s own memory, which is never given out'
    ]


@needs_mknod
def test_a_camera_has_the_path_that_udev_gives_it(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    camera(machine, bus)
    for kind in ("by-id", "by-path"):
        machine.link(f"/dev/v4l/{kind}/eye", "/dev/video0")
    (found,) = find(machine, "{subsystem: video4linux, name: video0}")
    assert [(node.host_path, node.real_path) for node in found.nodes] == [
        ("/dev/v4l/by-id/eye", "/dev/video0")
    ]


@needs_mknod
def test_what_is_called_by_its_port_has_the_path_of_its_port(tmp_path: Path) -> None:
    """A by-id link of udev goes from one USB device of a make to the other if they have no serial number."""
    machine, bus = machine_with_usb(tmp_path)
    camera(machine, bus, serial="")
    for kind in ("by-id", "by-path"):
        machine.link(f"/dev/v4l/{kind}/eye", "/dev/video0")
    (found,) = find(machine, "{subsystem: video4linux, name: video0}")
    assert found.nodes[0].host_path == "/dev/v4l/by-path/eye"


# ── facts ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_camera_says_what_templates_may_ask(machine: Machine) -> None:
    (found,) = find(machine, "{subsystem: video4linux, name: video0, attributes: {bDeviceClass: '00'}}")
    assert dict(found.facts) == {
        "file": "video0",
        "hostPath": "/dev/video0",
        "numaNode": 1,
        "pciAddress": USB,
        "serial": "3F0A11DE",
        "model": "Eye",
        "attr.bDeviceClass": "00",
        "attr.idProduct": "082d",
        "attr.idVendor": "046d",
        "attr.index": "0",
        "attr.name": "Eye: Eye",
        "attr.product": "Eye",
        "attr.serial": "3F0A11DE",
        "attr.subsystem": "video4linux",
    }
    assert found.numa_node == 1


@needs_mknod
def test_a_serial_number_is_not_that_of_another_thing_above(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    machine.write(f"{bus}/serial", "0000:00:14.0\n")
    camera(machine, bus, "2", serial="")
    (found,) = find(machine, "{subsystem: video4linux, name: video0}")
    assert "serial" not in found.facts


def test_an_fpga_is_on_its_cards_numa_node(machine: Machine) -> None:
    (found,) = find(machine, "{subsystem: platform, name: 'dfl-port.*'}")
    assert (found.numa_node, found.facts["pciAddress"], found.facts["attr.afu_id"]) == (
        1,
        "0000:3b:00.0",
        "d8424dc4a4a3",
    )


def test_a_device_without_nodes_has_its_facts(machine: Machine) -> None:
    (found,) = find(machine, "{subsystem: leds}")
    assert dict(found.facts) == {"attr.subsystem": "leds"}
    assert found.hardware == "/sys/devices/platform/gpio-leds/leds/status"


# ── real devices ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.root
def test_a_real_loop_device_is_found_where_raw_disks_are_allowed() -> None:
    with loop_device() as made:
        selector = f"discover: {{sysfs: {{subsystem: block, name: {made.name}}}}}"
        (found,) = source(Host(), f"{selector}, {SHORT}").look()
        assert (found.name, found.hardware, [node.host_path for node in found.nodes]) == (
            made.name,
            made.sys_path,
            [made.node],
        )
        assert source(Host(), selector).look() == ()


@pytest.mark.root
def test_a_real_zram_device_comes_and_goes() -> None:
    with zram_device() as made:
        one = source(Host(), f"discover: {{sysfs: {{subsystem: block, name: {made.name}}}}}, {SHORT}")
        assert names(one.look()) == [made.name]
    assert one.look() == ()


@pytest.mark.root
def test_a_real_console_is_a_character_device_of_its_class() -> None:
    with vcs_device() as made:
        (found,) = source(Host(), f"discover: {{sysfs: {{subsystem: vc, name: {made.name}}}}}").look()
        node = found.nodes[0]
        assert (found.name, node.host_path, node.subsystem, node.is_block) == (
            made.name,
            made.node,
            "vc",
            False,
        )


@needs_uevents
@pytest.mark.root
async def test_a_real_console_is_announced_when_it_comes_and_when_it_goes() -> None:
    one = source(Host(), 'discover: {sysfs: {subsystem: vc, name: "vcs[0-9]*"}}')
    with contextlib.ExitStack() as made:
        console = None
        async for looked in one.looks():
            if console is None:
                console = made.enter_context(vcs_device())
            elif console.name in names(looked):
                made.close()
            elif not Path(console.node).exists():
                return


def test_the_miscellaneous_devices_of_this_machine_are_found_by_name() -> None:
    present = sorted(
        path.name for path in Path("/sys/class/misc").glob("*") if path.name in {"fuse", "kvm", "vga_arbiter"}
    )
    if not present:
        pytest.skip("this machine has neither fuse nor kvm")
    found = source(Host(), "discover: {sysfs: {subsystem: misc, name: '[fkv][uvg][sma]*'}}").look()
    assert [one.name for one in found if one.name in present] == present


@needs_mknod
def test_an_interface_number_is_not_needed_for_a_usb_devices_own_child(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    usb_device = machine.usb_device(bus, "2", "P1", idVendor="05ac", idProduct="12a8", number=2)
    interface(machine, usb_device, 0)
    listed(machine, f"{usb_device}/power_supply/phone0", "power_supply")
    assert names(find(machine, "{subsystem: power_supply}")) == ["05ac:12a8:P1.phone0"]
