"""The rules for one container response, over many of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from devplug.conformance.response_rules import (
    ANNOTATIONS_LIMIT_BYTES,
    FileKind,
    annotation_faults,
    cdi_name_faults,
    cdi_names,
    container_path_faults,
    covering_path_faults,
    defined_cdi_names,
    env_faults,
    hardware,
    items,
    loader_envs,
    lost_values,
    mount_host_faults,
    mounted_nodes,
    node_host_faults,
    permission_faults,
    refusal_faults,
)
from devplug.devices import ContainerResponse, DeviceNode, Mount
from devplug.errors import one_line
from tests.conformance.spoilt import changed, mount, node

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8)
PATHS = NAMES.map(lambda name: f"/dev/{name}")
PERMISSIONS = st.sampled_from(("r", "w", "rw", "rwm", "mrw"))
NODES = st.builds(DeviceNode, PATHS, PATHS, PERMISSIONS)
MOUNTS = st.builds(Mount, NAMES.map(lambda name: f"/usr/{name}"), NAMES.map(lambda name: f"/opt/{name}"))
CDI_NAMES = NAMES.map(lambda name: f"example.com/gpu={name}")


@st.composite
def responses(draw: st.DrawFn) -> ContainerResponse:
    """Draw what an author can make with the SDK: a right response."""
    return ContainerResponse(
        device_nodes=list({one.container_path: one for one in draw(st.lists(NODES))}.values()),
        mounts=draw(st.lists(MOUNTS, unique_by=lambda one: one.container_path)),
        envs=draw(st.dictionaries(NAMES, st.text("ab=,", max_size=5))),
        annotations=draw(st.dictionaries(NAMES.map(lambda name: f"Example.com/{name}"), NAMES)),
        cdi_devices=draw(st.lists(CDI_NAMES)),
    )


@given(responses())
def test_a_right_response_has_no_fault(response: ContainerResponse) -> None:
    kinds = {one.host_path: FileKind.NODE for one in response.device_nodes}
    kinds |= {one.host_path: FileKind.FOLDER for one in response.mounts}
    faults = [
        *permission_faults(response),
        *container_path_faults(response),
        *covering_path_faults(response),
        *node_host_faults(response, kinds),
        *mount_host_faults(response, kinds),
        *mounted_nodes(response, kinds),
        *env_faults(response),
        *loader_envs(response),
        *cdi_name_faults(response),
        *annotation_faults(response.annotations),
        *lost_values(response, response, response),
    ]
    assert faults == []


@given(responses(), st.text("rwmx", max_size=4))
def test_permissions_are_a_set_of_three_letters(response: ContainerResponse, permissions: str) -> None:
    is_right = permissions != "" and sorted(set(permissions) - {"x"}) == sorted(permissions)
    faults = list(
        permission_faults(changed(response, device_nodes=[node("/dev/null", permissions=permissions)]))
    )
    assert bool(faults) is not is_right


@given(responses(), st.sampled_from(("/dev/x", "/dev//x", "/dev/x/")), st.booleans())
def test_one_path_for_two_things_is_found_however_it_is_spelled(
    response: ContainerResponse, path: str, as_mount: bool
) -> None:
    first = node("/dev/first", "/dev/x")
    nodes = [first] if as_mount else [first, node("/dev/second", path)]
    mounts = [mount("/dev/second", path)] if as_mount else []
    faults = list(container_path_faults(changed(response, device_nodes=nodes, mounts=mounts)))
    assert len(faults) == 1


def test_a_control_node_that_each_device_brings_is_no_fault() -> None:
    nodes = [node("/dev/kfd"), node("/dev/dri/card0"), node("/dev/kfd"), node("/dev/dri/card1")]
    assert not list(container_path_faults(changed(ContainerResponse(), device_nodes=nodes)))


@pytest.mark.parametrize("path", ["dev/x", "", "/dev/../etc", "/dev/./x"])
def test_a_container_path_that_is_none_is_found(path: str) -> None:
    response = changed(ContainerResponse(), mounts=[mount("/usr/lib", path)])
    assert len(list(container_path_faults(response))) == 1


@pytest.mark.parametrize(
    ("path", "covers"),
    [
        ("/", True),
        ("//", True),
        ("/dev", True),
        ("/proc", True),
        ("/proc/", True),
        ("/proc/self", True),
        ("/proc/cpuinfo", False),
        ("/process", False),
        ("/dev/null", False),
        ("/sys/class/npu_mgmt/npu0", False),
        ("/sys", False),
    ],
)
def test_what_a_container_needs_is_not_covered(path: str, covers: bool) -> None:
    response = changed(ContainerResponse(), mounts=[mount("/usr/lib", path)])
    assert bool(list(covering_path_faults(response))) is covers


@given(st.sampled_from(FileKind))
def test_a_node_leads_to_a_node_or_to_a_folder_of_nodes(kind: FileKind) -> None:
    response = changed(ContainerResponse(), device_nodes=[node("/dev/x")])
    is_right = kind in {FileKind.NODE, FileKind.NODES, FileKind.HIDDEN}
    assert bool(list(node_host_faults(response, {"/dev/x": kind}))) is not is_right


@given(st.sampled_from(FileKind))
def test_a_mount_is_there_and_no_node(kind: FileKind) -> None:
    response = changed(ContainerResponse(), mounts=[mount("/x", "/x")])
    assert bool(list(mount_host_faults(response, {"/x": kind}))) is (kind is FileKind.NOTHING)
    assert bool(list(mounted_nodes(response, {"/x": kind}))) is (kind is FileKind.NODE)


def test_a_host_path_has_to_be_absolute() -> None:
    response = changed(ContainerResponse(), device_nodes=[node("null")], mounts=[mount("lib", "/lib")])
    kinds = {"null": FileKind.NOTHING, "lib": FileKind.NOTHING}
    assert [*node_host_faults(response, kinds), *mount_host_faults(response, kinds)] == [
        'the host path "null" of a device node is not absolute',
        'the host path "lib" of a mount is not absolute',
    ]


@given(st.text("aA_=\0", max_size=4), st.text("a\0=", max_size=3))
def test_a_variable_has_a_name_without_equals_sign_and_no_nul(name: str, value: str) -> None:
    is_right = name != "" and not set(name) & {"=", "\0"} and "\0" not in value
    assert bool(list(env_faults(changed(ContainerResponse(), envs={name: value})))) is not is_right


@pytest.mark.parametrize(
    ("name", "is_theirs"),
    [("LD_PRELOAD", True), ("LD_LIBRARY_PATH", True), ("PATH", True), ("MY_PATH", False), ("OLD_X", False)],
)
def test_the_loaders_variables_are_known(name: str, is_theirs: bool) -> None:
    assert bool(list(loader_envs(changed(ContainerResponse(), envs={name: "/opt"})))) is is_theirs


@given(NAMES, NAMES, st.sampled_from((",", " ", ";", "|", "/")))
def test_a_variable_that_joins_both_values_loses_none(first: str, second: str, separator: str) -> None:
    one, two, both = (
        ContainerResponse(envs={"IDS": value}) for value in (first, second, f"{first}{separator}{second}")
    )
    assert not list(lost_values(one, two, both))
    assert bool(list(lost_values(one, two, one))) is (first != second)


def test_a_table_of_two_devices_loses_none() -> None:
    one, two, both = (
        ContainerResponse(envs={"INFO": json.dumps({id_: {"netdev": id_} for id_ in ids})})
        for ids in (("eth0",), ("eth1",), ("eth0", "eth1"))
    )
    assert not list(lost_values(one, two, both))


@pytest.mark.parametrize(
    ("key", "is_right"),
    [
        ("example.com/a", True),
        ("Example.COM/A_b.c", True),
        ("plain", True),
        ("", False),
        ("/dev/null", False),
        ("example.com/", False),
        ("exa_mple.com/a", False),
        ("a/b/c", False),
        ("x" * 63, True),
        ("x" * 64, False),
        (".".join(["x" * 50] * 5)[:253] + "/a", True),
        (".".join(["x" * 60] * 5) + "/a", False),
    ],
)
def test_an_annotation_key_is_one_of_kubernetes(key: str, is_right: bool) -> None:
    assert bool(list(annotation_faults({key: "value"}))) is not is_right


@given(st.integers(-3, 3))
def test_annotations_have_a_limit_together(over: int) -> None:
    annotations = {"a": "x" * (ANNOTATIONS_LIMIT_BYTES - 2 - 5 + over), "b": "12345"}
    assert bool(list(annotation_faults(annotations))) is (over > 0)


@pytest.mark.parametrize(
    ("name", "is_right"),
    [
        ("nvidia.com/gpu=GPU-1", True),
        ("example.com/gpu=all", True),
        ("example.com/gpu=0:1", True),
        ("example.com/gpu", False),
        ("example.com/gpu=", False),
        ("gpu=0", False),
        ("example.com/gpu=0/1", False),
        ("", False),
    ],
)
def test_a_cdi_name_reads_vendor_class_and_device(name: str, is_right: bool) -> None:
    assert bool(list(cdi_name_faults(changed(ContainerResponse(), cdi_devices=[name])))) is not is_right
    annotated = changed(ContainerResponse(), annotations={"cdi.k8s.io/x": name})
    assert bool(list(cdi_name_faults(annotated))) is not is_right


@given(st.lists(CDI_NAMES, min_size=1, unique=True))
def test_cdi_names_are_read_from_annotations_too(names: Sequence[str]) -> None:
    annotated = changed(ContainerResponse(), annotations={"cdi.k8s.io/any": ",".join(names)})
    assert cdi_names(annotated) == cdi_names(ContainerResponse(cdi_devices=names)) == tuple(names)


@given(st.lists(NAMES, min_size=1, unique=True), st.sampled_from(("json", "block", "flow", "quoted")))
def test_the_names_of_a_spec_are_found_in_each_way_of_writing_it(names: Sequence[str], form: str) -> None:
    edits = {"deviceNodes": [{"path": "/dev/null"}]}
    devices = [{"name": name, "containerEdits": edits} for name in names]
    spec = {"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": devices}
    text = {
        "json": lambda: json.dumps(spec),
        "block": lambda: yaml.safe_dump(spec, default_style=None),
        "flow": lambda: yaml.safe_dump(spec, default_flow_style=True),
        "quoted": lambda: yaml.safe_dump(spec, default_style='"'),
    }[form]()
    file_name = "gpu.json" if form == "json" else "gpu.yaml"
    assert set(defined_cdi_names([(file_name, text)])) == {f"example.com/gpu={name}" for name in names}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"devices": [{}]}', '{"devices": 7, "kind": "a/b"}'])
def test_a_spec_that_cannot_be_read_defines_nothing(text: str) -> None:
    assert not defined_cdi_names([("gpu.json", text), ("gpu.yaml", text)])


@given(responses())
def test_items_do_not_depend_on_the_order_or_on_the_key_of_a_cdi_annotation(
    response: ContainerResponse,
) -> None:
    turned = changed(
        response,
        device_nodes=response.device_nodes[::-1],
        mounts=response.mounts[::-1],
        cdi_devices=(),
        annotations={**response.annotations, "cdi.k8s.io/uuid": ",".join(response.cdi_devices[::-1])},
    )
    if not response.cdi_devices:
        turned = changed(turned, annotations=response.annotations)
    assert items(turned) == items(response)
    assert hardware(turned) == hardware(response) <= items(response)


@given(st.text(st.characters(categories=("L", "N", "Z", "Cc")), max_size=400))
def test_what_our_own_errors_say_is_readable(text: str) -> None:
    assert not list(refusal_faults(one_line(f"device {text} is not known")))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "two\nlines",
        "x" * 201,
        "é" * 101,
        "Traceback (most recent call last): KeyError",
        "panic: runtime error: index out of range",
        "goroutine 12 [running]:",
        "server.go:117 no device",
        "Exception calling application: 'dev-0'",
    ],
)
def test_a_refusal_that_nobody_can_read_is_found(text: str) -> None:
    assert list(refusal_faults(text))


@pytest.mark.parametrize(
    "text",
    [
        "invalid allocation request for 'nvidia.com/gpu': unknown device: no-such-device-0",
        'device "no-such-device-0" is not known to example.com/foo',
        "Invalid allocation request with non-existing device no-such-device-0",
        "x" * 200,
    ],
)
def test_a_refusal_in_one_sentence_is_right(text: str) -> None:
    assert not list(refusal_faults(text))
