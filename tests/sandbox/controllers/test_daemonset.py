"""The DaemonSet controller over a registry, with the scheduler and the garbage collector beside it."""

from __future__ import annotations

from typing import Any

import pytest

from devplug.k8s.objects import entries, fields, part, text, with_part
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.controllers.daemonset import DaemonSetController
from devplug.sandbox.controllers.daemonsetplan import new_pod, revision_of
from devplug.sandbox.controllers.garbagecollector import GarbageCollector
from devplug.sandbox.controllers.scheduler import Scheduler
from devplug.sandbox.registry import DAEMON_SETS, NODES, PODS, QUOTAS, Registry
from tests.sandbox.controllers.beds import (
    RESOURCE,
    Clock,
    add_node,
    add_pod,
    end,
    make_ready,
    new_registry,
    pod_of,
    pods_in,
    running,
    set_pod_status,
    settled,
    told,
)
from tests.waiting import until

LABELS = {"app": "plugin"}


def add_daemons(registry: Registry, name: str = "plugin", *, template: Any = None, **spec: Any) -> Any:
    inner = {**pod_of("x")["spec"], **(template or {})}
    labels = LABELS if name == "plugin" else {"app": name}
    whole = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": inner}}
    return registry.create(DAEMON_SETS, "default", {"metadata": {"name": name}, "spec": {**whole, **spec}})


def daemons(registry: Registry) -> Any:
    return registry.get(DAEMON_SETS, "default", "plugin")


def change_image(registry: Registry, image: str) -> None:
    containers = [{"name": "c", "image": image}]
    registry.update(
        DAEMON_SETS,
        "default",
        "plugin",
        lambda old: with_part(old, containers, "spec", "template", "spec", "containers"),
    )


def status(registry: Registry) -> Any:
    return fields(daemons(registry), "status")


def names(registry: Registry) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods_in(registry)}


def by_node(registry: Registry) -> dict[str, Any]:
    return {pod["spec"].get("nodeName", ""): pod for pod in pods_in(registry)}


def act_as_kubelet(registry: Registry) -> bool:
    """Bring every bound pod to what it shall be; return whether there was something to do."""
    acted = False
    for pod in pods_in(registry):
        name = pod["metadata"]["name"]
        if part(pod, "metadata", "deletionTimestamp"):
            end(registry, name)
            acted = True
        elif text(pod, "spec", "nodeName") and text(pod, "status", "phase") == "Pending":
            make_ready(registry, name)
            acted = True
    return acted


def rollout_message(found: Any) -> str:
    """What `kubectl rollout status` says (kubectl pkg/polymorphichelpers/rollout_status.go)."""
    told_status: Any = fields(found, "status")
    name = text(found, "metadata", "name")
    if found["metadata"]["generation"] > told_status.get("observedGeneration", 0):
        return "Waiting for daemon set spec update to be observed..."
    desired = told_status["desiredNumberScheduled"]
    if told_status.get("updatedNumberScheduled", 0) < desired:
        return f'Waiting for daemon set "{name}" rollout to finish: updated'
    if told_status.get("numberAvailable", 0) < desired:
        return f'Waiting for daemon set "{name}" rollout to finish: available'
    return f'daemon set "{name}" successfully rolled out'


async def until_rolled_out(registry: Registry) -> None:
    def is_done() -> bool:
        act_as_kubelet(registry)
        return "successfully" in rollout_message(daemons(registry))

    await until(is_done)


