"""The CDI file of a claim: what runtimes read in it, and what the next driver does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.cdi.spec import CdiOwner, CdiSpec, faults
from devplug.devices import ContainerResponse, DeviceNode, Mount
from devplug.driver.claim_spec import (
    answer,
    claim_spec,
    file_name,
    file_text,
    read_file,
    uid_of_file,
    variables_of_two,
)
from devplug.driver.claims import ClaimRefusedError, ClaimUse, DeviceUse
from devplug.wire.dra import PreparedClaim, PreparedDevice
from tests.driver.world import DRIVER, NODE, SERIAL

UID = "836ae87e-bf26-4589-8bb7-5ba8c14b06b8"


def use(*names: str) -> ClaimUse:
    return ClaimUse("ns", "c", UID, tuple(DeviceUse("r", name, SERIAL, name.upper()) for name in names), 7)


def response(*nodes: DeviceNode | str, **more: Any) -> ContainerResponse:
    return ContainerResponse(device_nodes=nodes, **more)


def made(wanted: ClaimUse, responses: Sequence[ContainerResponse]) -> tuple[CdiSpec | None, ClaimUse]:
    return claim_spec(DRIVER, wanted, responses, [CdiOwner()] * len(responses))


def test_each_device_of_a_claim_has_a_name_and_all_that_a_container_gets() -> None:
    """D98: version 0.5.0, for containerd 1.7."""
    spec, named = made(
        use("a", "b"),
        [response("/dev/x"), response("/dev/y", envs={"N": "1"}, mounts=[Mount("/opt")])],
    )
    assert spec is not None
    assert faults(spec) == []
    content = file_text(spec, named)
    document = yaml.safe_load(content)
    assert document == json.loads(content.partition("\n")[2])
    assert document["cdiVersion"] == "0.5.0"
    assert document["kind"] == f"k8s.{DRIVER}/claim"
    assert [one["name"] for one in document["devices"]] == [f"{UID}-a", f"{UID}-b"]
    assert document["devices"][1]["containerEdits"]["env"] == ["N=1"]
    assert answer(named, NODE) == PreparedClaim(
        tuple(PreparedDevice(NODE, n, ("r",), (f"k8s.{DRIVER}/claim={UID}-{n}",)) for n in "ab")
    )


def test_a_device_that_is_only_others_cdi_devices_has_their_names_and_needs_no_file() -> None:
    spec, named = made(use("a"), [response(cdi_devices=["x.example.com/gpu=0"])])
    assert spec is None
    assert named.devices[0].cdi_names == ("x.example.com/gpu=0",)


def test_two_requests_that_share_a_device_share_its_name_unless_they_are_configured_differently() -> None:
    """D86."""
    shared = replace(use("a", "a"), devices=tuple(DeviceUse(r, "a", SERIAL, "A", r) for r in ("q", "r")))
    spec, named = made(shared, [response("/dev/x"), response("/dev/x")])
    assert spec is not None
    assert [one.name for one in spec.devices] == [f"{UID}-a"]
    assert named.devices[0].cdi_names == named.devices[1].cdi_names
    spec, named = made(shared, [response("/dev/x"), response("/dev/x", envs={"N": "1"})])
    assert spec is not None
    assert [one.name for one in spec.devices] == [f"{UID}-a", f"{UID}-a-r"]
    assert named.devices[1].cdi_names == (f"k8s.{DRIVER}/claim={UID}-a-r",)


def test_two_devices_at_one_path_are_refused_with_what_to_write() -> None:
    moved = [response(DeviceNode(path, "/dev/s")) for path in ("/dev/x", "/dev/y")]
    with pytest.raises(ClaimRefusedError, match="/dev/x and /dev/y would both be /dev/s in a container"):
        made(use("a", "b"), moved)


def test_two_containers_with_limits_may_have_no_device_at_one_path() -> None:
    """D91: an init container with `limits` of both has the devices of the containers after it."""
    moved = [response(DeviceNode(path, "/dev/s")) for path in ("/dev/x", "/dev/y")]
    requests = "container-0-request-0", "container-1-request-0"
    uses = tuple(DeviceUse(one, one[10], SERIAL, one[10]) for one in requests)
    with pytest.raises(ClaimRefusedError, match="/dev/x and /dev/y would both be /dev/s in a container"):
        made(replace(use(), devices=uses), moved)


@pytest.mark.parametrize(
    ("first", "second", "is_refused"),
    [
        ({"device_nodes": ["/dev/x"]}, {"device_nodes": ["/dev/x"]}, False),
        ({"mounts": [Mount("/a", "/m")]}, {"mounts": [Mount("/a", "/m")]}, False),
        ({"mounts": [Mount("/a", "/m")]}, {"mounts": [Mount("/b", "/m")]}, True),
        ({"mounts": [Mount("/a", "/m")]}, {"device_nodes": [DeviceNode("/dev/x", "/m")]}, True),
        ({"device_nodes": [DeviceNode("/dev/x", "/m")]}, {"mounts": [Mount("/a", "/m")]}, True),
    ],
)
def test_two_claims_may_put_only_the_same_thing_at_one_path(
    first: dict[str, Any], second: dict[str, Any], is_refused: bool
) -> None:
    other, _ = made(use("a"), [ContainerResponse(**first)])
    assert other is not None
    mine = replace(use("b"), uid="another")
    given = ContainerResponse(**second)
    if is_refused:
        with pytest.raises(ClaimRefusedError, match=r"of ResourceClaim ns/other and .* would both be /m"):
            claim_spec(DRIVER, mine, [given], [CdiOwner()], [("ns/other", other)])
    else:
        claim_spec(DRIVER, mine, [given], [CdiOwner()], [("ns/other", other)])


def test_variables_with_two_values_are_found_over_all_claims() -> None:
    one, _ = made(use("a", "b"), [response(envs={"A": "1", "B": "1"}), response(envs={"A": "1"})])
    other, _ = made(use("c"), [response(envs={"A": "1", "B": "2", "C": "3"})])
    assert one is not None
    assert other is not None
    assert variables_of_two([one]) == []
    assert variables_of_two([one, other]) == ["B"]


TEXTS = st.text(st.characters(codec="utf-8"))


@given(TEXTS, TEXTS)
def test_the_first_line_brings_everything_back_whatever_the_names(name: str, request: str) -> None:
    spec, named = made(use("a"), [response("/dev/x")])
    assert spec is not None
    known = replace(named, name=name, devices=(replace(named.devices[0], request=request),))
    content = file_text(spec, known)
    assert content.isascii()
    assert read_file(content.encode()) == known
    assert yaml.safe_load(content)["kind"] == spec.kind


@given(st.binary())
def test_a_file_of_somebody_else_is_not_read(content: bytes) -> None:
    assert read_file(content) is None
    assert read_file(b"# devplug: " + content + b"\n{}") is None


def test_a_file_is_named_by_the_claim_and_only_ours_is_known_by_its_name() -> None:
    assert uid_of_file(DRIVER, file_name(DRIVER, UID)) == UID
    for name in (f"k8s.{DRIVER}-claim-{UID}.json", f"k8s.other-claim-{UID}.yaml", "nvidia.yaml"):
        assert uid_of_file(DRIVER, name) is None


@pytest.mark.parametrize(
    ("one", "other", "is_excluded"),
    [
        ({}, {}, True),
        ({"share_id": "s"}, {}, True),
        ({"share_id": "s"}, {"share_id": "t"}, False),
        ({"has_admin_access": True}, {}, False),
        ({}, {"device_id": "B"}, False),
        ({}, {"resource_name": "example.com/other"}, False),
    ],
)
def test_shares_and_looks_exclude_nobody(
    one: dict[str, object], other: dict[str, object], is_excluded: bool
) -> None:
    """D79, D86."""
    left, right = (replace(use("a").devices[0], **changes) for changes in (one, other))
    assert left.excludes(right) is right.excludes(left) is is_excluded
