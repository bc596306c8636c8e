"""`Serving.replace`: another plugin behind the same socket, registration and stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from devplug import ContainerResponse, Device, DevicePlugin, PluginError, Serving, serve
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import PodPhase
from devplug.plugin.service import LEAVING_SECONDS
from devplug.plugin.serving import FIRST_LIST_SECONDS
from devplug.wire import deviceplugin
from devplug.wire.sockets import connected
from devplug.wire.values import PreferenceRequest
from tests.kubelet.fakes import pod
from tests.plugin.fakes import (
    OTHER_RESOURCE,
    RESOURCE,
    Fed,
    allocatable,
    devices,
    our_threads,
    plugin_sockets,
    refusal,
    registered,
)
from tests.plugin.fakes import served as calls_served
from tests.virtualtime import now, on_virtual_time, passes
from tests.waiting import until

anyio_backend = on_virtual_time


class Named(Fed):
    """A plugin whose containers get its name as a variable."""

    def __init__(self, name: str, *ids: str) -> None:
        super().__init__(*ids)
        self.name = name
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.ended = asyncio.Event()

    async def devices(self) -> AsyncIterator[list[Device]]:  # type: ignore[override]  # a generator, here
        try:
            async for listed in self.feed:
                yield listed
        finally:
            self.ended.set()

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        self.entered.set()
        await self.go.wait()
        return ContainerResponse(envs={"PLUGIN": self.name})


class Slow(Named):
    """A plugin that lists nothing until its feed is given devices."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.feed = type(self.feed)()


async def plugin_of(kubelet: Kubelet, name: str) -> str:
    """Return which plugin answered the Allocate of a new pod, whose devices are free again afterwards."""
    status = await kubelet.run_pod(pod(name))
    assert status.phase is PodPhase.RUNNING, status.message
    options = status.containers[0].options
    assert options is not None
    kubelet.end_pod(name)
    kubelet.remove_pod(name)
    return options.envs["PLUGIN"]


def marks(kubelet: Kubelet, serving: Serving) -> tuple[int, int, int]:
    """Return how many registrations, streams and sockets there were."""
    streams = serving.counters[RESOURCE].streams_opened
    return kubelet.registrations(RESOURCE), streams, len(plugin_sockets(kubelet.plugin_dir))


async def test_a_new_plugin_answers_behind_the_same_registration(short_dir: Path) -> None:
    async with registered(short_dir, Named("old", "a", "b")) as (kubelet, serving):
        assert await plugin_of(kubelet, "p1") == "old"
        new = Named("new", "b", "c", "d")
        await serving.replace(new)
        assert serving.plugins == (new,)
        await kubelet.wait(lambda: allocatable(kubelet) == 3)
        assert await plugin_of(kubelet, "p2") == "new"
        assert marks(kubelet, serving) == (1, 1, 1)
        new.feed.remove("d")
        await kubelet.wait(lambda: allocatable(kubelet) == 2)


async def test_the_plugin_before_answers_until_the_first_list(short_dir: Path) -> None:
    async with registered(short_dir, Named("old", "a")) as (kubelet, serving), asyncio.TaskGroup() as group:
        new = Slow("new")
        replacement = group.create_task(serving.replace(new))
        await until(lambda: serving.waiting == (RESOURCE,))
        assert await plugin_of(kubelet, "p1") == "old"
        new.feed.replace(devices("a"))
        await replacement
        assert serving.waiting == ()
        assert await plugin_of(kubelet, "p2") == "new"


async def test_a_call_ends_with_the_plugin_with_which_it_began(short_dir: Path) -> None:
    old = Named("old", "a", "b")
    async with registered(short_dir, old) as (kubelet, serving), asyncio.TaskGroup() as group:
        old.go.clear()
        admission = group.create_task(kubelet.run_pod(pod("p1")))
        await old.entered.wait()
        await serving.replace(Named("new", "a", "b"))
        await old.ended.wait()
        old.go.set()
        status = await admission
        assert status.containers[0].options is not None, status.message
        assert status.containers[0].options.envs == {"PLUGIN": "old"}
        assert await plugin_of(kubelet, "p2") == "new"


async def test_equal_lists_send_nothing_and_keep_their_times(short_dir: Path) -> None:
    async with registered(short_dir, Named("old", "a", "b")) as (_, serving):
        (before,) = serving.statuses()
        sent = serving.counters[RESOURCE].lists_sent
        await passes(5)
        await serving.replace(Named("new", "a", "b"))
        await passes(5)
        (after,) = serving.statuses()
        assert [one.since for one in after.devices] == [one.since for one in before.devices]
        assert serving.counters[RESOURCE].lists_sent == sent


