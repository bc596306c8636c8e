"""Discovery: the recorded document for what we serve, and two forms that say the same."""

from __future__ import annotations

from typing import Any

import pytest

from devplug.sandbox.api.kinds import REFUSED, SERVED, Resource, resource_of_kind, resource_of_path
from devplug.sandbox.server.discovery import aggregated, api_group, api_groups, api_versions, resource_list
from tests.sandbox.jsons import recorded

KNOWN = [*SERVED, *REFUSED]
SERVED_CORE = {one.plural for one in SERVED if not one.group}


def entries(document: Any) -> dict[str, Any]:
    return {one["name"]: one for one in document["resources"]}


def test_what_we_serve_of_the_core_is_told_as_it_was_recorded() -> None:
    ours, real = resource_list("", "v1"), recorded("63-discovery-core-v1.json")
    assert ours is not None
    assert {key: ours[key] for key in ours if key != "resources"} == {
        key: real[key] for key in real if key != "resources"
    }
    told = {name: one for name, one in entries(ours).items() if name.partition("/")[0] in SERVED_CORE}
    assert told == {name: entries(real)[name] for name in told}
    assert {name.partition("/")[0] for name in told} == SERVED_CORE
    assert list(told) == [one["name"] for one in real["resources"] if one["name"] in told]


def test_what_we_refuse_of_the_core_has_the_recorded_names() -> None:
    ours, real = resource_list("", "v1"), recorded("63-discovery-core-v1.json")
    for name in entries(ours).keys() - entries(real).keys():
        pytest.fail(f"{name} is not there in a real cluster")
    for one in REFUSED:
        if not one.group:
            told, known = entries(ours)[one.plural], entries(real)[one.plural]
            for key in ("singularName", "namespaced", "kind", "shortNames", "storageVersionHash"):
                assert told.get(key) == known.get(key)


def test_both_forms_tell_of_the_same_resources_and_verbs() -> None:
    groups: Any = [*aggregated(core=True)["items"], *aggregated(core=False)["items"]]  # type: ignore[misc]
    for group in groups:
        name = group["metadata"].get("name", "")
        for version in group["versions"]:
            legacy = entries(resource_list(name, version["version"]))
            told: dict[str, Any] = {}
            for one in version["resources"]:
                told[one["resource"]] = one["verbs"]
                for part in one.get("subresources", []):
                    told[f"{one['resource']}/{part['subresource']}"] = part["verbs"]
            assert told == {name: one["verbs"] for name, one in legacy.items()}
    assert {group["metadata"].get("name", "") for group in groups} == {one.group for one in KNOWN}


def test_each_group_is_listed_with_its_version_and_answers_alone() -> None:
    listed: Any = api_groups()["groups"]
    assert {group["name"] for group in listed} == {one.group for one in KNOWN if one.group}
    for group in listed:
        assert api_group(group["name"]) == {"kind": "APIGroup", "apiVersion": "v1", **group}
        assert group["preferredVersion"] in group["versions"]
    assert api_group("nobody.io") is None
    assert resource_list("apps", "v9") is None


def test_the_core_is_told_with_the_address_of_the_server() -> None:
    assert api_versions("127.0.0.1:6443") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
    }


@pytest.mark.parametrize("resource", KNOWN, ids=lambda one: one.qualified)
def test_each_resource_is_found_by_its_path_and_by_its_kind(resource: Resource) -> None:
    assert resource_of_path(resource.group, resource.version, resource.plural) is resource
    assert resource_of_kind(resource.api_version, resource.kind) is resource


def test_a_part_of_a_resource_is_found_by_its_name() -> None:
    pods = resource_of_path("", "v1", "pods")
    assert pods is not None
    binding = pods.subresource("binding")
    assert binding is not None
    assert (binding.kind, binding.verbs) == ("Binding", ("create",))
    assert pods.subresource("exec") is None


def test_what_is_not_there_is_not_found() -> None:
    assert resource_of_path("", "v1", "widgets") is None
    assert resource_of_kind("apps/v1", "Pod") is None


def test_a_deployment_is_refused_with_what_to_do_instead() -> None:
    deployments = resource_of_kind("apps/v1", "Deployment")
    assert deployments is not None
    assert deployments.refusal == (
        "the devplug sandbox runs pods and DaemonSets for devices, and nothing in it makes a Deployment "
        "work; apply a Pod with what stands under spec.template, or a DaemonSet, or use a cluster"
    )
