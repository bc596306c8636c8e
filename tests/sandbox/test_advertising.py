"""Counts without a plugin: which patch sets or removes them, and what is told of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.objects import Object, part
from devplug.sandbox.advertising import (
    Advertisement,
    AdvertisementError,
    advertisement_of,
    changes,
    counted_by_kubelet,
    lines,
    served,
)
from devplug.sandbox.api.patch import json_patched

WIDGET = "example.com/widget"


def a_node(capacity: dict[str, str] | None = None, allocatable: dict[str, str] | None = None) -> Object:
    status = {"capacity": capacity, "allocatable": allocatable}
    return {"status": {name: amounts for name, amounts in status.items() if amounts is not None}}


# ── the patch ──


def test_a_new_resource_is_added_to_capacity_alone() -> None:
    assert changes(a_node({"cpu": "1"}, {"cpu": "1"}), Advertisement({WIDGET: 2})) == [
        {"op": "add", "path": "/status/capacity/example.com~1widget", "value": "2"}
    ]


def test_a_node_without_any_capacity_gets_the_map_too() -> None:
    assert changes(a_node(), Advertisement({WIDGET: 2})) == [
        {"op": "add", "path": "/status/capacity", "value": {WIDGET: "2"}}
    ]


def test_what_is_as_wished_is_not_patched() -> None:
    assert changes(a_node({WIDGET: "2"}), Advertisement({WIDGET: 2}, ("example.com/gone",))) == []


def test_removal_also_takes_what_a_departed_plugin_left_in_allocatable() -> None:
    assert changes(a_node({WIDGET: "2"}, {WIDGET: "0"}), Advertisement({}, (WIDGET,))) == [
        {"op": "remove", "path": "/status/capacity/example.com~1widget"},
        {"op": "remove", "path": "/status/allocatable/example.com~1widget"},
    ]


NAMES = st.sampled_from(["example.com/a", "example.com/b", "example.com/c", "cpu"])
AMOUNTS = st.dictionaries(NAMES, st.integers(0, 3).map(str))
SET = st.dictionaries(NAMES.filter(lambda name: name != "cpu"), st.integers(0, 3))


@given(AMOUNTS, AMOUNTS, SET, st.sets(NAMES.filter(lambda name: name != "cpu")))
def test_the_patched_node_is_as_wished_and_nothing_else_has_changed(
    capacity: dict[str, str], allocatable: dict[str, str], counts: dict[str, int], removed: set[str]
) -> None:
    wish = Advertisement(counts, tuple(removed - counts.keys()))
    patched = json_patched(a_node(capacity, allocatable), changes(a_node(capacity, allocatable), wish))
    wanted = {name: count for name, count in capacity.items() if name not in wish.removed}
    wanted |= {name: str(count) for name, count in counts.items()}
    assert part(patched, "status", "capacity") == wanted
    left = {name: count for name, count in allocatable.items() if name not in wish.removed}
    assert part(patched, "status", "allocatable") == left
    assert isinstance(patched, dict)
    assert changes(patched, wish) == []


# ── what is told ──


def test_each_change_is_told_on_a_line() -> None:
    node = a_node({"example.com/a": "1", "example.com/b": "4", "example.com/c": "2"})
    wish = advertisement_of(
        [f"{WIDGET}=2", "example.com/a=3", "example.com/b=4"], ["example.com/c", "example.com/d"]
    )
    assert lines("worker-0", node, wish) == [
        "worker-0: example.com/widget 0 -> 2",
        "worker-0: example.com/a 1 -> 3",
        "worker-0: example.com/b stays 4",
        "worker-0: example.com/c 2 -> removed",
        "worker-0: example.com/d is not there",
    ]


def written(manager: str, capacity: list[str], condition: str) -> Object:
    """An entry of managedFields, as the API server has it for who wrote to a node's status."""
    status: Object = {"f:capacity": {f"f:{name}": {} for name in capacity}}
    conditions: Object = {f'k:{{"type":"{condition}"}}': {"f:status": {}}}
    return {"manager": manager, "fieldsV1": {"f:status": {**status, "f:conditions": conditions}}}


