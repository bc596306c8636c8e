"""A look at one device node: what is one, what is refused by name, and where sysfs says it belongs."""

from __future__ import annotations

import os
import socket
import tarfile
from pathlib import Path

import pytest

from devplug.daemon.sources.device import HostDeviceNode
from devplug.daemon.sources.hardware import numa_node_of
from devplug.daemon.sources.host import Host, NotADeviceNodeError
from tests.daemon.hosts import block_node, char_node, link, needs_mknod, tree

MACHINES = Path(__file__).parents[4] / "shared" / "data" / "hwloc"

CHIP = HostDeviceNode("/dev/chip0", (240, 7))
CHIP_FOLDER = "sys/devices/pci0000:00/0000:00:03.0/chip/chip0"
CHIP_LINK = {"sys/dev/char/240:7": "-> ../../devices/pci0000:00/0000:00:03.0/chip/chip0"}


def fault(path: Path | str, host: Host | None = None) -> str:
    with pytest.raises(NotADeviceNodeError) as refused:
        (host or Host()).node(str(path))
    return str(refused.value)


# ── what is a device node ─────────────────────────────────────────────────────────────────────────


def test_a_character_node_has_its_number() -> None:
    assert Host().node("/dev/null") == HostDeviceNode("/dev/null", (1, 3), is_block=False)


def test_a_terminal_is_a_device_node() -> None:
    ends = os.openpty()
    path = os.ttyname(ends[1])
    try:
        assert Host().node(path) == HostDeviceNode(path, (136, int(Path(path).name)))
    finally:
        for end in ends:
            os.close(end)


@needs_mknod
def test_a_block_node_is_told_from_a_character_node_of_the_same_number(tmp_path: Path) -> None:
    char_node(tmp_path / "c", 5)
    block_node(tmp_path / "b", 5)
    assert Host().node(f"{tmp_path}/c") == HostDeviceNode(f"{tmp_path}/c", (240, 5), is_block=False)
    assert Host().node(f"{tmp_path}/b") == HostDeviceNode(f"{tmp_path}/b", (240, 5), is_block=True)


def test_a_link_keeps_its_own_path_and_has_the_number_of_what_it_leads_to(tmp_path: Path) -> None:
    link(tmp_path / "by-id")
    assert Host().node(f"{tmp_path}/by-id") == HostDeviceNode(f"{tmp_path}/by-id", (1, 3))


@pytest.mark.parametrize("target", [None, "gone", "by-id"], ids=["missing", "dangling", "in a circle"])
def test_a_path_that_leads_nowhere_is_no_device_and_no_error(tmp_path: Path, target: str | None) -> None:
    if target:
        link(tmp_path / "by-id", tmp_path / target)
    assert Host().node(f"{tmp_path}/by-id") is None


@needs_mknod
def test_a_host_below_another_root_is_seen_by_its_own_paths(tmp_path: Path) -> None:
    char_node(tmp_path / "dev" / "chip0", 7)
    assert Host(tmp_path).node("/dev/chip0") == CHIP


# ── what is refused by name ───────────────────────────────────────────────────────────────────────


def test_what_is_no_device_node_is_refused_by_name(short_dir: Path) -> None:
    (short_dir / "file").touch()
    (short_dir / "folder").mkdir()
    os.mkfifo(short_dir / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "socket"))
    for name, kind in (
        ("file", "regular file"),
        ("folder", "folder"),
        ("pipe", "pipe"),
        ("socket", "socket"),
    ):
        assert fault(f"/{name}", Host(short_dir)) == f'"/{name}" is a {kind}, not a device node'


@needs_mknod
@pytest.mark.parametrize("minor", [1, 2, 4])
def test_the_machines_memory_is_refused_whatever_its_name(tmp_path: Path, minor: int) -> None:
    char_node(tmp_path / "harmless", minor, major=1)
    text = '"/harmless" is the machine\'s own memory, which is never given out'
    assert fault("/harmless", Host(tmp_path)) == text


@needs_mknod
def test_a_ram_disk_is_no_memory_although_it_has_the_same_number(tmp_path: Path) -> None:
    block_node(tmp_path / "ram1", 1, major=1)
    assert Host(tmp_path).node("/ram1") == HostDeviceNode("/ram1", (1, 1), is_block=True)


