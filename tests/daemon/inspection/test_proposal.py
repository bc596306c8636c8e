"""What a machine's devices are called, which selector finds each, and the configuration that is proposed."""

from __future__ import annotations

import string
from collections import Counter
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.config.loader import load
from devplug.daemon.config.types import Config
from devplug.daemon.container_response import shares_of
from devplug.daemon.inspection.device_kinds import NamedDevice, Survey, named_devices
from devplug.daemon.inspection.proposal import finder_of, proposals_of, proposed_text
from devplug.daemon.inspection.survey import survey
from devplug.daemon.sources.device import HostDevice, HostDeviceNode
from devplug.daemon.sources.host import Host
from devplug.daemon.sources.kinds import source_of
from devplug.devices import Device, stable_id
from tests.daemon.hosts import MAY_MAKE_NODES, NO_NODES
from tests.daemon.populated import populated


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    if not MAY_MAKE_NODES:
        pytest.skip(NO_NODES)
    return populated(tmp_path_factory.mktemp("machine")).host


def sights(host: Host) -> tuple[NamedDevice, ...]:
    return named_devices(survey(host))


def proposed(host: Host) -> Config:
    seen = survey(host)
    return load(proposed_text(proposals_of(named_devices(seen), seen)), "proposed.yaml")


def number_of(found: HostDevice) -> frozenset[tuple[int, int]]:
    return frozenset(node.number for node in found.nodes if not node.is_shared)


# ── on a machine ──────────────────────────────────────────────────────────────────────────────────


def test_each_device_is_found_by_the_selector_that_says_most_of_it(host: Host) -> None:
    seen = survey(host)
    found = named_devices(seen)
    proposals = proposals_of(found, seen)
    assert {one.found.name: finder_of(one, proposals, seen) for one in found if not one.hidden} == {
        "0403:6001:A6008isP": 'usb: {vendor: "0403", product: "6001"}',
        "0403:6001:A7004kxQ": 'usb: {vendor: "0403", product: "6001"}',
        "046d:082d:3F0A11DE": 'usb: {vendor: "046d", product: "082d"}',
        "0bda:2838@0000:00:14.0-4.2": 'usb: {vendor: "0bda", product: "2838"}',
        "0000:3b:00.0": 'pci: {class: "1200", driver: dfl-pci}',
        "0000:5e:00.1": 'pci: {virtualFunctionOf: "0000:5e:00.0", driver: vfio-pci}',
        "0000:5e:00.2": 'pci: {virtualFunctionOf: "0000:5e:00.0", driver: vfio-pci}',
        "dsp0": "path: /dev/dsp0",
        "kvm": "path: /dev/kvm",
        "0000:00:02.0.renderD0": 'sysfs: {subsystem: drm, name: "renderD*"}',
        "tpmrm0": "sysfs: {subsystem: tpmrm}",
        "ttyS1": "sysfs: {subsystem: tty, name: ttyS1}",
    }


def test_what_no_pod_would_want_is_hidden_under_a_word(host: Host) -> None:
    hidden = Counter(one.hidden for one in sights(host) if one.hidden)
    assert hidden == {
        "terminals": 3 + 1,
        "loop": 8,
        "disks": 1,
        "input devices": 1,
        "network interfaces": 1,
        "PCI functions": 2,
        "others": 1,
    }


def test_the_serial_port_with_the_kernels_messages_is_a_terminal(host: Host) -> None:
    kinds = {one.found.name: one.kind or one.hidden for one in sights(host)}
    assert (kinds["ttyS0"], kinds["ttyS1"]) == ("terminals", "uart")


def test_no_device_is_shown_twice(host: Host) -> None:
    numbers = Counter(number for one in sights(host) for number in number_of(one.found))
    assert [number for number, count in numbers.items() if count > 1] == []


def test_the_proposed_configuration_loads_and_finds_the_same_devices(host: Host) -> None:
    shown = {one.found.name: number_of(one.found) for one in sights(host) if not one.hidden}
    found = {
        one.name: number_of(one)
        for resource in proposed(host).resources
        for one in source_of(resource, host).look()
    }
    assert found == shown


def test_what_is_proposed_can_be_given_out_all_at_once(host: Host) -> None:
    for resource in proposed(host).resources:
        found = {one.name: one for one in source_of(resource, host).look()}
        limit = resource.share.max_per_container or len(found)
        suffix = "::0" if resource.share.replicas > 1 else ""
        names = [Device(f"{name}{suffix}") for name in sorted(found)[:limit]]
        shares = shares_of(names, found, resource)
        paths = [node.container_path for share in shares for node in share.device_nodes]
        assert len(paths) == len(set(paths)) > 0