async def test_each_node_gets_a_pod_and_a_new_one_too() -> None:
    registry = new_registry()
    add_node(registry, "worker-0")
    add_node(registry, "worker-1")
    async with running(DaemonSetController(registry), Scheduler(registry)):
        add_daemons(registry)
        await until(lambda: by_node(registry).keys() == {"worker-0", "worker-1"})
        await until(lambda: status(registry).get("currentNumberScheduled") == 2)
        assert status(registry) == {
            "currentNumberScheduled": 2,
            "numberMisscheduled": 0,
            "desiredNumberScheduled": 2,
            "numberReady": 0,
            "observedGeneration": 1,
            "updatedNumberScheduled": 2,
            "numberUnavailable": 2,
        }
        assert "available" in rollout_message(daemons(registry))
        await until_rolled_out(registry)
        assert status(registry)["numberReady"] == 2
        assert "numberUnavailable" not in status(registry)
        add_node(registry, "worker-2")
        await until(lambda: len(by_node(registry)) == 3)
        created = {f"Normal SuccessfulCreate Created pod: {name}" for name in names(registry)}
        assert set(told(registry, "plugin")) == created


def test_a_pod_of_a_set_is_what_the_real_controller_makes() -> None:
    registry = new_registry()
    found = add_daemons(registry, template={"nodeSelector": {"gpu": "yes"}, "hostNetwork": True})
    pod: Any = new_pod(found, DAEMON_SETS, "worker-0")
    meta = pod["metadata"]
    assert meta["generateName"] == "plugin-"
    assert meta["labels"] == {
        "app": "plugin",
        "controller-revision-hash": revision_of(found),
        "pod-template-generation": "1",
    }
    assert meta["ownerReferences"] == [
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": "plugin",
            "uid": found["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    field = {"key": "metadata.name", "operator": "In", "values": ["worker-0"]}
    assert part(pod, "spec", "affinity", "nodeAffinity") == {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}
    }
    assert [(one["key"].partition("/")[2], one["effect"]) for one in pod["spec"]["tolerations"]] == [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    ]
    stored = registry.create(PODS, "default", pod)
    assert part(stored, "spec", "nodeSelector") == {"gpu": "yes"}
    assert len(entries(stored, "spec", "tolerations")) == 7


def test_a_hash_tells_templates_apart_and_nothing_else() -> None:
    registry = new_registry()
    found = add_daemons(registry)
    change_image(registry, "busybox:2")
    assert revision_of(daemons(registry)) != revision_of(found)
    change_image(registry, "busybox:3")
    registry.update(
        DAEMON_SETS, "default", "plugin", lambda old: with_part(old, 5, "spec", "minReadySeconds")
    )
    before = revision_of(daemons(registry))
    assert revision_of(with_part(daemons(registry), "x", "metadata", "annotations", "a")) == before
    assert set(before) <= set("bcdfghjklmnpqrstvwxz2456789")


async def test_selectors_and_taints_are_respected_and_cordons_are_not() -> None:
    registry = new_registry()
    add_node(registry, "cordoned", unschedulable=True, labels={"gpu": "yes"})
    add_node(registry, "tainted", taints=[{"key": "a", "effect": "NoSchedule"}], labels={"gpu": "yes"})
    add_node(registry, "other")
    async with running(DaemonSetController(registry), Scheduler(registry)):
        add_daemons(registry, template={"nodeSelector": {"gpu": "yes"}})
        await until(lambda: by_node(registry).keys() == {"cordoned"})
        registry.update(NODES, "", "other", lambda old: with_part(old, "yes", "metadata", "labels", "gpu"))
        await until(lambda: by_node(registry).keys() == {"cordoned", "other"})
        # One that does not evict leaves the pod where it is, and counts it as out of place.
        taint = {"key": "a", "effect": "NoSchedule"}
        registry.update(NODES, "", "other", lambda old: with_part(old, [taint], "spec", "taints"))
        await until(lambda: status(registry).get("numberMisscheduled") == 1)
        assert by_node(registry).keys() == {"cordoned", "other"}
        evicting = {"key": "a", "effect": "NoExecute"}
        registry.update(NODES, "", "other", lambda old: with_part(old, [evicting], "spec", "taints"))
        await until(lambda: part(by_node(registry)["other"], "metadata", "deletionTimestamp"))
        end(registry, by_node(registry)["other"]["metadata"]["name"])
        await settled(registry)
        assert by_node(registry).keys() == {"cordoned"}


async def test_a_pod_without_room_waits_for_its_node() -> None:
    registry = new_registry()
    add_node(registry, "worker-0", amounts={"pods": "0"})
    add_node(registry, "worker-1", amounts={"pods": "9"})
    async with running(DaemonSetController(registry), Scheduler(registry)):
        add_daemons(registry)
        await until(lambda: "worker-1" in by_node(registry))
        waits = by_node(registry)[""]["metadata"]["name"]
        (message,) = await until(lambda: told(registry, waits))
        assert message.partition("available: ")[2].startswith(
            "1 Too many pods, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]. "
        )
        await settled(registry)
        assert len(pods_in(registry)) == 2
        registry.delete(NODES, "", "worker-0")
        await until(lambda: by_node(registry).keys() == {"worker-1"})


async def test_a_deleted_pod_is_made_again_when_it_is_gone() -> None:
    registry = new_registry()
    add_node(registry)
    async with running(DaemonSetController(registry), Scheduler(registry)):
        add_daemons(registry)
        await until(lambda: "worker-0" in by_node(registry))
        (first,) = names(registry)
        registry.delete(PODS, "default", first)
        await settled(registry)
        assert names(registry) == {first}
        end(registry, first)
        await until(lambda: names(registry) - {first})


async def test_a_changed_template_replaces_one_pod_after_the_other() -> None:
    registry = new_registry()
    for number in range(3):
        add_node(registry, f"worker-{number}")
    async with running(DaemonSetController(registry), Scheduler(registry)):
        add_daemons(registry)
        await until_rolled_out(registry)
        old = names(registry)
        change_image(registry, "busybox:2")
        assert "observed" in rollout_message(daemons(registry))

        def is_done() -> bool:
            pods = pods_in(registry)
            ready = sum("Ready" in str(part(pod, "status", "conditions")) for pod in pods)
            ending = sum(bool(part(pod, "metadata", "deletionTimestamp")) for pod in pods)
            assert ready - ending >= 2
            act_as_kubelet(registry)
            return "successfully" in rollout_message(daemons(registry))

        await until(is_done)
        assert not old & names(registry)
        assert {pod["spec"]["containers"][0]["image"] for pod in pods_in(registry)} == {"busybox:2"}
        assert {f"Normal SuccessfulDelete Deleted pod: {name}" for name in old} <= set(
            told(registry, "plugin")
        )


async def test_on_delete_leaves_old_pods_until_somebody_deletes_them() -> None:
    registry = new_registry()
    add_node(registry)
    async with running(DaemonSetController(registry), Scheduler(registry)):
        add_daemons(registry, updateStrategy={"type": "OnDelete"})
        await until_rolled_out(registry)
        (old,) = names(registry)
        change_image(registry, "busybox:2")
        await until(lambda: status(registry)["observedGeneration"] == 2)
        await settled(registry)
        assert names(registry) == {old}
        assert "updatedNumberScheduled" not in status(registry)
        end(registry, old)
        await until_rolled_out(registry)
        assert names(registry) != {old}


async def test_a_pod_that_fails_is_replaced_at_once_and_then_ever_later() -> None:
    clock = Clock()
    registry = new_registry(clock)
    add_node(registry)
    async with running(DaemonSetController(registry, seconds=clock.seconds), Scheduler(registry)):
        add_daemons(registry)

        async def failed() -> str:
            pod = await until(lambda: by_node(registry).get("worker-0", {}))
            name: str = pod["metadata"]["name"]
            set_pod_status(registry, name, phase="Failed", reason="UnexpectedAdmissionError")
            return name

        first = await failed()
        await until(lambda: names(registry) - {first})
        second = await failed()
        await settled(registry)
        assert names(registry) == {second}
        clock.passed += 1
        add_node(registry, "worker-1", taints=[{"key": "a", "effect": "NoExecute"}])
        await until(lambda: names(registry) - {second})
        third = await failed()
        clock.passed += 1
        add_node(registry, "worker-2", taints=[{"key": "a", "effect": "NoExecute"}])
        await settled(registry)
        assert names(registry) == {third}
        where = "on node worker-0, will try to kill it"
        for name in (first, second):
            message = f"Warning FailedDaemonPod Found failed daemon pod default/{name} {where}"
            assert message in told(registry, "plugin")


async def test_a_quota_that_keeps_pods_away_is_told_of_and_tried_again() -> None:
    registry = new_registry()
    add_node(registry)
    quota: Any = {"metadata": {"name": "q"}, "spec": {"hard": {f"requests.{RESOURCE}": "0"}}}
    registry.create(QUOTAS, "default", quota)
    containers = [{"name": "c", "image": "busybox:1", "resources": {"limits": {RESOURCE: "1"}}}]
    async with running(DaemonSetController(registry)):
        add_daemons(registry, template={"containers": containers})
        message = (await until(lambda: told(registry, "plugin")))[0]
        assert message.startswith('Warning FailedCreate Error creating: pods "plugin-')
        assert "is forbidden: exceeded quota: q, requested: requests.example.com/resource=1" in message
        assert status(registry)["desiredNumberScheduled"] == 1
        registry.delete(QUOTAS, "default", "q")
        await until(lambda: pods_in(registry))


async def test_a_pod_with_the_right_labels_is_taken_in_and_one_without_is_let_go() -> None:
    registry = new_registry()
    add_node(registry)
    add_pod(registry, "found", metadata={"labels": LABELS}, nodeName="worker-0")
    async with running(DaemonSetController(registry), Scheduler(registry)):
        add_daemons(registry, updateStrategy={"type": "OnDelete"})
        await until(lambda: entries(registry.get(PODS, "default", "found"), "metadata", "ownerReferences"))
        await settled(registry)
        assert names(registry) == {"found"}
        registry.update(PODS, "default", "found", lambda old: with_part(old, {}, "metadata", "labels"))
        await until(lambda: len(names(registry)) == 2)
        released = registry.get(PODS, "default", "found")
        assert not entries(released, "metadata", "ownerReferences")


async def test_pods_end_with_their_set_or_stay_as_orphans() -> None:
    registry = new_registry()
    add_node(registry)
    async with running(DaemonSetController(registry), Scheduler(registry), GarbageCollector(registry)):
        add_daemons(registry)
        await until_rolled_out(registry)
        registry.delete(DAEMON_SETS, "default", "plugin")

        def is_empty() -> bool:
            act_as_kubelet(registry)
            return not pods_in(registry)

        await until(is_empty)
        add_daemons(registry)
        await until_rolled_out(registry)
        (kept,) = names(registry)
        registry.update(
            DAEMON_SETS, "default", "plugin", lambda old: with_part(old, ["orphan"], "metadata", "finalizers")
        )
        registry.delete(DAEMON_SETS, "default", "plugin")
        await until(lambda: not registry.all(DAEMON_SETS))
        await settled(registry)
        assert names(registry) == {kept}
        add_daemons(registry)
        await until_rolled_out(registry)
        assert names(registry) == {kept}


async def test_ready_pods_are_available_after_min_ready_seconds() -> None:
    clock = Clock()
    registry = new_registry(clock)
    add_node(registry)
    async with running(DaemonSetController(registry, seconds=clock.seconds), Scheduler(registry)):
        add_daemons(registry, minReadySeconds=30)
        clock.passed = 1
        add_node(registry, "worker-1", unschedulable=True)

        def is_ready() -> bool:
            act_as_kubelet(registry)
            return bool(status(registry).get("numberReady") == 2)

        await until(is_ready)
        assert "numberAvailable" not in status(registry)
        clock.passed = 40
        add_daemons(registry, "another")  # which has the controller look at its clock, that has jumped
        await until(lambda: status(registry).get("numberAvailable") == 2)


def test_a_set_whose_selector_is_none_is_not_taken() -> None:
    asked = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["x"]}]}
    with pytest.raises(StatusError, match='"Like" is not a valid label selector operator'):
        add_daemons(new_registry(), selector=asked)
