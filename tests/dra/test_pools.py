"""What a node sees of the slices: pools, their generations, their order, and when they are no good."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.dra.objects import Slice
from devplug.dra.pools import AS_DOCUMENTED, Inventory
from devplug.k8s.node_selectors import Node
from tests.dra.worlds import GPU, N1, N2, NIC, Json, device, slice_of

ZONE_A = {
    "nodeSelector": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    }
}


def seen(*slices: Slice, node: Node = N1) -> list[str]:
    return [place.device.id.device for place in Inventory(slices).view(node).places]


def test_devices_are_ordered_by_driver_pool_slice_and_place() -> None:
    """D74: bytes decide, so the slice s10 stands before s9."""
    found = seen(
        slice_of("s9", ["e", "d"], count=2),
        slice_of("z", ["h"], driver=NIC, pool="a"),
        slice_of("s10", ["c"], count=2),
        slice_of("n", ["b"], pool="a-net", allNodes=True),
    )
    assert found == ["b", "c", "e", "d", "h"]


def test_pools_with_binding_conditions_come_last() -> None:
    """D74."""
    found = seen(
        slice_of("a", [device("x", bindingConditions=["ready"]), "y"], pool="a"),
        slice_of("b", ["z"], pool="b"),
    )
    assert found == ["z", "x", "y"]


@pytest.mark.parametrize(
    ("where", "nodes"),
    [({"nodeName": "n1"}, ["n1"]), ({"allNodes": True}, ["n1", "n2"]), (ZONE_A, ["n1"]), ({}, ["n1"])],
)
def test_a_slice_is_seen_by_the_nodes_that_it_is_for(where: Json, nodes: list[str]) -> None:
    """D41."""
    inventory = Inventory([slice_of("s", ["a"], **where)])
    assert [node.name for node in (N1, N2) if inventory.view(node).places] == nodes


def test_a_slice_may_leave_it_to_each_device_which_nodes_reach_it() -> None:
    """D41: the slice is seen as a whole, and the search looks at each device."""
    one = slice_of("s", [device("a", nodeName="n1"), device("b", allNodes=True)], perDeviceNodeSelection=True)
    assert seen(one, node=N2) == ["a", "b"]


def test_only_slices_of_the_highest_generation_count() -> None:
    """D51."""
    assert seen(slice_of("s", ["old"], generation=1), slice_of("t", ["new"], generation=2)) == ["new"]


def test_a_pool_with_slices_missing_is_incomplete() -> None:
    """D51, D77: it has no devices, and is there for those who ask for all."""
    (pool,) = Inventory([slice_of("s", ["a"], count=2)]).view(N1).pools
    assert pool.is_incomplete
    assert not pool.slices


def test_a_pool_with_more_slices_than_it_says_is_incomplete() -> None:
    """D78."""
    (pool,) = Inventory([slice_of("s", ["a"]), slice_of("t", ["b"])]).view(N1).pools
    assert pool.is_incomplete


def test_slices_on_other_nodes_complete_a_pool() -> None:
    """D51."""
    slices = [slice_of("s", ["a"], count=2), slice_of("t", ["b"], count=2, nodeName="n2")]
    assert seen(*slices) == ["a"]
    assert seen(*slices, node=N2) == ["b"]


def test_an_old_generation_that_is_complete_on_a_node_is_used_there() -> None:
    """D78: 1.36 looks no further; seen from the whole cluster the pool is out of date."""
    slices = [slice_of("s", ["a"]), slice_of("t", ["b"], generation=2, nodeName="n2")]
    view = Inventory(slices).view(N1)
    assert [place.device.id.device for place in view.places] == ["a"]
    assert view.is_disputed
    assert not Inventory(slices).view(N1, AS_DOCUMENTED).places


def test_an_old_generation_that_is_not_complete_on_a_node_is_left_out() -> None:
    """D78."""
    slices = [slice_of("s", ["a"], count=2), slice_of("t", ["b"], generation=2, nodeName="n2")]
    assert not Inventory(slices).view(N1).pools


COUNTERS = {"name": "set", "counters": {"memory": {"value": "40Gi"}}}


def partition(name: str, counter_set: str = "set", counter: str = "memory") -> Json:
    use = {"counterSet": counter_set, "counters": {counter: {"value": "10Gi"}}}
    return device(name, consumesCounters=[use])


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        ([slice_of("s", ["a"], count=2), slice_of("t", ["a"], count=2)], "duplicate device name a"),
        (
            [slice_of("s", [], count=2, nodeName="n1", sharedCounters=[COUNTERS]),
             slice_of("t", [], count=2, nodeName="n1", sharedCounters=[COUNTERS])],
            "duplicate counter set name set",
        ),
        ([slice_of("s", [partition("a")])], "counter set set not found"),
        (
            [slice_of("s", [], count=2, nodeName="n1", sharedCounters=[COUNTERS]),
             slice_of("t", [partition("a", counter="cores")], count=2)],
            "counter cores not found in counter set set",
        ),
    ],
)  # fmt: skip
def test_a_pool_that_contradicts_itself_is_invalid(slices: list[Slice], reason: str) -> None:
    """D77."""
    view = Inventory(slices).view(N1)
    assert [pool.invalid_reason for pool in view.pools] == [reason]
    assert view.has_invalid
    assert not view.places


def test_pools_of_one_name_belong_to_their_drivers() -> None:
    """D51."""
    found = seen(slice_of("s", ["a"]), slice_of("t", ["a"], driver=NIC))
    assert found == ["a", "a"]


def test_a_changed_slice_changes_what_its_node_sees() -> None:
    inventory = Inventory([slice_of("s", ["a"]), slice_of("t", ["b"], pool="n2", nodeName="n2")])
    before = inventory.view(N2)
    assert inventory.view(N1).places
    inventory.put(slice_of("s", ["c"]))
    assert [place.device.id.device for place in inventory.view(N1).places] == ["c"]
    assert inventory.view(N2) is before
    inventory.remove("s")
    assert not inventory.view(N1).pools


@given(st.data())
def test_what_a_node_sees_does_not_depend_on_the_order_of_arrival(data: st.DataObject) -> None:
    """D74, D100: as long as the slices of a pool agree on their number."""
    slices = []
    for number in range(data.draw(st.integers(1, 6))):
        pool = data.draw(st.sampled_from(["n1", "net"]))
        where: Json = {"allNodes": True} if pool == "net" else {"nodeName": "n1"}
        generation = data.draw(st.integers(1, 2))
        driver = data.draw(st.sampled_from([GPU, NIC]))
        slices.append(slice_of(f"s{number}", [f"d{number}"], pool, driver, generation, 2, **where))
    shuffled = data.draw(st.permutations(slices))
    told = Inventory()
    for one in shuffled:
        told.put(one)
        told.view(N1)
    expected = Inventory(slices).view(N1)
    for inventory in (Inventory(shuffled), told):
        found = inventory.view(N1)
        assert [place.device for place in found.places] == [place.device for place in expected.places]
        assert [pool.id for pool in found.pools] == [pool.id for pool in expected.pools]
