"""The scheduler with claims over a registry: who waits, who gets which device, what is written and said."""

from __future__ import annotations

from typing import Any

from devplug.dra.objects import FINALIZER
from devplug.k8s.objects import entries, fields, text
from devplug.sandbox.controllers.scheduler import Scheduler
from devplug.sandbox.registry import (
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Registry,
)
from tests.sandbox.controllers.beds import (
    WIDGET,
    Clock,
    add_node,
    add_pod,
    new_registry,
    running,
    settled,
    told,
)
from tests.waiting import until

DRIVER, CLASS = "gpu.example.com", "gpu"


def add_class(registry: Registry, name: str = CLASS, **spec: Any) -> None:
    registry.create(DEVICE_CLASSES, "", {"metadata": {"name": name}, "spec": spec})


def add_slice(registry: Registry, node: str, *devices: Any, **more: Any) -> None:
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [one if isinstance(one, dict) else {"name": one} for one in devices],
        **more,
    }
    registry.create(RESOURCE_SLICES, "", {"metadata": {"name": f"slice-{node}"}, "spec": spec})


def add_claim(registry: Registry, name: str, *alternatives: str, selector: str = "") -> None:
    asked: Any = {"deviceClassName": CLASS}
    if selector:
        asked["selectors"] = [{"cel": {"expression": selector}}]
    request: Any = {"name": "gpu", "exactly": asked}
    if alternatives:
        listed = [{"name": f"s{at}", "deviceClassName": one} for at, one in enumerate(alternatives)]
        request = {"name": "gpu", "firstAvailable": listed}
    spec = {"devices": {"requests": [request]}}
    registry.create(RESOURCE_CLAIMS, "default", {"metadata": {"name": name}, "spec": spec})


def add_user(registry: Registry, name: str, *claims: str, **spec: Any) -> Any:
    """Return a pod that names these claims."""
    listed = [{"name": f"k{at}", "resourceClaimName": one} for at, one in enumerate(claims)]
    return add_pod(registry, name, resourceClaims=listed, **spec)


def claim(registry: Registry, name: str) -> Any:
    return registry.get(RESOURCE_CLAIMS, "default", name)


def devices(registry: Registry, name: str) -> list[str]:
    results = entries(fields(claim(registry, name), "status", "allocation", "devices"), "results")
    return [text(one, "device") for one in results]


def node_of(registry: Registry, name: str) -> str:
    return text(registry.find(PODS, "default", name), "spec", "nodeName")


def conditions(registry: Registry, name: str) -> list[Any]:
    return list(entries(registry.get(PODS, "default", name), "status", "conditions"))


def message(registry: Registry, name: str) -> str:
    return next((text(one, "message") for one in conditions(registry, name)), "")


def bed(*names: Any, clock: Clock | None = None) -> Registry:
    """Return a registry with one node, these devices on it, and a class of all devices."""
    registry = new_registry(clock)
    add_node(registry)
    add_class(registry)
    add_slice(registry, "worker-0", *names)
    return registry


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


# ── extended resources ──


