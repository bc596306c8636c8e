"""The tables over a cluster, from objects as a real cluster has them."""

from __future__ import annotations

import copy
from typing import Any

from devplug.monitor.cluster_view import NODE_COLUMNS_WIDE, POD_COLUMNS_WIDE, node_counts, pod_devices
from tests.monitor.why.claims import DRIVER, claim, gpus, holding, slice_on
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
        *("Dev-1", "Healthy", "-", "Running", "-", "-"),
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


# ── claims ──


def claiming(name: str = "a", *, request: str = "", **named: str) -> dict[str, Any]:
    """A pod whose container uses the claim `gpu`; `named` says which object that is."""
    made = pod(name)
    used = {"name": "gpu", **({"request": request} if request else {})}
    made["spec"]["containers"] = [{"name": "c", "resources": {"claims": [used]}}]
    made["spec"]["resourceClaims"] = [{"name": "gpu", **(named or {"resourceClaimName": "mine"})}]
    made["status"]["containerStatuses"] = []
    return made


def mine(*devices: str) -> dict[str, Any]:
    return holding("mine", *devices, namespace="default")


def test_a_pod_shows_the_devices_of_its_claims_with_class_claim_and_request() -> None:
    slices = [slice_on("worker-0", *gpus(2))]
    allocated = mine("gpu-0", "gpu-1")
    allocated["status"]["allocation"]["allocationTimestamp"] = "2026-11-23T12:54:53Z"
    (row,) = pod_devices([claiming()], [allocated, claim("other")], slices)
    assert row.row() == (
        *("default", "a", "worker-0", "c", DRIVER, "2"),
        *("gpu-0,gpu-1", "Healthy", "mine/gpu", "Running", "-", "2026-11-23T12:54:53Z"),
    )
    assert row.value()["claim"] == "mine/gpu"


def test_a_claim_that_is_not_allocated_or_cannot_be_read_shows_nothing() -> None:
    assert pod_devices([claiming()], [claim("mine")]) == ()
    assert pod_devices([claiming()]) == ()


def test_a_claim_of_a_template_is_found_by_the_pods_status() -> None:
    made = claiming(resourceClaimTemplateName="t")
    made["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "mine"}]
    (row,) = pod_devices([made], [mine("gpu-0")])
    assert (row.claim, row.health) == ("mine/gpu", "Unknown")


def test_a_container_that_uses_one_request_has_only_its_devices() -> None:
    two = mine("gpu-0")
    more = {"request": "other/small", "driver": DRIVER, "pool": "worker-0", "device": "gpu-1"}
    two["status"]["allocation"]["devices"]["results"].append(more)
    two["spec"]["devices"]["requests"].append(
        {"name": "other", "firstAvailable": [{"name": "small", "deviceClassName": "small.example.com"}]}
    )
    (row,) = pod_devices([claiming(request="other")], [two])
    assert (row.claim, row.resource) == ("mine/other/small", "small.example.com")
    assert [one.claim for one in pod_devices([claiming()], [two])] == ["mine/gpu", "mine/other/small"]


def test_the_health_of_a_claimed_device_is_the_pods_word_and_else_that_of_its_slice() -> None:
    taints = [{"key": "k", "effect": "NoSchedule"}]
    slices = [slice_on("worker-0", *gpus(1, taints=taints))]
    (row,) = pod_devices([claiming()], [mine("gpu-0")], slices)
    assert row.health == "Unhealthy"
    said = claiming()
    told = [{"resourceID": f"k8s.{DRIVER}/claim=u-gpu-0", "health": "Healthy"}]
    status = {"name": "c", "allocatedResourcesStatus": [{"name": "claim:gpu", "resources": told}]}
    said["status"]["containerStatuses"] = [status]
    (row,) = pod_devices([said], [mine("gpu-0")], slices)
    assert row.health == "Healthy"


def test_limits_that_a_claim_serves_show_its_devices_and_count_for_its_driver() -> None:
    limited = pod("a")
    limited["status"]["extendedResourceClaimStatus"] = {
        "resourceClaimName": "mine",
        "requestMappings": [{"containerName": "c", "resourceName": RESOURCE, "requestName": "gpu"}],
    }
    slices = [slice_on("worker-0", *gpus(3))]
    (row,) = pod_devices([limited], [mine("gpu-0")], slices)
    assert (row.resource, row.count, row.claim) == (RESOURCE, 1, "mine/gpu")
    assert [one.id for one in row.devices or ()] == ["gpu-0"]
    (counted,) = node_counts([node()], [limited], [mine("gpu-0")], slices)
    assert counted.row()[:7] == ("worker-0", DRIVER, "3", "3", "1", "2", "0")


def test_a_node_counts_the_devices_of_its_drivers_and_the_claims_that_have_them() -> None:
    old = slice_on("worker-0", *gpus(9))
    new = slice_on("worker-0", *gpus(2), {"name": "gpu-2", "taints": [{"key": "k", "effect": "NoExecute"}]})
    new["spec"]["pool"]["generation"] = 2
    looking = mine("gpu-0")
    looking["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    claims = [holding("c", "gpu-1", "gpu-2"), looking, holding("far", "gpu-0", on="worker-1")]
    (row,) = node_counts([node()], [], claims, [old, new, slice_on("worker-1", *gpus(1))])
    assert (row.resource, row.capacity, row.allocatable, row.unhealthy) == (DRIVER, 3, 2, 1)
    assert (dict(row.pods), row.free) == ({"other/c": 2}, 0)
