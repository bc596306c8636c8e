"""PCI functions: which are meant, their nodes and facts, virtual functions, and IOMMU groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.sources.device import HostDevice
from devplug.daemon.sources.vfio import Member, group_fault
from devplug.devices import Health, HealthState
from tests.daemon.hosts import needs_mknod
from tests.daemon.machines import Machine

CLASS_12 = 'discover: {pci: {class: "12"}}'
VFIO = "discover: {pci: {driver: vfio-pci}}"


def names(found: tuple[HostDevice, ...]) -> list[str]:
    return [one.name for one in found]


def paths(found: HostDevice) -> list[str]:
    return [node.host_path for node in found.nodes]


def two_sockets(root: Path) -> Machine:
    """A card behind a bridge and a network card with virtual functions, each on its own NUMA node."""
    machine = Machine(root)
    machine.numa(node0="0-3", node1="4-7")
    machine.pci("0000:00:01.0", driver="pcieport", **{"class": "0x060400"})
    machine.pci(
        "0000:3b:00.0",
        "0000:00:01.0",
        "dfl-pci",
        vendor="0x8086",
        device="0x09c4",
        subsystem_vendor="0x1BD4",
        subsystem_device="0x0001",
        numa_node="0",
    )
    network = {"vendor": "0x8086", "device": "0x1521", "class": "0x020000", "numa_node": "1"}
    machine.pci("0000:82:00.0", driver="igb", **network)
    machine.virtual_functions("0000:82:00.0", "0000:82:10.0", "0000:82:10.2", driver="igbvf")
    return machine


# ── which functions ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("selector", "addresses"),
    [
        ('{vendor: "8086"}', ["0000:3b:00.0", "0000:82:00.0"]),
        ('{vendor: "8086", device: "09C4"}', ["0000:3b:00.0"]),
        ('{subsystemVendor: "1bd4"}', ["0000:3b:00.0"]),
        ('{subsystemVendor: "1bd4", subsystemDevice: "0002"}', []),
        ('{class: "0604"}', ["0000:00:01.0"]),
        ('{class: "02"}', ["0000:82:00.0"]),
        ('{class: "120000"}', ["0000:3b:00.0", "0000:82:10.0", "0000:82:10.2"]),
        ('{driver: "igb*"}', ["0000:82:00.0", "0000:82:10.0", "0000:82:10.2"]),
        ('{address: "0000:82:*"}', ["0000:82:00.0", "0000:82:10.0", "0000:82:10.2"]),
        ('{address: "0000:82:10.[12]"}', ["0000:82:10.2"]),
        ('{virtualFunctionOf: "0000:82:00.0"}', ["0000:82:10.0", "0000:82:10.2"]),
        ('{virtualFunctionOf: "0000:3b:00.0"}', []),
        ('[{class: "02"}, {driver: igb}, {class: "0604"}]', ["0000:00:01.0", "0000:82:00.0"]),
    ],
)
def test_a_function_is_meant_if_all_keys_of_a_selector_match(
    tmp_path: Path, selector: str, addresses: list[str]
) -> None:
    assert names(two_sockets(tmp_path).pci_source(f"discover: {{pci: {selector}}}").look()) == addresses


def test_a_function_without_a_driver_matches_no_glob_of_drivers(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.pci("0000:01:00.0")
    assert machine.pci_source('discover: {pci: {driver: "*"}}').look() == ()


def test_a_function_that_is_going_away_is_not_there(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = machine.pci("0000:01:00.0")
    machine.remove(f"{folder}/class")
    assert machine.pci_source('discover: {pci: {vendor: "1234"}}').look() == ()


def test_a_domain_of_five_digits_is_an_address_like_any_other(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.pci("10000:e1:00.0")
    assert names(machine.pci_source(CLASS_12).look()) == ["10000:e1:00.0"]


def test_a_template_gives_the_ids(tmp_path: Path) -> None:
    machine = two_sockets(tmp_path)
    rest = 'id: "vf{attr.vf}", discover: {pci: {virtualFunctionOf: "0000:82:00.0"}}'
    assert names(machine.pci_source(rest).look()) == ["vf0", "vf1"]
    rest = 'id: "{attr.vendor}", discover: {pci: {vendor: "8086"}}'
    assert names(machine.pci_source(rest).look()) == ["0000:3b:00.0", "0000:82:00.0"]


# ── facts, NUMA and health ────────────────────────────────────────────────────────────────────────


def test_facts_are_what_the_function_says_of_itself(tmp_path: Path) -> None:
    machine = two_sockets(tmp_path)
    (card,) = machine.pci_source('discover: {pci: {device: "09c4"}}').look()
    assert card.hardware == "/sys/devices/pci0000:00/0000:00:01.0/0000:3b:00.0"
    assert card.numa_node == 0
    assert dict(card.facts) == {
        "attr.vendor": "0x8086",
        "attr.device": "0x09c4",
        "attr.subsystem_vendor": "0x1BD4",
        "attr.subsystem_device": "0x0001",
        "attr.class": "0x120000",
        "attr.driver": "dfl-pci",
        "pciAddress": "0000:3b:00.0",
        "model": "8086:09c4",
        "numaNode": 0,
    }


def test_a_virtual_function_knows_its_physical_one_and_its_number(tmp_path: Path) -> None:
    machine = two_sockets(tmp_path)
    found = machine.pci_source('discover: {pci: {virtualFunctionOf: "0000:82:00.0"}}').look()
    facts = [(one.facts["attr.physfn"], one.facts["attr.vf"]) for one in found]
    assert facts == [("0000:82:00.0", 0), ("0000:82:00.0", 1)]


@pytest.mark.parametrize("numbers", [["2", "-1"], ["-1", "-1"]])
def test_where_no_number_is_given_the_local_processors_tell_the_numa_node(
    tmp_path: Path, numbers: list[str]
) -> None:
    machine = Machine(tmp_path)
    machine.numa(node0="0-3,8-11", node2="4-7,12-15", node255="")
    machine.pci("0000:01:00.0", numa_node=numbers[0], local_cpulist="4-7,12-15")
    machine.pci("0000:02:00.0", numa_node=numbers[1], local_cpus="0000,0000000f")
    machine.pci("0000:03:00.0", numa_node=numbers[1], local_cpulist="0-15", local_cpus="ffff")
    found = machine.pci_source(CLASS_12).look()
    assert [one.numa_node for one in found] == [2, 0, None]
    assert [one.facts.get("numaNode") for one in found] == [2, 0, None]


@pytest.mark.parametrize("attributes", [{"serial_number": "00-11-22"}, {"unique_id": "00-11-22"}])
def test_the_serial_number_is_the_functions_own(tmp_path: Path, attributes: dict[str, str]) -> None:
    machine = Machine(tmp_path)
    machine.pci("0000:01:00.0", **attributes)
    assert machine.pci_source(CLASS_12).look()[0].facts["serial"] == "00-11-22"


def test_the_serial_number_of_an_nvme_is_its_controllers(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = machine.pci("0000:01:00.0", driver="nvme", **{"class": "0x010802"})
    machine.node(folder, "nvme", "nvme0")
    machine.write(f"{folder}/nvme/nvme0/serial", "S4EWNX0R  \n")
    (one,) = machine.pci_source('discover: {pci: {class: "0108"}}').look()
    assert one.facts["serial"] == "S4EWNX0R"


def test_a_function_that_answers_nothing_is_unhealthy(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.pci("0000:01:00.0", vendor="0xffff")
    (one,) = machine.pci_source(CLASS_12).look()
    assert one.health == Health.unhealthy("it does not answer: its vendor reads 0xffff")


def test_nothing_changes_between_two_looks_at_the_same(tmp_path: Path) -> None:
    machine = two_sockets(tmp_path)
    source = machine.pci_source('discover: {pci: {vendor: "8086"}}')
    before = source.look()
    machine.write("/sys/devices/pci0000:82/0000:82:00.0/uevent", "DRIVER=other\n")
    assert source.look() == before


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_nodes_are_the_drivers_and_none_of_another_functions_or_usb_devices(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    bridge = machine.pci("0000:00:01.0", driver="xhci")
    machine.node(machine.pci("0000:01:00.0", "0000:00:01.0"), "drm", "card0", "dri/card0")
    machine.usb_device(machine.usb_bus(bridge), "1")
    machine.node(bridge, "misc", "chip0")
    of_bridge, of_card = machine.pci_source(CLASS_12).look()
    assert paths(of_bridge) == ["/dev/chip0"]
    assert paths(of_card) == ["/dev/dri/card0"]
    assert (of_card.facts["file"], of_card.facts["hostPath"]) == ("card0", "/dev/dri/card0")


@pytest.mark.parametrize(("allow", "disks"), [("[]", []), ("[rawDisks]", ["/dev/nvme0n1", "/dev/ng0n1"])])
def test_disks_need_to_be_allowed(tmp_path: Path, allow: str, disks: list[str]) -> None:
    machine = Machine(tmp_path)
    folder = machine.pci("0000:01:00.0", driver="nvme")
    machine.node(folder, "nvme", "nvme0")
    machine.node(f"{folder}/nvme/nvme0", "block", "nvme0n1")
    machine.node(f"{folder}/nvme/nvme0", "nvme-generic", "ng0n1")
    (one,) = machine.pci_source(f"{CLASS_12}, allow: {allow}").look()
    assert set(paths(one)) - {"/dev/nvme0n1"} == {"/dev/nvme0", *disks} - {"/dev/nvme0n1"}
    assert ("/dev/ng0n1" in paths(one)) is bool(disks)


@needs_mknod
def test_a_disk_that_is_allowed_is_a_block_node(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.node(machine.pci("0000:01:00.0"), "block", "nvme0n1")
    (one,) = machine.pci_source(f"{CLASS_12}, allow: [rawDisks]").look()
    assert [(node.host_path, node.is_block) for node in one.nodes] == [("/dev/nvme0n1", True)]


def test_a_node_is_given_out_by_the_port_it_is_plugged_in(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    node = machine.node(machine.pci("0000:01:00.0"), "drm", "renderD128", "dri/renderD128")
    machine.link("/dev/dri/by-path/pci-0000:01:00.0-render", node)
    (one,) = machine.pci_source(CLASS_12).look()
    assert paths(one) == ["/dev/dri/by-path/pci-0000:01:00.0-render"]
    assert one.nodes[0].file_name == "renderD128"


def test_an_rdma_adapter_brings_the_connection_manager_that_nobody_owns(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.node(machine.pci("0000:01:00.0"), "infiniband_verbs", "uverbs0", "infiniband/uverbs0")
    machine.dev("/dev/infiniband/rdma_cm")
    (one,) = machine.pci_source(CLASS_12).look()
    shared = {node.host_path: node.is_shared for node in one.nodes}
    assert shared == {"/dev/infiniband/uverbs0": False, "/dev/infiniband/rdma_cm": True}


# ── IOMMU groups ──────────────────────────────────────────────────────────────────────────────────


def with_group(root: Path, *drivers: str, group: str = "12") -> Machine:
    """A group of functions 0000:3b:00.0, .1, … with these drivers, behind a bridge that is in it too."""
    machine = Machine(root)
    machine.pci("0000:00:01.0", driver="pcieport", group=group, **{"class": "0x060400"})
    for number, driver in enumerate(drivers):
        machine.pci(f"0000:3b:00.{number}", "0000:00:01.0", driver, group, numa_node="1")
    machine.dev("/dev/vfio/vfio")
    machine.dev(f"/dev/vfio/{group}")
    return machine


def test_a_function_under_vfio_has_its_groups_node_and_the_container_of_all_groups(tmp_path: Path) -> None:
    (one,) = with_group(tmp_path, "vfio-pci").pci_source(VFIO).look()
    nodes = [(node.host_path, node.subsystem, node.is_shared) for node in one.nodes]
    assert nodes == [("/dev/vfio/12", "vfio", False), ("/dev/vfio/vfio", "vfio", True)]
    assert (one.name, one.facts["pciAddress"], one.numa_node) == ("0000:3b:00.0", "0000:3b:00.0", 1)
    assert one.facts["hostPath"] == "/dev/vfio/12"
    assert one.facts["attr.iommu_group"] == "12"
    assert one.health == Health.healthy()


def test_a_makers_own_vfio_driver_is_known_by_its_name_or_by_its_folder(tmp_path: Path) -> None:
    for number, driver in enumerate(("mlx5_vfio_pci", "nvgrace_gpu")):
        machine = with_group(tmp_path / driver, driver)
        if number:
            machine.files("/sys/devices/pci0000:00/0000:00:01.0/0000:3b:00.0/vfio-dev", {"vfio0/uevent": ""})
        (one,) = machine.pci_source(f"discover: {{pci: {{driver: {driver}}}}}").look()
        assert paths(one) == ["/dev/vfio/12", "/dev/vfio/vfio"]


def test_new_kernels_have_a_node_for_each_function_which_comes_with_that_of_the_iommu(tmp_path: Path) -> None:
    machine = with_group(tmp_path, "vfio-pci")
    folder = "/sys/devices/pci0000:00/0000:00:01.0/0000:3b:00.0"
    machine.node(folder, "vfio-dev", "vfio0", "vfio/devices/vfio0")
    machine.dev("/dev/iommu")
    (one,) = machine.pci_source(VFIO).look()
    assert [(node.host_path, node.subsystem, node.is_shared) for node in one.nodes] == [
        ("/dev/vfio/12", "vfio", False),
        ("/dev/vfio/devices/vfio0", "vfio-dev", False),
        ("/dev/vfio/vfio", "vfio", True),
        ("/dev/iommu", "vfio-dev", True),
    ]


def test_functions_of_one_group_are_one_device_called_by_the_first(tmp_path: Path) -> None:
    machine = with_group(tmp_path, "vfio-pci", "vfio-pci")
    (one,) = machine.pci_source(VFIO).look()
    assert one.name == "0000:3b:00.0"
    assert one.health == Health.healthy()


def test_two_resources_over_two_functions_of_one_group_have_the_same_hardware(tmp_path: Path) -> None:
    machine = with_group(tmp_path, "vfio-pci", "vfio-pci")
    (first,) = machine.pci_source('discover: {pci: {address: "*.0", driver: vfio-pci}}').look()
    (second,) = machine.pci_source('discover: {pci: {address: "*.1"}}').look()
    assert (first.name, second.name) == ("0000:3b:00.0", "0000:3b:00.1")
    assert first.hardware == second.hardware == "/sys/devices/pci0000:00/0000:00:01.0/0000:3b:00.0"


@pytest.mark.parametrize("other", ["", "pci-stub", "vfio-pci"])
def test_a_group_is_healthy_if_no_driver_of_the_host_has_a_member(tmp_path: Path, other: str) -> None:
    machine = with_group(tmp_path, "vfio-pci", other)
    (one,) = machine.pci_source('discover: {pci: {address: "0000:3b:00.0"}}').look()
    assert one.health == Health.healthy()


def test_a_group_is_unhealthy_and_names_the_member_that_the_host_has(tmp_path: Path) -> None:
    machine = with_group(tmp_path, "vfio-pci", "snd_hda_intel")
    source = machine.pci_source('discover: {pci: {address: "0000:3b:00.*"}}')
    (one,) = source.look()
    assert one.health.state is HealthState.UNHEALTHY
    assert one.health.reason == (
        "0000:3b:00.1 of the same IOMMU group 12 has the driver snd_hda_intel; "
        "bind it to vfio-pci, or to no driver"
    )
    machine.bind("0000:3b:00.1", "vfio-pci")
    assert [(one.name, one.health) for one in source.look()] == [("0000:3b:00.0", Health.healthy())]


def test_a_group_is_found_again_under_another_number(tmp_path: Path) -> None:
    before = with_group(tmp_path / "before", "vfio-pci").pci_source(VFIO).look()
    after = with_group(tmp_path / "after", "vfio-pci", group="7").pci_source(VFIO).look()
    assert names(before) == names(after)
    assert paths(after[0]) == ["/dev/vfio/7", "/dev/vfio/vfio"]


def test_a_group_whose_node_is_missing_is_unhealthy(tmp_path: Path) -> None:
    machine = with_group(tmp_path, "vfio-pci")
    machine.remove("/dev/vfio/12")
    (one,) = machine.pci_source(VFIO).look()
    assert one.nodes == ()
    assert one.health == Health.unhealthy("its IOMMU group 12 has no node in /dev/vfio")


def test_a_group_without_an_iommu_has_a_node_of_another_name(tmp_path: Path) -> None:
    machine = with_group(tmp_path, "vfio-pci")
    machine.remove("/dev/vfio/12")
    machine.dev("/dev/vfio/noiommu-12")
    (one,) = machine.pci_source(VFIO).look()
    assert paths(one) == ["/dev/vfio/noiommu-12", "/dev/vfio/vfio"]


def test_functions_of_a_group_that_no_user_space_has_are_devices_each(tmp_path: Path) -> None:
    machine = with_group(tmp_path, "nvme", "nvme")
    found = machine.pci_source("discover: {pci: {driver: nvme}}").look()
    assert names(found) == ["0000:3b:00.0", "0000:3b:00.1"]
    assert [paths(one) for one in found] == [[], []]


MEMBERS = st.builds(
    Member,
    st.just("0000:3b:00.0"),
    st.sampled_from([None, "pci-stub", "pcieport", "vfio-pci", "nvme"]),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(MEMBERS, max_size=4))
def test_a_group_has_a_fault_if_and_only_if_one_of_its_members_has(members: list[Member]) -> None:
    assert bool(group_fault("1", members)) is any(group_fault("1", [member]) for member in members)
    assert not group_fault("1", [member for member in members if member.is_bridge])
