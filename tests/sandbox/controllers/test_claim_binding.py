"""The binding of claims: those of extended resources, binding conditions, and what a failure leaves."""

from __future__ import annotations

from typing import Any

from devplug.dra.objects import FINALIZER
from devplug.k8s.objects import entries, text
from devplug.sandbox.controllers.scheduler import Scheduler
from devplug.sandbox.registry import NAMESPACES, PODS, RESOURCE_CLAIMS, Registry
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


# ── what a failed binding leaves ──


def extended_claims(registry: Registry) -> list[str]:
    names = [text(one, "metadata", "name") for one in registry.all(RESOURCE_CLAIMS)]
    return [name for name in names if "-extended-resources-" in name]


async def test_a_claim_of_the_scheduler_s_own_is_deleted_when_its_pod_cannot_be_bound() -> None:
    """D90, D91: the next attempt makes another one, and the device is not kept from it."""
    clock = Clock()
    registry = new_registry(clock)
    add_node(registry)
    add_class(registry, extendedResourceName=WIDGET)
    add_slice(registry, "worker-0", NIC)
    add_pod(registry, "p", {WIDGET: "1"})
    async with running(Scheduler(registry, seconds=clock.seconds)):
        await until(lambda: told(registry, "p"))
        (first,) = extended_claims(registry)
        report(registry, first, "failed")
        await pass_seconds(registry, clock, 5)
        assert extended_claims(registry) == []
        await pass_seconds(registry, clock, 1)
        (second,) = extended_claims(registry)
        assert second != first
        assert devices(registry, second) == ["nic-0"]
        pod: Any = registry.get(PODS, "default", "p")
        assert pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == second


async def test_what_was_reserved_before_a_write_is_refused_is_given_back() -> None:
    """D89, D91: a namespace that ends takes no new claim, so the pod's own is reserved for nothing."""
    registry = bed("gpu-0", "gpu-1")
    add_class(registry, "widget", extendedResourceName=WIDGET)
    registry.create(NAMESPACES, "", {"metadata": {"name": "team"}})
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": CLASS}}]}}
    registry.create(RESOURCE_CLAIMS, "team", {"metadata": {"name": "c"}, "spec": spec})
    named = [{"name": "k", "resourceClaimName": "c"}]
    add_pod(registry, "p", {WIDGET: "1"}, namespace="team", resourceClaims=named)
    registry.delete(NAMESPACES, "", "team")

    def reason() -> str:
        found = entries(registry.get(PODS, "team", "p"), "status", "conditions")
        return next((text(one, "message") for one in found), "")

    async with running(Scheduler(registry)):
        await until(reason)
    assert reason().startswith('running PreBind plugin "DynamicResources": ')
    assert reason().endswith("because it is being terminated")
    found: Any = registry.get(RESOURCE_CLAIMS, "team", "c")
    assert found["status"]["allocation"]
    assert "reservedFor" not in found["status"]
