"""Network devices: interfaces, virtual functions for machines and for pods, and the nodes with them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from devplug.daemon.sources.device import HostDevice
from devplug.daemon.sources.host import Host
from devplug.daemon.sources.net import NetSource
from devplug.devices import Health
from tests.daemon.hosts import needs_mknod, resource
from tests.daemon.machines import Machine, machine_with_usb
from tests.daemon.systrees import interface, listed
from tests.kerneldevices import macvtap_device, needs_uevents, tap_device, veth_device

NIC = {"class": "0x020000", "vendor": "0x15b3", "device": "0x1019"}
PF, VF0, VF1 = "0000:3b:00.0", "0000:3b:00.2", "0000:3b:00.3"


def source(host: Host, rest: str) -> NetSource:
    one = resource(rest)
    return NetSource(one.name, one.discover.net, one.id, one.allow, host)


def find(machine: Machine, selector: str, more: str = "allow: []") -> tuple[HostDevice, ...]:
    return source(machine.host, f"discover: {{net: {selector}}}, {more}").look()


def names(found: tuple[HostDevice, ...]) -> list[str]:
    return [one.name for one in found]


def paths(found: tuple[HostDevice, ...]) -> list[list[str]]:
    return [[node.host_path for node in one.nodes] for one in found]


def nic(machine: Machine, device: str, name: str, **attributes: str) -> str:
    """Give a device an interface."""
    folder = listed(machine, f"{device}/net/{name}", "net", {"address": "02:00:00:00:00:01", **attributes})
    machine.link(f"{folder}/device", device)
    return folder


def function(machine: Machine, address: str, name: str = "", driver: str = "mlx5_core") -> str:
    folder = machine.pci(address, driver=driver, **NIC)
    if name:
        nic(machine, folder, name, ifindex=f"{len(name)}", dev_port="0")
    return folder


def hide(machine: Machine, folder: str) -> None:
    """Move an interface to another network namespace."""
    machine.remove(folder)
    machine.remove(f"/sys/class/net/{folder.rpartition('/')[2]}")


def card(root: Path) -> Machine:
    """Return a machine with a card with two virtual functions: one with an interface, one for machines."""
    machine = Machine(root)
    function(machine, PF, "eth0")
    machine.pci(VF0, driver="iavf", **NIC)
    nic(machine, machine._pci[VF0], "eth1")
    machine.pci(VF1, driver="vfio-pci", group="7", **NIC)
    for number, address in enumerate((VF0, VF1)):
        machine.link(f"{machine._pci[address]}/physfn", machine._pci[PF])
        machine.link(f"{machine._pci[PF]}/virtfn{number}", machine._pci[address])
    machine.dev("/dev/vfio/7")
    machine.dev("/dev/vfio/vfio")
    return machine


# ── which devices match ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("{interface: eth0}", [PF]),
        ('{interface: "eth*"}', [PF, VF0]),
        ('{interface: "*"}', [PF, VF0]),
        ("{driver: iavf}", [VF0]),
        ("{driver: vfio-pci}", [VF1]),
        ('{driver: "*"}', [PF, VF0, VF1]),
        ('{address: "0000:3b:00.*"}', [PF, VF0, VF1]),
        (f'{{virtualFunctionOf: "{PF}"}}', [VF0, VF1]),
        (f'{{virtualFunctionOf: "{PF}", driver: iavf}}', [VF0]),
        (f'[{{interface: eth0}}, {{virtualFunctionOf: "{PF}"}}, {{driver: iavf}}]', [PF, VF0, VF1]),
        (f'{{virtualFunctionOf: "{VF0}"}}', []),
    ],
)
def test_a_network_device_matches_with_or_without_an_interface(
    tmp_path: Path, selector: str, expected: list[str]
) -> None:
    assert names(find(card(tmp_path), selector)) == expected


def test_a_function_without_a_driver_is_found_by_its_address(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    function(machine, PF, driver="")
    assert names(find(machine, f'{{address: "{PF}"}}')) == [PF]
    assert find(machine, '{driver: "*"}') == ()


def test_other_pci_functions_are_no_network_devices(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.pci("0000:03:00.0", **{"class": "0x030000"})
    assert find(machine, '{address: "0000:*"}') == ()


def test_an_interface_without_hardware_is_found_only_by_its_name(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for name in ("lo", "br0", "veth12"):
        listed(machine, f"/sys/devices/virtual/net/{name}", "net")
    assert find(machine, '[{interface: "*"}, {interface: lo}, {driver: "*"}, {address: "*"}]') == ()
    (bridge,) = find(machine, '{interface: "br*"}')
    assert (bridge.name, bridge.hardware) == ("br0", "/sys/devices/virtual/net/br0")


def test_a_representor_is_found_only_by_its_name(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = function(machine, PF, "eth0")
    nic(machine, folder, "eth0_3", phys_port_name="pf0vf3", ifindex="9")
    nic(machine, folder, "uplink", phys_port_name="p0", ifindex="10", dev_port="1")
    assert names(find(machine, f'{{address: "{PF}"}}')) == [PF, f"{PF}.1"]
    assert names(find(machine, '{interface: "eth0_*"}')) == [f"{PF}.pf0vf3"]


# ── IDs ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_ports_of_one_function_are_told_apart(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = function(machine, PF, "eth0")
    nic(machine, folder, "eth1", dev_port="1", ifindex="8")
    found = find(machine, f'{{address: "{PF}"}}')
    assert [(one.name, one.hardware) for one in found] == [(PF, folder), (f"{PF}.1", f"{folder}/net/eth1")]


def test_a_port_keeps_its_id_when_the_other_one_comes_later(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = machine.pci(PF, **NIC)
    nic(machine, folder, "eth1", dev_port="1", ifindex="2")
    one = source(machine.host, 'discover: {net: {interface: "eth*"}}')
    assert names(one.look()) == [f"{PF}.1"]
    nic(machine, folder, "eth0", dev_port="0", ifindex="3")
    assert names(one.look()) == [PF, f"{PF}.1"]


def test_a_function_that_does_not_number_its_interfaces_has_unique_ids(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = machine.pci(PF, **NIC)
    for index, name in ((7, "a0"), (6, "b0")):
        nic(machine, folder, name, ifindex=f"{index}", dev_port="0")
    one = source(machine.host, 'discover: {net: {interface: "*0"}}')
    assert names(one.look()) == [f"{PF}.a0", f"{PF}.b0"]


def test_a_subfunction_has_its_number(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = function(machine, PF, "eth0")
    part = machine.device(f"{folder}/mlx5_core.sf.4", "auxiliary", {"sfnum": "88"})
    nic(machine, part, "eth5", ifindex="9")
    assert names(find(machine, '{interface: "eth*"}')) == [PF, f"{PF}.sf88"]


def test_a_usb_adapter_is_called_as_the_usb_device_and_has_no_pci_address(tmp_path: Path) -> None:
    machine, bus = machine_with_usb(tmp_path)
    usb_device = machine.usb_device(bus, "2", "0013B9", idVendor="0bda", idProduct="8153", number=2)
    nic(machine, interface(machine, usb_device, 0), "eth3")
    (found,) = find(machine, "{interface: eth3}")
    assert (found.name, found.hardware) == ("0bda:8153:0013B9", usb_device)
    assert "pciAddress" not in found.facts
    assert find(machine, '{address: "*:*"}') == ()


def test_an_interface_of_the_board_is_called_by_the_boards_name_for_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    nic(machine, machine.device("/sys/devices/platform/soc/fd580000.ethernet", "platform"), "eth0")
    assert names(find(machine, "{interface: eth0}")) == ["fd580000.ethernet"]


def test_an_interface_of_a_virtual_machine_is_called_by_its_pci_address(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    virtio = machine.device(f"{machine.pci(PF, driver='virtio-pci', **NIC)}/virtio2", "virtio")
    machine.link(f"{virtio}/driver", "/sys/bus/virtio/drivers/virtio_net")
    nic(machine, virtio, "eth0")
    assert (
        names(find(machine, "[{driver: virtio_net}]")) == names(find(machine, "{driver: virtio-pci}")) == [PF]
    )


def test_an_id_does_not_change_when_udev_renames_the_interface(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = machine.pci(PF, **NIC)
    old = nic(machine, folder, "eth0")
    one = source(machine.host, f'discover: {{net: {{address: "{PF}"}}}}')
    before = one.look()
    hide(machine, old)
    nic(machine, folder, "enp59s0")
    after = one.look()
    assert (names(after), after[0].hardware) == (names(before), before[0].hardware)
    assert after[0].facts["interface"] == "enp59s0"


def test_a_function_whose_interface_is_in_a_pod_stays_listed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = machine.pci(VF0, driver="iavf", **NIC)
    shown = nic(machine, folder, "eth1")
    one = source(machine.host, "discover: {net: {interface: eth1}}")
    assert names(one.look()) == [VF0]
    hide(machine, shown)
    (found,) = one.look()
    assert (found.name, found.facts["interface"]) == (VF0, "eth1")
    machine.remove(f"/sys/bus/pci/devices/{VF0}")
    assert one.look() == ()


def test_a_template_may_name_it_by_its_interface(tmp_path: Path) -> None:
    assert names(find(card(tmp_path), "{driver: iavf}", 'id: "port-{interface}"')) == ["port-eth1"]


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────


@needs_mknod
def test_a_function_for_a_virtual_machine_has_its_group_and_the_container_of_groups(tmp_path: Path) -> None:
    (found,) = find(card(tmp_path), "{driver: vfio-pci}")
    assert [(node.host_path, node.subsystem, node.is_shared) for node in found.nodes] == [
        ("/dev/vfio/7", "vfio", False),
        ("/dev/vfio/vfio", "vfio", True),
    ]
    assert found.health == Health.healthy()


def test_a_group_of_which_the_machine_has_a_part_is_unhealthy(tmp_path: Path) -> None:
    machine = card(tmp_path)
    machine.pci("0000:3b:00.4", driver="ixgbe", group="7")
    (found,) = find(machine, "{driver: vfio-pci}")
    assert "0000:3b:00.4 of the same IOMMU group 7 has the driver ixgbe" in found.health.reason


def test_a_group_without_its_node_is_unhealthy(tmp_path: Path) -> None:
    machine = card(tmp_path)
    machine.remove("/dev/vfio/7")
    (found,) = find(machine, "{driver: vfio-pci}")
    assert found.health.reason == "its IOMMU group 7 has no node in /dev/vfio"


@needs_mknod
def test_two_functions_of_one_group_are_one_device(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for address in (PF, "0000:3b:00.1"):
        machine.pci(address, driver="vfio-pci", group="5", **NIC)
    machine.dev("/dev/vfio/5")
    assert names(find(machine, "{driver: vfio-pci}")) == [PF]


@needs_mknod
def test_an_rdma_adapter_has_its_nodes_and_the_connection_manager(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = function(machine, PF, "ib0")
    for subsystem, name in (("infiniband_verbs", "uverbs0"), ("infiniband_mad", "umad0"), ("ptp", "ptp0")):
        listed(machine, f"{folder}/{subsystem}/{name}", subsystem, node=f"infiniband/{name}")
    machine.dev("/dev/infiniband/rdma_cm")
    (found,) = find(machine, "{interface: ib0}")
    assert [(node.file_name, node.is_shared) for node in found.nodes] == [
        ("umad0", False),
        ("uverbs0", False),
        ("rdma_cm", True),
    ]


@needs_mknod
def test_the_second_port_comes_with_the_adapters_nodes_and_does_not_own_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = function(machine, PF, "ib0")
    nic(machine, folder, "ib1", dev_port="1", ifindex="9")
    listed(machine, f"{folder}/infiniband_verbs/uverbs0", "infiniband_verbs", node="infiniband/uverbs0")
    first, second = find(machine, '{interface: "ib*"}')
    assert [node.is_shared for one in (first, second) for node in one.nodes] == [False, True]


@needs_mknod
def test_a_function_of_vdpa_has_the_node_of_which_no_event_tells(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = function(machine, VF0)
    vdpa = machine.device(machine.device(f"{folder}/vdpa0", "vdpa") + "/vhost-vdpa-0", "")
    major, minor = machine.dev("/dev/vhost-vdpa-0")
    machine.write(f"{vdpa}/dev", f"{major}:{minor}\n")
    assert paths(find(machine, f'{{address: "{VF0}"}}')) == [["/dev/vhost-vdpa-0"]]


@needs_mknod
def test_a_function_under_uio_has_its_node(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = function(machine, VF0, driver="igb_uio")
    listed(machine, f"{folder}/uio/uio3", "uio", node="uio3")
    assert paths(find(machine, "{driver: igb_uio}")) == [["/dev/uio3"]]


def test_a_card_of_the_machine_has_no_nodes(tmp_path: Path) -> None:
    assert paths(find(card(tmp_path), "{interface: eth0}")) == [[]]


# ── facts ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_virtual_function_says_what_templates_may_ask(tmp_path: Path) -> None:
    machine = card(tmp_path)
    machine.write(f"{machine._pci[VF0]}/numa_node", "1\n")
    (found,) = find(machine, "{driver: iavf}")
    assert dict(found.facts) == {
        "interface": "eth1",
        "pciAddress": VF0,
        "numaNode": 1,
        "attr.address": "02:00:00:00:00:01",
        "attr.class": "0x020000",
        "attr.device": "0x1019",
        "attr.driver": "iavf",
        "attr.pf": PF,
        "attr.vendor": "0x15b3",
    }
    assert (found.numa_node, found.hardware) == (1, machine._pci[VF0])


# ── real devices ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.root
def test_a_real_tap_interface_is_found_by_its_name_and_lost() -> None:
    with tap_device() as made:
        one = source(Host(), f"discover: {{net: {{interface: {made.name}}}}}")
        (found,) = one.look()
        assert (found.name, found.hardware, found.numa_node) == (made.name, made.sys_path, None)
        assert found.facts["interface"] == made.name
        assert made.name not in names(source(Host(), 'discover: {net: {driver: "*"}}').look())
    assert one.look() == ()


@pytest.mark.root
def test_a_real_macvtap_interface_has_its_node() -> None:
    with veth_device() as cable, macvtap_device(cable) as made:
        name = made.sys_path.split("/")[5]
        (found,) = source(Host(), f"discover: {{net: {{interface: {name}}}}}").look()
        assert [(node.host_path, node.subsystem) for node in found.nodes] == [(made.node, "macvtap")]


@needs_uevents
@pytest.mark.root
async def test_a_real_cable_is_announced_when_it_comes_and_when_it_goes() -> None:
    one = source(Host(), 'discover: {net: {interface: "dpv*"}}')
    with contextlib.ExitStack() as made:
        cable = None
        async for looked in one.looks():
            if cable is None:
                cable = made.enter_context(veth_device())
            elif cable.name in names(looked):
                made.close()
            elif not Path(cable.sys_path).exists():
                return
