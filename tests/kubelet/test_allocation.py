"""Which devices a container gets: the order of the checks, the order of the choices, reuse, and leaks."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.devices import ContainerResponse
from devplug.errors import AllocationError, KubeletCrashError
from devplug.kubelet.allocation import DeviceAllocations, Need, numa_grouping
from devplug.kubelet.resources import UNKNOWN, disconnected, dropped, listed, split_by_affinity
from devplug.wire.values import AdvertisedDevice, PreferenceRequest
from tests.kubelet.fakes import RESOURCE, Devices, healthy, unhealthy

GIVEN = ContainerResponse()


def allocations_with(devices: Devices) -> DeviceAllocations:
    allocations = DeviceAllocations()
    allocations.update(RESOURCE, listed(UNKNOWN, devices))
    return allocations


def need(required: int = 1, pod_uid: str = "u", container_name: str = "c") -> Need:
    return Need(pod_uid, container_name, RESOURCE, required)


def pick(
    allocations: DeviceAllocations,
    wanted: Need,
    *,
    preferred: Collection[str] = (),
    was_running: bool = False,
    numa_nodes: Collection[int] | None = None,
) -> tuple[tuple[str, ...], list[PreferenceRequest]]:
    """Play the plugin that prefers `preferred`; return the choice and what the plugin was asked."""
    asked = []
    steps = allocations.pick(wanted, was_running=was_running, numa_nodes=numa_nodes)
    try:
        question = next(steps)
        while True:
            asked.append(question)
            question = steps.send(preferred)
    except StopIteration as chosen:
        return chosen.value, asked


def give(allocations: DeviceAllocations, wanted: Need) -> tuple[str, ...]:
    """Pick and assign, as after a good Allocate."""
    chosen, _ = pick(allocations, wanted)
    allocations.assign(wanted, chosen, GIVEN, compat=True)
    return chosen


def refusal(allocations: DeviceAllocations, wanted: Need) -> str:
    """Return the text of the refusal; it must leave the assignments alone."""
    before = allocations.assignments
    with pytest.raises(AllocationError) as caught:
        pick(allocations, wanted)
    assert allocations.assignments == before
    return str(caught.value)


# ── refusals, in the order in which they are checked ──────────────────────────────────────────────


def test_a_changed_request_is_refused_first() -> None:
    allocations = allocations_with(healthy("a", "b"))
    give(allocations, need(1))
    allocations.update(RESOURCE, dropped(allocations.state(RESOURCE)))
    assert refusal(allocations, need(2)) == (
        'pod "u" container "c" changed request for resource "example.com/a" from 1 to 2'
    )


def test_a_resource_without_a_list_is_unregistered() -> None:
    """C51."""
    assert refusal(DeviceAllocations(), need()) == "cannot allocate unregistered device example.com/a"


@pytest.mark.parametrize("required", [0, 1])
@pytest.mark.parametrize("devices", [(), unhealthy("a")])
def test_no_healthy_device_is_a_refusal_even_for_nothing(required: int, devices: Devices) -> None:
    """C45, C50."""
    assert refusal(allocations_with(devices), need(required)) == (
        "no healthy devices present; cannot allocate unhealthy devices example.com/a"
    )


def test_a_container_whose_device_is_unhealthy_now_is_refused() -> None:
    """C76."""
    allocations = allocations_with(healthy("a", "b"))
    give(allocations, need())
    allocations.update(RESOURCE, listed(allocations.state(RESOURCE), unhealthy("a") + healthy("b")))
    assert refusal(allocations, need()) == (
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/a"
    )


def test_too_few_devices_are_a_refusal_with_both_numbers() -> None:
    """C49."""
    allocations = allocations_with(healthy("a", "b") + unhealthy("c"))
    give(allocations, need(1, "other"))
    assert refusal(allocations, need(2)) == (
        "requested number of devices unavailable for example.com/a. Requested: 2, Available: 1"
    )


def test_a_container_that_was_running_is_not_checked() -> None:
    """C73: until all sources of pods are ready."""
    allocations = allocations_with(healthy("a"))
    give(allocations, need())
    allocations.update(RESOURCE, disconnected(allocations.state(RESOURCE)))
    assert pick(allocations, need(), was_running=True) == ((), [])


def test_a_container_that_has_its_devices_needs_no_others() -> None:
    """C75."""
    allocations = allocations_with(healthy("a", "b"))
    give(allocations, need())
    assert pick(allocations, need()) == ((), [])


# ── preferences ───────────────────────────────────────────────────────────────────────────────────


def test_the_plugin_is_asked_with_the_full_count_and_what_is_chosen_already() -> None:
    """C58."""
    allocations = allocations_with(healthy("a", "b", "c"))
    allocations.begin_container("u")
    give(allocations, need(1, container_name="init"))
    allocations.end_container("u", "init", runs_to_its_end=True, compat=True)
    chosen, asked = pick(allocations, need(2), preferred=["a", "c"])
    assert asked == [PreferenceRequest(("a", "b", "c"), ("a",), 2)]
    assert chosen == ("a", "c")


def test_the_plugin_is_not_asked_if_reusable_devices_suffice() -> None:
    """C57."""
    allocations = allocations_with(healthy("a", "b"))
    allocations.begin_container("u")
    give(allocations, need(1, container_name="init"))
    allocations.end_container("u", "init", runs_to_its_end=True, compat=True)
    assert pick(allocations, need()) == (("a",), [])


@given(
    preferred=st.lists(st.sampled_from(["a", "b", "c", "d", "ghost", "held", ""]), max_size=6),
    required=st.integers(1, 4),
)
def test_any_preference_yields_the_right_number_of_available_devices(
    preferred: list[str], required: int
) -> None:
    """C59: what cannot be used is ignored, what is missing is filled up."""
    allocations = allocations_with(healthy("a", "b", "c", "d", "held") + unhealthy("ghost"))
    allocations.restore([])
    allocations.assign(need(1, "other"), ["held"], GIVEN, compat=True)
    allocations.release_unassigned()
    chosen, _ = pick(allocations, need(required), preferred=preferred)
    usable = sorted(set(preferred) & set("abcd"))[:required]
    assert len(chosen) == required
    assert set(usable) <= set(chosen) <= set("abcd")


def test_a_failed_question_leaves_what_was_chosen_marked() -> None:
    """The leak of 1.36: nothing takes it back but a pod's end or a refused Allocate."""
    allocations = allocations_with(numa(("a", 0), ("b", 1), ("c", 1)))
    steps = allocations.pick(need(2), was_running=False, numa_nodes=[0])
    next(steps)
    with pytest.raises(AllocationError):
        steps.throw(AllocationError("the plugin failed"))
    assert allocations.state(RESOURCE).allocated == frozenset("a")
    allocations.release_unassigned()
    assert allocations.state(RESOURCE).allocated is None


