"""The scheduler with claims over a registry: who waits, who gets which device, what is written and said."""

from __future__ import annotations

import pytest

from devplug.dra.objects import FINALIZER
from devplug.k8s.objects import fields, text
from devplug.sandbox.controllers.scheduler import Scheduler
from devplug.sandbox.registry import DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.sandbox.controllers.beds import Clock, add_node, add_pod, new_registry, running, settled, told
from tests.sandbox.controllers.devices import (
    CLASS,
    DRIVER,
    add_claim,
    add_class,
    add_slice,
    add_user,
    bed,
    claim,
    conditions,
    devices,
    message,
    node_of,
)
from tests.waiting import until

NO_DEVICE = (
    "0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: "
    "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
)


async def test_a_claim_is_allocated_and_reserved_before_its_pod_is_bound() -> None:
    """D89, D99: the finalizer, then allocation, time and reservation, then the node."""
    registry = bed("gpu-0")
    add_claim(registry, "c")
    pod = add_user(registry, "p", "c")
    async with running(Scheduler(registry)):
        await until(lambda: node_of(registry, "p"))
    found = claim(registry, "c")
    assert found["metadata"]["finalizers"] == [FINALIZER]
    assert devices(registry, "c") == ["gpu-0"]
    assert found["status"]["allocation"]["allocationTimestamp"] == "2026-11-21T00:00:00Z"
    owner = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
    assert found["status"]["reservedFor"] == [owner]
    bound = text(registry.get(PODS, "default", "p"), "metadata", "resourceVersion")
    assert int(found["metadata"]["resourceVersion"]) < int(bound)


async def test_a_pod_whose_claim_is_missing_waits_without_a_word_until_it_comes() -> None:
    """D62, D92."""
    registry = bed("gpu-0")
    add_user(registry, "p", "c")
    async with running(Scheduler(registry)):
        await settled(registry)
        assert not conditions(registry, "p")
        assert not told(registry, "p")
        add_claim(registry, "c")
        await until(lambda: node_of(registry, "p"))


async def test_a_pod_is_woken_when_its_generated_claim_is_told() -> None:
    """D60, D92: the event on the pod's status."""
    registry = bed("gpu-0")
    listed = [{"name": "k", "resourceClaimTemplateName": "t"}]
    add_pod(registry, "p", resourceClaims=listed)
    async with running(Scheduler(registry)):
        add_claim(registry, "p-k-x")
        await settled(registry)
        assert not node_of(registry, "p")
        status = fields(registry.get(PODS, "default", "p"), "status")
        made = [{"name": "k", "resourceClaimName": "p-k-x"}]
        registry.set_status(PODS, "default", "p", {**status, "resourceClaimStatuses": made})
        await until(lambda: node_of(registry, "p"))
    assert devices(registry, "p-k-x") == ["gpu-0"]


async def test_a_pod_that_finds_no_device_is_told_the_recorded_sentence_and_woken_by_a_slice() -> None:
    """D76, D92."""
    registry = new_registry()
    add_node(registry)
    add_class(registry)
    add_claim(registry, "c")
    add_user(registry, "p", "c")
    async with running(Scheduler(registry)):
        await until(lambda: told(registry, "p"))
        assert told(registry, "p") == [f"Warning FailedScheduling {NO_DEVICE}"]
        assert message(registry, "p") == NO_DEVICE
        add_slice(registry, "worker-0", "gpu-0")
        await until(lambda: node_of(registry, "p"))


async def test_a_deleted_claim_causes_no_further_attempt() -> None:
    """SP/dynamicresources.go EventsToRegister: only new and changed claims make a pod schedulable."""
    registry, clock = new_registry(), Clock()
    add_node(registry)
    add_class(registry)
    add_claim(registry, "c")
    add_user(registry, "p", "c")
    async with running(Scheduler(registry, seconds=clock.seconds)):
        await until(lambda: told(registry, "p"))
        registry.delete(RESOURCE_CLAIMS, "default", "c")
        clock.passed = 100
        add_claim(registry, "d")
        add_user(registry, "other", "d")
        await until(lambda: told(registry, "other"))
        assert told(registry, "p") == [f"Warning FailedScheduling {NO_DEVICE}"]