# ── NUMA ──────────────────────────────────────────────────────────────────────────────────────────


FUNCTION = "sys/devices/pci0000:00/0000:00:03.0"
DISK = {"sys/dev/block/240:7": "-> ../../devices/disk", "sys/devices/disk/numa_node": "5\n"}
FUSE = {"sys/dev/char/10:229": "-> ../../devices/virtual/misc/fuse", "sys/numa_node": "9\n"}


@pytest.mark.parametrize(
    ("content", "node", "numa_node"),
    [
        ({f"{CHIP_FOLDER}/numa_node": "3\n"}, CHIP, 3),
        (
            {
                f"{FUNCTION}/numa_node": "1\n",
                "sys/devices/pci0000:00/numa_node": "0\n",
                f"{CHIP_FOLDER}/dev": "",
            },
            CHIP,
            1,
        ),
        ({f"{CHIP_FOLDER}/numa_node": "-1\n", f"{FUNCTION}/numa_node": "1\n"}, CHIP, None),
        ({f"{CHIP_FOLDER}/numa_node": "\n", f"{FUNCTION}/numa_node": "1\n"}, CHIP, 1),
        (FUSE | {"sys/devices/virtual/misc/fuse/dev": ""}, HostDeviceNode("/dev/fuse", (10, 229)), None),
        (DISK | {f"{CHIP_FOLDER}/numa_node": "3\n"}, HostDeviceNode("/dev/d", (240, 7), is_block=True), 5),
        ({}, HostDeviceNode("/dev/unknown", (9, 9)), None),
    ],
    ids=[
        "its own",
        "of the nearest parent that has one",
        "-1 is none and ends the search",
        "what is no number is not there",
        "none without a parent",
        "of a block node among the block nodes",
        "none of what sysfs does not know",
    ],
)
def test_the_numa_node(
    tmp_path: Path, content: dict[str, str], node: HostDeviceNode, numa_node: int | None
) -> None:
    tree(tmp_path, CHIP_LINK | content)
    assert numa_node_of(Host(tmp_path), node) == numa_node


def _is_needed(path: str) -> bool:
    """Whether the NUMA node of a device comes of this file; all files take ten times as long."""
    return path.rpartition("/")[2] in {
        "dev",
        "device",
        "numa_node",
        "local_cpus",
        "local_cpulist",
        "cpulist",
        "uevent",
    }


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A real machine's sysfs. It lacks /sys/dev, made here of each device's `dev` file, as by the kernel."""
    folder = tmp_path_factory.mktemp("machine")
    with tarfile.open(MACHINES / "32em64t-2n8c+dax+nvme+mic+dimms.tar.bz2") as archive:
        if hasattr(tarfile, "data_filter"):  # from 3.11.4 on
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder, [m for m in archive if "/sys/devices/" in m.name and _is_needed(m.name)])
    (root,) = folder.iterdir()
    links = root / "sys" / "dev" / "char"
    links.mkdir(parents=True)
    for dev in (root / "sys" / "devices").rglob("dev"):
        if "block" not in dev.parts:
            (links / dev.read_text().strip()).symlink_to(Path("../..", dev.parent.relative_to(root / "sys")))
    return Host(root)


@pytest.mark.shared
@pytest.mark.skipif(not MACHINES.is_dir(), reason=f"no machines in {MACHINES}")
@pytest.mark.parametrize(
    ("name", "number", "numa_node"),
    [
        ("infiniband/uverbs0", (231, 192), 1),
        ("mic0", (246, 2), 1),
        ("ptp0", (247, 0), 0),
        ("hidraw0", (249, 0), 0),
        ("mic/scif", (246, 1), None),
        ("nvme0", (10, 57), 0),
    ],
)
def test_the_numa_node_of_a_real_machines_device_is_its_pci_parents(
    machine: Host, name: str, number: tuple[int, int], numa_node: int | None
) -> None:
    """A PCI function may say -1, as nvme0's does, and have processors near to it all the same."""
    assert Path(machine.inside(f"/sys/dev/char/{number[0]}:{number[1]}"), "dev").exists()
    assert numa_node_of(machine, HostDeviceNode(f"/dev/{name}", number)) == numa_node