async def test_a_class_serves_an_extended_resource_through_a_claim_that_the_scheduler_makes() -> None:
    """D91."""
    registry = new_registry()
    add_node(registry)
    add_class(registry, extendedResourceName=WIDGET)
    add_slice(registry, "worker-0", "gpu-0", "gpu-1")
    pod = add_pod(registry, "p", {WIDGET: "2"})
    async with running(Scheduler(registry)):
        await until(lambda: node_of(registry, "p"))
    told_of: Any = registry.get(PODS, "default", "p")["status"]
    extended = told_of["extendedResourceClaimStatus"]
    assert extended["requestMappings"] == [
        {"containerName": "c", "resourceName": WIDGET, "requestName": "container-0-request-0"}
    ]
    made = claim(registry, extended["resourceClaimName"])
    assert made["metadata"]["name"].startswith("p-extended-resources-")
    assert made["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert made["metadata"]["finalizers"] == [FINALIZER]
    assert devices(registry, made["metadata"]["name"]) == ["gpu-0", "gpu-1"]


async def test_a_node_with_a_device_plugin_gives_the_resource_itself() -> None:
    """D91."""
    registry = new_registry()
    add_node(registry, amounts={WIDGET: "2"})
    add_class(registry, extendedResourceName=WIDGET)
    add_pod(registry, "p", {WIDGET: "2"})
    add_pod(registry, "q", {WIDGET: "1"})
    async with running(Scheduler(registry)):
        await until(lambda: node_of(registry, "p") or node_of(registry, "q"))
        await settled(registry)
    assert not registry.all(RESOURCE_CLAIMS)
    assert sum(bool(node_of(registry, name)) for name in "pq") == 1


# ── binding conditions ──

NIC: Any = {
    "name": "nic-0",
    "bindingConditions": ["demo.example.com/attached"],
    "bindingFailureConditions": ["demo.example.com/failed"],
}
PENDING = "Normal BindingConditionsPending waiting for binding conditions for device on node worker-0"

FAILED = (
    'Warning FailedScheduling running PreBind plugin "DynamicResources": device binding failed: '
    'claim=c, reason=Done, message="by the driver"'
)
CLEARED = (
    "Warning FailedScheduling 0/1 nodes are available: 1 resourceclaim not available on the node. "
    "deallocation of ResourceClaim completed, preemption: 0/1 nodes are available: 1 Preemption is "
    "not helpful for scheduling."
)


def report(registry: Registry, name: str, condition: str) -> None:
    """What a driver does."""
    met = {"type": f"demo.example.com/{condition}", "status": "True", "reason": "Done"}
    met |= {"message": "by the driver", "lastTransitionTime": "2026-11-21T00:00:00Z"}
    device = {"driver": DRIVER, "pool": "worker-0", "device": "nic-0", "conditions": [met]}
    status = {**claim(registry, name)["status"], "devices": [device]}
    registry.set_status(RESOURCE_CLAIMS, "default", name, status)


async def pass_seconds(registry: Registry, clock: Clock, seconds: float) -> None:
    """Let the clock jump, and the scheduler look at it: a new claim wakes it."""
    clock.passed += seconds
    add_claim(registry, f"other-{clock.passed:.0f}")
    await settled(registry)


async def test_a_pod_is_bound_when_its_devices_are_ready() -> None:
    """D90: the scheduler looks every 5 s; the pod has no condition meanwhile."""
    clock = Clock()
    registry = bed(NIC, clock=clock)
    add_claim(registry, "c")
    add_user(registry, "p", "c")
    async with running(Scheduler(registry, seconds=clock.seconds)):
        await until(lambda: told(registry, "p"))
        assert told(registry, "p") == [PENDING]
        assert not conditions(registry, "p")
        report(registry, "c", "attached")
        await settled(registry)
        assert not node_of(registry, "p")
        await pass_seconds(registry, clock, 5)
    assert node_of(registry, "p") == "worker-0"
    assert told(registry, "p")[1].startswith("Normal Scheduled ")


async def test_devices_that_fail_to_be_bound_are_given_back_and_allocated_again() -> None:
    """D90: the events in the order of the recording."""
    clock = Clock()
    registry = bed(NIC, clock=clock)
    add_claim(registry, "c")
    add_user(registry, "p", "c")
    async with running(Scheduler(registry, seconds=clock.seconds)):
        await until(lambda: told(registry, "p"))
        report(registry, "c", "failed")
        await pass_seconds(registry, clock, 5)
        (found,) = conditions(registry, "p")
        assert found["reason"] == "SchedulerError"
        await pass_seconds(registry, clock, 1)
        await pass_seconds(registry, clock, 2)
        assert told(registry, "p") == [
            PENDING,
            FAILED,
            CLEARED,
            PENDING,
        ]
    assert devices(registry, "c") == ["nic-0"]


async def test_a_pod_waits_for_its_devices_ten_minutes_at_most() -> None:
    """D90."""
    clock = Clock()
    registry = bed(NIC, clock=clock)
    add_claim(registry, "c")
    add_user(registry, "p", "c")
    async with running(Scheduler(registry, seconds=clock.seconds)):
        await until(lambda: told(registry, "p"))
        await pass_seconds(registry, clock, 601)
    assert message(registry, "p") == 'running PreBind plugin "DynamicResources": device binding timeout'
