"""The real kubectl and DRA's kinds: listed, applied, read, explained, and refused in the real words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sandbox.resource.writes import CLAIMS, allocated, claim, devices_of_node, exactly
from tests.sandbox.server.beds import Kubectl, Server, registry_of_test, served


@pytest.fixture
def server() -> Iterator[Server]:
    with served(registry_of_test()) as running:
        yield running


@pytest.fixture
def kubectl(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return Kubectl(tmp_path_factory.mktemp("kubectl"), server.kubeconfig)


def manifest(kind: str, one: Any) -> str:
    meta = {key: value for key, value in one["metadata"].items() if key != "namespace"}
    return json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": kind, **one, "metadata": meta})


def test_each_kind_is_listed_in_one_version(kubectl: Kubectl) -> None:
    """D01."""
    lines = kubectl("api-resources", "--api-group=resource.k8s.io", "--no-headers").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["deviceclasses", "resource.k8s.io/v1", "false", "DeviceClass"],
        ["devicetaintrules", "resource.k8s.io/v1beta2", "false", "DeviceTaintRule"],
        ["resourceclaims", "resource.k8s.io/v1", "true", "ResourceClaim"],
        ["resourceclaimtemplates", "resource.k8s.io/v1", "true", "ResourceClaimTemplate"],
        ["resourceslices", "resource.k8s.io/v1", "false", "ResourceSlice"],
    ]


def test_taint_rules_are_applied_shown_and_refused(kubectl: Kubectl) -> None:
    """A rule's taint gets its time, as those of slices (D80)."""

    def rule(effect: str) -> str:
        spec = {"deviceSelector": {"driver": "gpu.example.com"}, "taint": {"key": "a/b", "effect": effect}}
        one = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "r"}}
        return json.dumps({**one, "spec": spec})

    refused = kubectl("create", "-f", "-", told=rule("Never")).stderr
    assert 'spec.taint.effect: Unsupported value: "Never"' in refused
    kubectl("apply", "-f", "-", told=rule("NoSchedule"))
    header, row = kubectl("get", "devicetaintrules").stdout.splitlines()
    assert (header.split(), row.split()[0]) == (["NAME", "AGE"], "r")
    kubectl("apply", "-f", "-", told=rule("NoExecute"))
    shown = json.loads(kubectl("get", "devicetaintrule", "r", "-o", "json").stdout)
    assert (shown["metadata"]["generation"], shown["spec"]["taint"]["effect"]) == (2, "NoExecute")
    assert "timeAdded" in shown["spec"]["taint"]
    kubectl("delete", "devicetaintrule", "r")


def test_slices_are_shown_and_selected_by_node_and_driver(kubectl: Kubectl) -> None:
    """D53."""
    slices = manifest("ResourceSlice", devices_of_node())
    assert kubectl("apply", "-f", "-", told=slices).stdout == "resourceslice.resource.k8s.io/s created\n"
    header, row = kubectl("get", "resourceslices").stdout.splitlines()
    assert header.split() == ["NAME", "NODE", "DRIVER", "POOL", "AGE"]
    assert row.split()[:4] == ["s", "n1", "gpu.example.com", "n1"]
    for selector, found in (
        ("spec.driver=gpu.example.com", "resourceslice.resource.k8s.io/s\n"),
        ("spec.nodeName=n2", ""),
    ):
        assert kubectl("get", "resourceslices", "-o", "name", "--field-selector", selector).stdout == found
    refused = kubectl("get", "resourceslices", "--field-selector", "spec.pool.name=n1").stderr
    assert "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.pool.name" in refused


def test_a_claim_says_its_state(server: Server, kubectl: Kubectl) -> None:
    """D64."""

    def state() -> str:
        return str(kubectl("get", "resourceclaims", "--no-headers").stdout.split()[1])

    held = claim()
    held["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    kubectl("apply", "-f", "-", told=manifest("ResourceClaim", held))
    assert state() == "pending"
    status = allocated(reservedFor=[{"resource": "pods", "name": "p", "uid": "u"}])
    server.do(lambda: server.registry.set_status(CLAIMS, "default", "c", status))
    assert state() == "allocated,reserved"
    kubectl("delete", "resourceclaim", "c", "--wait=false")
    assert state() == "deleted,allocated,reserved"
    described = kubectl("describe", "resourceclaim", "c").stdout
    assert "Allocation Mode:    ExactCount" in described
    assert "  Reserved For:\n    Name:      p\n" in described


COUNT = "spec.devices.requests[0].exactly.count"
UNREADABLE = 'ResourceClaim in version "v1" cannot be handled as a ResourceClaim: strict decoding error'
FIELD = "spec.devices.requests[0].deviceClassName"


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (
            claim(exactly(count=-1)),
            f'The ResourceClaim "c" is invalid: {COUNT}: Invalid value: -1: must be greater than zero\n',
        ),
        (
            claim({"name": "r0", "deviceClassName": "gpu"}),
            f'error when creating "STDIN": {UNREADABLE}: unknown field "{FIELD}"\n',
        ),
    ],
)
def test_what_is_wrong_is_printed_as_by_a_cluster(kubectl: Kubectl, one: Any, told: str) -> None:
    """D48, D57."""
    applied = kubectl("apply", "-f", "-", told=manifest("ResourceClaim", one))
    assert (applied.returncode, applied.stderr.removeprefix("Error from server (BadRequest): ")) == (1, told)


def test_the_fields_are_explained(kubectl: Kubectl) -> None:
    explained = kubectl("explain", "resourceclaims.spec.devices.requests.exactly").stdout
    assert "GROUP:      resource.k8s.io" in explained
    assert "deviceClassName\t<string> -required-\n    The class of the devices." in explained
    assert "enum: All, ExactCount" in explained
