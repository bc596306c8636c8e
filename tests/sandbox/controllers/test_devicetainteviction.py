"""Which pods a NoExecute taint on a device evicts, when, and what is said of it."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.dra.objects import DeviceID
from devplug.k8s.times import moment, stamp
from devplug.sandbox.controllers.devicetainteviction import (
    DeviceTaintEvictionController,
    disrupted,
    evicting_taints,
    eviction_time,
)
from devplug.sandbox.controllers.resourceclaim import ResourceClaimController
from devplug.sandbox.registry import DEVICE_TAINT_RULES, EVENTS, PODS, RESOURCE_SLICES, Registry
from tests.sandbox.controllers.beds import Clock, add_node, add_pod, end, new_registry, running, settled, told
from tests.sandbox.controllers.claims import (
    DRIVER,
    add_claim,
    add_slice,
    allocation,
    of_claim,
    run_pod,
    taint_device,
)
from tests.virtualtime import in_virtual_time, passes
from tests.waiting import until

NO_EXECUTE: Any = {"key": "example.com/broken", "value": "yes", "effect": "NoExecute"}
TOLERATION: Any = {"key": "example.com/broken", "operator": "Exists", "effect": "NoExecute"}
MARKING = "Normal DeviceTaintManagerEviction Marking for deletion"
CANCELLING = "Normal DeviceTaintManagerEviction Cancelling deletion"
DEVICE = DeviceID(DRIVER, "worker-0", "dev-0")
NOON = "2026-11-21T12:00:00Z"


def sandbox(clock: Clock | None = None) -> Registry:
    registry = new_registry(clock)
    add_node(registry)
    add_slice(registry)
    add_claim(registry)
    return registry


def is_deleted(registry: Registry, name: str = "p") -> bool:
    pod: Any = registry.get(PODS, "default", name)
    return "deletionTimestamp" in pod["metadata"]


def evicted_at(taint: Any, *tolerations: Any) -> datetime | None:
    claim: Any = {"status": {"allocation": allocation(*tolerations)}}
    return eviction_time(claim, {DEVICE: [{**taint, "timeAdded": NOON}]})


def seconds_after_noon(taint: Any, *tolerations: Any) -> float | None:
    at, noon = evicted_at(taint, *tolerations), moment(NOON)
    assert noon is not None
    return None if at is None else (at - noon).total_seconds()


async def test_a_pod_whose_device_gets_a_no_execute_taint_is_deleted_with_its_grace_period() -> None:
    """D80: the condition and the event are those of taint_eviction.jsonl."""
    registry = sandbox()
    run_pod(registry, "p")
    async with running(DeviceTaintEvictionController(registry)):
        await settled(registry)
        assert not is_deleted(registry)
        taint_device(registry, NO_EXECUTE)
        await until(lambda: is_deleted(registry))
    pod: Any = registry.get(PODS, "default", "p")
    (condition,) = [one for one in pod["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    assert condition == {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": stamp(registry.now),
        "reason": "DeletionByDeviceTaintManager",
        "message": "Device Taint manager: deleting due to NoExecute taint",
    }
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert told(registry, "p") == [MARKING]
    event: Any = registry.all(EVENTS)[0]
    assert event["source"] == {"component": "device-taint-eviction-controller"}
    assert event["involvedObject"].keys() == {"kind", "namespace", "name", "uid", "apiVersion"}


async def test_a_pod_that_is_bound_to_a_tainted_device_is_deleted() -> None:
    """D80: a toleration of all effects lets it be scheduled there, and it is evicted again and again."""
    registry = sandbox()
    taint_device(registry, NO_EXECUTE)
    async with running(DeviceTaintEvictionController(registry), ResourceClaimController(registry)):
        for name in ("one", "two"):
            run_pod(registry, name, "c", {"operator": "Exists"})
            await until(lambda name=name: is_deleted(registry, name))  # type: ignore[misc]
            end(registry, name)
            await settled(registry)


async def test_nobody_is_deleted_for_a_taint_of_another_effect_or_device() -> None:
    """D80: NoSchedule keeps new pods off, and None says something to readers."""
    registry = sandbox()
    run_pod(registry, "p")
    add_pod(registry, "waits", **of_claim())
    async with running(DeviceTaintEvictionController(registry)):
        taint_device(registry, {**NO_EXECUTE, "effect": "NoSchedule"}, {**NO_EXECUTE, "effect": "None"})
        await settled(registry)
        assert not is_deleted(registry)
        taint_device(registry, NO_EXECUTE)
        await until(lambda: is_deleted(registry))
        assert not is_deleted(registry, "waits")


@in_virtual_time
async def test_a_toleration_with_seconds_delays_the_end() -> None:
    """D80: counted from when the taint was added, not from when the pod came."""
    loop, clock = asyncio.get_running_loop(), Clock()
    registry = sandbox(clock)
    taint_device(registry, NO_EXECUTE)
    run_pod(registry, "p", "c", {**TOLERATION, "tolerationSeconds": 8})
    clock.passed = 5
    begin = loop.time() - clock.passed

    def seconds() -> float:
        clock.passed = loop.time() - begin
        return clock.passed

    async with running(DeviceTaintEvictionController(registry, seconds=seconds)):
        await passes(2.9)
        assert not is_deleted(registry)
        await passes(0.2)
        assert is_deleted(registry)


async def test_a_taint_that_goes_in_time_spares_the_pod_and_this_is_said() -> None:
    """D80."""
    registry = sandbox()
    run_pod(registry, "p", "c", {**TOLERATION, "tolerationSeconds": 300})
    async with running(DeviceTaintEvictionController(registry)):
        taint_device(registry, NO_EXECUTE)
        await settled(registry)
        assert not told(registry, "p")
        registry.delete(RESOURCE_SLICES, "", "s")
        await until(lambda: told(registry, "p") == [CANCELLING])
    assert not is_deleted(registry)


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0),
        ([TOLERATION], None),
        ([{**TOLERATION, "tolerationSeconds": 8}], 8),
        ([{**TOLERATION, "tolerationSeconds": -3}], 0),
        ([{**TOLERATION, "tolerationSeconds": 8}, {**TOLERATION, "tolerationSeconds": 5}], 5),
        ([{**TOLERATION, "tolerationSeconds": 8}, TOLERATION], None),
        ([{"operator": "Exists"}], 0),
        ([{"operator": "Exists", "effect": "NoExecute"}], None),
        ([{**TOLERATION, "key": "other"}], 0),
        ([{**TOLERATION, "operator": "Equal", "value": "yes"}], None),
        ([{**TOLERATION, "operator": "Equal", "value": "no"}], 0),
    ],
)
def test_the_time_of_an_eviction_follows_the_tolerations(tolerations: Any, seconds: float | None) -> None:
    """D80: seconds from when the taint was added; None if the pod may stay."""
    assert seconds_after_noon(NO_EXECUTE, *tolerations) == seconds


@given(st.lists(st.one_of(st.none(), st.integers(-5, 600)), max_size=4))
def test_more_tolerations_never_bring_the_end_nearer_than_the_shortest(lengths: list[int | None]) -> None:
    """D80: the shortest counts, unless one is for ever."""
    tolerations = [
        {**TOLERATION, "tolerationSeconds": one} if one is not None else TOLERATION for one in lengths
    ]
    got = seconds_after_noon(NO_EXECUTE, *tolerations)
    if None in lengths:
        assert got is None
    else:
        assert got == max(0, min((one for one in lengths if one is not None), default=0))


def test_of_several_taints_the_first_end_counts() -> None:
    """D80."""
    noon = moment(NOON)
    assert noon is not None
    later_taint = {**NO_EXECUTE, "key": "other", "timeAdded": stamp(noon + timedelta(seconds=3))}
    claim: Any = {"status": {"allocation": allocation({**TOLERATION, "tolerationSeconds": 8})}}
    taints = {DEVICE: [{**NO_EXECUTE, "timeAdded": NOON}, later_taint]}
    assert eviction_time(claim, taints) == noon + timedelta(seconds=3)


def test_only_the_newest_generation_of_a_pool_has_taints() -> None:
    """D51, D80."""
    registry = new_registry()
    add_slice(registry, "old", 1, {"name": "dev-0", "taints": [NO_EXECUTE]})
    add_slice(registry, "new", 2, {"name": "dev-0"}, {"name": "dev-1", "taints": [NO_EXECUTE]})
    assert list(evicting_taints(registry.all(RESOURCE_SLICES))) == [DeviceID(DRIVER, "worker-0", "dev-1")]


def test_a_pod_has_one_condition_of_its_disruption() -> None:
    """D80: conditions of others stay."""
    now = new_registry().now
    ready = {"type": "Ready", "status": "True"}
    pod: Any = {"status": {"conditions": [ready, {"type": "DisruptionTarget", "status": "False"}]}}
    once: Any = disrupted(pod, now)
    assert [one["type"] for one in once["conditions"]] == ["Ready", "DisruptionTarget"]
    assert disrupted({"status": once}, now) == once


# ── DeviceTaintRules ──


def add_rule(registry: Registry, taint: Any, **selector: str) -> None:
    rule: Any = {"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": taint}}
    registry.create(DEVICE_TAINT_RULES, "", rule)


async def test_a_rule_evicts_pods_as_a_taint_of_the_slice_does() -> None:
    registry = sandbox()
    run_pod(registry, "p")
    async with running(DeviceTaintEvictionController(registry)):
        add_rule(registry, NO_EXECUTE, driver="other.example.com")
        await settled(registry)
        assert not is_deleted(registry)
        registry.delete(DEVICE_TAINT_RULES, "", "r")
        add_rule(registry, NO_EXECUTE, driver=DRIVER, pool="worker-0", device="dev-0")
        await until(lambda: is_deleted(registry))
    assert told(registry, "p") == [MARKING]


async def test_the_end_of_a_rule_cancels_the_eviction() -> None:
    registry = sandbox()
    run_pod(registry, "p", "c", {**TOLERATION, "tolerationSeconds": 1000})
    async with running(DeviceTaintEvictionController(registry)):
        add_rule(registry, NO_EXECUTE)
        await settled(registry)
        registry.delete(DEVICE_TAINT_RULES, "", "r")
        await until(lambda: told(registry, "p") == [CANCELLING])
    assert not is_deleted(registry)
