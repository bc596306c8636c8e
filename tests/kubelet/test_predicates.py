"""The last check of a pod: whether the node has what it asks for, and what people read if it has not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.devices import ContainerResponse
from devplug.k8s.pod_requests import ALWAYS
from devplug.kubelet.admission import allocatable_for, check_pod
from devplug.kubelet.allocation import DeviceAllocations, Need
from devplug.kubelet.claim_references import ExtendedClaim, RequestMapping
from devplug.kubelet.pods import Container, Event, Pod, PodPhase, PodStatus, Rejection
from devplug.kubelet.resources import UNKNOWN, dropped, listed
from tests.kubelet.fakes import OTHER_RESOURCE, RESOURCE, Clock, healthy, pod, register, registered, running

BOTH = {RESOURCE: 1, OTHER_RESOURCE: 1}


def with_limits(uid: str, **limits: int) -> Pod:
    return Pod(uid, uid, containers=(Container("c", limits),))


# ── the rule ──────────────────────────────────────────────────────────────────────────────────────


def test_a_shortage_is_told_with_all_its_numbers() -> None:
    """C77."""
    others = [pod("v"), pod("w", 2)]
    assert check_pod(pod("u", 2), others, {RESOURCE: 4}) == Rejection(
        "OutOfexample.com/a",
        "Node didn't have enough resource: example.com/a, requested: 2, used: 3, capacity: 4",
    )


def test_what_counts_of_a_pod_is_its_peak() -> None:
    whole = Pod(
        "u",
        "u",
        init_containers=(Container("s", {RESOURCE: 1}, ALWAYS), Container("i", {RESOURCE: 2})),
        containers=(Container("c", {RESOURCE: 1}),),
    )
    assert check_pod(whole, [], {RESOURCE: 3}) is None
    rejection = check_pod(whole, [whole], {RESOURCE: 5})
    assert rejection is not None
    assert rejection.message.endswith("requested: 3, used: 3, capacity: 5")


counts = st.dictionaries(st.sampled_from("abc"), st.integers(0, 4))


@given(counts, st.lists(counts, max_size=3), counts)
def test_a_pod_is_refused_for_exactly_those_resources_of_which_too_little_is_left(
    limits: dict[str, int], others: list[dict[str, int]], allocatable: dict[str, int]
) -> None:
    """C78, too. The first shortage by name is told; the real kubelet goes through a map, in any order."""
    short = {
        f"OutOf{name}"
        for name, count in limits.items()
        if name in allocatable
        and count > 0
        and sum(other.get(name, 0) for other in others) + count > allocatable[name]
    }
    rejection = check_pod(
        with_limits("u", **limits),
        [with_limits(f"v{place}", **other) for place, other in enumerate(others)],
        allocatable,
    )
    assert (rejection.reason if rejection else None) == min(short, default=None)


# ── what the check counts with ────────────────────────────────────────────────────────────────────


def allocated(*held_by: str) -> DeviceAllocations:
    """A plugin that is long gone, and one device of it for each of these pods."""
    allocations = DeviceAllocations()
    allocations.update(RESOURCE, listed(UNKNOWN, healthy(*held_by)))
    for uid in held_by:
        allocations.assign(Need(uid, "c", RESOURCE, 1), [uid], ContainerResponse(), compat=True)
    allocations.release_unassigned()
    allocations.update(RESOURCE, dropped(allocations.state(RESOURCE)))
    return allocations


@pytest.mark.parametrize("allocatable", [{}, {RESOURCE: 0}, {RESOURCE: 1}])
def test_for_a_pod_with_devices_the_node_has_at_least_what_is_in_use(allocatable: dict[str, int]) -> None:
    """C73: else a pod that runs would be refused as long as its plugin is not back."""
    assert allocatable_for(pod("u"), allocatable, allocated("u", "v")) == {RESOURCE: 2}


def test_a_name_that_was_tried_and_never_given_counts_as_nought() -> None:
    """After a refusal for too few devices the real kubelet has an empty set under the name."""
    allocations = allocated("u")
    allocations.update(OTHER_RESOURCE, replace(UNKNOWN, allocated=frozenset()))
    assert allocatable_for(pod("u"), {}, allocations) == {RESOURCE: 1, OTHER_RESOURCE: 0}


def test_more_than_what_is_in_use_stays_as_it_is() -> None:
    assert allocatable_for(pod("u"), {RESOURCE: 5, "cpu": 1}, allocated("u", "v")) == {RESOURCE: 5, "cpu": 1}


def test_for_a_pod_without_devices_nothing_is_raised() -> None:
    assert allocatable_for(pod("new"), {RESOURCE: 0}, allocated("u", "v")) == {RESOURCE: 0}


def test_the_nodes_own_numbers_are_not_changed_by_a_check() -> None:
    allocatable = {RESOURCE: 0}
    allocatable_for(pod("u"), allocatable, allocated("u"))
    assert allocatable == {RESOURCE: 0}


# ── on a socket ───────────────────────────────────────────────────────────────────────────────────


async def test_a_pod_that_asks_for_an_expired_resource_is_told_that_there_is_none(short_dir: Path) -> None:
    """C77."""
    why = "Node didn't have enough resource: example.com/a, requested: 1, used: 0, capacity: 0"

    clock = Clock()
    async with running(short_dir, clock=clock) as kubelet, registered(kubelet, healthy("a")):
        kubelet.drop_stream(RESOURCE)
        clock.seconds += 301
        kubelet.update_node_status()
        assert await kubelet.admit(pod("u")) == PodStatus(
            PodPhase.FAILED, "OutOfexample.com/a", f"Pod was rejected: {why}"
        )
        assert kubelet.events == [Event("u", "Warning", "OutOfexample.com/a", why)]


async def test_a_pod_that_asks_for_a_resource_nobody_ever_had_starts_without(short_dir: Path) -> None:
    """C78: the same pod as above, on a node that has never seen the name."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("x"), OTHER_RESOURCE) as other:
        status = await kubelet.run_pod(pod("u", 7))
        assert (status.phase, status.container("c").options) == (PodPhase.RUNNING, None)
        assert kubelet.allocations() == ()
        assert other.called("Allocate") == []
        # A plugin that comes later changes nothing for the pod that runs.
        async with registered(kubelet, healthy("a"), name="late"):
            assert kubelet.pod("u").phase is PodPhase.RUNNING


