"""The values and their rules: names, IDs, paths, and the size of a list."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.devices import (
    DEVICE_ID_LIMIT_BYTES,
    UNHEALTHY,
    ContainerResponse,
    Device,
    DeviceNode,
    Health,
    HealthState,
    Mount,
    device_id_fault,
    kubelet_device,
    stable_id,
)
from devplug.errors import PluginError
from devplug.k8s.resource_names import ResourceName, resource_name_fault
from devplug.wire.deviceplugin import DEVICE_LIST
from devplug.wire.values import AdvertisedDevice, list_size_bytes

device_ids = st.from_regex(r"\A[A-Za-z0-9._:@+][A-Za-z0-9._:@+-]{0,62}\Z")
numa_nodes = st.lists(st.integers(0, 1023), max_size=4)
devices = st.builds(Device, device_ids, numa_nodes=numa_nodes)

ANY_TEXT = st.text(alphabet=st.characters(codec=None))


# ── resource names ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        "foo/bar",
        "example.com/gpu",
        "example.com/X_1.y",
        "example.com/1",
        "a-b.example.com/gpu-2",
        "1.example/gpu",
        "request.example.com/gpu",
        "kubernetes.io.example.com/gpu",
        "kubernetes.iox/gpu",
        "example.com/kubernetes.io",
        f"{'a' * 244}/gpu",
        f"{'a' * 63}.{'b' * 180}/gpu",
        f"example.com/{'k' * 63}",
    ],
)
def test_a_resource_name_is_accepted(text: str) -> None:
    assert ResourceName(text) == text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "needs a domain and a kind"),
        ("gpu", "needs a domain and a kind"),
        ("hugepages-2Mi", "needs a domain and a kind"),
        ("kubernetes.io/gpu", "Kubernetes keeps for itself"),
        ("a.kubernetes.io/gpu", "Kubernetes keeps for itself"),
        ("requests.example.com/gpu", "quotas use"),
        ("Example.com/gpu", 'has the domain "Example.com"'),
        ("-example.com/gpu", "has the domain"),
        ("example.com-/gpu", "has the domain"),
        ("example..com/gpu", "has the domain"),
        (".example.com/gpu", "has the domain"),
        ("exämple.com/gpu", "has the domain"),
        ("example.com\n/gpu", "has the domain"),
        ("/gpu", 'has the domain ""'),
        ("example.com/", 'has the kind ""'),
        ("example.com/-a", 'has the kind "-a"'),
        ("example.com/a-", 'has the kind "a-"'),
        ("example.com/a b", 'has the kind "a b"'),
        ("example.com/gpu\n", "has the kind"),
        ("example.com/a/b", 'more than one "/"'),
        (f"{'a' * 245}/gpu", "has a domain of 245 characters"),
        (f"example.com/{'k' * 64}", "has a kind of 64 characters"),
    ],
)
def test_a_resource_name_is_refused_with_the_rule(text: str, fault: str) -> None:
    with pytest.raises(PluginError, match="resource name") as caught:
        ResourceName(text)
    assert fault in str(caught.value)


@given(ANY_TEXT)
def test_the_rule_of_resource_names_judges_any_text(text: str) -> None:
    fault = resource_name_fault(text)
    assert fault is None or fault.isprintable()


def test_a_resource_name_knows_its_kind() -> None:
    assert ResourceName("example.com/fpga").kind == "fpga"


# ── device IDs ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "0",
        "ttyUSB0",
        "0403:6001:A6008isP",
        "0000:3b:00.0",
        "GPU-5c1f::0",
        "a-",
        "!#$&()*+.:;<>?@[]^_`{|}~",
        "x" * 63,
    ],
)
def test_a_device_id_is_accepted(text: str) -> None:
    assert Device(text).id == text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "is empty"),
        ("-a", "starts with '-'"),
        ("x" * 64, "is 64 bytes long; at most 63 fit"),
        *((f"a{character}b", "contains") for character in " ,=/%\"'\\\0\n\t\x7f\x80é\ud800"),
    ],
)
def test_a_device_id_is_refused_with_the_rule(text: str, fault: str) -> None:
    with pytest.raises(PluginError, match="device ID") as caught:
        Device(text)
    assert fault in str(caught.value)


@pytest.mark.parametrize("value", [None, 7, b"a"])
def test_a_device_id_that_is_no_string_is_refused(value: Any) -> None:
    with pytest.raises(PluginError, match="is not a string"):
        Device(value)


@given(ANY_TEXT)
def test_stable_id_makes_an_id_of_any_text(text: str) -> None:
    assert device_id_fault(stable_id(text)) is None


@given(ANY_TEXT)
def test_stable_id_keeps_what_it_made(text: str) -> None:
    assert stable_id(stable_id(text)) == stable_id(text)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("A6008isP", "A6008isP"),
        ("x" * 63, "x" * 63),
        ("x" * 64, f"{'x' * 52}-7ce100971f"),
        ("a/b", "a_b-c14cddc033"),
        ("a_b", "a_b"),
        ("-a", "a-c274891790"),
        ("", "id-e3b0c44298"),
        ("usb é", "usb__-56fedd96eb"),
    ],
)
def test_stable_id_gives_the_same_id_for_ever(text: str, made: str) -> None:
    assert stable_id(text) == made


@given(st.lists(ANY_TEXT, unique=True, max_size=20))
def test_stable_id_tells_texts_apart(texts: list[str]) -> None:
    assert len({stable_id(text) for text in texts}) == len(texts)


# ── health ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("health", "state", "reason"),
    [
        (Health.healthy(), HealthState.HEALTHY, ""),
        (Health.unhealthy("link down"), HealthState.UNHEALTHY, "link down"),
        (Health.unhealthy(""), HealthState.UNHEALTHY, "no reason given"),
        (Health.unknown("no answer"), HealthState.UNKNOWN, "no answer"),
        (Health.from_fault("hot"), HealthState.UNHEALTHY, "hot"),
        (Health.from_fault(None), HealthState.HEALTHY, ""),
        (Health.from_fault(""), HealthState.HEALTHY, ""),
    ],
)
def test_health_has_a_state_and_a_reason(health: Health, state: HealthState, reason: str) -> None:
    assert (health.state, health.reason) == (state, reason)


def test_a_device_whose_health_is_a_word_is_refused() -> None:
    word: Any = "Healthy"
    with pytest.raises(PluginError, match=r'health "Healthy" is not a devplug\.Health'):
        Device("a", health=word)


# ── devices and what containers get ───────────────────────────────────────────────────────────────


def test_a_bad_device_names_every_fault() -> None:
    with pytest.raises(PluginError) as caught:
        Device("a b", numa_nodes=[-2, 0, 1024], device_nodes=["dev/x", "/dev/../y"])
    assert len(caught.value.faults) == 5
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given_nodes", "kept"), [([], ()), ([-1], ()), ([1, 0, 1], (0, 1)), ([1023, -1], (1023,))]
)
def test_numa_nodes_are_sorted_once_each_and_minus_one_is_none(
    given_nodes: list[int], kept: tuple[int, ...]
) -> None:
    assert Device("a", numa_nodes=given_nodes).numa_nodes == kept


@pytest.mark.parametrize("node", [-2, 1024, "0", None, 1.5, True])
def test_a_numa_node_that_is_no_node_number_is_refused(node: Any) -> None:
    with pytest.raises(PluginError, match="is not a node number"):
        Device("a", numa_nodes=[node])


@pytest.mark.parametrize("nodes", ["/dev/fpga0", Path("/dev/fpga0"), [DeviceNode("/dev/fpga0")]])
def test_one_path_is_as_good_as_a_list_of_one(nodes: Any) -> None:
    assert Device("a", device_nodes=nodes).device_nodes == (DeviceNode("/dev/fpga0"),)


def test_a_device_keeps_all_but_its_health_when_that_changes() -> None:
    device = Device(
        "a",
        numa_nodes=[1],
        device_nodes=["/dev/a"],
        attributes={"model": "x"},
        capacity={"memory": 1},
        share_of="b",
    )
    failed = device.with_health(Health.unhealthy("hot"))
    assert failed.health == Health.unhealthy("hot")
    assert failed.with_health(Health.healthy()) == device


@pytest.mark.parametrize(
    ("value", "attribute"),
    [
        (Device("a", attributes={"k": "v"}), "id"),
        (DeviceNode("/dev/a"), "host_path"),
        (Mount("/opt/a"), "host_path"),
        (ContainerResponse(envs={"A": "1"}), "envs"),
        (Health.healthy(), "reason"),
        (AdvertisedDevice("a", UNHEALTHY), "id"),
    ],
)
def test_values_are_frozen_and_hashable(value: object, attribute: str) -> None:
    assert len({value, value}) == 1
    with pytest.raises(AttributeError):
        setattr(value, attribute, "other")


def test_the_mappings_of_a_value_cannot_be_changed_from_outside() -> None:
    envs = {"A": "1"}
    response = ContainerResponse(envs=envs)
    envs["A"] = "2"
    assert response.envs == {"A": "1"}
    with pytest.raises(TypeError):
        response.envs["A"] = "3"  # type: ignore[index]


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("dev/x", "is not absolute"),
        ("", "is not absolute"),
        ("/dev/../etc", 'is not in normal form; write "/etc"'),
        ("/dev/x/", "is not in normal form"),
        ("/dev/a\nb", "has control characters"),
        ("/dev/a\0b", "has control characters"),
    ],
)
def test_a_path_is_refused_with_the_rule(path: str, fault: str) -> None:
    for make in (DeviceNode, Mount):
        with pytest.raises(PluginError) as caught:
            make(path)
        assert len(caught.value.faults) == 1
        assert fault in str(caught.value)


def test_both_paths_of_a_device_node_are_judged() -> None:
    with pytest.raises(PluginError) as caught:
        DeviceNode("dev/a", "b")
    assert caught.value.faults == (
        'device node: host path "dev/a" is not absolute',
        'device node: container path "b" is not absolute',
    )


@pytest.mark.parametrize("permissions", ["r", "w", "m", "rw", "rwm", "mrw"])
def test_permissions_are_some_of_three_letters(permissions: str) -> None:
    assert DeviceNode("/dev/a", None, permissions).permissions == permissions


@pytest.mark.parametrize("permissions", ["", "x", "rr", "RW", "rw "])
def test_other_permissions_are_refused(permissions: str) -> None:
    with pytest.raises(PluginError, match="must be some of r, w and m"):
        DeviceNode("/dev/a", None, permissions)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"envs": {"A=B": "1"}}, 'environment variable name "A=B"'),
        ({"envs": {"": "1"}}, 'environment variable name ""'),
        ({"envs": {"A": "1\0"}}, "has a NUL byte"),
        ({"envs": {"A": 1}}, "names and values must be strings"),
        ({"annotations": {"": "1"}}, "an annotation has an empty name"),
        ({"annotations": {"a": None}}, "names and values must be strings"),
        ({"cdi_devices": ["gpu0"]}, "must read vendor/class=device"),
        ({"cdi_devices": ["example.com/1gpu=0"]}, "must read vendor/class=device"),
        ({"device_nodes": ["/dev/a", DeviceNode("/dev/b", "/dev/a")]}, 'two device nodes want "/dev/a"'),
        ({"mounts": [Mount("/a"), Mount("/b", "/a")]}, 'two mounts want "/a"'),
    ],
)
def test_a_container_response_is_refused_with_the_rule(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(PluginError) as caught:
        ContainerResponse(**fields)
    assert fault in str(caught.value)


def test_a_container_response_has_each_thing_once() -> None:
    response = ContainerResponse(
        device_nodes=["/dev/a", DeviceNode("/dev/a")],
        mounts=[Mount("/a"), Mount("/a")],
        cdi_devices=["example.com/gpu=0", "example.com/gpu=0"],
    )
    assert response.device_nodes == (DeviceNode("/dev/a"),)
    assert response.mounts == (Mount("/a"),)
    assert response.cdi_devices == ("example.com/gpu=0",)


def test_a_response_of_devices_has_their_nodes_and_what_else_is_given() -> None:
    pair = [Device("a", device_nodes=["/dev/a"]), Device("b", device_nodes=["/dev/b"])]
    response = ContainerResponse.of(pair, device_nodes=["/dev/ctl"], envs={"IDS": "a,b"})
    assert [node.host_path for node in response.device_nodes] == ["/dev/a", "/dev/b", "/dev/ctl"]
    assert response.envs == {"IDS": "a,b"}


def test_what_was_received_is_kept_as_it_came() -> None:
    node = DeviceNode.as_received(host_path="x", container_path="", permissions="zz")
    assert (node.host_path, node.container_path, node.permissions) == ("x", "", "zz")


# ── the size of a list ────────────────────────────────────────────────────────────────────────────


@given(st.lists(devices, max_size=30))
def test_the_size_of_a_list_is_its_encoded_size_when_all_fails(listed: list[Device]) -> None:
    sent = [AdvertisedDevice(device.id, UNHEALTHY, device.numa_nodes or None) for device in listed]
    assert list_size_bytes(listed) == len(DEVICE_LIST.encode(sent))


@given(st.lists(devices, max_size=5), st.lists(st.sampled_from(["Healthy", UNHEALTHY]), min_size=5))
def test_no_other_health_makes_a_list_larger(listed: list[Device], words: list[str]) -> None:
    sent = [
        AdvertisedDevice(device.id, word, device.numa_nodes or None)
        for device, word in zip(listed, words, strict=False)
    ]
    assert len(DEVICE_LIST.encode(sent)) <= list_size_bytes(listed)


def test_the_longest_ids_fit_in_their_tens_of_thousands() -> None:
    longest = [Device(f"{number:0{DEVICE_ID_LIMIT_BYTES}}", numa_nodes=[1]) for number in range(100)]
    assert list_size_bytes(longest) == 100 * 84


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Mount("/" + "a/" * 2048 + "b"), "has 4098 bytes; Linux takes 4095"),
        (lambda: DeviceNode("/dev/" + "ä" * 128), "has a part of 256 bytes; Linux takes 255"),
        (lambda: DeviceNode("//dev/x"), 'is not in normal form; write "/dev/x"'),
        (lambda: ContainerResponse(envs={"A": "b" * 131_070}), "has 131072 bytes; Linux takes 131071"),
        (lambda: ContainerResponse(envs={"A": "\udcff"}), "which UTF-8 cannot encode"),
        (lambda: ContainerResponse(annotations={"a": "\ud800"}), "which UTF-8 cannot encode"),
    ],
)
def test_what_no_runtime_takes_is_refused(make: Callable[[], object], why: str) -> None:
    with pytest.raises(PluginError, match=re.escape(why)):
        make()


def test_the_longest_texts_are_taken() -> None:
    path = "/dev/" + "/".join(["a" * 255] * 15) + "/" + "b" * 250
    assert len(path) == 4095
    assert DeviceNode(path).host_path == path
    assert ContainerResponse(envs={"A": "b" * 131_069}).envs


def test_a_device_with_two_nodes_at_one_path_of_the_container_is_refused() -> None:
    """No Allocate of it would have an answer."""
    with pytest.raises(PluginError, match='device "x": two device nodes want "/dev/x"'):
        Device("x", device_nodes=[DeviceNode("/dev/a", "/dev/x"), DeviceNode("/dev/b", "/dev/x")])


def test_a_device_of_the_kubelet_may_have_any_id() -> None:
    device = kubelet_device("a b", Device("a", numa_nodes=[1])).with_health(Health.unhealthy("unplugged"))
    assert (device.id, device.numa_nodes, device.health.reason) == ("a b", (1,), "unplugged")
    assert kubelet_device("\xfc").health == Device("a").health