def test_what_many_may_use_is_proposed_for_many(host: Host) -> None:
    shares = {
        resource.name: (resource.share.replicas, resource.share.max_per_container)
        for resource in proposed(host).resources
        if resource.share.replicas > 1
    }
    assert shares == {"example.com/kvm": (100, 1), "example.com/tpm": (8, 1)}


def test_two_looks_propose_the_same_text(host: Host) -> None:
    first, second = (survey(host) for _ in range(2))
    texts = [proposed_text(proposals_of(named_devices(one), one)) for one in (first, second)]
    assert texts[0] == texts[1]
    assert "  # USB serial adapters: 0403:6001:A6008isP, 0403:6001:A7004kxQ\n" in texts[0]
    assert "  # DVB-T stick: 0bda:2838@0000:00:14.0-4.2\n" in texts[0]


def test_an_empty_machine_has_nothing(tmp_path: Path) -> None:
    seen = survey(Host(tmp_path))
    assert (named_devices(seen), proposals_of((), seen)) == ((), ())


# ── as values ─────────────────────────────────────────────────────────────────────────────────────


def usb_device(vendor: str, product: str, serial: str = "", /, **subsystems: int) -> HostDevice:
    nodes = tuple(
        HostDeviceNode(f"/dev/{name}{number}", (180 + at, number), subsystem=name)
        for at, (name, number) in enumerate(subsystems.items())
    )
    facts = {
        "attr.idVendor": vendor,
        "attr.idProduct": product,
        "serial": serial,
        "model": f"{vendor}:{product}",
    }
    name = stable_id(f"{vendor}:{product}:{serial}")
    return HostDevice(name, nodes, None, MappingProxyType(facts), f"/sys/devices/usb1/{name}")


def only(seen: Survey) -> NamedDevice:
    (sight,) = named_devices(seen)
    return sight


@pytest.mark.parametrize(
    ("subsystems", "kind"),
    [
        ({"tty": 0}, "serial"),
        ({"video4linux": 0, "sound": 1}, "camera"),
        ({"sound": 0}, "audio"),
        ({"hidraw": 0}, "hid"),
        ({"hidraw": 0, "input": 1}, "input devices"),
        ({"block": 0}, "disks"),
        ({"net": 0}, "network interfaces"),
        ({"usb": 0}, "usb-1a86-7523"),
    ],
)
def test_a_usb_device_is_what_its_nodes_make_it(subsystems: dict[str, int], kind: str) -> None:
    sight = only(Survey(usb=(usb_device("1a86", "7523", "", **subsystems),)))
    assert (sight.kind or sight.hidden) == kind


def test_usb_devices_of_one_make_are_of_one_kind_although_one_has_no_driver_yet() -> None:
    seen = Survey(usb=(usb_device("0403", "6001", "A", tty=0), usb_device("0403", "6001", "B", usb=1)))
    assert [one.kind for one in named_devices(seen)] == ["serial", "serial"]


def test_a_bluetooth_radio_is_the_machines_own() -> None:
    radio = usb_device("8087", "0a2b", usb=0)
    radio = HostDevice(
        radio.name, radio.nodes, None, {**radio.facts, "attr.bDeviceClass": "e0"}, radio.hardware
    )
    assert only(Survey(usb=(radio,))).hidden == "others"


def test_an_adapter_with_two_ports_has_a_folder_in_the_container() -> None:
    nodes = tuple(
        HostDeviceNode(f"/dev/ttyUSB{number}", (188, number), subsystem="tty") for number in range(2)
    )
    one = usb_device("0403", "6010", "A")
    seen = Survey(usb=(HostDevice(one.name, nodes, None, one.facts, one.hardware),))
    (proposal,) = proposals_of(named_devices(seen), seen)
    assert 'containerPath: "/dev/serial{index}/"\n' in proposed_text([proposal])


def gpu(uuid: str, model: str, address: str, part: str = "") -> HostDevice:
    facts = {"uuid": uuid, "model": model, "pciAddress": address}
    node = HostDeviceNode(f"/dev/nvidia{uuid[-1]}", (195, int(uuid[-1])))
    return HostDevice(uuid, (node,), 0, facts, f"/sys/devices/pci0000:3b/{address}{part}")


