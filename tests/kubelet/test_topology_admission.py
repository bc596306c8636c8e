"""The devices of pods under each topology policy and scope, from a plugin on a real socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from devplug.errors import KubeletError
from devplug.kubelet.admission import TopologyManager
from devplug.kubelet.metrics import KubeletMetrics
from devplug.kubelet.pods import Container, Event, Pod, PodPhase
from devplug.kubelet.topology import (
    NO_AFFINITY,
    Hints,
    NodeHardware,
    NumaNode,
    Policy,
    Scope,
    TopologyHint,
    TopologyRules,
    TopologySettings,
    mask_of,
)
from devplug.wire.values import AdvertisedDevice, PluginOptions, PreferenceRequest
from tests.kubelet.fakes import OTHER_RESOURCE, RESOURCE, Ids, pod, registered, running, served
from tests.kubelet.numa import EVERY_POLICY, EVERY_SCOPE, PLACING, TWO_NODES, on, outcome, two_nodes

UNALIGNED = "Resources cannot be allocated with Topology locality"


def wanting(uid: str, *counts: int, init: int = 0) -> Pod:
    """A pod with an app container for each count, and an init container if that wants any."""
    return Pod(
        uid,
        uid,
        init_containers=(Container("i", {RESOURCE: init}),) if init else (),
        containers=tuple(Container(f"c{place}", {RESOURCE: count}) for place, count in enumerate(counts)),
    )


# ── one container ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scope", EVERY_SCOPE)
async def test_two_devices_on_two_nodes_are_no_place_for_single_numa_node(
    short_dir: Path, scope: Scope
) -> None:
    """C86."""
    async with two_nodes(short_dir, on(a=0, b=1), Policy.SINGLE_NUMA_NODE, scope) as (kubelet, plugin):
        status = await kubelet.admit(pod("u", 2))
        assert (status.phase, status.reason) == (PodPhase.FAILED, "TopologyAffinityError")
        assert status.message == f"Pod was rejected: {UNALIGNED}"
        assert kubelet.events == [Event("u", "Warning", "TopologyAffinityError", UNALIGNED)]
        assert plugin.called("Allocate") == []
        assert kubelet.allocations() == ()


@pytest.mark.parametrize("scope", EVERY_SCOPE)
@pytest.mark.parametrize("policy", [Policy.NONE, Policy.BEST_EFFORT, Policy.RESTRICTED])
def test_all_other_policies_give_both_of_two_devices_on_two_nodes(
    short_dir: Path, policy: Policy, scope: Scope
) -> None:
    """C87: also restricted, since no node alone could ever do."""
    assert outcome(short_dir, on(a=0, b=1), pod("u", 2), policy=policy, scope=scope) == ([""], [("a", "b")])


@pytest.mark.parametrize("scope", EVERY_SCOPE)
@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Policy.NONE, ""),
        (Policy.BEST_EFFORT, ""),
        (Policy.RESTRICTED, "TopologyAffinityError"),
        (Policy.SINGLE_NUMA_NODE, "TopologyAffinityError"),
    ],
)
async def test_what_one_node_could_give_must_come_from_one_if_the_policy_is_strict(
    short_dir: Path, policy: Policy, scope: Scope, reason: str
) -> None:
    """C88: each node has two devices, one of them free."""
    async with two_nodes(short_dir, on(a=0, b=0, c=1, d=1), policy, scope) as (kubelet, plugin):
        for uid in ("u", "v", "w"):
            await kubelet.admit(pod(uid))
        kubelet.remove_pod("v")
        assert (await kubelet.admit(pod("x", 2))).reason == reason
        assert plugin.called("Allocate")[3:] == ([] if reason else [("b", "d")])


@pytest.mark.parametrize("scope", EVERY_SCOPE)
@pytest.mark.parametrize("policy", EVERY_POLICY)
def test_devices_without_numa_nodes_are_given_under_every_policy(
    short_dir: Path, policy: Policy, scope: Scope
) -> None:
    """C89."""
    devices = (*on(a=None, b=None), AdvertisedDevice("c", "Healthy", ()))
    assert outcome(short_dir, devices, pod("u", 3), policy=policy, scope=scope) == ([""], [("a", "b", "c")])


def test_a_device_without_numa_node_among_others_does_not_count_under_a_strict_policy(
    short_dir: Path,
) -> None:
    """Three are free, and yet three cannot be had: kubelet.md 9.27."""
    devices = on(a=0, b=0, c=None)
    reasons, calls = outcome(short_dir, devices, pod("u", 3), pod("v", 2), policy=Policy.RESTRICTED)
    assert (reasons, calls) == (["TopologyAffinityError", ""], [("a", "b")])


def test_policy_none_takes_devices_wherever_they_are(short_dir: Path) -> None:
    """C85."""
    assert outcome(short_dir, on(a=1, b=0, c=0), pod("u", 2), policy=Policy.NONE) == ([""], [("a", "b")])


@pytest.mark.parametrize("scope", EVERY_SCOPE)
@pytest.mark.parametrize("policy", PLACING)
def test_every_other_policy_takes_devices_on_one_node(short_dir: Path, policy: Policy, scope: Scope) -> None:
    """C85, from the other side."""
    assert outcome(short_dir, on(a=1, b=0, c=0), pod("u", 2), policy=policy, scope=scope) == (
        [""],
        [("b", "c")],
    )


@pytest.mark.parametrize("policy", PLACING)
async def test_two_resources_of_a_container_are_placed_together(short_dir: Path, policy: Policy) -> None:
    limits = {RESOURCE: 1, OTHER_RESOURCE: 1}

    topology = TopologySettings(policy)
    async with (
        served(short_dir, on(a=0, b=1), machine=TWO_NODES, topology=topology) as (kubelet, plugin),
        registered(kubelet, on(x=1), OTHER_RESOURCE, "q") as other,
    ):
        await kubelet.admit(Pod("u", "u", containers=(Container("c", limits),)))
        assert (plugin.called("Allocate"), other.called("Allocate")) == ([("b",)], [("x",)])


async def test_the_plugin_is_asked_to_choose_among_devices_on_the_right_node_only(short_dir: Path) -> None:
    asked: list[PreferenceRequest] = []

    async def last(request: PreferenceRequest) -> Sequence[Ids]:
        asked.append(request)
        return [("c", "d")]

    options = PluginOptions(preferred_allocation_available=True)
    async with two_nodes(short_dir, on(a=1, b=0, c=0, d=1), Policy.SINGLE_NUMA_NODE, options=options) as (
        kubelet,
        plugin,
    ):
        plugin.on_prefer = last
        await kubelet.admit(pod("u"))
        assert asked == [PreferenceRequest(("b", "c"), (), 1)]
        assert plugin.called("Allocate") == [("c",)]


async def test_the_plugin_is_not_asked_if_a_node_has_just_what_is_needed(short_dir: Path) -> None:
    """C61."""
    options = PluginOptions(preferred_allocation_available=True)
    async with two_nodes(short_dir, on(a=1, b=0, c=0), Policy.SINGLE_NUMA_NODE, options=options) as (
        kubelet,
        plugin,
    ):
        await kubelet.admit(pod("u", 2))
        assert plugin.called("GetPreferredAllocation") == []
        assert plugin.called("Allocate") == [("b", "c")]


async def test_nearer_nodes_are_taken_where_that_is_asked_for(short_dir: Path) -> None:
    """Four nodes in a ring of pairs: 0 is next to 2."""
    rows = ((10, 32, 12, 32), (32, 10, 32, 12), (12, 32, 10, 32), (32, 12, 32, 10))
    machine = NodeHardware(tuple(NumaNode(node, row) for node, row in enumerate(rows)))

    topology = TopologySettings(Policy.BEST_EFFORT, options={"prefer-closest-numa-nodes": "true"})
    async with (
        running(short_dir, machine=machine, topology=topology) as kubelet,
        registered(kubelet, on(a=0, b=1, c=2, d=3)) as plugin,
    ):
        await kubelet.admit(pod("u", 2))
        assert plugin.called("Allocate") == [("a", "c")]


async def test_a_machine_with_more_nodes_than_allowed_has_no_kubelet(short_dir: Path) -> None:
    nine = NodeHardware(tuple(NumaNode(node) for node in range(9)))

    with pytest.raises(KubeletError, match=r"^unsupported on machines with more than 8 NUMA Nodes$"):
        async with running(short_dir, machine=nine, topology=TopologySettings("restricted")):
            pass
    assert list(short_dir.iterdir()) == []


# ── several containers: the scopes differ ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("scope", "calls"), [(Scope.CONTAINER, [("a",), ("b",)]), (Scope.POD, [("b",), ("c",)])]
)
def test_a_pod_is_placed_as_a_whole_only_if_that_is_the_scope(
    short_dir: Path, scope: Scope, calls: list[Ids]
) -> None:
    devices, whole = on(a=0, b=1, c=1), wanting("u", 1, 1)
    assert outcome(short_dir, devices, whole, policy=Policy.SINGLE_NUMA_NODE, scope=scope) == ([""], calls)


@pytest.mark.parametrize("policy", [Policy.RESTRICTED, Policy.SINGLE_NUMA_NODE])
@pytest.mark.parametrize(
    ("scope", "reason", "calls"),
    [(Scope.POD, "TopologyAffinityError", [("a",)]), (Scope.CONTAINER, "", [("a",), ("b",), ("c",)])],
)
def test_a_pod_that_cannot_be_placed_as_a_whole_costs_no_call(
    short_dir: Path, policy: Policy, scope: Scope, reason: str, calls: list[Ids]
) -> None:
    """Two devices are on one node if all are free, but not at the moment."""
    devices, first, whole = on(a=0, b=0, c=1), pod("first"), wanting("u", 1, 1)
    assert outcome(short_dir, devices, first, whole, policy=policy, scope=scope) == (["", reason], calls)


async def test_container_scope_refuses_at_the_container_that_does_not_fit(short_dir: Path) -> None:
    """What the containers before it got stays theirs until the pod is inactive (kubelet.md 6.6)."""
    async with two_nodes(short_dir, on(a=0, b=0, c=1), Policy.SINGLE_NUMA_NODE) as (kubelet, plugin):
        assert (await kubelet.admit(wanting("u", 1, 2))).reason == "TopologyAffinityError"
        assert plugin.called("Allocate") == [("a",)]
        assert [held.pod_uid for held in kubelet.allocations()] == ["u"]
        assert (await kubelet.admit(wanting("v", 2))).reason == ""
        assert plugin.called("Allocate")[1:] == [("a", "b")]


def test_pod_scope_reckons_with_what_init_containers_leave(short_dir: Path) -> None:
    """The init container's two devices are the two that the apps get: the pod wants two, not four."""
    devices, whole = on(a=0, b=1, c=1), wanting("u", 1, 1, init=2)
    assert outcome(short_dir, devices, whole, policy=Policy.SINGLE_NUMA_NODE, scope=Scope.POD) == (
        [""],
        [("b", "c"), ("b",), ("c",)],
    )


