"""The status of a ResourceClaim: allocation, reservations and what drivers say of devices."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.objects import with_part
from tests.sandbox.resource.writes import CLAIMS, RESULT, Cluster, allocated, claim, status_refusals

DEVICE = {word: RESULT[word] for word in ("driver", "pool", "device")}
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "R",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def pods(count: int) -> list[dict[str, str]]:
    return [{"resource": "pods", "name": f"p{number}", "uid": str(number)} for number in range(count)]


def of_result(**fields: Any) -> list[tuple[str, str]]:
    return status_refusals({"allocation": {"devices": {"results": [{**RESULT, **fields}]}}})


def of_device(**fields: Any) -> list[str]:
    return [message for _, message in status_refusals(allocated(devices=[{**DEVICE, **fields}]))]


def test_an_allocation_is_set_and_cleared_and_never_changed() -> None:
    """D59."""
    other = {"allocation": {"devices": {"results": [{**RESULT, "device": "d1"}]}}}
    assert status_refusals(allocated(), {}, other) == []
    changed = status_refusals(allocated(), other)
    assert [field for field, _ in changed] == ["status.allocation"]
    assert changed[0][1].startswith('Invalid value: {"Devices":{"Results":[{"Request":"r0","Driver":"gpu.')
    assert changed[0][1].endswith('"NodeSelector":null,"AllocationTimestamp":null}: field is immutable')


@given(st.integers(0, 300))
def test_at_most_256_pods_share_a_claim(count: int) -> None:
    """D59."""
    found = status_refusals(allocated(), allocated(reservedFor=pods(count)))
    told = ("status.reservedFor", f"Too many: {count}: must have at most 256 items")
    assert found == ([told] if count > 256 else [])


def test_only_an_allocated_claim_is_reserved() -> None:
    """D59, D63."""
    told = ("status.reservedFor", "Forbidden: may not be specified when `allocated` is not set")
    assert status_refusals({"reservedFor": pods(1)}) == [told]
    assert status_refusals(allocated(reservedFor=pods(1)), {"reservedFor": pods(1)}) == [told]
    assert status_refusals(allocated(reservedFor=pods(1)), {}) == []


def test_no_pod_may_use_a_claim_any_more_that_is_being_deleted() -> None:
    """D64."""
    cluster = Cluster()
    held = with_part(claim(), ["resource.kubernetes.io/delete-protection"], "metadata", "finalizers")
    stored = cluster.create(CLAIMS, held)
    stored = cluster.update(CLAIMS, {**stored, "status": allocated(reservedFor=pods(2))}, "status")
    marked = cluster.registry.delete(CLAIMS, "ns", "c").object
    assert marked["metadata"]["deletionTimestamp"]  # type: ignore[index]
    fewer = cluster.update(CLAIMS, {**marked, "status": allocated(reservedFor=pods(1))}, "status")
    with pytest.raises(Exception, match="new entries may not be added while"):
        cluster.update(CLAIMS, {**fewer, "status": allocated(reservedFor=pods(2))}, "status")


@pytest.mark.parametrize(
    ("fields", "places"),
    [
        ({"request": "zz"}, ["request"]),
        ({"driver": "x_y"}, ["driver"]),
        ({"pool": ""}, ["pool"]),
        ({"device": "D"}, ["device"]),
        ({"shareID": "x"}, ["shareID"]),
        ({"bindingConditions": ["a"]}, ["bindingFailureConditions"]),
        ({"shareID": "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}, []),
    ],
)
def test_a_result_names_a_request_and_a_device(fields: Any, places: list[str]) -> None:
    """D59."""
    place = "status.allocation.devices.results[0]"
    assert [field for field, _ in of_result(**fields)] == [f"{place}.{word}" for word in places]


HEX = st.text("0123456789abcdefABCDEF-{}", min_size=30, max_size=40) | st.uuids().map(str)


@given(HEX | st.uuids().map(lambda one: str(one).upper()) | st.uuids().map(lambda one: f"{{{one}}}"))
def test_the_id_of_a_share_is_a_uuid_in_its_one_form(written: str) -> None:
    """D86."""
    import uuid

    try:
        is_right = str(uuid.UUID(written)) == written
    except ValueError:
        is_right = False
    assert (of_result(shareID=written) == []) is is_right


def test_the_status_of_a_device_is_about_an_allocated_one_and_goes_with_it() -> None:
    """D59."""
    unknown = {**DEVICE, "device": "d9"}
    found = status_refusals(allocated(devices=[unknown]))
    told = '{"Driver":"gpu.example.com","Pool":"n1","Device":"d9","ShareID":""}'
    assert found == [
        ("status.devices[0]", f"Invalid value: {told}: must be an allocated device in the claim")
    ]
    cluster = Cluster()
    stored = cluster.create(CLAIMS, claim())
    stored = cluster.update(CLAIMS, {**stored, "status": allocated(devices=[DEVICE])}, "status")
    assert stored["status"]["devices"] == [{**DEVICE, "conditions": None}]
    left = {**stored, "status": {"devices": stored["status"]["devices"]}}
    assert cluster.update(CLAIMS, left, "status")["status"] == {}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"conditions": [READY]}, []),
        ({"conditions": [{**READY, "reason": ""}]}, ["Required value"]),
        ({"conditions": [READY, READY]}, ['Duplicate value: "Ready"']),
        (
            {"conditions": [{**READY, "type": f"t{number}"} for number in range(9)]},
            ["Too many: 9: must have at most 8 items"],
        ),
        ({"data": []}, ['Invalid value: "<value omitted>": must be a valid JSON object']),
        ({"networkData": {"interfaceName": "x" * 257}}, ["Too long: may not be more than 256 bytes"]),
        ({"networkData": {"hardwareAddress": "x" * 129}}, ["Too long: may not be more than 128 bytes"]),
    ],
)
def test_what_a_driver_says_of_a_device_has_limits(fields: Any, told: list[str]) -> None:
    """D59."""
    assert of_device(**fields) == told


@given(st.ip_addresses() | st.sampled_from([ipaddress.ip_address("::ffff:1.2.3.4")]), st.integers(0, 140))
def test_an_address_stands_with_its_networks_length_in_its_one_form(address: Any, bits: int) -> None:
    """D59."""
    found = of_device(networkData={"ips": [f"{address}/{bits}"]})
    mapped = getattr(address, "ipv4_mapped", None)
    assert (found == []) is (bits <= address.max_prefixlen and mapped is None)
    exploded = address.exploded
    if found == [] and exploded != str(address):
        assert of_device(networkData={"ips": [f"{exploded}/{bits}"]}) == [
            f'Invalid value: "{exploded}/{bits}": must be in canonical form ("{address}/{bits}")'
        ]


def test_a_status_leaves_the_spec_and_the_labels_and_a_spec_the_status() -> None:
    """D59."""
    cluster = Cluster()
    stored = cluster.create(CLAIMS, {**claim(), "status": allocated()})
    assert stored["status"] == {}
    meant = {**stored, "spec": {}, "metadata": {**stored["metadata"], "labels": {"a": "b"}}}
    after = cluster.update(CLAIMS, {**meant, "status": allocated()}, "status")
    assert (after["spec"], after["metadata"].get("labels")) == (stored["spec"], None)
    assert cluster.update(CLAIMS, {**after, "status": {}})["status"] == allocated()


def test_reserved_pods_are_merged_by_their_uid() -> None:
    """D63."""
    registry = Cluster().registry
    cluster = Cluster()
    stored = cluster.create(CLAIMS, claim())
    cluster.update(CLAIMS, {**stored, "status": allocated(reservedFor=pods(2))}, "status")
    registry = cluster.registry
    patch = {"status": {"reservedFor": [{"$patch": "delete", "uid": "0"}]}}
    media_type = "application/strategic-merge-patch+json"
    after: Any = registry.patch(CLAIMS, "ns", "c", media_type, patch, part_name="status")
    assert after["status"]["reservedFor"] == pods(2)[1:]
