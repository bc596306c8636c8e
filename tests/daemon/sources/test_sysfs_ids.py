"""The IDs of devices of kernel subsystems, which stay the same for years."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.sources.identities import shape_of
from devplug.holds.names import Ranks
from tests.daemon.hosts import needs_mknod
from tests.daemon.machines import Machine, machine_with_usb
from tests.daemon.sources.sysfs import find, names, paths, source
from tests.daemon.systrees import CAMERA, USB, camera, listed, unplug_camera


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
    st.sampled_from(["card x", "card y"]),
    st.lists(st.sampled_from([f"/sys/devices/x/sd{number}" for number in range(6)]), unique=True),
    min_size=2,
)


@given(st.lists(FOLDERS, max_size=8))
def test_ranks_are_unique_and_never_flip_while_a_device_is_present(
    history: list[dict[str, list[str]]],
) -> None:
    ranks = Ranks()
    before: dict[str, dict[str, int]] = {}
    for groups in history:
        for group, folders in groups.items():
            now = ranks.assign({group: folders})
            assert now.keys() == set(folders)
            assert len(set(now.values())) == len(now)
            kept = before.get(group, {})
            assert all(now[folder] == kept[folder] for folder in folders if folder in kept)
            before[group] = now
