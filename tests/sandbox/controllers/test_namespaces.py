"""Namespaces that begin and end, quotas that are counted, and events that are forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from devplug.k8s.objects import fields, part, text
from devplug.sandbox.admission import counts_for_quota, quota_status, used_by_pods
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.controllers.garbagecollector import EventCollector, is_expired
from devplug.sandbox.controllers.namespaces import NamespaceController
from devplug.sandbox.controllers.resourcequota import ResourceQuotaController
from devplug.sandbox.events import EventRecorder, EventSource, reference
from devplug.sandbox.registry import DAEMON_SETS, EVENTS, NAMESPACES, PODS, QUOTAS, Registry
from tests.sandbox.controllers.beds import (
    RESOURCE,
    Clock,
    add_node,
    add_pod,
    new_registry,
    pod_of,
    pods_in,
    running,
    set_pod_status,
    settled,
)
from tests.sandbox.jsons import printed
from tests.waiting import until


def add_quota(registry: Registry, **hard: str) -> None:
    told = {key.replace("___", "/").replace("__", "."): value for key, value in hard.items()}
    registry.create(QUOTAS, "default", {"metadata": {"name": "q"}, "spec": {"hard": told}})


def used(registry: Registry) -> Any:
    return part(registry.get(QUOTAS, "default", "q"), "status", "used")


# ── namespaces ──


async def test_a_sandbox_begins_with_the_namespaces_that_every_cluster_has() -> None:
    registry = Registry()
    async with running(NamespaceController(registry)):
        await until(lambda: registry.all(NAMESPACES))
        registry.delete(NAMESPACES, "", "kube-node-lease")
    async with running(NamespaceController(registry)):
        await until(lambda: len(registry.all(NAMESPACES)) == 4)
    names = [text(one, "metadata", "name") for one in registry.all(NAMESPACES)]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]


async def test_a_namespace_ends_with_all_that_is_in_it_when_its_pods_have_ended() -> None:
    registry = new_registry()
    add_node(registry)
    registry.create(NAMESPACES, "", {"metadata": {"name": "tutorial"}})
    add_pod(registry, "waits", namespace="tutorial")
    runs = add_pod(registry, "runs", namespace="tutorial", nodeName="worker-0")
    add_pod(registry, "stays")
    hard = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "9"}}}
    registry.create(QUOTAS, "tutorial", hard)
    EventRecorder(registry, EventSource("test")).event(reference(runs), "Normal", "Started", "")
    async with running(NamespaceController(registry)):
        registry.delete(NAMESPACES, "", "tutorial")
        await settled(registry)
        ending = registry.get(NAMESPACES, "", "tutorial")
        assert text(ending, "status", "phase") == "Terminating"
        (left,) = pods_in(registry, "tutorial")
        assert left["metadata"]["deletionGracePeriodSeconds"] == 30
        assert len(registry.all(QUOTAS) + registry.all(EVENTS)) == 0
        with pytest.raises(StatusError, match="because it is being terminated"):
            add_pod(registry, "late", namespace="tutorial")
        registry.delete(PODS, "tutorial", "runs", grace_seconds=0)
        await until(lambda: registry.find(NAMESPACES, "", "tutorial") is None)
        assert [one["metadata"]["name"] for one in pods_in(registry)] == ["stays"]


async def test_a_namespace_with_more_objects_than_fit_into_one_look_ends_too() -> None:
    registry = new_registry()
    registry.create(NAMESPACES, "", {"metadata": {"name": "full"}})
    for number in range(600):
        add_pod(registry, f"pod-{number}", namespace="full")
    registry.delete(NAMESPACES, "", "full")
    async with running(NamespaceController(registry)):
        await until(lambda: registry.find(NAMESPACES, "", "full") is None)
    assert registry.all(PODS) == ()


# ── quotas ──


async def test_a_quota_tells_what_is_used_as_on_a_real_cluster() -> None:
    """Recorded on a real cluster: 42-quota-describe.txt. C101."""
    registry = new_registry()
    add_pod(registry, "uses-resource", {RESOURCE: "1"})
    async with running(ResourceQuotaController(registry)):
        add_quota(registry, requests__example__com___resource="1")
        status: Any = await until(lambda: fields(registry.get(QUOTAS, "default", "q"), "status"))
        key = f"requests.{RESOURCE}"
        assert status == {"hard": {key: "1"}, "used": {key: "1"}}
        row = f"{key}  {status['used'][key]}     {status['hard'][key]}"
        assert row in printed("42-quota-describe.txt")
        set_pod_status(registry, "uses-resource", phase="Succeeded")
        await until(lambda: used(registry)[key] == "0")
        add_pod(registry, "again", {RESOURCE: "1"})
        await until(lambda: used(registry)[key] == "1")


async def test_a_quota_counts_what_it_knows_and_leaves_out_the_rest() -> None:
    """C101: the bare name and `limits.` of a device never count."""
    registry = new_registry()
    one = pod_of("one", {"cpu": "1500m", "memory": "128Mi", RESOURCE: "2"})
    one["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "250m"}
    registry.create(PODS, "default", one)
    add_pod(registry, "two", {"cpu": "500m", "memory": "128Mi"})
    add_pod(registry, "over", {"cpu": "9"})
    set_pod_status(registry, "over", phase="Failed")
    async with running(ResourceQuotaController(registry)):
        add_quota(
            registry,
            pods="9",
            cpu="9",
            configmaps="9",
            services="9",
            limits__cpu="9",
            requests__memory="9Gi",
            count___pods="9",
            count___daemonsets__apps="9",
            requests__example__com___resource="9",
            requests__example__com___other="9",
            limits__example__com___resource="9",
            example__com___resource="9",
            requests__storage="9",
        )
        await until(lambda: used(registry))
    assert used(registry) == {
        "pods": "2",
        "cpu": "750m",
        "configmaps": "0",
        "services": "0",
        "limits.cpu": "2",
        "requests.memory": "256Mi",
        "count/pods": "3",
        "count/daemonsets.apps": "0",
        f"requests.{RESOURCE}": "2",
        "requests.example.com/other": "0",
    }


def test_a_pod_that_hangs_past_its_grace_counts_no_more() -> None:
    clock = Clock()
    registry = new_registry(clock)
    add_pod(registry, "hangs", {RESOURCE: "1"}, nodeName="gone")
    registry.delete(PODS, "default", "hangs", grace_seconds=10)
    (pod,) = pods_in(registry)
    assert counts_for_quota(pod, clock.now())
    clock.passed = 25
    assert not counts_for_quota(pod, clock.now())
    assert used_by_pods([pod], clock.now())["pods"] == "0"


def test_a_quota_with_scopes_tells_its_limits_only() -> None:
    quota: Any = {"spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}}
    assert quota_status(quota, {"pods": "1"}, {}) == {"hard": {"pods": "1"}}


# ── events ──


async def test_events_are_forgotten_an_hour_after_they_were_last_told() -> None:
    clock = Clock()
    registry = new_registry(clock)
    about = reference(add_pod(registry, "p"))
    plain = EventRecorder(registry, EventSource("kubelet", "worker-0"))
    series = EventRecorder(registry, EventSource("default-scheduler", "x", writes_series=True))
    for recorder in (plain, series):
        recorder.event(about, "Normal", "Once", "")
        recorder.event(about, "Normal", "Again", "")
        clock.passed += 10
    clock.passed = 1800
    for recorder in (plain, series):
        recorder.event(about, "Normal", "Again", "")
        clock.passed += 10
    clock.passed = 3650
    async with running(EventCollector(registry)):
        await until(lambda: len(registry.all(EVENTS)) == 2)
        assert {text(one, "reason") for one in registry.all(EVENTS)} == {"Again"}


async def test_events_are_looked_at_again_and_again() -> None:
    clock = Clock()
    registry = new_registry(clock)
    EventRecorder(registry, EventSource("kubelet")).event(
        reference(add_pod(registry, "p")), "Normal", "Started", ""
    )
    async with running(EventCollector(registry, every_seconds=0)):
        await settled(registry)
        clock.passed = 3599
        await settled(registry)
        assert len(registry.all(EVENTS)) == 1
        clock.passed = 3602
        await until(lambda: not registry.all(EVENTS))


def test_an_event_without_a_time_is_not_taken_for_an_old_one() -> None:
    assert not is_expired({"reason": "x"}, Clock().now())


async def test_daemon_sets_end_with_their_namespace() -> None:
    registry = new_registry()
    registry.create(NAMESPACES, "", {"metadata": {"name": "tutorial"}})
    labels = {"app": "plugin"}
    template = {"metadata": {"labels": labels}, "spec": pod_of("x")["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    registry.create(DAEMON_SETS, "tutorial", {"metadata": {"name": "d"}, "spec": spec})
    async with running(NamespaceController(registry)):
        registry.delete(NAMESPACES, "", "tutorial")
        await until(lambda: registry.find(NAMESPACES, "", "tutorial") is None)
    assert registry.all(DAEMON_SETS) == ()