async def test_devices_are_allocated_before_the_check_and_stay_until_others_need_them(
    short_dir: Path,
) -> None:
    """Kubelet.md 4.1: a pod that is refused here has cost its plugin a call."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        kubelet.patch_node(OTHER_RESOURCE, 0)
        refused = await kubelet.admit(Pod("u", "u", containers=(Container("c", BOTH),)))
        assert refused.reason == "OutOfvendor.io/b"
        assert plugin.called("Allocate") == [("a",)]
        assert [held.pod_uid for held in kubelet.allocations()] == ["u"]
        assert not (await kubelet.admit(pod("v"))).is_terminal
        assert [held.pod_uid for held in kubelet.allocations()] == ["v"]


async def test_only_pods_that_have_not_ended_take_room(short_dir: Path) -> None:
    async with running(short_dir) as kubelet:
        kubelet.patch_node(OTHER_RESOURCE, 2)
        for uid in ("u", "v"):
            assert not (await kubelet.run_pod(pod(uid, 1, OTHER_RESOURCE))).is_terminal
        assert (await kubelet.admit(pod("w", 1, OTHER_RESOURCE))).message.endswith("used: 2, capacity: 2")
        kubelet.end_pod("u")
        assert not (await kubelet.admit(pod("x", 1, OTHER_RESOURCE))).is_terminal


async def test_a_full_node_admits_all_of_its_pods_again(short_dir: Path) -> None:
    """C73: the node shows 0 then, and each pod holds what it asks for."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b", "c")):
        before = [await kubelet.run_pod(pod(uid, count)) for uid, count in (("u", 1), ("v", 2))]
        await kubelet.restart()
        assert kubelet.allocatable() == {RESOURCE: 0}
        assert [kubelet.pod(uid) for uid in "uv"] == before
        assert kubelet.events == []


async def test_pods_that_do_not_fit_any_more_are_refused_from_the_last_one_on(short_dir: Path) -> None:
    """They are admitted again in the order in which they came; those before them take what there is."""
    async with running(short_dir) as kubelet:
        kubelet.patch_node(OTHER_RESOURCE, 3)
        for uid in ("u", "v", "w"):
            await kubelet.run_pod(pod(uid, 1, OTHER_RESOURCE))
        kubelet.patch_node(OTHER_RESOURCE, 2)
        await kubelet.restart()
        assert [kubelet.pod(uid).reason for uid in "uvw"] == ["", "", "OutOfvendor.io/b"]


async def test_a_pod_that_has_got_its_devices_fits_however_few_the_node_still_counts(short_dir: Path) -> None:
    """Two devices of three have left the list; by the time of the check all three are in use."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        await kubelet.run_pod(pod("u", 2))
        plugin.send(healthy("c"))
        await kubelet.wait(lambda: kubelet.allocatable() == {RESOURCE: 1})
        assert not (await kubelet.admit(pod("v"))).is_terminal
        assert plugin.called("Allocate") == [("a", "b"), ("c",)]


async def test_a_pod_that_dra_serves_costs_its_device_plugin_no_call(short_dir: Path) -> None:
    """C79: of two containers with the same limit, the one that stands in the pod's claim status."""
    wanted = {RESOURCE: 1}
    whole = Pod(
        "u",
        "u",
        containers=(Container("by-dra", wanted), Container("by-plugin", wanted)),
        extended_claim=ExtendedClaim(
            "c", (RequestMapping("by-dra", RESOURCE), RequestMapping("by-plugin", OTHER_RESOURCE))
        ),
    )
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        assert not (await kubelet.admit(whole)).is_terminal
        assert plugin.called("Allocate") == [("a",)]
        started = [await kubelet.start_container("u", name) for name in ("by-dra", "by-plugin")]
        assert [one.options is None for one in started] == [True, False]
        assert plugin.called("Allocate") == [("a",)]
        assert [held.container_name for held in kubelet.allocations()] == ["by-plugin"]


async def test_after_a_restart_the_plugin_comes_back_to_a_node_that_counts_as_before(short_dir: Path) -> None:
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        await kubelet.run_pod(pod("u"))
        await kubelet.restart()
        await plugin.die()
        await plugin.listen()
        await register(kubelet, plugin)
        assert not (await kubelet.admit(pod("v"))).is_terminal
        assert (await kubelet.admit(pod("w"))).reason == "UnexpectedAdmissionError"


async def test_what_dra_serves_is_not_checked(short_dir: Path) -> None:
    served = ExtendedClaim("c", (RequestMapping("c", RESOURCE),))
    whole = Pod("u", "u", containers=(Container("c", {RESOURCE: 2}),), extended_claim=served)

    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")):
        assert not (await kubelet.admit(whole)).is_terminal
