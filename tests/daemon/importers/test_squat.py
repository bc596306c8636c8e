"""Every key of squat's plugin, and everything that devplug says otherwise, one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devplug.daemon.importers.translation import translated
from tests.daemon.importers.squatted import config_of, notes_of, only, squat, warnings_of


def several(**paths: list[str]) -> str:
    """A file with these devices, each with a group for each of its paths."""
    groups = {name: [{"paths": [{"path": path}]} for path in those] for name, those in paths.items()}
    return json.dumps({"devices": [{"name": name, "groups": those} for name, those in groups.items()]})


def test_a_glob_in_each_group_is_one_resource_with_a_list_of_globs() -> None:
    found = squat({"paths": [{"path": "/dev/ttyUSB*"}]}, {"paths": [{"path": "/dev/ttyACM*"}]}, name="serial")
    assert found.config == {
        "version": 1,
        "resources": [{"name": "squat.ai/serial", "discover": {"path": ["/dev/ttyUSB*", "/dev/ttyACM*"]}}],
    }
    assert found.is_whole


def test_several_paths_in_a_group_are_a_bundle() -> None:
    found = squat({"paths": [{"path": "/dev/dsp0"}, {"path": "/dev/fan", "optional": True}], "count": 3})
    resource = only(config_of(found))
    (bundle,) = resource.discover.bundle
    assert [(one.path, one.optional) for one in bundle.paths] == [("/dev/dsp0", False), ("/dev/fan", True)]
    assert resource.share.replicas == 3
    assert found.is_whole


def test_globs_that_go_together_by_number_are_left_out_and_told_where() -> None:
    source = """\
devices:
- name: pair
  groups:
  - paths:
    - path: /dev/video*
    - path: /dev/snd/pcm*
