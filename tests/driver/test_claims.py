"""What a driver reads in a claim: devices and parameters, or a refusal that tells what to do."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.dra.taints import Toleration
from devplug.driver.claims import (
    AllocatedDevice,
    ClaimRefusedError,
    allocated_devices,
    check_names,
    is_uid,
    still_holds,
)
from devplug.k8s.objects import Object
from devplug.wire.dra import ClaimName
from tests.driver.world import DRIVER, NODE, Claims

ASKED = ClaimName("ns", "uid-c", "c")


def claim(*devices: str, **more: Any) -> dict[str, Any]:
    claims = Claims()
    claims.allocate("c", *devices, **more)
    return claims.objects["ns", "c"]


def read(found: Object | None) -> tuple[AllocatedDevice, ...]:
    return allocated_devices(found, ASKED, DRIVER, NODE)


def config(*entries: tuple[str, list[str], str]) -> list[dict[str, Any]]:
    return [
        {"source": source, "requests": requests, "opaque": {"driver": DRIVER, "parameters": {"name": name}}}
        for source, requests, name in entries
    ]


def test_the_devices_of_our_driver_are_read_in_order_and_no_others() -> None:
    """D16, D22, D80, D86: with the request, not its alternative, the share, admin access and tolerations."""
    found = claim("a", "b")
    results = found["status"]["allocation"]["devices"]["results"]
    results[0] |= {"request": "r/second", "shareID": "s", "adminAccess": True}
    results[1]["tolerations"] = [{"key": "k", "value": "v", "effect": "NoSchedule"}, {"operator": "Exists"}]
    results.insert(0, {"request": "q", "driver": "other.example.com", "pool": "elsewhere", "device": "x"})
    assert read(found) == (
        AllocatedDevice("r", "a", "s", has_admin_access=True),
        AllocatedDevice(
            "r",
            "b",
            tolerations=(Toleration("k", "Equal", "v", "NoSchedule"), Toleration("", "Exists", "", "")),
        ),
    )


def test_the_parameters_of_a_class_come_before_those_of_a_claim_and_only_those_of_the_request() -> None:
    """D88: without requests they are for all; a request covers its alternatives."""
    found = claim("a")
    found["status"]["allocation"]["devices"]["results"][0]["request"] = "r/second"
    found["status"]["allocation"]["devices"]["config"] = [
        *config(
            ("FromClaim", ["r"], "claim"),
            ("FromClaim", ["r/second"], "alternative"),
            ("FromClaim", ["q"], "another request"),
            ("FromClass", [], "class"),
        ),
        {"source": "FromClass", "opaque": {"driver": "other.example.com", "parameters": {"name": "no"}}},
    ]
    (device,) = read(found)
    assert [one.content["name"] for one in device.parameters] == ["class", "claim", "alternative"]
    assert device.parameters[0].path == "status.allocation.devices.config[3].opaque.parameters"
    assert [one.is_from_class for one in device.parameters] == [True, False, False]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"metadata": {"uid": "other"}}, 'is a new one, with UID "other" and not "uid-c"; delete the pod'),
        ({"status": {}}, "is not allocated, which only a scheduler does; create the pod again"),
        ({"status": None}, "is not allocated"),
    ],
)
def test_a_claim_that_is_another_or_not_allocated_is_refused(change: dict[str, Any], text: str) -> None:
    """D19, D65."""
    with pytest.raises(ClaimRefusedError, match=f"^ResourceClaim ns/c {re.escape(text)}"):
        read(claim("a") | change)


def test_a_claim_that_is_gone_or_reserved_for_nobody_or_of_another_driver_is_refused() -> None:
    with pytest.raises(ClaimRefusedError, match="does not exist any more; delete the pod"):
        read(None)
    with pytest.raises(ClaimRefusedError, match="is not reserved for any pod"):
        read(claim("a", pods=()))
    with pytest.raises(ClaimRefusedError, match=f"has no device of {DRIVER}"):
        read(claim())


def test_a_device_of_another_node_is_refused_with_both_names() -> None:
    """A pod that was bound by hand."""
    found = claim("a")
    found["status"]["allocation"]["devices"]["results"][0]["pool"] = "worker-1"
    with pytest.raises(ClaimRefusedError, match=f'is on node "worker-1", and this is {NODE}'):
        read(found)


def test_a_claim_holds_a_device_only_while_it_is_allocated_to_the_same_uid() -> None:
    assert still_holds(claim("a"), "uid-c", DRIVER, NODE, "a")
    assert not still_holds(claim("b"), "uid-c", DRIVER, NODE, "a")
    assert not still_holds(claim("a"), "uid-d", DRIVER, NODE, "a")
    assert not still_holds(claim("a") | {"status": {}}, "uid-c", DRIVER, NODE, "a")
    assert not still_holds(None, "uid-c", DRIVER, NODE, "a")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(metadata=json_values, status=json_values)
def test_an_object_of_any_shape_is_read_or_refused(metadata: Any, status: Any) -> None:
    with pytest.raises(ClaimRefusedError):
        read({"metadata": metadata, "status": status})


@pytest.mark.parametrize("text", ["", "/", "../x", "a/b", ".hidden", "a" * 129, "a\0"])
def test_what_could_be_a_path_is_no_uid(text: str) -> None:
    assert not is_uid(text)
    assert is_uid("836ae87e-bf26-4589-8bb7-5ba8c14b06b8")


@pytest.mark.parametrize("text", ["", "..", "../x", "a/b", "a?watch=1", "a%2fb", "a#", "A", "a" * 254, "a\n"])
def test_what_could_be_a_path_or_a_query_is_no_name(text: str) -> None:
    for name in (ClaimName(text, "uid-c", "c"), ClaimName("default", "uid-c", text)):
        with pytest.raises(ClaimRefusedError, match="is no name of a claim"):
            check_names(name)
    check_names(ClaimName("default", "uid-c", "inference-0.claim"))