async def test_no_list_between_two_plugins_is_empty_or_partial(short_dir: Path) -> None:
    """With so many devices a list takes several turns of the loop."""
    ids = [f"d{number}" for number in range(3000)]
    async with registered(short_dir, Named("old", *ids)) as (kubelet, serving):
        with kubelet.changes() as changes:
            await serving.replace(Named("new", *ids, "more"))
            counts = set()
            async with aclosing(changes) as listed:  # type: ignore[type-var]
                async for change in listed:
                    if change.kind is ChangeKind.LISTED:
                        counts.add(len(kubelet.devices(RESOURCE)))
                        break
            assert counts == {3001}


async def test_a_device_that_leaves_with_a_plugin_is_still_allocated(short_dir: Path) -> None:
    """The kubelet may have chosen it before it got the new list."""
    async with registered(short_dir, Named("old", "a", "b")) as (kubelet, serving):
        await serving.replace(Named("new", "b"))
        (socket,) = plugin_sockets(short_dir)
        async with connected(socket) as peer:
            of_old = await peer.call(deviceplugin.ALLOCATE, [("a",)])
            of_new = await peer.call(deviceplugin.ALLOCATE, [("b",)])
            assert [one.envs for one in (*of_old, *of_new)] == [{"PLUGIN": "old"}, {"PLUGIN": "new"}]
            await passes(LEAVING_SECONDS + 1)
            late = peer.call(deviceplugin.ALLOCATE, [("a",)])
            assert "is unhealthy (gone)" in await refusal(late)
        await kubelet.wait(lambda: len(kubelet.devices(RESOURCE)) == 2)


async def test_a_device_of_the_plugin_before_leaves_soon(short_dir: Path) -> None:
    async with registered(short_dir, Named("old", "a", "b")) as (kubelet, serving):
        replaced_at = now()
        await serving.replace(Named("new", "b"))
        await kubelet.wait(lambda: allocatable(kubelet) == 1)
        assert len(kubelet.devices(RESOURCE)) == 2
        await kubelet.wait(lambda: len(kubelet.devices(RESOURCE)) == 1)
        assert now() - replaced_at == pytest.approx(LEAVING_SECONDS, abs=0.5)


# ── a plugin that does not take effect ──


@pytest.mark.parametrize("error", [OSError(19, "no such bus"), PluginError("no such bus")])
async def test_a_plugin_that_fails_first_leaves_the_one_before(short_dir: Path, error: Exception) -> None:
    class Broken(Named):
        def devices(self) -> Any:
            raise error

    old = Named("old", "a")
    async with registered(short_dir, old) as (kubelet, serving):
        with pytest.raises(PluginError, match="no such bus"):
            await serving.replace(Broken("new"))
        assert serving.plugins == (old,)
        assert await plugin_of(kubelet, "p1") == "old"
        old.feed.put(*devices("b"))
        await kubelet.wait(lambda: allocatable(kubelet) == 2)


async def test_a_plugin_that_lists_nothing_in_time_is_given_up(short_dir: Path) -> None:
    async with registered(short_dir, Named("old", "a")) as (kubelet, serving):
        new, began_at = Slow("new"), now()
        with pytest.raises(PluginError, match=r"devices\(\) gave no list within 30 s"):
            await serving.replace(new)
        assert now() - began_at == pytest.approx(FIRST_LIST_SECONDS, abs=1)
        await new.ended.wait()
        assert await plugin_of(kubelet, "p1") == "old"


async def test_a_later_plugin_takes_the_place_of_one_that_waits(short_dir: Path) -> None:
    async with registered(short_dir, Named("old", "a")) as (kubelet, serving), asyncio.TaskGroup() as group:
        waiting = Slow("waiting")
        first = group.create_task(_error_of(serving, waiting))
        await until(lambda: serving.waiting)
        await serving.replace(Named("new", "a"))
        assert await first == f"{RESOURCE}: another plugin has taken its place"
        await waiting.ended.wait()
        waiting.feed.replace(devices("b"))
        assert await plugin_of(kubelet, "p1") == "new"


async def test_a_cancelled_replacement_changes_nothing(short_dir: Path) -> None:
    async with registered(short_dir, Named("old", "a")) as (kubelet, serving):
        new = Slow("new")
        async with asyncio.TaskGroup() as group:
            replacement = group.create_task(serving.replace(new))
            await until(lambda: serving.waiting)
            replacement.cancel()
        new.feed.replace(devices("b"))
        await new.ended.wait()
        assert serving.waiting == ()
        assert await plugin_of(kubelet, "p1") == "old"


async def test_a_removal_ends_a_replacement_that_waits(short_dir: Path) -> None:
    async with registered(short_dir, Named("old", "a")) as (_, serving), asyncio.TaskGroup() as group:
        waiting = group.create_task(_error_of(serving, Slow("new")))
        await until(lambda: serving.waiting)
        await serving.remove(RESOURCE)
        assert await waiting == f"{RESOURCE}: it is not served any more"


async def _error_of(serving: Serving, plugin: DevicePlugin) -> str:
    with pytest.raises(PluginError) as refused:
        await serving.replace(plugin)
    return str(refused.value)


