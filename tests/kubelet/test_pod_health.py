"""What a pod's status says of the health of its devices, and for which pods it is written again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.devices import HEALTHY, UNHEALTHY
from devplug.k8s.pod_requests import ALWAYS
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, ContainerState, Pod, PodPhase
from devplug.kubelet.resources import UNKNOWN, changed_health, disconnected, health_in_status, listed
from devplug.wire.values import AdvertisedDevice
from tests.kubelet.fakes import (
    OTHER_RESOURCE,
    RESOURCE,
    Clock,
    Devices,
    FakePlugin,
    happened,
    healthy,
    pod,
    register,
    registered,
    running,
    served,
    unhealthy,
)

BAD = (AdvertisedDevice("a", "Smoking"),)


def shown(kubelet: Kubelet, uid: str = "u", name: str = "c") -> Mapping[str, Mapping[str, str]]:
    """Resource name → device ID → health, in the status of one container."""
    return kubelet.pod(uid).container(name).allocated_resources


async def told(kubelet: Kubelet, plugin: FakePlugin, devices: Devices) -> list[str]:
    """Send a list and return the pods whose status is written again for it."""
    with kubelet.changes() as changes:
        plugin.send(devices)
        pods = []
        async for change in changes:
            if change.kind is ChangeKind.HEALTH:
                pods.append(change.pod_uid)
            if change.kind is ChangeKind.LISTED:
                return pods
    raise AssertionError


# ── the rules ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("listed_health", "shown_health"),
    [(HEALTHY, HEALTHY), (UNHEALTHY, UNHEALTHY), ("", UNHEALTHY), ("healthy", UNHEALTHY)],
)
def test_the_status_knows_two_words(listed_health: str, shown_health: str) -> None:
    """C98."""
    state = listed(UNKNOWN, [AdvertisedDevice("a", listed_health)])
    assert health_in_status(state, "a") == shown_health


def test_a_device_that_is_not_listed_shows_as_healthy() -> None:
    """C98."""
    assert health_in_status(UNKNOWN, "a") == HEALTHY
    assert health_in_status(listed(UNKNOWN, unhealthy("b")), "a") == HEALTHY


def test_the_loss_of_a_plugin_changes_no_health_that_is_shown() -> None:
    """C98."""
    state = disconnected(listed(UNKNOWN, healthy("a") + unhealthy("b")))
    assert (health_in_status(state, "a"), health_in_status(state, "b")) == (HEALTHY, UNHEALTHY)


device_lists = st.lists(
    st.builds(AdvertisedDevice, st.sampled_from("abcd"), st.sampled_from([HEALTHY, UNHEALTHY, ""])),
    unique_by=lambda device: device.id,
)


@given(device_lists, device_lists)
def test_a_health_has_changed_if_it_is_another_word_or_was_not_listed(
    before: list[AdvertisedDevice], after: list[AdvertisedDevice]
) -> None:
    words = {device.id: device.health for device in before}
    assert changed_health(listed(UNKNOWN, before), after) == {
        device.id for device in after if device.id not in words or words[device.id] != device.health
    }


# ── on a socket ───────────────────────────────────────────────────────────────────────────────────


async def test_a_held_device_that_falls_ill_shows_in_the_status_of_its_pod(short_dir: Path) -> None:
    """C98, C40: the pod runs on."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b", "c")) as plugin:
        await kubelet.run_pod(pod("u", 2))
        assert shown(kubelet) == {RESOURCE: {"a": HEALTHY, "b": HEALTHY}}
        assert await told(kubelet, plugin, BAD + healthy("b", "c")) == ["u"]
        assert shown(kubelet) == {RESOURCE: {"a": UNHEALTHY, "b": HEALTHY}}
        status = kubelet.pod("u")
        assert (status.phase, status.container("c").state) == (PodPhase.RUNNING, ContainerState.RUNNING)
        assert await told(kubelet, plugin, healthy("a", "b", "c")) == ["u"]
        assert shown(kubelet) == {RESOURCE: {"a": HEALTHY, "b": HEALTHY}}