def test_container_scope_places_an_app_where_its_init_container_was(short_dir: Path) -> None:
    """Node 1 has room for the app alone, but the init container's device on node 0 is used again."""
    devices, whole = on(a=0, b=0, c=1, d=1, e=1), wanting("u", 2, init=1)
    assert outcome(short_dir, devices, whole, policy=Policy.SINGLE_NUMA_NODE) == ([""], [("a",), ("a", "b")])


# ── what is remembered of a container ──────────────────────────────────────────────────────────────


class Provider:
    """A hint provider that cares for `node` alone, and notes where each container was when it allocated."""

    def __init__(self, node: int) -> None:
        self.hints = {RESOURCE: (TopologyHint(mask_of([node]), is_preferred=True),)}
        self.manager: TopologyManager | None = None
        self.seen: list[tuple[str, TopologyHint]] = []

    def container_hints(self, pod: Pod, container: Container) -> Mapping[str, Hints]:
        return self.hints

    def pod_hints(self, pod: Pod) -> Mapping[str, Hints]:
        return self.hints

    async def allocate(self, pod: Pod, container: Container) -> None:
        assert self.manager is not None
        self.seen.append((container.name, self.manager.affinity(pod.uid, container.name)))


@pytest.mark.parametrize("scope", EVERY_SCOPE)
@pytest.mark.parametrize("policy", EVERY_POLICY)
async def test_a_place_is_known_when_devices_are_picked_and_until_it_is_forgotten(
    policy: Policy, scope: Scope
) -> None:
    rules = TopologyRules.of(TopologySettings(policy, scope), TWO_NODES)
    provider = Provider(1)
    provider.manager = manager = TopologyManager(rules, KubeletMetrics())
    where = NO_AFFINITY if policy is Policy.NONE else TopologyHint(mask_of([1]), is_preferred=True)
    whole = wanting("u", 1, 1, init=1)
    assert await manager.admit(whole, provider) is None
    assert provider.seen == [("i", where), ("c0", where), ("c1", where)]
    assert manager.affinity("v", "c0") == NO_AFFINITY
    manager.forget("u", "c0")
    manager.forget("u", "never")
    assert [manager.affinity("u", name) for name in ("c0", "c1")] == [NO_AFFINITY, where]
