"""What the node shows of a resource: the rules of the counts, and when they change."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.errors import KubeletError
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.resources import (
    UNKNOWN,
    ResourceState,
    count,
    disconnected,
    dropped,
    grace_is_over,
    listed,
    restored,
)
from devplug.wire.values import AdvertisedDevice
from tests.kubelet.fakes import (
    RESOURCE,
    Clock,
    FakePlugin,
    happened,
    healthy,
    pod,
    register,
    registered,
    running,
    unhealthy,
)

device_lists = st.lists(
    st.builds(
        AdvertisedDevice,
        st.sampled_from("abcd"),
        st.sampled_from(["Healthy", "Unhealthy", "", "healthy", "Unknown"]),
    )
)


def numbers(state: ResourceState) -> tuple[int | None, int | None]:
    """Return capacity and allocatable of one resource."""
    counts = count({RESOURCE: state}, ())
    return counts.capacity.get(RESOURCE), counts.allocatable.get(RESOURCE)


# ── rules ─────────────────────────────────────────────────────────────────────────────────────────


def test_capacity_counts_all_devices_and_allocatable_the_healthy_ones() -> None:
    """C32."""
    assert numbers(listed(UNKNOWN, healthy("a", "b") + unhealthy("c"))) == (3, 2)


def test_a_device_that_leaves_the_list_lowers_what_it_counted_for() -> None:
    """C33."""
    first = listed(UNKNOWN, healthy("a", "b") + unhealthy("c"))
    assert numbers(listed(first, healthy("a", "b"))) == (2, 2)
    assert numbers(listed(first, healthy("a") + unhealthy("c"))) == (2, 1)


@pytest.mark.parametrize("word", ["Unhealthy", "", "healthy", "HEALTHY", "Healthy ", "Unknown"])
def test_any_word_but_healthy_is_unhealthy(word: str) -> None:
    """C34."""
    assert numbers(listed(UNKNOWN, [AdvertisedDevice("a", word)])) == (1, 0)


def test_an_empty_list_leaves_the_resource_with_nothing() -> None:
    """C35."""
    assert numbers(listed(UNKNOWN, ())) == (0, 0)


def test_an_id_with_both_healths_counts_twice() -> None:
    assert numbers(listed(UNKNOWN, healthy("a") + unhealthy("a") + healthy("b"))) == (3, 2)


def test_a_lost_plugin_that_never_sent_a_list_has_a_capacity_and_no_allocatable() -> None:
    """C39, as the device manager sees it: the node then copies the capacity."""
    assert numbers(disconnected(UNKNOWN)) == (0, None)


@given(device_lists, device_lists)
def test_a_list_is_the_whole_truth(before: list[AdvertisedDevice], after: list[AdvertisedDevice]) -> None:
    assert listed(listed(UNKNOWN, before), after) == listed(UNKNOWN, after)


@given(device_lists)
def test_a_disconnect_keeps_the_ids_and_the_listed_healths(devices: list[AdvertisedDevice]) -> None:
    before = listed(UNKNOWN, devices)
    after = disconnected(before)
    assert after.healthy == frozenset()
    assert after.unhealthy == frozenset(device.id for device in devices)
    assert after.devices == before.devices


@pytest.mark.parametrize(
    ("stopped_at", "now", "is_over"),
    [(None, 1e9, False), (0.0, 299.9, False), (0.0, 300.0, False), (0.0, 300.001, True)],
)
def test_the_grace_period_is_over_after_more_than_five_minutes(
    stopped_at: float | None, now: float, is_over: bool
) -> None:
    """C37."""
    assert grace_is_over(stopped_at, now) is is_over


def test_resources_without_an_endpoint_are_told_once_and_dropped() -> None:
    state = listed(UNKNOWN, healthy("a"))
    counts = count({RESOURCE: state}, [RESOURCE])
    assert (counts.capacity, counts.allocatable, counts.deleted) == ({}, {}, (RESOURCE,))
    assert count({RESOURCE: dropped(state)}, [RESOURCE]).deleted == ()
    assert dropped(state).devices == state.devices


def test_a_resource_of_the_checkpoint_shows_nothing_until_its_first_list() -> None:
    """C43."""
    assert numbers(restored(UNKNOWN)) == (0, 0)


# ── on a socket ───────────────────────────────────────────────────────────────────────────────────


async def test_the_end_of_a_stream_leaves_capacity_and_takes_allocatable(short_dir: Path) -> None:
    """C36."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        plugin.end_streams()
        await kubelet.wait(lambda: kubelet.allocatable() == {RESOURCE: 0})
        assert kubelet.capacity() == {RESOURCE: 2}


async def test_five_minutes_after_the_end_both_are_nought_and_the_key_remains(short_dir: Path) -> None:
    """C37."""
    clock = Clock()
    async with running(short_dir, clock=clock) as kubelet, registered(kubelet, healthy("a")):
        kubelet.drop_stream(RESOURCE)
        clock.seconds += 300
        assert kubelet.capacity() == {RESOURCE: 1}
        clock.seconds += 0.001
        assert (kubelet.capacity(), kubelet.allocatable()) == ({RESOURCE: 0}, {RESOURCE: 0})
        assert RESOURCE in kubelet.device_manager.endpoints
        kubelet.update_node_status()
        assert (kubelet.capacity(), kubelet.allocatable()) == ({RESOURCE: 0}, {RESOURCE: 0})
        assert RESOURCE not in kubelet.device_manager.endpoints


async def test_a_new_registration_restores_the_numbers_at_its_first_list(short_dir: Path) -> None:
    """C38."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        kubelet.drop_stream(RESOURCE)
        await plugin.streams(0)
        plugin.first = "nothing"
        await plugin.register()
        assert (kubelet.capacity(), kubelet.allocatable()) == ({RESOURCE: 2}, {RESOURCE: 0})
        await plugin.streams(1)
        plugin.send(healthy("a", "b"))
        await kubelet.wait(lambda: kubelet.allocatable() == {RESOURCE: 2})


async def test_a_registration_ends_the_countdown(short_dir: Path) -> None:
    clock = Clock()
    async with running(short_dir, clock=clock) as kubelet, registered(kubelet, healthy("a")) as plugin:
        kubelet.drop_stream(RESOURCE)
        clock.seconds += 299
        await register(kubelet, plugin)
        clock.seconds += 299
        kubelet.update_node_status()
        assert kubelet.allocatable() == {RESOURCE: 1}


async def test_a_stream_that_fails_at_once_shows_noughts(short_dir: Path) -> None:
    """C39."""

    def fail() -> None:
        raise KubeletError("no list")

    async with running(short_dir) as kubelet, FakePlugin(short_dir, on_list=fail).serving() as plugin:
        with kubelet.changes() as changes:
            await plugin.register()
            await happened(changes, ChangeKind.DISCONNECTED)
        assert (kubelet.capacity(), kubelet.allocatable()) == ({RESOURCE: 0}, {RESOURCE: 0})


async def test_running_pods_and_their_devices_outlast_what_happens_to_devices(short_dir: Path) -> None:
    """C40, C41."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        status = await kubelet.run_pod(pod("u"))
        held = kubelet.allocations()
        assert kubelet.allocatable() == {RESOURCE: 2}
        with kubelet.changes() as changes:
            for devices in (unhealthy("a") + healthy("b"), healthy("b"), ()):
                plugin.send(devices)
                await happened(changes, ChangeKind.LISTED)
        kubelet.drop_stream(RESOURCE)
        assert (kubelet.pod("u"), kubelet.allocations()) == (status, held)