@pytest.mark.parametrize("kubelet", ["kubelet", "k3s"])
def test_the_kubelet_counts_what_it_was_the_last_to_write(kubelet: str) -> None:
    entries = [written(kubelet, ["cpu", WIDGET], "Ready"), written("kubectl", ["example.com/a"], "Other")]
    assert counted_by_kubelet({"metadata": {"managedFields": entries}}) == {"cpu", WIDGET}
    assert counted_by_kubelet({}) == frozenset()


@pytest.mark.parametrize(
    ("capacity", "allocatable", "counted", "is_served"),
    [
        ("2", "2", {WIDGET}, True),
        ("2", "0", set(), True),
        ("2", "2", set(), False),
        ("0", "0", {WIDGET}, False),
    ],
    ids=["counted by the kubelet", "partly Unhealthy", "advertised", "gone"],
)
def test_a_count_that_a_plugin_serves_is_told(
    capacity: str, allocatable: str, counted: set[str], *, is_served: bool
) -> None:
    node = a_node({WIDGET: capacity}, {WIDGET: allocatable})
    for wish in (Advertisement({WIDGET: 3}), Advertisement({}, (WIDGET,))):
        told = served("worker-0", node, wish, counted)
        assert [WIDGET in line for line in told] == [True] * is_served
    assert served("worker-0", node, Advertisement({WIDGET: int(capacity)}), counted) == []


# ── conditions ──


def test_a_condition_is_removed_and_only_that_one() -> None:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "DevicesReady", "status": "False"}]
    node: Object = {"status": {"conditions": conditions}}
    wish = advertisement_of([], ["DevicesReady"], {"DevicesReady"})
    patched = json_patched(node, changes(node, wish))
    assert part(patched, "status", "conditions") == conditions[:1]
    assert isinstance(patched, dict)
    assert lines("n", node, wish) + lines("n", patched, wish) == [
        "n: condition DevicesReady False -> removed",
        "n: condition DevicesReady is not there",
    ]
    assert changes(patched, wish) == []
    with pytest.raises(AdvertisementError):
        advertisement_of([], ["Ready"], {"DevicesReady"})


# ── what is asked for ──


def test_counts_and_removals_are_read() -> None:
    wish = advertisement_of([f"{WIDGET}=2", "a.b/c=0"], ["a.b/d", "a.b/d"])
    assert wish == Advertisement({WIDGET: 2, "a.b/c": 0}, ("a.b/d",))


@pytest.mark.parametrize(
    ("counts", "removed", "words"),
    [
        ([], [], "nothing to do; write vendor.com/kind=2"),
        ([WIDGET], [], f"write {WIDGET}=2, or --remove {WIDGET}"),
        ([f"{WIDGET}="], [], "a whole number, 0 or more"),
        ([f"{WIDGET}=-1"], [], "a whole number, 0 or more"),
        ([f"{WIDGET}=1.5"], [], "a whole number, 0 or more"),
        ([f"{WIDGET}=2k"], [], "a whole number, 0 or more"),
        ([f"{WIDGET}=²"], [], "a whole number, 0 or more"),
        ([f"{WIDGET}={2**63}"], [], "a whole number, 0 or more"),
        (["widget=1"], [], "needs a domain and a kind"),
        (["kubernetes.io/x=1"], [], "Kubernetes keeps for itself"),
        ([], ["cpu"], "needs a domain and a kind"),
        ([f"{WIDGET}=1", f"{WIDGET}=2"], [], "is given two counts"),
        ([f"{WIDGET}=1"], [WIDGET], "is both set and removed"),
    ],
)
def test_what_cannot_be_advertised_is_refused_with_what_to_write(
    counts: list[str], removed: list[str], words: str
) -> None:
    with pytest.raises(AdvertisementError) as refused:
        advertisement_of(counts, removed)
    assert words in str(refused.value)
