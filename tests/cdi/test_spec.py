"""CDI specs: the rules, the lowest version, and a text that all readers accept."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.cdi.spec import (
    UNPLUGGED_PATH,
    CdiDevice,
    CdiMount,
    CdiNode,
    CdiSpec,
    bind_options,
    faults,
    kind_of,
    minimum_version,
    parse,
    text,
    unplugged,
)
from tests.cdi.specs import KIND, NODE, STICK, devices, resource_names, spec

DATA = CdiMount("/opt/firmware", "/opt/firmware", bind_options(read_only=True))


# ── what hypothesis may try ────────────────────────────────────────────────────────────────────────


specs = st.builds(
    lambda name, found: CdiSpec(kind_of(name), tuple(sorted(found, key=lambda one: one.name))),
    resource_names,
    st.lists(devices, min_size=1, max_size=3, unique_by=lambda device: device.name),
).filter(lambda made: not faults(made))


# ── rules ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_good_spec_has_no_faults() -> None:
    whole = CdiDevice(
        "aa", (replace(NODE, uid=0, gid=20, file_mode=0o660),), (DATA,), {"PORT": "/dev/serial0"}
    )
    assert faults(spec(STICK, whole)) == []


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("serial", 'kind "serial" needs a vendor and a class'),
        ("Example.com/serial", 'vendor "Example.com" must be a domain'),
        ("3example.com/serial", 'vendor "3example.com" must be a domain'),
        (f"{'a' * 254}/serial", "of 2 to 253 characters"),
        ("example_com/serial", "must be a domain"),
        ("/serial", 'vendor "" must be a domain'),
        ("e/serial", 'vendor "e" must be a domain of 2 to'),
        ("example.com/s", 'class "s" must be 2 to 63'),
        ("example.com/", 'class "" must be'),
        ("example.com/3d", 'class "3d" must be 2 to 63'),
        ("example.com/a/b", 'class "a/b" must be'),
        ("example.com/serial-", 'class "serial-" must be'),
        (f"example.com/{'a' * 64}", "must be 2 to 63"),
        ("example.com/seriäl", "must be 2 to 63"),
    ],
)
def test_a_kind_that_readers_refuse_is_a_fault(kind: str, fault: str) -> None:
    (found,) = faults(spec(STICK, kind=kind))
    assert fault in found


@pytest.mark.parametrize("name", ["", "a", "-a", "a-", "a/b", "a b", "a=b", "a@b", "ä", ":a", "a\n"])
def test_a_device_name_that_readers_refuse_is_a_fault(name: str) -> None:
    (found,) = faults(spec(replace(STICK, name=name)))
    assert found.startswith(f"device name {json.dumps(name)} must be 2 or more letters, digits,")


@pytest.mark.parametrize(
    ("devices", "fault"),
    [
        ((), "it has no devices; remove the file instead"),
        ((STICK, STICK), 'device name "stick" is there twice'),
        ((CdiDevice("empty"),), 'device "empty": it gives nothing to a container'),
        ((CdiDevice("aa", (NODE, NODE)),), 'device "aa": container path "/dev/serial0" is there twice'),
        (
            (CdiDevice("aa", (NODE,), (replace(DATA, container_path=NODE.path),)),),
            'device "aa": container path "/dev/serial0" is there twice',
        ),
        (
            (CdiDevice("aa", (), (replace(DATA, options=("ro",)),)),),
            'device "aa": mount "/opt/firmware" needs the option bind or rbind',
        ),
        (
            (CdiDevice("aa", (), (replace(DATA, options=("rbind", "")),)),),
            'device "aa": mount "/opt/firmware" has an option that is no text',
        ),
    ],
)
def test_a_spec_that_readers_refuse_or_misread_is_a_fault(devices: tuple[CdiDevice, ...], fault: str) -> None:
    assert faults(spec(*devices)) == [fault]


@pytest.mark.parametrize("permissions", ["", "rr", "rwx", "none", "RW"])
def test_permissions_are_some_of_three_letters(permissions: str) -> None:
    (found,) = faults(spec(CdiDevice("aa", (replace(NODE, permissions=permissions),))))
    assert found.startswith(f'device "aa": permissions "{permissions}" must be some of r, w and m')


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("", "is not absolute"),
        ("dev/a", "is not absolute"),
        ("//dev/a", "is not absolute"),
        ("/dev/../mem", 'is not in normal form; write "/mem"'),
        ("/dev/a/", 'is not in normal form; write "/dev/a"'),
        ("/dev/a\n", "has characters that do not print"),
        ("/dev/\udc80", "has characters that do not print"),
    ],
)
def test_every_path_is_absolute_and_normal(path: str, fault: str) -> None:
    broken = CdiDevice("aa", (CdiNode(path, path),), (CdiMount(path, f"{path}", ("bind",)),))
    found = [one for one in faults(spec(broken)) if "twice" not in one]
    assert len(found) == 4
    assert all(one.endswith(fault) for one in found)


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        (replace(NODE, uid=-1), "uid -1 must be from 0 to 4294967295"),
        (replace(NODE, gid=2**32), "gid 4294967296 must be from 0 to 4294967295"),
        (replace(NODE, file_mode=0o1660), "file mode 944 must be from 0 to 511"),
    ],
)
def test_owner_and_mode_are_numbers_that_runtimes_take(node: CdiNode, fault: str) -> None:
    assert faults(spec(CdiDevice("aa", (node,)))) == [f'device "aa": {fault}']


@pytest.mark.parametrize(
    ("name", "value"), [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "\0"), ("A", "\udc80")]
)
def test_an_environment_variable_that_no_process_can_have_is_a_fault(name: str, value: str) -> None:
    (found,) = faults(spec(CdiDevice("aa", envs={name: value})))
    assert "environment variable" in found


def test_all_faults_are_told_at_once() -> None:
    broken = CdiDevice("-", (CdiNode("dev", "dev", ""),), envs={"": ""})
    assert len(faults(CdiSpec("x", (broken, CdiDevice("bb"))))) == 7


# ── version ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("devices", "kind", "version"),
    [
        ((CdiDevice("aa", (CdiNode("/dev/a", "/dev/a"),)),), KIND, "0.3.0"),
        ((CdiDevice("aa", (), (DATA,)),), KIND, "0.3.0"),
        ((CdiDevice("aa", (CdiNode("/dev/a", "/dev/a", "rw", 0, 0, 0),)),), KIND, "0.3.0"),
        ((CdiDevice("1-2", (CdiNode("/dev/a", "/dev/a"),)),), KIND, "0.5.0"),
        ((STICK,), KIND, "0.5.0"),
        ((STICK,), "example.com/a.b", "0.6.0"),
    ],
)
def test_the_version_is_the_lowest_that_has_what_is_used(
    devices: tuple[CdiDevice, ...], kind: str, version: str
) -> None:
    assert minimum_version(CdiSpec(kind, devices)) == version
    assert json.loads(text(CdiSpec(kind, devices)))["cdiVersion"] == version


version_devices = st.lists(
    st.builds(
        CdiDevice,
        st.sampled_from(["aa", "1a"]),
        st.lists(st.sampled_from([NODE, replace(NODE, host_path=NODE.path)]), max_size=2).map(tuple),
        st.sampled_from([(), (DATA,)]),
    ),
    max_size=3,
).map(tuple)


@given(st.sampled_from([KIND, "example.com/a.b"]), version_devices, version_devices)
def test_more_devices_never_need_a_lower_version(
    kind: str, some: tuple[CdiDevice, ...], more: tuple[CdiDevice, ...]
) -> None:
    both = minimum_version(CdiSpec(kind, (*some, *more)))
    assert both == max(minimum_version(CdiSpec(kind, some)), minimum_version(CdiSpec(kind, more)))


# ── text ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_text_has_only_what_readers_know() -> None:
    node = CdiNode("/dev/a", "/dev/b", "r", 0, 20, 0o660)
    made = json.loads(text(spec(CdiDevice("aa", (node,), (DATA,), {"B": "2", "A": "1=1"}))))
    assert made == {
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "devices": [
            {
                "name": "aa",
                "containerEdits": {
                    "env": ["A=1=1", "B=2"],
                    "deviceNodes": [
                        {
                            "path": "/dev/a",
                            "hostPath": "/dev/b",
                            "permissions": "r",
                            "uid": 0,
                            "gid": 20,
                            "fileMode": 0o660,
                        }
                    ],
                    "mounts": [
                        {
                            "hostPath": "/opt/firmware",
                            "containerPath": "/opt/firmware",
                            "options": ["rbind", "rprivate", "nosuid", "nodev", "ro"],
                        }
                    ],
                },
            }
        ],
    }


def test_a_node_is_given_without_its_number_so_that_a_missing_one_stops_the_container() -> None:
    assert not {"major", "minor", "type"} & set(re.findall(r"\w+", text(spec(STICK))))


def test_the_order_of_devices_does_not_change_the_text() -> None:
    other = CdiDevice("other", (NODE,))
    assert text(spec(STICK, other)) == text(spec(other, STICK))


@given(specs)
def test_what_is_written_is_read_back(made: CdiSpec) -> None:
    assert parse(text(made)) == made
    assert parse(text(made).encode()) == made


@given(specs)
def test_readers_that_take_the_text_for_yaml_read_the_same(made: CdiSpec) -> None:
    assert yaml.safe_load(text(made)) == json.loads(text(made))


def test_characters_that_yaml_forbids_or_folds_arrive() -> None:
    value = "\x7f\u0085\u2028\ufeff\ufffe\U0001f600\\ud83d\t\n\"'"
    made = spec(CdiDevice("aa", envs={"A": value}))
    assert yaml.safe_load(text(made))["devices"][0]["containerEdits"]["env"] == [f"A={value}"]
    assert parse(text(made)) == made


@given(st.text() | st.binary())
def test_what_is_not_ours_is_none_and_never_an_error(content: str | bytes) -> None:
    assert parse(content) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "null",
        "[]",
        "{}",
        "[" * 100_000,
        '{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[]}',
        '{"cdiVersion":"0.5.0","kind":"devplug./gpu","devices":[]}',
        '{"cdiVersion":"0.5.0","kind":"devplug.aa/3d","devices":[]}',
        '{"cdiVersion":5,"kind":"devplug.aa/bb","devices":[]}',
        '{"cdiVersion":"0.5.0","kind":"devplug.aa/bb","devices":[{"name":7}]}',
        '{"cdiVersion":"0.5.0","kind":"devplug.aa/bb"}',
    ],
)
def test_foreign_content_is_none(content: str) -> None:
    assert parse(content) is None


def test_a_file_of_a_later_release_is_still_ours() -> None:
    made = json.loads(text(spec(STICK)))
    made["annotations"] = {"a": "b"}
    made["devices"][0]["containerEdits"]["netDevices"] = [{"hostInterfaceName": "eth1", "name": "a"}]
    assert parse(json.dumps(made)) == spec(STICK)


def test_permissions_that_a_file_leaves_out_are_all_of_them() -> None:
    content = (
        f'{{"cdiVersion":"0.3.0","kind":"{KIND}","devices":[{{"name":"aa","containerEdits":'
        '{"deviceNodes":[{"path":"/dev/a"}]}}]}'
    )
    assert parse(content) == spec(CdiDevice("aa", (CdiNode("/dev/a", "/dev/a", "rwm"),)))


# ── devices that are gone ──────────────────────────────────────────────────────────────────────────


def test_a_device_that_is_gone_keeps_its_name_and_leads_nowhere() -> None:
    gone = unplugged(STICK)
    assert gone.name == STICK.name
    assert gone.nodes == (replace(NODE, host_path=UNPLUGGED_PATH),)
    assert faults(spec(gone)) == []
    assert unplugged(gone) == gone