async def test_a_pod_is_woken_by_the_class_that_its_claim_names() -> None:
    """D76, D92: before any node is looked at, so that nothing is to be deallocated."""
    registry = new_registry()
    add_node(registry)
    add_slice(registry, "worker-0", "gpu-0")
    add_claim(registry, "c")
    add_user(registry, "p", "c")
    async with running(Scheduler(registry)):
        await until(lambda: told(registry, "p"))
        assert message(registry, "p") == (
            "0/1 nodes are available: request gpu: device class gpu does not exist. no new claims to "
            "deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        )
        add_class(registry)
        await until(lambda: node_of(registry, "p"))


async def test_a_pod_is_woken_when_another_claim_is_released() -> None:
    """D79, D92: the device is in use as long as the other claim has it."""
    registry = bed("gpu-0")
    for name in ("first", "second"):
        add_claim(registry, name)
    add_user(registry, "one", "first")
    async with running(Scheduler(registry)):
        await until(lambda: node_of(registry, "one"))
        add_user(registry, "two", "second")
        await until(lambda: told(registry, "two"))
        registry.update(
            RESOURCE_CLAIMS, "default", "first", lambda old: {**old, "status": {}}, part_name="status"
        )
        await until(lambda: node_of(registry, "two"))


async def test_pods_that_share_a_claim_follow_it_to_its_node() -> None:
    """D89, D23."""
    registry = bed("gpu-0")
    add_node(registry, "worker-1", amounts={"cpu": "64", "memory": "64Gi"})
    add_claim(registry, "c")
    names = [f"p{number}" for number in range(3)]
    for name in names:
        add_user(registry, name, "c")
    async with running(Scheduler(registry)):
        await until(lambda: all(node_of(registry, name) for name in names))
    assert {node_of(registry, name) for name in names} == {"worker-0"}
    assert len(claim(registry, "c")["status"]["reservedFor"]) == 3


async def test_the_node_of_the_first_alternative_wins() -> None:
    """D84: though the other node is the larger one."""
    pytest.importorskip("cel_expr_python")
    registry = new_registry()
    for number, kind in enumerate(("best", "second")):
        add_node(registry, f"worker-{number}", amounts={"cpu": f"{2 + 8 * number}", "memory": "16Gi"})
        add_class(
            registry,
            kind,
            selectors=[{"cel": {"expression": f"device.attributes['{DRIVER}'].kind == '{kind}'"}}],
        )
        add_slice(registry, f"worker-{number}", {"name": "d", "attributes": {"kind": {"string": kind}}})
    add_claim(registry, "c", "best", "second")
    add_user(registry, "p", "c")
    async with running(Scheduler(registry)):
        await until(lambda: node_of(registry, "p"))
    assert node_of(registry, "p") == "worker-0"


async def test_an_unused_allocation_that_keeps_a_pod_from_its_node_is_cleared() -> None:
    """D89: the event says so, and the pod is tried again."""
    registry = bed("gpu-0")
    add_node(registry, "worker-1")
    add_slice(registry, "worker-1", "gpu-1")
    add_claim(registry, "c")
    clock = Clock()
    async with running(Scheduler(registry, seconds=clock.seconds)):
        add_user(registry, "old", "c", nodeSelector={"kubernetes.io/hostname": "worker-0"})
        await until(lambda: node_of(registry, "old"))
        registry.delete(PODS, "default", "old", grace_seconds=0)
        status = {**claim(registry, "c")["status"], "reservedFor": []}
        registry.set_status(RESOURCE_CLAIMS, "default", "c", status)
        add_user(registry, "new", "c", nodeSelector={"kubernetes.io/hostname": "worker-1"})
        await until(lambda: node_of(registry, "new"))
    (refused, _) = told(registry, "new")
    assert "1 resourceclaim not available on the node" in refused
    assert "deallocation of ResourceClaim completed, preemption:" in refused
    assert devices(registry, "c") == ["gpu-1"]


async def test_an_error_of_a_selector_ends_the_attempt() -> None:
    """D75."""
    pytest.importorskip("cel_expr_python")
    registry = bed("gpu-0")
    add_claim(registry, "c", selector="device.attributes['x'].y == 1")
    add_user(registry, "p", "c")
    async with running(Scheduler(registry)):
        await until(lambda: told(registry, "p"))
    (found,) = conditions(registry, "p")
    assert found["reason"] == "SchedulerError"
    assert found["message"] == (
        'running "DynamicResources" filter plugin: claim default/c: selector #0: CEL runtime error: '
        "no such key: y"
    )


# ── what looks like mistakes of Kubernetes 1.36 ──


async def test_an_allocation_that_a_later_release_may_not_make_is_told_in_an_event() -> None:
    """D82: within one request only the latest value is remembered: x, y, x are distinct."""
    kinds = [{"name": f"d{at}", "attributes": {"k": {"string": k}}} for at, k in enumerate("xyxz")]
    registry = bed(*kinds)
    requests = [{"name": "gpu", "exactly": {"deviceClassName": CLASS, "count": 3}}]
    spec = {"devices": {"requests": requests, "constraints": [{"distinctAttribute": f"{DRIVER}/k"}]}}
    registry.create(RESOURCE_CLAIMS, "default", {"metadata": {"name": "c"}, "spec": spec})
    add_user(registry, "p", "c")
    async with running(Scheduler(registry)):
        await until(lambda: node_of(registry, "p"))
    assert devices(registry, "c") == ["d0", "d1", "d2"]
    assert told(registry, "p")[0] == (
        "Normal AllocatedLikeKubernetes136 the devices were chosen as Kubernetes 1.36 chooses them, which "
        "looks like a mistake of that release (D82); a later one may choose others"
    )


async def test_a_refusal_that_a_later_release_may_not_make_is_told_in_an_event() -> None:
    """D85: the first device is refused for its taint, and keeps the counters that the second one needs."""
    registry = new_registry()
    add_node(registry)
    add_class(registry)
    amount = {"memory": {"value": "40Gi"}}
    consumed = {"consumesCounters": [{"counterSet": "set", "counters": amount}]}
    taints = [{"key": "k", "effect": "NoSchedule"}]
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 2}
    bad, good = {"name": "bad", "taints": taints, **consumed}, {"name": "good", **consumed}
    add_slice(registry, "worker-0", bad, good, pool=pool)
    spec = {"driver": DRIVER, "nodeName": "worker-0", "pool": pool}
    counters = [{"name": "set", "counters": amount}]
    counted = {"metadata": {"name": "counters"}, "spec": {**spec, "sharedCounters": counters}}
    registry.create(RESOURCE_SLICES, "", counted)
    add_claim(registry, "c")
    add_user(registry, "p", "c")
    async with running(Scheduler(registry)):
        await until(lambda: len(told(registry, "p")) == 2)
    refused, mistake = told(registry, "p")
    assert refused == f"Warning FailedScheduling {NO_DEVICE}"
    assert mistake == (
        "Normal RefusedLikeKubernetes136 a node was refused as Kubernetes 1.36 refuses it, which looks like "
        "a mistake of that release (D85a); a later one may find devices there"
    )


async def test_a_device_that_a_rule_taints_is_allocated_once_the_rule_is_gone() -> None:
    registry = bed("gpu-0")
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    selector = {"driver": DRIVER, "device": "gpu-0"}
    rule = {"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": taint}}
    registry.create(DEVICE_TAINT_RULES, "", rule)
    add_claim(registry, "c")
    add_user(registry, "p", "c")
    async with running(Scheduler(registry)):
        await until(lambda: told(registry, "p"))
        assert message(registry, "p") == NO_DEVICE
        registry.delete(DEVICE_TAINT_RULES, "", "r")
        await until(lambda: node_of(registry, "p"))