def test_gpus_go_by_model_and_their_parts_by_profile() -> None:
    whole = gpu("GPU-0", "NVIDIA L4", "0000:3b:00.0")
    parts = (
        gpu("MIG-1", "NVIDIA H100", "0000:5e:00.0", "/mig/MIG-1"),
        gpu("MIG-2", "NVIDIA H100", "0000:5e:00.0", "/mig/MIG-2"),
    )
    render = HostDevice(
        "0000:3b:00.0.renderD0",
        (HostDeviceNode("/dev/dri/renderD128", (226, 128), subsystem="drm"),),
        facts={"pciAddress": "0000:3b:00.0", "attr.driver": "nvidia"},
        hardware="/sys/devices/pci0000:3b/0000:3b:00.0/drm/renderD128",
    )
    profiles = {"MIG-1": "1g.10gb", "MIG-2": "1g.10gb"}
    seen = Survey(nvidia=(whole, *parts), mig_profiles=profiles, sysfs={"drm": (render,)})
    config = load(proposed_text(proposals_of(named_devices(seen), seen)), "f.yaml")
    assert [resource.name for resource in config.resources] == ["example.com/gpu", "example.com/mig-1g.10gb"]
    assert config.resources[0].discover.nvidia[0].model == "NVIDIA L4"
    assert config.resources[1].discover.nvidia[0].mig == "1g.10gb"


def function(address: str, driver: str, subsystem: str = "vfio", physical: str = "") -> HostDevice:
    number = int(address[-1])
    nodes = (HostDeviceNode(f"/dev/vfio/{number}", (511, number), subsystem=subsystem),) if subsystem else ()
    facts = {
        "pciAddress": address,
        "attr.class": "0x020000",
        "attr.vendor": "0x15b3",
        "attr.device": "0x101e",
        "attr.driver": driver,
        "model": "15b3:101e",
        **({"attr.physfn": physical, "attr.pf": physical} if physical else {}),
    }
    return HostDevice(address, nodes, 0, facts, f"/sys/devices/pci0000:5e/{address}")


def test_functions_for_virtual_machines_and_for_containers_are_two_resources() -> None:
    machines = function("0000:5e:00.1", "vfio-pci", physical="0000:5e:00.0")
    containers = function("0000:5e:00.2", "mlx5_core", "", physical="0000:5e:00.0")
    seen = Survey(pci=(machines, containers), net=(machines, containers))
    found = named_devices(seen)
    proposals = proposals_of(found, seen)
    assert [finder_of(one, proposals, seen) for one in found] == [
        'pci: {virtualFunctionOf: "0000:5e:00.0", driver: vfio-pci}',
        'net: {virtualFunctionOf: "0000:5e:00.0", driver: mlx5_core}',
    ]
    assert [one.name for one in proposals] == ["example.com/vf", "example.com/vf-net"]
    assert 'PCIDEVICE_EXAMPLE_COM_VF: "{pciAddresses}"' in proposed_text(proposals)


def test_a_selector_never_takes_along_what_is_not_meant() -> None:
    """Two GPUs have render nodes, and one of them is NVIDIA's, which NVML knows better."""

    def render(address: str, number: int, driver: str) -> HostDevice:
        return HostDevice(
            f"{address}.renderD0",
            (HostDeviceNode(f"/dev/dri/renderD{number}", (226, number), subsystem="drm"),),
            facts={"pciAddress": address, "attr.driver": driver},
            hardware=f"/sys/devices/pci0000:00/{address}/drm/renderD{number}",
        )

    looked = (render("0000:00:02.0", 128, "i915"), render("0000:3b:00.0", 129, "nvidia"))
    seen = Survey(nvidia=(gpu("GPU-0", "NVIDIA L4", "0000:3b:00.0"),), sysfs={"drm": looked})
    found = named_devices(seen)
    assert [finder_of(one, proposals_of(found, seen), seen) for one in found] == [
        'nvidia: {model: "NVIDIA L4"}',
        'sysfs: {subsystem: drm, name: "renderD*", attributes: {driver: i915}}',
    ]


hex4 = st.text("0123456789abcdef", min_size=4, max_size=4)
usb_devices = st.builds(
    lambda vendor, product, serial, subsystem: (vendor, product, serial, subsystem),
    st.sampled_from(["0403", "1e10", "beef"]) | hex4,
    st.sampled_from(["0001", "6001"]) | hex4,
    st.text(string.printable + "é☃\x9b\u202e", max_size=6),
    st.sampled_from(["tty", "video4linux", "hidraw", "usb", "sound", "block", "input"]),
)


@given(st.lists(usb_devices, min_size=1, max_size=6, unique_by=lambda one: one[:3]))
def test_whatever_is_plugged_in_the_proposal_loads(plugged: list[tuple[str, str, str, str]]) -> None:
    found = tuple(
        usb_device(vendor, product, serial, **{subsystem: number})
        for number, (vendor, product, serial, subsystem) in enumerate(plugged)
    )
    seen = Survey(usb=found)
    proposals = proposals_of(named_devices(seen), seen)
    if proposals:
        config = load(proposed_text(proposals), "f.yaml")
        assert [resource.name for resource in config.resources] == [one.name for one in proposals]