"""
    found = translated(source, "config.yaml")
    assert found.config is None
    (problem,) = (one.problem for one in found.remarks if "n-th match" in one.problem.message)
    assert (problem.line, problem.column, problem.path) == (4, 5, "devices[0].groups[0]")


def test_a_limit_changes_nothing_for_a_single_path() -> None:
    assert (
        squat({"paths": [{"path": "/dev/x*", "limit": 9}]}).config
        == squat({"paths": [{"path": "/dev/x*"}]}).config
    )


@pytest.mark.parametrize(
    ("mount_path", "container_path"),
    [("/dev/serial/", "/dev/serial/"), ("/dev/ttyUSB0", None), ("/a/ttyUSB0", "/a/"), ("/a/{b}", "/a/{{b}}")],
)
def test_a_mount_path_becomes_a_container_path(mount_path: str, container_path: str | None) -> None:
    found = squat({"paths": [{"path": "/dev/ttyUSB0", "mountPath": mount_path}]})
    template = only(config_of(found)).expose.container_path
    assert (template and template.source) == container_path


def test_many_devices_at_one_path_are_one_for_each_container() -> None:
    found = squat({"paths": [{"path": "/dev/ttyUSB*", "mountPath": "/dev/serial0"}]})
    resource = only(config_of(found))
    assert resource.share.max_per_container == 1
    assert resource.expose.container_path.source == "/dev/serial0"
    assert any("a container can have one" in note for note in notes_of(found))


def test_mount_paths_that_differ_in_a_bundle_leave_it_out() -> None:
    found = squat(
        {"paths": [{"path": "/dev/a0"}, {"path": "/dev/b0"}]},
        {"paths": [{"path": "/dev/a1", "mountPath": "/dev/a0"}, {"path": "/dev/b1", "mountPath": "/dev/b0"}]},
    )
    assert len(only(config_of(found)).discover.bundle) == 1
    (warning,) = warnings_of(found)
    assert warning.startswith("devices[0].groups[1]: the nodes of a bundle")
    assert not found.is_whole


def test_without_permissions_a_container_cannot_make_nodes_which_is_told_once() -> None:
    found = squat({"paths": [{"path": "/dev/a"}]}, {"paths": [{"path": "/dev/b"}]})
    assert only(config_of(found)).expose.permissions == "rw"
    assert sum("make device nodes" in note for note in notes_of(found)) == 1


def test_permissions_with_m_are_allowed_by_name() -> None:
    resource = only(config_of(squat({"paths": [{"path": "/dev/a", "permissions": "mrw"}]})))
    assert resource.expose.permissions == "rwm"
    assert resource.allow == ("mknod",)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"paths": [{"path": "/dev/b"}], "count": 2}, "number of replicas"),
        ({"paths": [{"path": "/dev/b", "permissions": "r"}]}, "same permissions"),
        ({"paths": [{"path": "/dev/b", "mountPath": "/x"}]}, "one containerPath"),
        ({"usb": [{"vendor": "0403", "product": "6001"}]}, "one kind under discover"),
    ],
)
def test_a_group_that_differs_from_the_first_is_left_out(other: dict[str, Any], reason: str) -> None:
    found = squat({"paths": [{"path": "/dev/a*"}]}, other)
    assert [one.glob for one in only(config_of(found)).discover.path] == ["/dev/a*"]
    (warning,) = warnings_of(found)
    assert reason in warning


def test_usb_usb_devices_are_devices_of_their_own_with_the_bus_node_only() -> None:
    found = squat({"usb": [{"vendor": "403", "product": "6001", "serial": "A*1"}], "count": 2})
    resource = only(config_of(found))
    (selector,) = resource.discover.usb
    assert (selector.vendor, selector.product, selector.serial) == ("0403", "6001", "A[*]1")
    assert [one.subsystem for one in resource.expose.device_nodes] == ["usb"]
    assert resource.share.replicas == 2
    assert any("each is a device of its own" in note for note in notes_of(found))
    assert found.is_whole


def test_several_usb_specs_are_no_longer_one_device_which_is_a_warning() -> None:
    specs = [{"vendor": "0403", "product": "6001"}, {"vendor": "0403", "product": "6014"}]
    assert "one device of all these USB devices" in warnings_of(squat({"usb": specs}))[0]


def test_an_id_without_quotes_is_taken_as_its_digits() -> None:
    source = "devices: [{name: ch, groups: [{usb: [{vendor: 0403, product: 6001}]}]}]"
    found = translated(source, "x")
    (selector,) = only(config_of(found)).discover.usb
    assert (selector.vendor, selector.product) == ("0403", "6001")
    assert sum("YAML makes a number" in note for note in notes_of(found)) == 2


def test_a_usb_spec_that_squat_matches_nothing_with_is_left_out() -> None:
    found = squat({"usb": [{"vendor": "0403"}]})
    assert found.config is None
    assert any("no product" in warning for warning in warnings_of(found))


def test_a_folder_is_given_whole_and_is_one_device() -> None:
    resource = only(config_of(squat({"paths": [{"path": "/dev/snd"}], "count": 10})))
    assert resource.expose.directories == ("/dev/snd",)
    assert resource.discover.sysfs[0].subsystem == "sound"
    assert resource.share.replicas == 10


def test_a_mount_comes_along_and_dangerous_ones_are_allowed_by_name() -> None:
    mounted = {"path": "/etc/a.conf", "type": "Mount", "mountPath": "/conf/", "readOnly": True}
    found = squat({"paths": [{"path": "/dev/a"}, mounted]})
    resource = only(config_of(found))
    (mount,) = resource.expose.mounts
    assert (mount.host_path.source, mount.container_path.source, mount.read_only) == (
        "/etc/a.conf",
        "/conf/a.conf",
        True,
    )
    assert resource.allow == ("hostMounts",)
    assert any("allow: [hostMounts]" in note for note in notes_of(found))


def test_a_mount_alone_is_one_device_without_hardware() -> None:
    resource = only(config_of(squat({"paths": [{"path": "/opt/tool", "type": "Mount"}]}, name="tool")))
    assert resource.discover.static[0].ids == ("tool",)
    assert resource.expose.mounts[0].host_path.source == "/opt/tool"


def test_disks_and_whole_dev_are_allowed_by_name_and_memory_never_is() -> None:
    found = translated(several(disk=["/dev/sd*"], all=["/dev/*"], em=["/dev/m*"], mem=["/dev/mem"]), "x")
    disk, whole, em = config_of(found).resources
    assert disk.allow == ("rawDisks",)
    assert whole.allow == ("wholeDev",)
    assert em.discover.path[0].exclude == ("/dev/mem",)
    assert em.allow == ("rawDisks",)
    assert any("/dev/mem" in warning and "left out" in warning for warning in warnings_of(found))


def test_two_resources_with_one_device_share_it_as_before() -> None:
    found = translated(several(one=["/dev/x"], two=["/dev/x"], three=["/dev/?", "/dev/x*"]), "x")
    assert {resource.overlap for resource in config_of(found).resources} == {"shared"}
    assert any("have the same device" in note for note in notes_of(found))


def test_a_path_outside_of_dev_is_left_out_of_its_resource_only() -> None:
    found = squat({"paths": [{"path": "/dev/a"}]}, {"paths": [{"path": "/sys/b"}]})
    assert [one.glob for one in only(config_of(found)).discover.path] == ["/dev/a"]
    assert "/sys/b" in warnings_of(found)[0]


@pytest.mark.parametrize("name", ["x", "Serial", "a_b", "-ab"])
def test_a_name_that_squat_refuses_is_left_out(name: str) -> None:
    assert squat({"paths": [{"path": "/dev/a"}]}, name=name).config is None


def test_the_domain_is_of_the_flag_then_of_the_file_then_squats_own() -> None:
    groups = [{"paths": [{"path": "/dev/a"}]}]
    source = json.dumps({"domain": "example.org", "devices": [{"name": "ab", "groups": groups}]})
    assert only(config_of(translated(source, "x"))).name == "example.org/ab"
    assert only(config_of(translated(source, "x", domain="a.b"))).name == "a.b/ab"
    assert only(config_of(squat(*groups, name="ab"))).name == "squat.ai/ab"


def test_keys_are_known_in_any_case_and_unknown_ones_are_told() -> None:
    found = squat({"Paths": [{"PATH": "/dev/a", "MountPath": "/b/"}], "counts": 3})
    assert only(config_of(found)).expose.container_path.source == "/b/"
    assert any("groups[0].counts: squat's plugin does not know this key" in note for note in notes_of(found))
