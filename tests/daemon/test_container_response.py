"""From found devices to what is advertised and what a container gets: pure, without a host."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.daemon.config.types import Resource
from devplug.daemon.container_response import (
    container_response,
    found_name,
    pcidevice_variable,
    shares_of,
    with_room_for_replicas,
)
from devplug.daemon.device_list import DeviceList, KnownDevice, ScanResult
from devplug.daemon.sources.device import HostDevice, HostDeviceNode
from devplug.devices import ContainerResponse, Device, DeviceNode, Health, Mount
from devplug.errors import InvalidRequestError, UnhealthyDeviceError
from tests.daemon.hosts import resource


def tty(number: int, folder: str = "/dev", **facts: str | int) -> HostDevice:
    path = f"{folder}/tty{number}"
    facts = {"file": f"tty{number}", "hostPath": path, **facts}
    return HostDevice(f"tty{number}", (HostDeviceNode(path, (4, number)),), None, facts)


def serving(rest: str = "") -> Resource:
    return resource(f'discover: {{path: "/dev/tty*"}}, {rest}')


def response(one: Resource, *found: HostDevice, ids: tuple[str, ...] = ()) -> ContainerResponse:
    """Return what a container gets with these devices, or with these IDs of them."""
    by_name = {device.name: device for device in found}
    return container_response(shares_of([Device(id_) for id_ in ids or by_name], by_name, one), one)


def advertised(one: Resource, *known: KnownDevice | HostDevice) -> list[Device]:
    listing = DeviceList(one)
    listing.known = {k.found.name: k for k in known if isinstance(k, KnownDevice)}
    found = [k for k in known if not isinstance(k, KnownDevice)]
    return list(listing.update(ScanResult(found, now=5.0)))


def test_to_claims_replicas_are_shares_of_one_device_where_a_container_may_have_one() -> None:
    """D86: a request gets a device once, so two replicas in one container have to be two devices."""

    def share_of(rest: str, serve: Literal["dra", "devicePlugin"] = "dra") -> set[str]:
        served = replace(serving(rest), serve=serve)
        return {one.share_of for one in advertised(served, tty(0))}

    assert share_of("share: {replicas: 2, maxPerContainer: 1}") == {"tty0"}
    others = "share: {replicas: 2}", "share: {replicas: 2, maxPerContainer: 2}", "share: {maxPerContainer: 1}"
    assert [share_of(one) for one in others] == [{""}] * 3
    assert share_of("share: {replicas: 2, maxPerContainer: 1}", "devicePlugin") == {""}


# ── what is advertised ────────────────────────────────────────────────────────────────────────────


UNPLUGGED = Health.unhealthy("unplugged")


@pytest.mark.parametrize(
    ("rest", "known", "listed"),
    [
        ("", tty(0), [Device("tty0")]),
        ("", KnownDevice(tty(0), gone_at=5), [Device("tty0", health=UNPLUGGED)]),
        ("", HostDevice("x", numa_node=1), [Device("x", numa_nodes=[1])]),
        ("share: {replicas: 3}", tty(0), [Device(f"tty0::{number}") for number in range(3)]),
        (
            "share: {replicas: 2}",
            KnownDevice(tty(0), gone_at=5),
            [Device(f"tty0::{number}", health=UNPLUGGED) for number in range(2)],
        ),
    ],
    ids=["present", "gone", "on a NUMA node", "each replica", "each replica of one that is gone"],
)
def test_a_device_is_advertised_as_it_is(
    rest: str, known: KnownDevice | HostDevice, listed: list[Device]
) -> None:
    assert advertised(serving(rest), known) == listed


@pytest.mark.parametrize(
    ("source", "rules", "told"),
    [
        (Health.healthy(), Health.healthy(), Health.healthy()),
        (Health.unhealthy("lost"), Health.healthy(), Health.unhealthy("lost")),
        (Health.healthy(), Health.unhealthy("hot"), Health.unhealthy("hot")),
        (Health.unhealthy("lost"), Health.unhealthy("hot"), Health.unhealthy("lost; hot")),
        (Health.unknown("mute"), Health.unhealthy("hot"), Health.unhealthy("hot")),
        (Health.healthy(), Health.unknown("mute"), Health.unknown("mute")),
    ],
)
def test_a_device_is_as_healthy_as_its_source_and_its_rules_say(
    source: Health, rules: Health, told: Health
) -> None:
    sight = ScanResult([HostDevice("x", health=source)], now=0.0, health_of=lambda _: rules)
    listing = DeviceList(serving())
    listing.update(ScanResult([HostDevice("x")], now=0.0))
    (device,) = listing.update(sight)
    assert device.health == told


def test_a_device_without_a_value_for_a_template_is_unhealthy_and_says_which() -> None:
    one = serving('expose: {env: {"NODE_{index}": "{numaNode}"}}')
    assert advertised(one, tty(0), tty(1, numaNode=0)) == [
        Device("tty0", health=Health.unhealthy("no value for {numaNode}")),
        Device("tty1"),
    ]


def test_a_device_with_a_path_that_no_container_can_have_is_unhealthy_and_the_others_are_not() -> None:
    """Anybody who may make a link below a glob may give it such a name."""
    odd = HostDevice(
        "odd", (HostDeviceNode("/dev/tty\n", (4, 9)),), None, {"file": "tty\n", "hostPath": "/dev/tty\n"}
    )
    broken, whole = advertised(serving(), odd, tty(0))
    assert broken.health == Health.unhealthy(
        'device node: host path "/dev/tty\\n" has control characters; '
        'device node: container path "/dev/tty\\n" has control characters'
    )
    assert whole == Device("tty0")


@pytest.mark.parametrize(
    ("device_id", "replicas", "name"),
    [("a", 1, "a"), ("a::0", 2, "a"), ("a::b", 1, "a::b"), ("a::b::1", 2, "a::b")],
)
def test_a_device_id_leads_back_to_the_name(device_id: str, replicas: int, name: str) -> None:
    assert found_name(device_id, replicas) == name


@pytest.mark.parametrize(("replicas", "longest"), [(1, 63), (2, 60), (11, 59), (101, 58)])
def test_a_name_that_is_short_enough_for_its_replicas_stays(replicas: int, longest: int) -> None:
    found = HostDevice("x" * longest)
    assert with_room_for_replicas(found, replicas) is found


@pytest.mark.parametrize(("replicas", "longest"), [(2, 60), (11, 59), (101, 58)])
def test_a_name_that_is_too_long_for_its_replicas_is_cut(replicas: int, longest: int) -> None:
    cut = with_room_for_replicas(HostDevice("x" * (longest + 1), numa_node=1), replicas)
    assert (len(cut.name), cut.numa_node) == (longest, 1)
    assert len(advertised(serving(f"share: {{replicas: {replicas}}}"), cut)) == replicas


def test_two_long_names_are_cut_to_different_ones() -> None:
    one, other = (with_room_for_replicas(HostDevice("x" * 62 + end), 2).name for end in "ab")
    assert one != other


# ── device nodes ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("expose", "numbers", "given"),
    [
        ("", (0,), {"device_nodes": ["/dev/tty0"]}),
        ("permissions: r", (0,), {"device_nodes": [DeviceNode("/dev/tty0", permissions="r")]}),
        (
            'containerPath: "/dev/serial{index}"',
            (7, 3),
            {
                "device_nodes": [
                    DeviceNode("/dev/tty3", "/dev/serial0"),
                    DeviceNode("/dev/tty7", "/dev/serial1"),
                ]
            },
        ),
        (
            "containerPath: /dev/serial/",
            (0,),
            {"device_nodes": [DeviceNode("/dev/tty0", "/dev/serial/tty0")]},
        ),
        (
            "directories: [/dev/snd], permissions: r",
            (0,),
            {"device_nodes": [DeviceNode(path, permissions="r") for path in ("/dev/tty0", "/dev/snd")]},
        ),
    ],
    ids=[
        "under its own path",
        "with the permissions of the file",
        "by the index, which counts the container's devices in the order of their IDs",
        "below a folder, if the path ends in a slash",
        "with a whole folder, which is one node that the runtime expands",
    ],
)
def test_a_container_gets_the_node(expose: str, numbers: tuple[int, ...], given: dict[str, Any]) -> None:
    one = serving(f"expose: {{{expose}}}")
    assert response(one, *map(tty, numbers)) == ContainerResponse(**given)


@pytest.mark.parametrize(
    ("expose", "numbers", "envs"),
    [
        (
            'env: {PORTS: "{containerPaths}", COUNT: "{count}"}',
            (1, 0),
            {"PORTS": "/dev/tty0,/dev/tty1", "COUNT": "2"},
        ),
        ('env: {"PORT_{index}": "{hostPath}"}', (4, 8), {"PORT_0": "/dev/tty4", "PORT_1": "/dev/tty8"}),
        ('env: {IDS: "{ids}", "ID_{index}": "{id}"}', (4,), {"IDS": "tty4", "ID_0": "tty4"}),
        (
            'containerPath: "/dev/serial{index}", env: {"PORT_{index}": "{containerPath}"}',
            (4,),
            {"PORT_0": "/dev/serial0"},
        ),
    ],
    ids=["of all devices", "once per device", "of both kinds", "with the path that the container has"],
)
def test_a_container_gets_variables(expose: str, numbers: tuple[int, ...], envs: dict[str, str]) -> None:
    assert response(serving(f"expose: {{{expose}}}"), *map(tty, numbers)).envs == envs


def test_annotations_see_all_devices() -> None:
    one = serving('expose: {annotations: {example.com/ports: "{files}"}}')
    assert response(one, tty(1), tty(0)).annotations == {"example.com/ports": "tty0,tty1"}


@pytest.mark.parametrize(
    ("mount", "given"),
    [
        ("hostPath: /opt/a, containerPath: /b, readOnly: true", (Mount("/opt/a", "/b", read_only=True),)),
        ("hostPath: /opt/a", (Mount("/opt/a", "/opt/a"),)),
        ('hostPath: "/opt/{id}"', (Mount("/opt/tty0"), Mount("/opt/tty1"))),
    ],
    ids=["elsewhere and read-only", "once at its own path", "each device's own"],
)
def test_a_container_gets_mounts(mount: str, given: tuple[Mount, ...]) -> None:
    assert response(serving(f"expose: {{mounts: [{{{mount}}}]}}"), tty(0), tty(1)).mounts == given


def test_a_devices_value_cannot_leave_the_folder_of_a_path() -> None:
    one = serving('expose: {containerPath: "/dev/serial/{file}"}')
    odd = HostDevice(
        "x", (HostDeviceNode("/dev/x", (4, 1)),), None, {"file": "../../etc", "hostPath": "/dev/x"}
    )
    assert response(one, odd).device_nodes[0].container_path == "/dev/serial/.._.._etc"


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("/dev/{attr.label}", "urandom", "/dev/urandom"),
        ("/dev/{attr.label}", "null", "/dev/null"),
        ("/dev/{attr.label}/port", "pts", "/dev/pts/port"),
        ("/dev/{attr.label}/", "shm", "/dev/shm/tty0"),
        ("/{attr.label}", "usr", "/usr"),
        ("/{attr.label}/tty", "proc", "/proc/tty"),
    ],
)
def test_a_devices_value_chooses_no_standard_path_of_the_container(path: str, value: str, place: str) -> None:
    one = resource(f'discover: {{sysfs: {{subsystem: tty}}}}, expose: {{containerPath: "{path}"}}')
    (device,) = advertised(one, tty(0, **{"attr.label": value}))
    assert device.health.reason.startswith(f'its path in the container would be "{place}", which is ')
    assert not advertised(one, tty(0, **{"attr.label": "fine"}))[0].health.reason
    mounted = resource(
        f"discover: {{sysfs: {{subsystem: tty}}}}, "
        f'expose: {{mounts: [{{hostPath: /opt/x, containerPath: "{path.rstrip("/")}"}}]}}'
    )
    (device,) = advertised(mounted, tty(0, **{"attr.label": value}))
    assert device.health.reason.startswith("a mount of it would be at ") or path.endswith("/")


@pytest.mark.parametrize("path", ["/etc/{attr.label}", "/usr/bin/{attr.label}", "/lib/{attr.label}/x"])
def test_a_devices_value_chooses_no_file_of_the_containers_system(path: str) -> None:
    one = resource(f'discover: {{sysfs: {{subsystem: tty}}}}, expose: {{containerPath: "{path}"}}')
    (device,) = advertised(one, tty(0, **{"attr.label": "passwd"}))
    assert device.health.reason.startswith("its path in the container would be ")


@pytest.mark.parametrize(("name", "value"), [("NODE_{attr.label}", "OPTIONS"), ("BASH_{attr.label}", "ENV")])
def test_a_devices_value_names_no_variable_that_loads_code(name: str, value: str) -> None:
    one = resource(f'discover: {{sysfs: {{subsystem: tty}}}}, expose: {{env: {{"{name}": x}}}}')
    (device,) = advertised(one, tty(0, **{"attr.label": value}))
    assert "which decides what runs in the container" in device.health.reason
    assert not advertised(one, tty(0, **{"attr.label": "x"}))[0].health.reason


def test_two_devices_that_would_be_one_file_in_the_container_are_refused_by_name() -> None:
    one = serving("expose: {containerPath: /dev/serial/}")
    other = HostDevice("b", (HostDeviceNode("/dev/b/tty0", (4, 9)),), None, {"hostPath": "/dev/b/tty0"})
    with pytest.raises(InvalidRequestError, match="/dev/serial/tty0"):
        response(one, tty(0), other)


def test_a_device_without_hardware_gives_no_node() -> None:
    one = resource("discover: {static: {ids: [a]}}")
    assert response(one, HostDevice("a")) == ContainerResponse()


# ── what goes with a kind, and CDI ────────────────────────────────────────────────────────────────


def gpu(number: int) -> HostDevice:
    control = HostDeviceNode("/dev/nvidiactl", (195, 255), is_shared=True)
    own = HostDeviceNode(f"/dev/nvidia{number}", (195, number))
    return HostDevice(
        f"GPU-{number}", (own, control), 0, {"uuid": f"GPU-{number}", "hostPath": own.host_path}
    )


def test_nvidias_runtime_is_told_the_uuids_and_the_drivers_own_nodes_are_there_once() -> None:
    one = resource("discover: {nvidia: {}}")
    assert response(one, gpu(0), gpu(1)) == ContainerResponse(
        device_nodes=["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia1"],
        envs={"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1"},
    )


def test_nvidias_runtime_does_nothing_where_a_cdi_device_does_it() -> None:
    one = resource('discover: {nvidia: {}}, expose: {cdiDevices: ["nvidia.com/gpu={uuid}"]}')
    given = response(one, gpu(0), gpu(1))
    assert given.cdi_devices == ("nvidia.com/gpu=GPU-0", "nvidia.com/gpu=GPU-1")
    assert given.envs == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_the_file_has_the_last_word_on_a_usual_variable() -> None:
    one = resource('discover: {nvidia: {}}, expose: {env: {NVIDIA_VISIBLE_DEVICES: "all"}}')
    assert response(one, gpu(0)).envs == {"NVIDIA_VISIBLE_DEVICES": "all"}


def test_network_devices_come_with_the_variable_of_the_sriov_plugin() -> None:
    one = resource('discover: {net: {interface: "eth*"}}', name="example.com/fast-vf")
    found = [HostDevice(at, (), 0, {"pciAddress": at}) for at in ("0000:3b:02.1", "0000:3b:02.0")]
    assert response(one, *found).envs == {"PCIDEVICE_EXAMPLE_COM_FAST_VF": "0000:3b:02.0,0000:3b:02.1"}


@pytest.mark.parametrize(
    ("resource_name", "variable"),
    [
        ("example.com/vf", "PCIDEVICE_EXAMPLE_COM_VF"),
        ("intel.com/intel_sriov_netdevice", "PCIDEVICE_INTEL_COM_INTEL_SRIOV_NETDEVICE"),
        ("a-b.example/x.Y-1", "PCIDEVICE_A_B_EXAMPLE_X_Y_1"),
    ],
)
def test_the_variable_is_the_one_that_pods_know_from_the_sriov_plugin(
    resource_name: str, variable: str
) -> None:
    assert pcidevice_variable(resource_name) == variable


@given(st.text())
def test_the_variable_is_always_a_name_that_a_shell_takes(resource_name: str) -> None:
    assert pcidevice_variable(resource_name).isascii()
    assert pcidevice_variable(resource_name).isidentifier()


def test_with_names_of_our_own_specs_the_nodes_are_left_to_them() -> None:
    one = serving('expose: {env: {PORTS: "{containerPaths}"}, strategy: cdi}')
    shares = shares_of([Device("tty0")], {"tty0": tty(0)}, one)
    names = ["a.com/bb=tty0"]
    assert container_response(shares, one, cdi_devices=names, device_nodes=()) == ContainerResponse(
        envs={"PORTS": "/dev/tty0"}, cdi_devices=["a.com/bb=tty0"]
    )


# ── sharing ───────────────────────────────────────────────────────────────────────────────────────


def test_two_replicas_of_one_device_are_one_device_in_the_container() -> None:
    one = serving('share: {replicas: 4}, expose: {env: {IDS: "{ids}", COUNT: "{count}"}}')
    assert response(one, tty(0), ids=("tty0::1", "tty0::3")) == ContainerResponse(
        device_nodes=["/dev/tty0"], envs={"IDS": "tty0", "COUNT": "1"}
    )


def test_more_devices_than_a_container_may_have_are_refused_with_both_numbers() -> None:
    one = serving("share: {replicas: 4, maxPerContainer: 1}")
    with pytest.raises(InvalidRequestError) as refused:
        response(one, tty(0), ids=("tty0::0", "tty0::1"))
    assert str(refused.value) == "2 devices of example.com/a are asked for; one container may have 1"
    assert len(response(serving("share: {maxPerContainer: 2}"), tty(0), tty(1)).device_nodes) == 2


def test_a_device_without_a_value_for_a_template_is_not_given() -> None:
    one = serving('expose: {env: {"NODE_{index}": "{numaNode}"}}')
    with pytest.raises(UnhealthyDeviceError) as refused:
        response(one, tty(0))
    assert str(refused.value) == 'device "tty0" is unhealthy (no value for {numaNode})'