# ── topology ──────────────────────────────────────────────────────────────────────────────────────


def numa(*devices: tuple[str, int | None]) -> Devices:
    return tuple(
        AdvertisedDevice(device_id, "Healthy", None if node is None else (node,))
        for device_id, node in devices
    )


@pytest.mark.parametrize(
    ("numa_nodes", "aligned", "unaligned", "no_affinity"),
    [
        (None, [], [], ["both", "free", "one", "zero"]),
        ([0], ["both", "zero"], ["one"], ["free"]),
        ([1], ["both", "one"], ["zero"], ["free"]),
        ([0, 1], ["both", "one", "zero"], [], ["free"]),
        ([7], [], ["both", "one", "zero"], ["free"]),
    ],
)
def test_available_devices_are_split_by_affinity(
    numa_nodes: list[int] | None, aligned: list[str], unaligned: list[str], no_affinity: list[str]
) -> None:
    both = AdvertisedDevice("both", "Healthy", (0, 1))
    state = listed(UNKNOWN, (*numa(("zero", 0), ("one", 1), ("free", None)), both))
    split = split_by_affinity(state, ["zero", "one", "free", "both"], numa_nodes)
    assert (list(split.aligned), list(split.unaligned), list(split.no_affinity)) == (
        aligned,
        unaligned,
        no_affinity,
    )


def test_without_a_policy_numa_nodes_are_ignored() -> None:
    """C85."""
    assert pick(allocations_with(numa(("a", 1), ("b", 0), ("c", 1))), need(2))[0] == ("a", "b")


def test_the_plugin_is_not_asked_if_all_aligned_devices_are_needed() -> None:
    """C61."""
    allocations = allocations_with(numa(("a", 1), ("b", 0), ("c", 0)))
    assert pick(allocations, need(2), numa_nodes=[0]) == (("b", "c"), [])


def test_the_plugin_chooses_among_more_aligned_devices_than_needed() -> None:
    allocations = allocations_with(numa(("a", 0), ("b", 0), ("c", 1)))
    chosen, asked = pick(allocations, need(1), preferred=["c", "b"], numa_nodes=[0])
    assert (chosen, asked) == (("b",), [PreferenceRequest(("a", "b"), (), 1)])


@given(st.data())
def test_aligned_devices_come_first(data: st.DataObject) -> None:
    nodes = data.draw(st.lists(st.sampled_from([None, 0, 1]), min_size=1, max_size=6))
    devices = numa(*((f"d{index}", node) for index, node in enumerate(nodes)))
    required = data.draw(st.integers(1, len(nodes)))
    chosen, _ = pick(allocations_with(devices), need(required), numa_nodes=[0])
    aligned = {device.id for device in devices if device.numa_nodes == (0,)}
    assert len(aligned.intersection(chosen)) == min(required, len(aligned))