async def test_a_held_device_that_vanishes_or_loses_its_plugin_shows_as_healthy(short_dir: Path) -> None:
    """C98, C40."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        await kubelet.run_pod(pod("u"))
        assert await told(kubelet, plugin, BAD + healthy("b")) == ["u"]
        assert await told(kubelet, plugin, healthy("b")) == []
        assert shown(kubelet) == {RESOURCE: {"a": HEALTHY}}
        # It was away for a while, so its pod is told that it is back.
        assert await told(kubelet, plugin, healthy("a", "b")) == ["u"]
        with kubelet.changes() as changes:
            await plugin.die()
            await happened(changes, ChangeKind.STREAM_ENDED)
        assert kubelet.allocatable() == {RESOURCE: 0}
        assert shown(kubelet) == {RESOURCE: {"a": HEALTHY}}
        assert kubelet.pod("u").phase is PodPhase.RUNNING


async def test_a_device_that_was_ill_when_its_plugin_went_stays_so_until_the_kubelet_ends(
    short_dir: Path,
) -> None:
    """The next kubelet knows who holds it, and nothing of its health."""
    clock = Clock()
    async with running(short_dir, clock=clock) as kubelet, registered(kubelet, healthy("a")) as plugin:
        await kubelet.run_pod(pod("u"))
        await told(kubelet, plugin, BAD)
        kubelet.drop_stream(RESOURCE)
        clock.seconds += 301
        kubelet.update_node_status()
        assert shown(kubelet) == {RESOURCE: {"a": UNHEALTHY}}
        await kubelet.restart()
        assert shown(kubelet) == {RESOURCE: {"a": HEALTHY}}
        plugin.devices = BAD
        await plugin.die()
        await plugin.listen()
        await register(kubelet, plugin)
        assert shown(kubelet) == {RESOURCE: {"a": UNHEALTHY}}


async def test_nobody_is_told_of_a_list_that_says_nothing_new_or_of_a_loss(short_dir: Path) -> None:
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "free")) as plugin:
        await kubelet.run_pod(pod("u"))
        assert await told(kubelet, plugin, healthy("a", "free")) == []
        assert await told(kubelet, plugin, healthy("a") + unhealthy("free")) == []
        with kubelet.changes() as changes:
            plugin.end_streams()
            kinds = []
            async for change in changes:
                kinds.append(change.kind)
                if change.kind is ChangeKind.STREAM_ENDED:
                    break
        assert ChangeKind.HEALTH not in kinds


async def test_all_pods_of_one_list_are_told_once_each(short_dir: Path) -> None:
    async with running(short_dir) as kubelet, registered(kubelet, healthy(*"abc")) as plugin:
        await kubelet.run_pod(pod("u", 2))
        await kubelet.run_pod(pod("v"))
        assert await told(kubelet, plugin, unhealthy(*"abc")) == ["u", "v"]


async def test_the_holder_is_looked_for_by_the_id_alone(short_dir: Path) -> None:
    """As in 1.36: where two resources have the same ID, the wrong pod may be told. The status is right."""
    async with (
        served(short_dir, healthy("a")) as (kubelet, _),
        registered(kubelet, healthy("a"), OTHER_RESOURCE, "q") as other,
    ):
        await kubelet.run_pod(pod("first"))
        await kubelet.run_pod(pod("second", 1, OTHER_RESOURCE))
        assert await told(kubelet, other, unhealthy("a")) == ["first"]
        assert shown(kubelet, "first") == {RESOURCE: {"a": HEALTHY}}
        assert shown(kubelet, "second") == {OTHER_RESOURCE: {"a": UNHEALTHY}}


async def test_only_app_containers_show_their_devices(short_dir: Path) -> None:
    """Kubelet.md 8.3: neither init containers nor sidecars, though they hold some too."""
    wanted = {RESOURCE: 1}
    whole = Pod(
        "u",
        "u",
        init_containers=(Container("i", wanted), Container("s", wanted, ALWAYS)),
        containers=(Container("c", wanted), Container("none")),
    )

    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")):
        status = await kubelet.run_pod(whole)
        assert {one.name: one.allocated_resources for one in status.containers} == {
            "i": {},
            "s": {},
            "c": {RESOURCE: {"b": HEALTHY}},
            "none": {},
        }


async def test_devices_show_before_the_container_starts_and_while_it_cannot(short_dir: Path) -> None:
    clock = Clock()
    async with running(short_dir, clock=clock) as kubelet, registered(kubelet, healthy("a")):
        status = await kubelet.admit(pod("u"))
        assert status.container("c").allocated_resources == {RESOURCE: {"a": HEALTHY}}
        kubelet.drop_stream(RESOURCE)
        clock.seconds += 301
        kubelet.update_node_status()
        await kubelet.start_container("u", "c")
        assert kubelet.pod("u").container("c").state is ContainerState.WAITING
        assert shown(kubelet) == {RESOURCE: {"a": HEALTHY}}
