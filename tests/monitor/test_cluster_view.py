"""The tables over a cluster, from objects as a real cluster has them."""

from __future__ import annotations

import copy
from typing import Any

from devplug.monitor.cluster_view import NODE_COLUMNS_WIDE, POD_COLUMNS_WIDE, node_counts, pod_devices
from tests.sandbox.jsons import recorded

POD: dict[str, Any] = recorded("65-pod.json")
RESOURCE = "example.com/resource"


def node(**amounts: str) -> dict[str, Any]:
    """A node with `capacity` and `allocatable` of the resource."""
    return {
        "metadata": {"name": "worker-0"},
        "status": {word: {"cpu": "4", RESOURCE: amount} for word, amount in amounts.items()},
    }


def pod(name: str, phase: str = "Running", **metadata: str) -> dict[str, Any]:
    made = copy.deepcopy(POD)
    made["metadata"] |= {"name": name, **metadata}
    made["status"]["phase"] = phase
    return made


def test_a_node_counts_what_its_pods_ask_for_and_not_what_has_ended() -> None:
    pods = [
        pod("b"),
        pod("a", deletionTimestamp="2026-11-21T00:00:00Z"),
        pod("c", "Failed"),
        pod("d", "Succeeded"),
    ]
    (row,) = node_counts([node(capacity="4", allocatable="3")], pods)
    assert row.row() == (
        "worker-0",
        RESOURCE,
        *("4", "3", "2", "1", "1"),
        "yes",
        "default/a (1), default/b (1)",
    )
    assert len(row.row()) == len(NODE_COLUMNS_WIDE)


def test_a_stopped_plugin_leaves_nothing_free_although_a_pod_has_a_device() -> None:
    (row,) = node_counts([node(capacity="2", allocatable="0")], [pod("a")])
    assert (row.requested, row.free, row.unhealthy) == (1, 0, 2)


def test_a_resource_that_only_a_pod_asks_for_is_not_known_to_its_node() -> None:
    (row,) = node_counts(
        [{"metadata": {"name": "worker-0"}, "status": {"capacity": {"cpu": "4"}}}], [pod("a")]
    )
    assert (row.is_known, row.capacity, row.requested) == (False, 0, 1)


def test_a_node_that_does_not_answer_is_not_ready() -> None:
    unheard = node(capacity="1", allocatable="1")
    unheard["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    (row,) = node_counts([unheard], [])
    assert not row.is_ready
    assert row.value()["ready"] is False


def test_a_pod_shows_the_devices_that_its_status_names() -> None:
    (row,) = pod_devices([POD])
    assert row.row() == (
        *("default", "uses-resource", "worker-0", "c", RESOURCE, "1"),
        *("Dev-1", "Healthy", "Running", "-"),
    )
    assert len(row.row()) == len(POD_COLUMNS_WIDE)
    assert row.value()["devices"] == [{"id": "Dev-1", "health": "Healthy"}]


def test_a_cluster_that_tells_no_devices_shows_none_rather_than_nothing_held() -> None:
    silent = pod("a")
    for status in silent["status"]["containerStatuses"]:
        status.pop("allocatedResourcesStatus")
    (row,) = pod_devices([silent])
    assert row.row()[6:8] == ("-", "-")
    assert row.value()["devices"] is None


def test_one_device_that_is_not_healthy_is_the_health_of_all() -> None:
    sick = pod("a")
    told = sick["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"]
    told.append({"resourceID": "Dev-0", "health": "Unhealthy", "message": "hot"})
    (row,) = pod_devices([sick])
    assert (row.row()[6], row.health) == ("Dev-0,Dev-1", "Unhealthy")
    assert row.value()["devices"] == [
        {"id": "Dev-0", "health": "Unhealthy", "message": "hot"},
        {"id": "Dev-1", "health": "Healthy"},
    ]


def test_pods_that_have_ended_hold_nothing() -> None:
    assert pod_devices([pod("a", "Failed"), pod("b", "Succeeded")]) == ()
