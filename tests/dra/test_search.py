"""The search for devices: order, what is passed over, constraints, all devices, alternatives, limits."""

from __future__ import annotations

import pytest

from devplug.dra.allocator import Allocator
from devplug.dra.pools import AS_DOCUMENTED, Inventory
from devplug.dra.search import INVALID_POOLS, AttemptError
from tests.dra.worlds import (
    CLASSES,
    GPU,
    N1,
    N2,
    NIC,
    Json,
    claim,
    cluster_of,
    device,
    in_use,
    one_of,
    request,
    slice_of,
    wanted,
)

ALL = {"allocationMode": "All"}


# ── order ──


def test_requests_and_claims_take_devices_in_order() -> None:
    """D73."""
    cluster = cluster_of(slice_of("s", ["a", "b", "c", "d"]))
    both = claim(request("r0", count=2), request("r1")), claim(request(), name="c1")
    assert cluster.devices(*both) == [["a", "b", "c"], ["d"]]


def test_a_later_request_makes_an_earlier_one_take_another_device() -> None:
    """D73."""
    cluster = cluster_of(
        slice_of("s", [device("a", attributes={"k": "x"}), device("b", attributes={"k": "y"})])
    )
    assert cluster.devices(claim(request("r0"), request("r1", "gpu", "k=x"))) == [["b", "a"]]


def test_devices_in_use_are_passed_over() -> None:
    """D79."""
    cluster = cluster_of(slice_of("s", ["a", "b"]))
    cluster.allocations = in_use("a")
    assert cluster.devices(claim(request())) == [["b"]]
    assert cluster.devices(claim(request(count=2))) is None


def test_admin_access_minds_only_the_use_of_its_own_claim() -> None:
    """D79: it counts for nobody else either."""
    cluster = cluster_of(slice_of("s", ["a"]))
    cluster.allocations = in_use("a")
    admin = request(adminAccess=True)
    assert cluster.devices(claim(admin)) == [["a"]]
    assert cluster.devices(claim(admin, request("r1", adminAccess=True))) is None
    cluster.allocations = in_use("a", adminAccess=True)
    assert cluster.devices(claim(request())) == [["a"]]


def test_a_claim_without_requests_gets_an_empty_allocation() -> None:
    """D56."""
    assert cluster_of().search(claim()).allocations == ({"devices": {}},)


# ── selectors ──


def test_selectors_of_the_class_come_before_those_of_the_request() -> None:
    """D72: the first that is false ends it."""
    cluster = cluster_of(slice_of("s", [device("a", attributes={"k": "x"})]))
    cluster.devices(claim(request("r0", "nic", "k=x")))
    assert cluster.selectors.asked == [(f"driver={NIC}", "a")]


@pytest.mark.parametrize(
    ("wish", "text"),
    [
        (request("r0", "bad"), "class bad: selector #0: CEL runtime error: no such key: fails"),
        (
            request("r0", "gpu", f"driver={GPU}", "k=x"),
            "claim ns/c0: selector #1: CEL runtime error: no such key: k",
        ),
    ],
)
def test_a_selector_that_fails_ends_the_attempt(wish: Json, text: str) -> None:
    """D75."""
    with pytest.raises(AttemptError) as caught:
        cluster_of(slice_of("s", ["a"])).search(claim(wish))
    assert str(caught.value) == text


def test_a_device_that_the_search_does_not_reach_cannot_fail() -> None:
    """D75."""
    cluster = cluster_of(slice_of("s", [device("a", attributes={"k": "x"}), "b"]))
    assert cluster.devices(claim(request("r0", "gpu", "k=x"))) == [["a"]]


def test_each_device_of_a_slice_may_say_for_itself_which_node_reaches_it() -> None:
    """D41."""
    cluster = cluster_of(
        slice_of("s", [device("a", nodeName="n2"), device("b", nodeName="n1")], perDeviceNodeSelection=True)
    )
    assert cluster.devices(claim(request())) == [["b"]]
    assert cluster.devices(claim(request()), node=N2) == [["a"]]


# ── pools that are no good ──


def test_an_incomplete_pool_is_passed_over() -> None:
    """D77."""
    cluster = cluster_of(slice_of("s", ["a"], count=2), slice_of("t", ["b"], pool="other"))
    assert cluster.devices(claim(request())) == [["b"]]


