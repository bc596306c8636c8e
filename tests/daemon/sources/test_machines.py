"""Real machines' /sys trees: the devices that are in them, counted by hand, with their IDs and NUMA nodes."""

from __future__ import annotations

import os
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon.hosts import needs_mknod
from tests.daemon.machines import Machine

ARCHIVES = Path(__file__).parents[4] / "shared" / "data" / "hwloc"
PARTS = ("/sys/bus/pci/devices/", "/sys/devices/pci", "/sys/devices/system/node/")
READ = frozenset(
    {"vendor", "device", "class", "numa_node", "local_cpus", "local_cpulist", "cpulist", "cpumap", "uevent"}
    | {"driver", "subsystem", "online", "possible", "has_cpu", "has_memory", "distance", "dev", "serial"}
    | {"idVendor", "idProduct", "busnum", "devnum", "bInterfaceNumber", "bInterfaceClass", "bDeviceClass"}
    | {"bNumInterfaces", "bDeviceSubClass", "manufacturer", "product", "bcdDevice", "speed"}
)
"""The files and links of a device or a NUMA node that tell what it is; all files take ten times as long."""

XEON_PHI = "32em64t-2n8c+dax+nvme+mic+dimms"
ALL_UNKNOWN = "40intel64-2g2n4c+pcilocality"
CONFLICTS = "40intel64-4n10c+pci-conflicts"
NO_PCI = "nvidia-dgx-gb10"
MEMORY_NODES = "nvidiagpunumanodes"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not ARCHIVES.is_dir(), reason=f"no machines in {ARCHIVES}"),
]


def _is_needed(member: tarfile.TarInfo) -> bool:
    folder, _, name = member.name.rpartition("/")
    is_link_of_bus = folder.endswith("/sys/bus/pci/devices")
    return any(part in member.name for part in PARTS) and (is_link_of_bus or name in READ)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Machine]:
    """What returns the machine of an archive; each is unpacked once."""
    machines: dict[str, Machine] = {}

    def unpacked(name: str) -> Machine:
        if name not in machines:
            folder = tmp_path_factory.mktemp("machine")
            with tarfile.open(ARCHIVES / f"{name}.tar.bz2") as archive:
                if hasattr(tarfile, "data_filter"):  # from 3.11.4 on
                    archive.extraction_filter = tarfile.data_filter
                archive.extractall(folder, [member for member in archive if _is_needed(member)])
            (root,) = folder.iterdir()
            machines[name] = Machine(root)
        return machines[name]

    return unpacked


@pytest.mark.parametrize(
    ("name", "selector", "ids_and_numa_nodes"),
    [
        (XEON_PHI, '{vendor: "15b3", device: "1003"}', {"0000:82:00.0": 1}),
        (XEON_PHI, '{class: "0b40"}', {"0000:83:00.0": 1}),
        (XEON_PHI, "{driver: igb}", {"0000:02:00.0": 0, "0000:02:00.3": 0}),
        # Its number is -1; its local processors are 0-3 of node 0's 0-7.
        (XEON_PHI, '{class: "0108"}', {"0000:00:02.0": 0}),
        # Its local processors are those of both nodes.
        (XEON_PHI, '{address: "0000:7f:13.6"}', {"0000:7f:13.6": None}),
        (XEON_PHI, '{vendor: "1a03"}', {"0000:04:00.0": 0, "0000:05:00.0": 0}),
        # All but one number are -1, and all processors are local to all functions.
        (ALL_UNKNOWN, "{driver: ib_qib}", {"0000:43:00.0": 2}),
        (
            ALL_UNKNOWN,
            '{vendor: "14e4", device: "1639"}',
            dict.fromkeys(["0000:02:00.0", "0000:02:00.1", "0000:03:00.0", "0000:03:00.1"]),
        ),
        # local_cpulist says all processors, local_cpus the four that are one of each node.
        (CONFLICTS, '{address: "*"}', dict.fromkeys(["0000:00:00.0", "0000:00:03.0", "0000:01:00.0"])),
        (CONFLICTS, "{driver: megaraid_sas}", {"0000:01:00.0": None}),
        (NO_PCI, '{address: "*"}', {}),
        # No numbers at all; processors on nodes 0 and 8, and memory alone on 250 to 255.
        (
            MEMORY_NODES,
            '{class: "0300"}',
            {
                **dict.fromkeys(["0004:05:00.0", "0004:06:00.0", "0006:00:00.0"], 0),
                **dict.fromkeys(["0007:00:00.0", "0035:04:00.0", "0035:05:00.0"], 8),
            },
        ),
    ],
)
def test_the_functions_of_real_machines_have_their_addresses_and_numa_nodes(
    machine: Callable[[str], Machine], name: str, selector: str, ids_and_numa_nodes: dict[str, int | None]
) -> None:
    found = machine(name).pci_source(f"discover: {{pci: {selector}}}").look()
    assert {one.name: one.numa_node for one in found} == ids_and_numa_nodes


