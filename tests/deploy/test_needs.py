"""What a configuration needs of its pod is what the pod gets, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from devplug.daemon.config.loader import load
from devplug.deploy.chart import overridden
from devplug.deploy.manifests import lines_for, values_for
from devplug.deploy.security_context import Needs, needs_of
from tests.deploy.configs import DRIVER, configs, needs
from tests.deploy.policies import faults, granted
from tests.deploy.renderings import container, ours, pod_spec


def pod_needs(*resources: dict[str, Any]) -> Needs:
    named = [{"name": f"example.com/r{index}", **one} for index, one in enumerate(resources)]
    return needs_of(load(json.dumps({"version": 1, "resources": named}), "test"))


@given(configs())
def test_a_pod_is_granted_what_a_rule_needs_and_nothing_else(config: dict[str, Any]) -> None:
    text = json.dumps(config)
    values = overridden(values_for(needs_of(load(text, "test"))), {"config": {"inline": text}})
    objects = ours(values)
    assert granted(objects) == needs(config)
    assert faults(objects) == []


@given(configs())
def test_each_grant_is_told_with_the_line_that_needs_it(config: dict[str, Any]) -> None:
    found = needs_of(load(json.dumps(config), "test"))
    lines = "\n".join(lines_for(found))
    for places in (
        found.device_access,
        found.cdi_folder,
        found.nvidia,
        found.host_network,
        found.node_labels,
        tuple(place for _, place in found.dra),
    ):
        assert not places or places[0] in lines
    assert ("privileged" in lines) == bool(found.device_access)


@given(configs())
def test_without_device_access_no_pod_is_privileged(config: dict[str, Any]) -> None:
    objects = ours(values_for(needs_of(load(json.dumps(config), "test")), may_open=False))
    assert "privileged" not in granted(objects)
    assert container(objects)["securityContext"]["allowPrivilegeEscalation"] is False


@given(configs())
def test_a_resource_moves_to_claims_and_back_without_a_rollout_of_a_file_that_names_the_driver(
    config: dict[str, Any],
) -> None:
    """The pod template is the same, so the daemon that gave devices out is the one that waits for them."""
    plain = {
        "driver": DRIVER,
        **config,
        "resources": [{**one, "serve": "devicePlugin"} for one in config["resources"]],
    }
    claims = {**plain, "resources": [{**one, "serve": "dra"} for one in config["resources"]]}
    before, after = (ours(values_for(needs_of(load(json.dumps(text), "test")))) for text in (plain, claims))
    assert pod_spec(before) == pod_spec(after)


def test_many_devices_get_a_higher_memory_limit() -> None:
    few = {"discover": {"static": {"ids": ["a"]}}}
    assert "resources" not in values_for(pod_needs(few))
    many = values_for(pod_needs({**few, "share": {"replicas": 90_000}}))
    assert many["resources"] == {"limits": {"memory": "256Mi"}}


def test_an_unknown_configuration_gets_what_finding_devices_takes() -> None:
    assert granted(ours(values_for(needs_of(None)))) == {"dev"}


def test_devices_without_hardware_need_nothing_at_all() -> None:
    found = pod_needs({"discover": {"static": {"ids": ["a"]}}})
    assert found == Needs()
    assert granted(ours(values_for(found))) == set()


def test_a_file_in_a_folder_of_the_container_s_own_is_left_to_its_author() -> None:
    rule = {"file": "/etc/{id}.ok", "equals": "ok"}
    found = pod_needs({"discover": {"path": "/dev/a"}, "health": [rule]})
    assert found.left == ("resources[0].health[0].file",)
    assert found.folders == ()
    assert any("not mounted" in line and found.left[0] in line for line in lines_for(found))


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("/run/a/b/{id}/c", "/run/a/b"),
        ("/run/a/x-{id}", "/run/a"),
        ("/srv/state/all", "/srv/state"),
        ("/run/a/{id}", "/run/a"),
    ],
)
def test_a_file_s_folder_is_mounted_read_only_as_far_as_it_is_known(file: str, folder: str) -> None:
    found = pod_needs({"discover": {"path": "/dev/a"}, "health": [{"file": file, "equals": "ok"}]})
    assert [path for path, _ in found.folders] == [folder]
    objects = ours(values_for(found))
    (mount,) = (one for one in container(objects)["volumeMounts"] if one["mountPath"] == folder)
    (volume,) = (one for one in pod_spec(objects)["volumes"] if one["name"] == mount["name"])
    assert mount["readOnly"] is True
    assert volume["hostPath"]["path"] == folder


def test_a_folder_within_another_is_not_mounted_twice() -> None:
    rules = [{"file": "/run/a/{id}", "equals": "ok"}, {"file": "/run/a/b/{id}", "equals": "ok"}]
    found = pod_needs({"discover": {"path": "/dev/a"}, "health": rules})
    assert [path for path, _ in found.folders] == ["/run/a"]