def test_a_node_with_an_invalid_pool_says_so_if_nothing_is_found() -> None:
    """D77."""
    cluster = cluster_of(slice_of("s", ["a", "a"]), slice_of("t", ["b"], pool="other"))
    assert cluster.devices(claim(request())) == [["b"]]
    assert cluster.search(claim(request(count=2))).refusal == INVALID_POOLS


@pytest.mark.parametrize(
    ("devices", "count", "why"), [(["a"], 2, "being updated"), (["a", "a"], 1, "invalid")]
)
def test_a_request_for_all_needs_all_pools_in_order(devices: list[str], count: int, why: str) -> None:
    """D75."""
    with pytest.raises(AttemptError) as caught:
        cluster_of(slice_of("s", devices, count=count)).search(claim(request(**ALL)))
    expected = f"claim ns/c0, request r0: asks for all devices, but resource pool {GPU}/n1 is currently {why}"
    assert str(caught.value) == expected


# ── all devices ──


def test_all_means_every_device_that_matches() -> None:
    """D83: one that is taken or tainted spoils it, and none is not enough."""
    tainted = device("c", taints=[{"key": "k", "effect": "NoSchedule"}])
    cluster = cluster_of(slice_of("s", ["a", "b"]))
    assert cluster.devices(claim(request(**ALL))) == [["a", "b"]]
    assert cluster.devices(claim(request("r0", "nic", **ALL))) is None
    assert cluster_of(slice_of("s", ["a", tainted])).devices(claim(request(**ALL))) is None
    cluster.allocations = in_use("b")
    assert cluster.devices(claim(request(**ALL))) is None


def test_all_devices_and_a_constraint_that_does_not_hold_end_the_attempt() -> None:
    """D75, D83."""
    cluster = cluster_of(
        slice_of("s", [device("a", attributes={"k": "x"}), device("b", attributes={"k": "y"})])
    )
    with pytest.raises(AttemptError) as caught:
        cluster.search(claim(request(**ALL), constraints=[{"matchAttribute": f"{GPU}/k"}]))
    assert str(caught.value) == (
        f"claim ns/c0, request r0: cannot add device {GPU}/n1/b "
        "because a claim constraint would not be satisfied"
    )


# ── limits ──


def test_a_claim_has_at_most_32_devices() -> None:
    """D57, D75."""
    cluster = cluster_of(slice_of("s", [f"d{number:02}" for number in range(40)]))
    assert cluster.devices(claim(request(count=32))) is not None
    for wishes, number in (
        ((request(count=33),), 33),
        ((request("a", count=20), request("b", count=13)), 33),
    ):
        with pytest.raises(AttemptError) as caught:
            cluster.search(claim(*wishes))
        text = f"claim ns/c0: number of requested devices {number} exceeds the claim limit of 32"
        assert str(caught.value) == text


def test_an_alternative_with_too_many_devices_gives_way_to_the_next() -> None:
    """D84."""
    cluster = cluster_of(slice_of("s", [f"d{number:02}" for number in range(40)]))
    found = cluster.search(claim(request(count=30), one_of("r1", wanted(count=5), wanted(count=2))))
    assert found.allocations is not None
    assert found.alternatives == {(0, 1): 1}


def test_a_search_that_takes_too_long_ends() -> None:
    """D92: after as many devices as one looks at in that time."""
    cluster = cluster_of(slice_of("s", [f"d{number}" for number in range(9)]))
    wishes = claim(*(request(f"r{number}") for number in range(10)))
    inventory = Inventory(cluster.slices)
    allocator = Allocator(CLASSES, inventory, cluster.allocations, cluster.selectors, most_steps=1000)
    assert allocator.allocate(N1, [wishes]).refusal == "node n1: timed out trying to allocate devices"


# ── alternatives ──


def test_the_first_alternative_that_can_be_had_is_taken() -> None:
    """D84."""
    cluster = cluster_of(slice_of("s", ["a", "b"]))
    found = cluster.search(claim(one_of("r0", wanted(count=3), wanted(count=2))))
    assert found.allocations is not None
    assert [one["request"] for one in found.allocations[0]["devices"]["results"]] == ["r0/s1", "r0/s1"]


