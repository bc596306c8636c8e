"""The scheduler over a registry: who is bound, what pods without a node are told, and when they are tried."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from devplug.k8s.objects import entries, part, text
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.controllers.scheduler import (
    Scheduler,
    SchedulingState,
    scheduling_state,
    status_of_waiting,
)
from devplug.sandbox.registry import EVENTS, NODES, PODS, QUOTAS, Registry
from tests.sandbox.controllers.beds import (
    RESOURCE,
    WIDGET,
    Clock,
    add_node,
    add_pod,
    new_registry,
    pod_of,
    running,
    set_allocatable,
    set_pod_status,
    settled,
    told,
)
from tests.sandbox.jsons import printed
from tests.waiting import until

IN_THE_WAY = (
    "0/1 nodes are available: 1 Insufficient {name}. no new claims to deallocate, preemption: "
    "0/1 nodes are available: 1 No preemption victims found for incoming pod."
)
NOT_HELPFUL = IN_THE_WAY.replace(
    "No preemption victims found for incoming pod", "Preemption is not helpful for scheduling"
)


def node_of(registry: Registry, name: str) -> str:
    return text(registry.find(PODS, "default", name), "spec", "nodeName")


def condition(registry: Registry, name: str) -> Any:
    (found,) = entries(registry.get(PODS, "default", name), "status", "conditions")
    return found


async def test_a_pod_is_bound_and_told_so_as_on_a_real_cluster() -> None:
    registry = new_registry()
    add_node(registry, amounts={RESOURCE: "2"})
    add_pod(registry, "uses-resource", {RESOURCE: "1"})
    async with running(Scheduler(registry, host="vm")):
        await until(lambda: node_of(registry, "uses-resource"))
    assert condition(registry, "uses-resource")["status"] == "True"
    (event,) = registry.all(EVENTS)
    assert text(event, "message") in printed("11-describe-running.txt")
    assert text(event, "message") == "Successfully assigned default/uses-resource to worker-0"
    assert text(event, "reportingInstance") == "default-scheduler-vm"
    assert text(event, "action") == "Binding"


async def test_a_pod_that_asks_for_what_is_not_left_is_told_the_recorded_sentence() -> None:
    """Recorded on a real node: 09-events.txt. C99: there it might help if others left."""
    registry = new_registry()
    add_node(registry, amounts={WIDGET: "2"})
    add_pod(registry, "w-one", {WIDGET: "1"}, nodeName="worker-0")
    add_pod(registry, "w-two", {WIDGET: "2"}, nodeSelector={"kubernetes.io/hostname": "worker-0"})
    async with running(Scheduler(registry)):
        await until(lambda: told(registry, "w-two"))
    message = IN_THE_WAY.format(name=WIDGET)
    assert message in printed("09-events.txt")
    assert told(registry, "w-two") == [f"Warning FailedScheduling {message}"]
    assert list(condition(registry, "w-two").items()) == [
        ("type", "PodScheduled"),
        ("observedGeneration", 1),
        ("status", "False"),
        ("lastProbeTime", None),
        ("lastTransitionTime", "2026-11-21T00:00:00Z"),
        ("reason", "Unschedulable"),
        ("message", message),
    ]


async def test_a_pod_that_asks_for_what_nobody_has_is_told_the_recorded_sentence() -> None:
    """Recorded on a real node: 39-unknown-events.txt. C99: more than the node ever has."""
    registry = new_registry()
    add_node(registry)
    add_pod(registry, "unknown", {"nobody.io/thing": "1"})
    async with running(Scheduler(registry)):
        await until(lambda: told(registry, "unknown"))
    message = NOT_HELPFUL.format(name="nobody.io/thing")
    assert message in printed("39-unknown-events.txt")
    assert told(registry, "unknown") == [f"Warning FailedScheduling {message}"]


@pytest.mark.parametrize(
    ("resources", "fault"),
    [
        ({"limits": {RESOURCE: "500m"}}, "must be an integer"),
        ({"requests": {RESOURCE: "1"}}, "Limit must be set for non overcommitable resources"),
        ({"requests": {RESOURCE: "1"}, "limits": {RESOURCE: "2"}}, f"must be equal to {RESOURCE} limit of 2"),
    ],
)
def test_odd_requests_never_come_to_the_scheduler(resources: Any, fault: str) -> None:
    """C100: the registry refuses them."""
    registry = new_registry()
    pod = pod_of("odd")
    pod["spec"]["containers"][0]["resources"] = resources
    with pytest.raises(StatusError, match=fault):
        registry.create(PODS, "default", pod)


@pytest.mark.parametrize("key", [f"requests.{RESOURCE}", f"limits.{RESOURCE}", RESOURCE])
def test_of_a_devices_quota_keys_one_counts(key: str) -> None:
    """C101."""
    registry = new_registry()
    registry.create(QUOTAS, "default", {"metadata": {"name": "q"}, "spec": {"hard": {key: "1"}}})
    add_pod(registry, "first", {RESOURCE: "1"})
    if key.startswith("requests."):
        with pytest.raises(StatusError, match=r"exceeded quota: q, requested: requests\.example"):
            add_pod(registry, "second", {RESOURCE: "1"})
    else:
        add_pod(registry, "second", {RESOURCE: "1"})


async def test_a_pod_is_bound_by_numbers_whatever_the_node_will_say() -> None:
    """C102: that devices are on two NUMA nodes is unknown here; the kubelet refuses the pod after that."""
    registry = new_registry()
    add_node(registry, amounts={RESOURCE: "2"})
    add_pod(registry, "both", {RESOURCE: "2"})
    async with running(Scheduler(registry)):
        await until(lambda: node_of(registry, "both"))
        set_pod_status(registry, "both", phase="Failed", reason="TopologyAffinityError")
        add_pod(registry, "again", {RESOURCE: "2"})
        assert await until(lambda: node_of(registry, "again")) == "worker-0"


async def test_a_pod_gets_its_node_when_devices_come_free_or_appear() -> None:
    registry = new_registry()
    add_node(registry, amounts={RESOURCE: "1"})
    async with running(Scheduler(registry)):
        for name in ("first", "second", "third", "fourth"):
            add_pod(registry, name, {RESOURCE: "1"})
            await until(partial(told, registry, name))
        assert node_of(registry, "first") == "worker-0"
        registry.delete(PODS, "default", "first", grace_seconds=0)
        assert await until(lambda: node_of(registry, "second")) == "worker-0"
        set_pod_status(registry, "second", phase="Succeeded")
        assert await until(lambda: node_of(registry, "third")) == "worker-0"
        set_allocatable(registry, "worker-0", example_com__resource="2")
        assert await until(lambda: node_of(registry, "fourth")) == "worker-0"


async def test_a_pod_that_is_being_deleted_keeps_its_devices_until_it_is_gone() -> None:
    registry = new_registry()
    add_node(registry, amounts={RESOURCE: "1"})
    async with running(Scheduler(registry)):
        add_pod(registry, "first", {RESOURCE: "1"})
        await until(lambda: node_of(registry, "first"))
        add_pod(registry, "second", {RESOURCE: "1"})
        await until(lambda: told(registry, "second"))
        assert not registry.delete(PODS, "default", "first").is_gone
        await settled(registry)
        assert not node_of(registry, "second")
        registry.delete(PODS, "default", "first", grace_seconds=0)
        await until(lambda: node_of(registry, "second"))


async def test_each_try_is_told_and_the_condition_written_once() -> None:
    registry = new_registry()
    add_node(registry, amounts={RESOURCE: "1"})
    async with running(Scheduler(registry)):
        add_pod(registry, "big", {RESOURCE: "2"})
        await until(lambda: told(registry, "big"))
        await settled(registry)
        written = registry.get(PODS, "default", "big")
        add_node(registry, "worker-1", amounts={RESOURCE: "1"}, unschedulable=True)
        await settled(registry)
        assert len(told(registry, "big")) == 1
        for count in range(2, 4):
            # A node that would do, and is full before the pod's turn comes.
            add_pod(registry, f"full-{count}", {RESOURCE: "9"}, nodeName=f"worker-{count}")
            add_node(registry, f"worker-{count}", amounts={RESOURCE: "9"})
            await settled(registry)
        assert len(told(registry, "big")) == 3
        assert registry.get(PODS, "default", "big") != written
        before = registry.get(PODS, "default", "big")
        last = told(registry, "big")[-1].partition("FailedScheduling ")[2]
        for old, new in (("full-2", "full-4"), ("full-4", "full-5")):
            registry.delete(PODS, "default", old, grace_seconds=0)
            add_pod(registry, new, {RESOURCE: "9"}, nodeName="worker-2")
            await settled(registry)
        events = [one for one in registry.all(EVENTS) if text(one, "message") == last]
        # The first is of the pod before its condition was written, so it is no part of the series.
        assert [part(one, "series", "count") for one in events] == [None, 2]
        assert registry.get(PODS, "default", "big") == before


async def test_a_node_that_comes_later_takes_who_waits() -> None:
    registry = new_registry()
    add_pod(registry, "early")
    async with running(Scheduler(registry)):
        await until(lambda: told(registry, "early"))
        assert told(registry, "early") == ["Warning FailedScheduling no nodes available to schedule pods"]
        await settled(registry)
        assert len(told(registry, "early")) == 1
        add_node(registry)
        assert await until(lambda: node_of(registry, "early")) == "worker-0"


async def test_a_cordoned_node_takes_pods_again_when_it_is_not_cordoned_any_more() -> None:
    registry = new_registry()
    add_node(registry, unschedulable=True)
    add_pod(registry, "waits")
    async with running(Scheduler(registry)):
        await until(lambda: told(registry, "waits"))
        assert "1 node(s) were unschedulable" in told(registry, "waits")[0]
        registry.update(NODES, "", "worker-0", lambda old: {**old, "spec": {}})
        await until(lambda: node_of(registry, "waits"))


async def test_pods_with_gates_wait_and_those_of_other_schedulers_are_left_alone() -> None:
    registry = new_registry()
    add_node(registry)
    add_pod(registry, "gated", schedulingGates=[{"name": "example.com/later"}])
    add_pod(registry, "foreign", schedulerName="mine")
    async with running(Scheduler(registry)):
        await settled(registry)
        assert condition(registry, "gated")["reason"] == "SchedulingGated"
        told_why = condition(registry, "gated")["message"]
        assert told_why == "Scheduling is blocked due to non-empty scheduling gates"
        assert not node_of(registry, "gated")
        assert registry.all(EVENTS) == ()

        def without_gates(old: Any) -> Any:
            spec = {key: value for key, value in old["spec"].items() if key != "schedulingGates"}
            return {**old, "spec": spec}

        registry.update(PODS, "default", "gated", without_gates)
        await until(lambda: node_of(registry, "gated"))
        await settled(registry)
        foreign = registry.get(PODS, "default", "foreign")
        assert not part(foreign, "spec", "nodeName")
        assert not entries(foreign, "status", "conditions")


async def test_pods_bound_by_others_count_and_the_higher_priority_goes_first() -> None:
    registry = new_registry()
    add_node(registry, amounts={RESOURCE: "2"})
    add_pod(registry, "bound", {RESOURCE: "1"}, nodeName="worker-0")
    add_pod(registry, "a-low", {RESOURCE: "1"})
    add_pod(registry, "z-high", {RESOURCE: "1"}, priority=9)
    async with running(Scheduler(registry)):
        await until(lambda: told(registry, "a-low"))
        assert node_of(registry, "z-high") == "worker-0"
        assert not node_of(registry, "a-low")


async def test_a_pod_that_took_anothers_name_is_not_mistaken_for_it() -> None:
    registry = new_registry()
    add_node(registry, amounts={RESOURCE: "1"})
    add_pod(registry, "one", {RESOURCE: "1"})
    async with running(Scheduler(registry)):
        for _ in range(5):
            await asyncio.sleep(0)
            if registry.find(PODS, "default", "one"):
                registry.delete(PODS, "default", "one", grace_seconds=0)
            add_pod(registry, "one", {RESOURCE: "2"})
        await settled(registry)
        assert not node_of(registry, "one")


async def test_pods_wait_again_from_the_beginning_after_five_minutes() -> None:
    clock = Clock()
    registry = new_registry(clock)
    add_node(registry)
    async with running(Scheduler(registry, seconds=clock.seconds)):
        add_pod(registry, "never", {RESOURCE: "1"})
        await until(lambda: told(registry, "never"))
        clock.passed = 301
        add_pod(registry, "other")
        await until(lambda: node_of(registry, "other"))
        await settled(registry)
        assert len(told(registry, "never")) == 2


async def test_others_have_their_turn_while_many_pods_are_bound() -> None:
    registry = new_registry()
    for number in range(20):
        add_node(registry, f"worker-{number}", amounts={RESOURCE: "8"})
    for number in range(160):
        add_pod(registry, f"pod-{number}", {RESOURCE: "1"})
    turns = 0
    async with running(Scheduler(registry)):
        while any(not part(pod, "spec", "nodeName") for pod in registry.all(PODS)):
            turns += 1
            await asyncio.sleep(0)
    assert turns >= 160


# ── the rules ──


def test_what_a_pod_is_to_the_scheduler() -> None:
    registry = new_registry()
    pod = add_pod(registry, "p")
    spec = pod["spec"]
    assert scheduling_state(pod) is SchedulingState.WAITING
    assert scheduling_state({**pod, "spec": {**spec, "nodeName": "n"}}) is SchedulingState.PLACED
    assert scheduling_state({**pod, "status": {"phase": "Failed"}}) is SchedulingState.ENDED
    assert scheduling_state({**pod, "spec": {**spec, "schedulerName": "x"}}) is SchedulingState.FOREIGN
    ending = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-21T00:00:00Z"}}
    assert scheduling_state(ending) is SchedulingState.FOREIGN


def test_a_condition_keeps_its_place_and_its_time() -> None:
    clock = Clock()
    first: Any = {"type": "Initialized", "status": "True"}
    last: Any = {"type": "Ready", "status": "False"}
    pod: Any = {"metadata": {"generation": 2}, "status": {"conditions": [first]}}
    status = status_of_waiting(pod, "Unschedulable", "a", clock.now())
    pod = {**pod, "status": {**status, "conditions": [*entries(status, "conditions"), last]}}
    clock.passed = 60
    assert status_of_waiting(pod, "Unschedulable", "a", clock.now()) is pod["status"]
    changed: Any = status_of_waiting(pod, "Unschedulable", "b", clock.now())
    assert changed["conditions"][0] == first
    assert changed["conditions"][2] == last
    assert changed["conditions"][1]["message"] == "b"
    assert changed["conditions"][1]["lastTransitionTime"] == "2026-11-21T00:00:00Z"