def test_a_device_on_two_nodes_is_recorded_under_both() -> None:
    """C84."""
    devices = {
        "a": AdvertisedDevice("a", "Healthy", (0, 1)),
        "b": AdvertisedDevice("b", "Healthy"),
        "c": AdvertisedDevice("c", "Healthy", ()),
    }
    assert numa_grouping(devices, "abc", compat=True) == {0: ("a",), 1: ("a",), -1: ("b", "c")}


def test_a_device_that_vanished_during_allocate_crashes_the_kubelet() -> None:
    with pytest.raises(KubeletCrashError, match='device "gone" left its plugin\'s list'):
        numa_grouping({}, ["gone"], compat=True)
    assert numa_grouping({}, ["gone"], compat=False) == {-1: ("gone",)}


# ── reuse and freeing ─────────────────────────────────────────────────────────────────────────────


def whole_pod(
    allocations: DeviceAllocations, *containers: tuple[str, int, bool], uid: str = "u"
) -> list[tuple[str, ...]]:
    """Give devices to each (name, count, whether it runs to its end) and return them."""
    given_to = []
    for name, required, runs_to_its_end in containers:
        allocations.begin_container(uid)
        given_to.append(give(allocations, need(required, uid, name)))
        allocations.end_container(uid, name, runs_to_its_end=runs_to_its_end, compat=True)
    return given_to


def test_app_containers_reuse_what_init_containers_held() -> None:
    """C47: manager_test.go TestInitContainerDeviceAllocation."""
    allocations = allocations_with(healthy("a", "b", "c"))
    given_to = whole_pod(allocations, ("i1", 1, True), ("i2", 2, True), ("c1", 1, False), ("c2", 1, False))
    assert given_to == [("a",), ("a", "b"), ("a",), ("b",)]


def test_sidecars_keep_what_they_hold() -> None:
    """C47, C48: TestRestartableInitContainerDeviceAllocation."""
    allocations = allocations_with(healthy(*"abcdef"))
    given_to = whole_pod(
        allocations, ("i", 3, True), ("s1", 1, False), ("s2", 2, False), ("c1", 1, False), ("c2", 2, False)
    )
    assert given_to == [("a", "b", "c"), ("a",), ("b", "c"), ("d",), ("e", "f")]


def test_reusable_devices_are_taken_even_if_unhealthy_by_then() -> None:
    allocations = allocations_with(healthy("a", "b"))
    whole_pod(allocations, ("i", 1, True))
    allocations.update(RESOURCE, listed(allocations.state(RESOURCE), unhealthy("a") + healthy("b")))
    assert whole_pod(allocations, ("c", 1, False)) == [("a",)]


def test_reusable_devices_are_forgotten_with_the_next_pod() -> None:
    allocations = allocations_with(healthy("a", "b", "c"))
    whole_pod(allocations, ("i", 1, True))
    whole_pod(allocations, ("c", 1, False), uid="other")
    assert whole_pod(allocations, ("c", 1, False)) == [("c",)]


def test_devices_of_inactive_pods_are_freed_with_all_leaks() -> None:
    allocations = allocations_with(healthy("a", "b", "c"))
    give(allocations, need(1, "gone"))
    pick(allocations, need(1, "leaking"))
    assert not allocations.free_inactive({"gone"})
    assert allocations.state(RESOURCE).allocated == frozenset("ab")
    assert allocations.free_inactive({"leaking"})
    assert (allocations.assignments, allocations.state(RESOURCE).allocated) == ((), None)


@given(st.lists(st.tuples(st.sampled_from("wxyz"), st.integers(1, 3), st.booleans()), max_size=12))
def test_no_device_is_ever_held_twice(steps: list[tuple[str, int, bool]]) -> None:
    """Whatever pods come, go and are refused."""
    allocations = allocations_with(healthy(*"abcde"))
    active: set[str] = set()
    for uid, required, comes in steps:
        if not comes:
            active.discard(uid)
            continue
        active.add(uid)
        allocations.free_inactive(active)
        try:
            if chosen := pick(allocations, need(required, uid))[0]:
                allocations.assign(need(required, uid), chosen, GIVEN, compat=True)
        except AllocationError:
            if not any(held.allocation.pod_uid == uid for held in allocations.assignments):
                active.discard(uid)
        held_ids = [device_id for held in allocations.assignments for device_id in held.allocation.device_ids]
        assert len(held_ids) == len(set(held_ids))


def test_a_device_on_node_minus_one_has_no_affinity() -> None:
    """-1 is the kubelet's own name for none (manager.go filterByAffinity)."""
    devices = (AdvertisedDevice("a", "Healthy", (-1,)), AdvertisedDevice("b", "Healthy", (1,)))
    split = split_by_affinity(listed(UNKNOWN, devices), ["a", "b"], [0])
    assert (list(split.unaligned), list(split.no_affinity)) == (["b"], ["a"])
