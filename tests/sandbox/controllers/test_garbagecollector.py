"""What ends because something else is gone: what was owned, and pods without a node."""

from __future__ import annotations

from typing import Any

import pytest

from devplug.k8s.objects import entries, part
from devplug.sandbox.api.kinds import resource_of_kind
from devplug.sandbox.api.ownerreferences import controller_of, owner_reference, without_owner
from devplug.sandbox.controllers.garbagecollector import GarbageCollector, PodCollector
from devplug.sandbox.registry import LEASES, NODES, PODS, Registry
from tests.sandbox.controllers.beds import add_node, add_pod, end, new_registry, pods_in, running, settled
from tests.waiting import until

CONFIG = resource_of_kind("v1", "ConfigMap")
assert CONFIG is not None


def add_owner(registry: Registry, name: str = "owner", **meta: Any) -> Any:
    assert CONFIG is not None
    return registry.create(CONFIG, "default", {"metadata": {"name": name, **meta}})


def add_owned(registry: Registry, name: str, *owners: Any, **more: Any) -> Any:
    assert CONFIG is not None
    references = [owner_reference(CONFIG, one) for one in owners]
    return add_pod(registry, name, metadata={"ownerReferences": references}, **more)


def delete_owner(registry: Registry, name: str = "owner") -> None:
    assert CONFIG is not None
    registry.delete(CONFIG, "default", name)


def names(registry: Registry) -> list[str]:
    return [one["metadata"]["name"] for one in pods_in(registry)]


async def test_what_an_owner_had_goes_after_it_and_takes_its_time() -> None:
    registry = new_registry()
    add_node(registry)
    owner = add_owner(registry)
    add_owned(registry, "waits", owner)
    add_owned(registry, "runs", owner, nodeName="worker-0")
    add_pod(registry, "free")
    async with running(GarbageCollector(registry)):
        await settled(registry)
        assert len(names(registry)) == 3
        delete_owner(registry)
        await until(lambda: names(registry) == ["free", "runs"])
        await settled(registry)
        marked = registry.get(PODS, "default", "runs")
        assert part(marked, "metadata", "deletionGracePeriodSeconds") == 30
        await settled(registry)
        assert registry.get(PODS, "default", "runs") == marked
        end(registry, "runs")


async def test_what_has_another_owner_left_stays() -> None:
    registry = new_registry()
    add_owned(registry, "shared", add_owner(registry, "one"), add_owner(registry, "two"))
    async with running(GarbageCollector(registry)):
        delete_owner(registry, "one")
        await settled(registry)
        assert names(registry) == ["shared"]
        delete_owner(registry, "two")
        await until(lambda: not names(registry))


async def test_an_owner_of_the_same_name_is_not_the_owner() -> None:
    registry = new_registry()
    owner = add_owner(registry)
    delete_owner(registry)
    add_owner(registry)
    async with running(GarbageCollector(registry)):
        add_owned(registry, "late", owner)
        await until(lambda: not names(registry))


async def test_owners_of_kinds_that_are_not_here_are_not_missed() -> None:
    registry = new_registry()
    foreign = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u"}
    add_pod(registry, "kept", metadata={"ownerReferences": [foreign]})
    async with running(GarbageCollector(registry)):
        await settled(registry)
        assert names(registry) == ["kept"]


async def test_an_owner_that_orphans_leaves_what_it_had() -> None:
    registry = new_registry()
    owner = add_owner(registry, finalizers=["orphan"])
    add_owned(registry, "left", owner)
    async with running(GarbageCollector(registry)):
        await settled(registry)
        delete_owner(registry)
        assert CONFIG is not None
        await until(lambda: registry.find(CONFIG, "default", "owner") is None)
        await settled(registry)
        (left,) = pods_in(registry)
        assert not entries(left, "metadata", "ownerReferences")


async def test_an_owner_in_the_foreground_ends_last() -> None:
    registry = new_registry()
    add_node(registry)
    owner = add_owner(registry, finalizers=["foregroundDeletion"])
    add_owned(registry, "runs", owner, nodeName="worker-0")
    async with running(GarbageCollector(registry)):
        delete_owner(registry)
        await settled(registry)
        assert CONFIG is not None
        assert registry.find(CONFIG, "default", "owner")
        assert part(registry.get(PODS, "default", "runs"), "metadata", "deletionTimestamp")
        end(registry, "runs")
        await until(lambda: registry.find(CONFIG, "default", "owner") is None)


async def test_a_nodes_lease_goes_with_the_node() -> None:
    registry = new_registry()
    references = [owner_reference(NODES, add_node(registry))]
    lease: Any = {"metadata": {"name": "worker-0", "ownerReferences": references}}
    registry.create(LEASES, "kube-node-lease", lease)
    async with running(GarbageCollector(registry)):
        await settled(registry)
        registry.delete(NODES, "", "worker-0")
        await until(lambda: not registry.all(LEASES))


def test_owners_are_told_apart_by_uid() -> None:
    first, second = {"uid": "a", "controller": True}, {"uid": "b"}
    pod: Any = {"metadata": {"ownerReferences": [second, first]}}
    assert controller_of(pod) == first
    assert without_owner(pod, "a") == {"metadata": {"ownerReferences": [second]}}
    assert controller_of(without_owner(pod, "a")) is None


# ── pods without a node ──


@pytest.mark.parametrize("is_ending", [False, True])
async def test_a_pod_whose_node_never_was_or_is_gone_ends_after_a_while(*, is_ending: bool) -> None:
    registry = new_registry()
    add_node(registry)
    add_pod(registry, "astray", nodeName="nowhere")
    add_pod(registry, "left", nodeName="worker-0")
    add_pod(registry, "waits")
    if is_ending:
        registry.delete(PODS, "default", "astray")
    async with running(PodCollector(registry, quarantine_seconds=0)):
        await until(lambda: names(registry) == ["left", "waits"])
        await settled(registry)
        registry.delete(NODES, "", "worker-0")
        await until(lambda: names(registry) == ["waits"])


async def test_a_node_that_is_away_for_a_moment_keeps_its_pods() -> None:
    registry = new_registry()
    add_pod(registry, "early", nodeName="worker-0")
    async with running(PodCollector(registry, quarantine_seconds=0.05)):
        await settled(registry)
        add_node(registry)
        await settled(registry, 0.1)
        assert names(registry) == ["early"]