def test_an_earlier_request_takes_another_device_before_an_alternative_is_given_up() -> None:
    """D84."""
    cluster = cluster_of(
        slice_of("s", [device("a", attributes={"k": "x"}), device("b", attributes={"k": "y"})])
    )
    found = cluster.devices(claim(request("r0"), one_of("r1", wanted("gpu", "k=x"), wanted("gpu", "k=y"))))
    assert found == [["a", "b"]]
    swapped = claim(one_of("r0", wanted("gpu"), wanted("gpu", "k=y")), request("r1", "gpu", "k=x"))
    assert cluster.search(swapped).alternatives == {(0, 0): 0}


# ── constraints ──

KINDS = {"a": "x", "b": "y", "c": "x", "d": "z"}


def kinds() -> list[Json]:
    return [device(name, attributes={"k": kind}) for name, kind in KINDS.items()]


def test_match_attribute_wants_one_value() -> None:
    """D81."""
    cluster = cluster_of(slice_of("s", [device("0"), *kinds()]))
    assert cluster.devices(claim(request(count=2), constraints=[{"matchAttribute": f"{GPU}/k"}])) == [
        ["a", "c"]
    ]


@pytest.mark.parametrize(
    ("values", "is_match"),
    [
        (({"string": "1"}, {"string": "1"}), True),
        (({"string": "1"}, {"int": 1}), False),
        (({"int": 1}, {"bool": True}), False),
        (({"version": "1.2.3+a"}, {"version": "1.2.3+b"}), False),
    ],
)
def test_values_match_if_type_and_text_are_the_same(values: tuple[Json, Json], *, is_match: bool) -> None:
    """D81."""
    devices = [device(str(at), attributes={"k": value}) for at, value in enumerate(values)]
    found = cluster_of(slice_of("s", devices)).devices(
        claim(request(count=2), constraints=[{"matchAttribute": f"{GPU}/k"}])
    )
    assert (found is not None) is is_match


def test_an_attribute_without_domain_is_the_drivers() -> None:
    """D46: with both there, the one with the domain counts."""
    plain, full = device("a", attributes={"k": "x"}), device("b", attributes={f"{GPU}/k": "x", "k": "y"})
    both = claim(request(count=2), constraints=[{"matchAttribute": f"{GPU}/k"}])
    assert cluster_of(slice_of("s", [plain, full])).devices(both) == [["a", "b"]]
    elsewhere = claim(request(), constraints=[{"matchAttribute": f"{NIC}/k"}])
    assert cluster_of(slice_of("s", [plain])).devices(elsewhere) is None


@pytest.mark.parametrize(
    ("named", "expected"), [(["r0", "r1/s0"], ["a", "c"]), (["r0", "r1"], ["a", "c"]), (["r0"], ["a", "b"])]
)
def test_a_constraint_is_about_the_requests_that_it_names(named: list[str], expected: list[str]) -> None:
    """D81: a list is meant with all its alternatives, or one of them alone."""
    cluster = cluster_of(slice_of("s", kinds()))
    constraint = {"matchAttribute": f"{GPU}/k", "requests": named}
    assert cluster.devices(claim(request("r0"), one_of("r1", wanted()), constraints=[constraint])) == [
        expected
    ]


def test_with_both_attributes_given_devices_have_to_match() -> None:
    """D56."""
    constraint = {"matchAttribute": f"{GPU}/k", "distinctAttribute": f"{GPU}/k"}
    cluster = cluster_of(slice_of("s", kinds()))
    assert cluster.devices(claim(request(count=2), constraints=[constraint])) == [["a", "c"]]


def test_distinct_attribute_wants_different_values() -> None:
    """D82."""
    cluster = cluster_of(slice_of("s", kinds()))
    wishes = [request(f"r{number}") for number in range(3)]
    assert cluster.devices(claim(*wishes, constraints=[{"distinctAttribute": f"{GPU}/k"}])) == [
        ["a", "b", "d"]
    ]


def test_within_one_request_only_the_latest_value_is_remembered() -> None:
    """D82: and the result says so."""
    cluster = cluster_of(slice_of("s", kinds()))
    wish = claim(request(count=3), constraints=[{"distinctAttribute": f"{GPU}/k"}])
    assert cluster.devices(wish) == [["a", "b", "c"]]
    assert cluster.search(wish).bugs == ("D82",)
    assert cluster.devices(wish, like=AS_DOCUMENTED) == [["a", "b", "d"]]