async def test_only_a_served_name_can_be_replaced(short_dir: Path) -> None:
    async with serve(plugin_dir=short_dir) as serving:
        assert await _error_of(serving, Fed("a")) == (
            'resource name "example.com/a" is not served; add the plugin instead'
        )
        assert "has no resource_name" in await _error_of(serving, DevicePlugin())


# ── before the first list ──


async def test_where_nothing_is_listed_yet_a_plugin_is_in_effect_at_once(short_dir: Path) -> None:
    old, new = Slow("old"), Slow("new")
    async with Kubelet(short_dir).running() as kubelet, serve(old, plugin_dir=short_dir) as serving:
        await serving.replace(new)
        old.feed.replace(devices("a"))
        await passes(1)
        assert allocatable(kubelet) == 0
        new.feed.replace(devices("a"))
        await kubelet.wait(lambda: allocatable(kubelet) == 1)
        assert await plugin_of(kubelet, "p1") == "new"
        assert marks(kubelet, serving) == (1, 1, 1)


async def test_where_nothing_is_listed_yet_a_failure_is_retried(short_dir: Path) -> None:
    class Late(Named):
        tries = 0

        def devices(self) -> Any:
            self.tries += 1
            if self.tries == 1:
                raise OSError(19, "no such bus")
            return self.feed

    async with Kubelet(short_dir).running() as kubelet, serve(Slow("old"), plugin_dir=short_dir) as serving:
        await serving.replace(Late("new", "a"))
        await until(lambda: "no such bus" in serving.faults()[RESOURCE])
        await kubelet.wait(lambda: allocatable(kubelet) == 1)


# ── options ──


class Choosing(Named):
    """A plugin that has a preference: the last device."""

    async def prefer(self, available: Sequence[Device], _: Sequence[Device], size: int, /) -> Any:
        return sorted(available, key=lambda device: device.id)[-size:]


class Preparing(Choosing):
    """A plugin that has something to do before each start of a container, too."""

    async def pre_start(self, devices: Sequence[Device], /) -> None:
        raise AssertionError("the plugin was replaced")


class Starting(Named):
    """A plugin that does something before each start of a container."""

    async def pre_start(self, devices: Sequence[Device], /) -> None:
        pass


async def test_a_preference_that_is_added_takes_no_registration(short_dir: Path) -> None:
    """The kubelet asks for a preference from the start, so that devplug can steer it."""
    async with registered(short_dir, Named("old", "a", "b")) as (kubelet, serving):
        await serving.replace(Choosing("new", "a", "b"))
        await passes(30)
        assert kubelet.registrations(RESOURCE) == 1


@pytest.mark.parametrize(("first", "second"), [(Named, Starting), (Starting, Named)])
async def test_other_options_take_one_more_registration(
    short_dir: Path, caplog: pytest.LogCaptureFixture, first: type[Named], second: type[Named]
) -> None:
    caplog.set_level("INFO")
    async with registered(short_dir, first("old", "a", "b", "c")) as (kubelet, serving):
        await serving.replace(second("new", "a", "b", "c"))
        await kubelet.wait(lambda: kubelet.registrations(RESOURCE) == 2 and allocatable(kubelet) == 3)
        assert await plugin_of(kubelet, "p1") == "new"
        await passes(30)
        assert kubelet.registrations(RESOURCE) == 2
        logged = [one for one in caplog.messages if "offers other calls" in one]
        assert len(logged) == 1


async def test_a_call_that_only_the_plugin_before_offers_is_answered(short_dir: Path) -> None:
    """An error would leak the kubelet's reservations; with an empty answer it chooses itself."""
    async with calls_served(short_dir, Preparing("old", "a"), devices("a")) as served:
        await served.peer.call(deviceplugin.GET_OPTIONS, None)
        served.service.replace(Named("new", "a"))
        asked = [PreferenceRequest(("a",), (), 1)]
        chosen = await served.peer.call(deviceplugin.GET_PREFERRED_ALLOCATION, asked)
        assert list(chosen) == [()]
        await served.peer.call(deviceplugin.PRE_START_CONTAINER, ("a",))


# ── tidiness ──


async def test_no_task_and_no_thread_is_left_of_replaced_plugins(short_dir: Path) -> None:
    class Threaded(Fed):
        def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
            return ContainerResponse.of(devices)

    async with Kubelet(short_dir).running() as kubelet:
        before = asyncio.all_tasks()
        async with serve(Threaded("a"), plugin_dir=short_dir) as serving:
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
            for number in range(3):
                await kubelet.admit(pod(f"p{number}"))
                kubelet.end_pod(f"p{number}")
                await serving.replace(Threaded("a"))
            with pytest.raises(PluginError):
                await serving.replace(Threaded(resource_name=OTHER_RESOURCE))
        assert {task for task in asyncio.all_tasks() - before if "devplug" in repr(task)} == set()
        await until(lambda: not our_threads())
