"""Devices of kernel classes: which match, what they are called for years, which nodes are theirs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.sources.device import HostDevice
from devplug.daemon.sources.host import Host
from devplug.daemon.sources.identities import Part, Ranks, shape_of
from devplug.daemon.sources.sysfs import SysfsSource
from tests.daemon.hosts import MAY_MAKE_NODES, NO_NODES, needs_mknod, resource
from tests.daemon.machines import Machine, machine_with_usb
from tests.daemon.systrees import (
    CAMERA,
    USB,
    camera,
    interface,
    listed,
    machine_with_everything,
    unplug_camera,
)
from tests.kerneldevices import loop_device, needs_uevents, vcs_device, zram_device

SHORT = "allow: [rawDisks]"


def source(host: Host, rest: str) -> SysfsSource:
    one = resource(rest)
    return SysfsSource(one.name, one.discover.sysfs, one.id, one.allow, host)


def find(machine: Machine, selector: str, more: str = SHORT) -> tuple[HostDevice, ...]:
    return source(machine.host, f"discover: {{sysfs: {selector}}}, {more}").look()


def names(found: tuple[HostDevice, ...]) -> list[str]:
    return [one.name for one in found]


def paths(found: tuple[HostDevice, ...]) -> list[list[str]]:
    return [[node.host_path for node in one.nodes] for one in found]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    if not MAY_MAKE_NODES:
        pytest.skip(NO_NODES)
    return machine_with_everything(tmp_path_factory.mktemp("everything"))


# ── IDs ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("video4linux/video0", f"{CAMERA}.video0"),
        ("video4linux/video1", f"{CAMERA}.video1"),
        ("video4linux/video2", f"{CAMERA}.if02.video0"),
        ("sound/card1", f"{CAMERA}.card3"),
        ("sound/pcmC1D0c", f"{CAMERA}.pcmC3D0c"),
        ("tty/ttyUSB4", f"0403:6011@{USB}-3.ttyUSB0"),
        ("tty/ttyUSB5", f"0403:6011@{USB}-3.if01.ttyUSB0"),
        ("tty/ttyACM5", "1199:9071:M1.ttyACM2"),
        ("tty/ttyS0", "00:05.ttyS0"),
        ("tty/ttyS1", "ttyS1"),
        ("hidraw/hidraw0", f"046d:c52b@{USB}-5.hidraw1"),
        ("hidraw/hidraw1", "a4:53:85:11:22:33"),
        ("input/event7", f"046d:c52b@{USB}-5.event1"),
        ("input/event8", f"046d:c52b@{USB}-5.event1.1"),
        ("input/event9", "a4:53:85:11:22:33.event0"),
        ("drm/card0", "0000:03:00.0.card0"),
        ("drm/renderD128", "0000:03:00.0.renderD0"),
        ("drm/renderD129", "0000:04:00.0.renderD0"),
        ("fpga_region/region0", "0000:3b:00.0.region0"),
        ("platform/dfl-port.3", "0000:3b:00.0.dfl-port.0"),
        ("infiniband/mlx5_7", "0000:5f:00.0.rdma0"),
        ("i2c-dev/i2c-5", "0000:00:1f.4.i2c-0"),
        ("mdev/83b8f4f2-509f-382f-3c1e-e6bfe0fa1001", "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"),
        ("nvme/nvme3", "S4EWNX0R"),
        ("block/nvme3n1", "eui.0025388b710c5a1d"),
        ("block/nvme3n1p2", "eui.0025388b710c5a1d-part2"),
        ("block/nvme3n2", "S4EWNX0R.n2"),
        ("nvme-generic/ng3n1", "S4EWNX0R.ng0n1"),
        ("hwmon/hwmon6", "S4EWNX0R.hwmon0"),
        ("block/sda", "naa.5000c500a1b2c3d4"),
        ("block/sda1", "naa.5000c500a1b2c3d4-part1"),
        ("block/sdb", "0000:00:17.0.sd0"),
        ("block/sdb1", "0000:00:17.0.sd0-part1"),
        ("scsi_generic/sg0", "naa.5000c500a1b2c3d4.sg0"),
        ("block/vda", "0000:00:02.0.vd0"),
        ("block/dm-0", "LVM-x7Qz"),
        ("block/loop0", "loop0"),
        ("tpmrm/tpmrm0", "tpmrm0"),
        ("leds/status", "gpio-leds.status"),
        ("iio/iio:device2", "fe804000.i2c.iio:device0"),
        ("vc/vcs1", "vcs1"),
        ("misc/kvm", "kvm"),
    ],
)
def test_the_ids_of_this_table_are_a_promise(machine: Machine, device: str, name: str) -> None:
    """What stands here must not change without a new version of the configuration."""
    subsystem, _, kernel_name = device.partition("/")
    assert names(find(machine, f'{{subsystem: {subsystem}, name: "{kernel_name}"}}')) == [name]


@needs_mknod
def test_a_tpm_that_came_back_under_the_next_number_has_its_id_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.node("/sys/devices/LNXSYSTM:00/MSFT0101:00", "tpmrm", "tpmrm1")
    machine.link("/sys/class/tpmrm/tpmrm1", "/sys/devices/LNXSYSTM:00/MSFT0101:00/tpmrm/tpmrm1")
    assert names(find(machine, "{subsystem: tpmrm}")) == ["tpmrm0"]


def test_an_id_does_not_depend_on_what_else_the_selector_matches(machine: Machine) -> None:
    alone = {
        name
        for kernel_name in ("sda", "sdb", "vda")
        for name in names(find(machine, f"{{subsystem: block, name: {kernel_name}}}"))
    }
    assert alone <= set(names(find(machine, "{subsystem: block}")))


def test_what_the_usb_source_calls_a_usb_device_is_how_its_parts_begin(machine: Machine) -> None:
    usb_devices = machine.usb_source(
        "discover: {usb: [{vendor: 046d}, {vendor: '0403'}, {vendor: '1199'}]}"
    ).look()
    ttys = {name.partition(".tty")[0] for name in names(find(machine, '{subsystem: tty, name: "ttyACM*"}'))}
    videos = {
        name.partition(".video")[0]
        for name in names(find(machine, '{subsystem: video4linux, name: "*[01]"}'))
    }
    assert ttys | videos <= {usb_device.name for usb_device in usb_devices}


@needs_mknod
def test_cameras_with_one_serial_number_are_told_apart_by_their_ports(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    camera(machine, bus, "2", "1", first=0)
    camera(machine, bus, "3", "1", first=2)
    selector = '{subsystem: video4linux, attributes: {index: "0"}}'
    assert names(find(machine, selector)) == [f"046d:082d@{USB}-2.video0", f"046d:082d@{USB}-3.video0"]


@needs_mknod
def test_a_camera_keeps_its_id_when_another_with_its_serial_number_comes(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    camera(machine, bus, "2", "1", first=0)
    one = source(machine.host, 'discover: {sysfs: {subsystem: video4linux, attributes: {index: "0"}}}')
    assert names(one.look()) == ["046d:082d:1.video0"]
    camera(machine, bus, "3", "1", first=2)
    assert names(one.look()) == ["046d:082d:1.video0", f"046d:082d@{USB}-3.video0"]


@needs_mknod
def test_a_replugged_camera_keeps_its_id_under_a_new_number_and_port(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    usb_device = camera(machine, bus, "2", first=0)
    one = source(machine.host, 'discover: {sysfs: {subsystem: video4linux, name: "video[05]"}}')
    before = one.look()
    unplug_camera(machine, usb_device)
    assert one.look() == ()
    camera(machine, bus, "4", first=5)
    after = one.look()
    assert (names(after), paths(after)) == (names(before), [["/dev/video5"]])


@needs_mknod
def test_a_rank_does_not_flip_when_a_lower_sibling_comes_later(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    host = machine.pci("0000:00:17.0")
    listed(machine, f"{host}/target1/block/sdb", "block", node="sdb")
    one = source(machine.host, "discover: {sysfs: {subsystem: block}}, allow: [rawDisks]")
    assert {found.hardware: found.name for found in one.look()} == {
        f"{host}/target1/block/sdb": "0000:00:17.0.sd0"
    }
    listed(machine, f"{host}/target0/block/sda", "block", node="sda")
    assert {found.hardware: found.name for found in one.look()} == {
        f"{host}/target0/block/sda": "0000:00:17.0.sd1",
        f"{host}/target1/block/sdb": "0000:00:17.0.sd0",
    }


def test_the_ids_template_goes_before_the_default_and_stays_unique(machine: Machine) -> None:
    found = find(machine, '{subsystem: video4linux, name: "video[01]"}', 'id: "{model}-cam"')
    assert names(found) == [f"Eye-cam@046d:082d@{USB}-2.video{index}" for index in (0, 1)]


@pytest.mark.parametrize(
    ("name", "subsystem", "shape"),
    [
        ("video0", "video4linux", ("video", "")),
        ("nvme3n1", "nvme-generic", ("nvme", "n1")),
        ("i2c-5", "i2c-dev", ("i2c-", "")),
        ("v4l-subdev3", "video4linux", ("v4l-subdev", "")),
        ("pcmC1D0p", "sound", ("pcmC", "D0p")),
        ("iio:device2", "iio", ("iio:device", "")),
        ("sdab", "block", ("sd", "")),
        ("sda", "drm", ("sda", None)),
        ("watchdog", "misc", ("watchdog", None)),
        ("enp3s0", "net", ("net", "")),
        ("mlx5_7", "infiniband", ("rdma", "")),
    ],
)
def test_a_kernel_name_has_one_number_that_counts(
    name: str, subsystem: str, shape: tuple[str, str | None]
) -> None:
    assert shape_of(name, subsystem) == shape


FOLDERS = st.dictionaries(
    st.sampled_from([f"/sys/devices/x/sd{number}" for number in range(6)]),
    st.sampled_from([Part("/sys/devices/x", "sd", ""), Part("/sys/devices/y", "sd", "")]),
)


@given(st.lists(FOLDERS, max_size=8))
def test_ranks_are_unique_and_never_flip_while_a_device_is_present(history: list[dict[str, Part]]) -> None:
    ranks = Ranks()
    before: dict[str, tuple[Part, int]] = {}
    for parts in history:
        now = {path: (parts[path], rank) for path, rank in ranks.assign(parts).items()}
        assert now.keys() == parts.keys()
        assert len(set(now.values())) == len(now)
        assert all(now[path] == known for path, known in before.items() if parts.get(path) == known[0])
        before = now


# ── which devices match ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("selector", "kernel_names"),
    [
        ('{subsystem: video4linux, attributes: {index: "0"}}', ["video2", "video0"]),
        (
            '{subsystem: video4linux, attributes: {idVendor: "046d", product: "E*"}}',
            ["video2", "video0", "video1"],
        ),
        ("{subsystem: drm, name: 'card*'}", ["card0", "card1"]),
        ("{subsystem: block, attributes: {model: Fast*}}", ["nvme3n2", "nvme3n1", "nvme3n1p2"]),
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


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────


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


# ── facts ─────────────────────────────────────────────────────────────────────────────────────────


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


# ── real devices ──────────────────────────────────────────────────────────────────────────────────


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