@pytest.mark.parametrize(
    ("name", "selector", "counts"),
    [
        # 93 numbers are -1: 92 functions of the processors themselves, and the NVMe of node 0.
        (XEON_PHI, '{address: "*"}', {0: 29, 1: 16, None: 92}),
        (XEON_PHI, '{vendor: "8086"}', {0: 27, 1: 15, None: 92}),
        (XEON_PHI, "{driver: ioatdma}", {0: 8, 1: 8}),
        (XEON_PHI, '{address: "0000:7f:*"}', {None: 46}),
        (XEON_PHI, '{class: "11"}', {None: 8}),
        (ALL_UNKNOWN, '{address: "*"}', {2: 1, None: 36}),
        (ALL_UNKNOWN, '{vendor: "8086"}', {None: 30}),
        (ALL_UNKNOWN, '{class: "06"}', {None: 16}),
        (CONFLICTS, '{address: "*"}', {None: 3}),
        (MEMORY_NODES, '{address: "*"}', {0: 3, 8: 3}),
    ],
)
def test_the_functions_of_real_machines_are_all_there(
    machine: Callable[[str], Machine], name: str, selector: str, counts: dict[int | None, int]
) -> None:
    found = machine(name).pci_source(f"discover: {{pci: {selector}}}").look()
    assert Counter(one.numa_node for one in found) == counts
    assert len({one.name for one in found}) == len({one.hardware for one in found}) == len(found)


@needs_mknod
def test_the_nodes_of_a_real_machine_are_those_of_its_drivers(machine: Callable[[str], Machine]) -> None:
    phi = machine(XEON_PHI)
    _make_nodes(phi)
    nodes = {
        one.name: [node.file_name for node in one.nodes]
        for one in phi.pci_source(
            'discover: {pci: [{vendor: "15b3"}, {driver: mic}, {class: "0c03"}]}'
        ).look()
    }
    assert nodes == {
        "0000:00:1a.0": ["usbmon1"],
        "0000:00:1d.0": ["usbmon2"],
        "0000:82:00.0": ["issm0", "umad0", "uverbs0"],
        "0000:83:00.0": ["mic0"],
    }


@needs_mknod
def test_the_usb_devices_of_a_real_machine_are_found_behind_its_hubs(
    machine: Callable[[str], Machine],
) -> None:
    """Three hubs, and a remote console with nodes on three interfaces, near to its controller."""
    phi = machine(XEON_PHI)
    _make_nodes(phi)
    for path in (phi.root / "sys" / "devices").rglob("bDeviceClass"):
        place = phi.root / "sys" / "bus" / "usb" / "devices" / path.parent.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(path.parent, place.parent))
    (console,) = phi.usb_source('discover: {usb: {interfaceClass: "03"}}').look()
    assert (console.name, console.numa_node) == ("0624:0249:20120124", 0)
    assert console.facts["model"] == "Keyboard/Mouse Function"
    assert [node.file_name for node in console.nodes] == [
        *("hidraw0", "event2"),
        *("hidraw1", "event3", "mouse1"),
        *("hidraw2", "event4", "mouse2"),
        "004",
    ]
    assert len(phi.usb_source('discover: {usb: {serial: "*"}}').look()) == 1


def _make_nodes(machine: Machine) -> None:
    """Make the nodes of /dev that the machine's kernel tells of; nothing opens them."""
    for dev in (machine.root / "sys" / "devices").rglob("dev"):
        if not dev.is_file() or "block" in dev.parts:
            continue
        told = dict(line.split("=", 1) for line in (dev.parent / "uevent").read_text().splitlines())
        place = machine.root / "dev" / told.get("DEVNAME", dev.parent.name)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            os.mknod(place, 0o20600, os.makedev(int(told["MAJOR"]), int(told["MINOR"])))
