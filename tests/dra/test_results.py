"""What is written of an allocation: results, configuration, node selector, IDs of shares."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from devplug.dra.allocator import Allocator
from devplug.dra.objects import Claim, DeviceClass, Slice
from devplug.dra.pools import Inventory
from devplug.dra.results import with_share_ids
from tests.dra.worlds import (
    CLASSES,
    GPU,
    N1,
    Json,
    PlainSelectors,
    claim,
    device,
    one_of,
    request,
    shared,
    slice_of,
    wanted,
)


def allocation(asked: Claim, *slices: Slice, classes: dict[str, DeviceClass] = CLASSES) -> Any:
    from devplug.dra.allocations import Allocations

    allocator = Allocator(classes, Inventory(slices), Allocations(), PlainSelectors())
    found = allocator.allocate(N1, [asked]).allocations
    assert found is not None
    return found[0]


def test_a_result_names_the_device_and_carries_what_the_driver_has_to_know() -> None:
    """D59, D80."""
    toleration = {"key": "k", "operator": "Exists"}
    one = device(
        "a",
        taints=[{"key": "k", "effect": "NoSchedule"}],
        bindingConditions=["ready"],
        bindingFailureConditions=["broken"],
    )
    found = allocation(claim(request(adminAccess=True, tolerations=[toleration])), slice_of("s", [one]))
    assert found["devices"]["results"] == [
        {
            "request": "r0",
            "driver": GPU,
            "pool": "n1",
            "device": "a",
            "adminAccess": True,
            "tolerations": [toleration],
            "bindingConditions": ["ready"],
            "bindingFailureConditions": ["broken"],
        }
    ]


def test_each_share_gets_an_id_of_its_own() -> None:
    """D86."""
    found = allocation(
        claim(*(request(name, capacity={"requests": {"memory": "1Gi"}}) for name in ("r0", "r1"))),
        slice_of("s", [shared("m", memory="2Gi")]),
    )
    numbers = itertools.count()
    told = with_share_ids(found, lambda: f"id-{next(numbers)}")
    assert [one["shareID"] for one in told["devices"]["results"]] == ["id-0", "id-1"]
    plain = allocation(claim(request()), slice_of("s", ["a"]))
    assert with_share_ids(plain, lambda: "never") == plain


# ── node selectors ──


def selector(*expressions: Json) -> Json:
    return {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}


IN_A = {"key": "zone", "operator": "In", "values": ["a"]}
EXISTS = {"key": "zone", "operator": "Exists"}
ONLY_N1 = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ([{"nodeName": "n1"}], ONLY_N1),
        ([{"allNodes": True}], None),
        ([{"nodeSelector": selector(IN_A)}, {"allNodes": True}], selector(IN_A)),
        (
            [{"nodeSelector": selector(IN_A)}, {"nodeSelector": selector(EXISTS, IN_A)}],
            selector(IN_A, EXISTS),
        ),
        ([{"nodeSelector": selector(IN_A)}, {"nodeName": "n1"}], ONLY_N1),
    ],
)
def test_a_claim_says_on_which_nodes_its_devices_can_be_had(where: list[Json], expected: Json | None) -> None:
    """D87."""
    slices = [slice_of(f"s{at}", [f"d{at}"], pool=f"p{at}", **one) for at, one in enumerate(where)]
    found = allocation(claim(request(count=len(where))), *slices)
    assert found.get("nodeSelector") == expected


@pytest.mark.parametrize(
    ("one", "where"),
    [
        (device("a", bindsToNode=True), {"allNodes": True}),
        (device("a", nodeName="n1"), {"perDeviceNodeSelection": True}),
    ],
)
def test_a_device_may_bind_its_claim_to_the_node(one: Json, where: Json) -> None:
    """D87."""
    assert allocation(claim(request()), slice_of("s", [one], **where))["nodeSelector"] == ONLY_N1


# ── configuration ──


def opaque(number: int, **more: Any) -> Json:
    return {"opaque": {"driver": GPU, "parameters": {"v": number}}, **more}


def told(found: Any) -> list[tuple[str, list[str] | None, int]]:
    return [
        (one["source"], one.get("requests"), one["opaque"]["parameters"]["v"])
        for one in found["devices"].get("config", [])
    ]


WITH_CONFIG = {"gpu": DeviceClass("gpu", (), (opaque(1), opaque(2)))}


def test_a_class_is_listed_once_with_all_its_requests() -> None:
    """D88."""
    found = allocation(claim(request("r0"), request("r1")), slice_of("s", ["a", "b"]), classes=WITH_CONFIG)
    assert told(found) == [("FromClass", ["r0", "r1"], 1), ("FromClass", ["r0", "r1"], 2)]


def test_a_claims_configuration_is_listed_as_often_as_it_names_requests() -> None:
    """D88."""
    config = [opaque(1, requests=["r0", "r1"]), opaque(2)]
    found = allocation(claim(request("r0"), request("r1"), config=config), slice_of("s", ["a", "b"]))
    both = ["r0", "r1"]
    assert told(found) == [("FromClaim", both, 1), ("FromClaim", both, 1), ("FromClaim", None, 2)]


def test_configuration_of_an_alternative_counts_if_it_was_chosen() -> None:
    """D88."""
    config = [opaque(at, requests=[name]) for at, name in enumerate(("r0/s0", "r0/s1", "r0"))]
    asked = claim(one_of("r0", wanted(count=5), wanted()), config=config)
    found = allocation(asked, slice_of("s", ["a"]), classes=WITH_CONFIG)
    assert told(found) == [
        ("FromClass", ["r0/s1"], 1),
        ("FromClass", ["r0/s1"], 2),
        ("FromClaim", ["r0/s1"], 1),
        ("FromClaim", ["r0"], 2),
    ]
