"""PreStartContainer: before every start of a container; a refusal keeps it waiting."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from devplug import AllocationError, Device, UnhealthyDeviceError
from devplug.kubelet.pods import ContainerState, PodPhase
from devplug.wire import deviceplugin
from tests.kubelet.fakes import pod
from tests.plugin.fakes import RESOURCE, UNPLUGGED, Listed, Served, devices, refusal, registered, served
from tests.waiting import until


class Resetting(Listed):
    """A plugin whose `pre_start` does what `on_start` says."""

    def __init__(self, on_start: Callable[[Sequence[Device]], Any] | None = None) -> None:
        self.on_start = on_start
        self.started: list[tuple[str, ...]] = []

    def pre_start(self, devices: Sequence[Device], /) -> Any:
        self.started.append(tuple(device.id for device in devices))
        return self.on_start(devices) if self.on_start is not None else None


async def pre_start(plugin: Served, *ids: str) -> None:
    await plugin.peer.call(deviceplugin.PRE_START_CONTAINER, ids)


async def test_the_author_gets_the_devices_of_the_container_in_the_order_of_their_ids(
    short_dir: Path,
) -> None:
    resetting = Resetting()
    async with served(short_dir, resetting, devices("a", "b")) as plugin:
        await pre_start(plugin, "b", "a")
    assert resetting.started == [("a", "b")]


async def test_an_unhealthy_device_may_be_reset(short_dir: Path) -> None:
    resetting = Resetting()
    async with served(short_dir, resetting, [Device("a", health=UNPLUGGED)]) as plugin:
        await pre_start(plugin, "a")
    assert resetting.started == [("a",)]


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ((), "InvalidArgument pre-start: the request names no devices"),
        (("x",), f'NotFound pre-start: device "x" is not known to {RESOURCE}'),
        (("a", "a"), 'InvalidArgument pre-start: device "a" is asked for twice'),
        (("",), "InvalidArgument pre-start: a device ID is empty"),
    ],
)
async def test_what_cannot_be_met_is_refused_in_these_words(
    short_dir: Path, ids: tuple[str, ...], text: str
) -> None:
    resetting = Resetting()
    async with served(short_dir, resetting, devices("a")) as plugin:
        assert await refusal(pre_start(plugin, *ids)) == text
    assert resetting.started == []


async def test_a_plugin_without_a_pre_start_says_that_it_has_none(short_dir: Path) -> None:
    async with served(short_dir, Listed(), devices("a")) as plugin:
        text = "Unimplemented pre-start: this plugin does not announce a pre-start call"
        assert await refusal(pre_start(plugin, "a")) == text


async def test_a_refusal_is_the_authors_text(short_dir: Path) -> None:
    def refuse(_: Sequence[Device]) -> None:
        raise AllocationError("still warm")

    async with served(short_dir, Resetting(refuse), devices("a")) as plugin:
        assert await refusal(pre_start(plugin, "a")) == "FailedPrecondition pre-start: still warm"


async def test_an_unhealthy_device_error_marks_the_device_until_the_next_list(short_dir: Path) -> None:
    def refuse(devices: Sequence[Device]) -> None:
        raise UnhealthyDeviceError("reset failed", *devices)

    async with (
        served(short_dir, Resetting(refuse), devices("a")) as plugin,
        aclosing(plugin.lists()) as lists,
    ):
        await anext(lists)
        text = 'FailedPrecondition pre-start: device "a" is unhealthy (reset failed)'
        assert await refusal(pre_start(plugin, "a")) == text
        assert [device.health for device in await anext(lists)] == ["Unhealthy"]
        await plugin.inventory.replace(devices("a"))
        assert [device.health for device in await anext(lists)] == ["Healthy"]


async def test_any_other_error_is_an_incident(short_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Sequence[Device]) -> None:
        raise ValueError("secret-token")

    async with served(short_dir, Resetting(fail), devices("a")) as plugin:
        text = await refusal(pre_start(plugin, "a"))
        assert re.fullmatch("Internal pre-start: internal error, incident [0-9a-f]{6}", text)
    assert "secret-token" in caplog.text


async def test_code_that_is_too_slow_is_cut_off_with_the_time_it_had(short_dir: Path) -> None:
    resetting = Resetting(lambda _: asyncio.Event().wait())
    resetting.pre_start_timeout_seconds = 0.1
    async with served(short_dir, resetting, devices("a")) as plugin:
        text = "DeadlineExceeded pre-start: no answer in 0.1s"
        assert await refusal(pre_start(plugin, "a")) == text


async def test_two_starts_may_overlap_and_do_not_hold_up_allocate(short_dir: Path) -> None:
    go = threading.Event()
    resetting = Resetting(lambda _: go.wait() and None)
    async with served(short_dir, resetting, devices("a", "b")) as plugin, asyncio.TaskGroup() as group:
        for id_ in ("a", "b"):
            group.create_task(pre_start(plugin, id_))
        await until(lambda: len(resetting.started) == 2)
        await plugin.allocate(["a"])
        go.set()


async def test_starts_that_hang_for_ever_do_not_use_up_the_threads_of_allocate(short_dir: Path) -> None:
    class Both(Resetting):
        pre_start_timeout_seconds = 0.1

        def allocate(self, devices: Sequence[Device], /) -> Any:
            return super().allocate(devices)

    go = threading.Event()
    both = Both(lambda _: go.wait() and None)
    async with served(short_dir, both, devices("a")) as plugin:
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(refusal(pre_start(plugin, "a"))) for _ in range(20)]
        assert {call.result().partition(" ")[0] for call in calls} == {"DeadlineExceeded"}
        await plugin.allocate(["a"])
        go.set()


async def test_a_container_waits_with_the_refusal_and_starts_when_there_is_none(short_dir: Path) -> None:
    """And each of its starts is announced, the first and all that follow."""

    def refuse_at_first(_: Sequence[Device]) -> None:
        if len(resetting.started) == 1:
            raise AllocationError("reset failed")

    resetting = Resetting(refuse_at_first)
    async with registered(short_dir, resetting) as (kubelet, _):
        status = await kubelet.run_pod(pod("p"))
        assert status.phase is PodPhase.PENDING
        assert status.container("c").reason == "CreateContainerConfigError"
        assert "pre-start: reset failed" in status.container("c").message
        for starts in (2, 3):
            container = await kubelet.start_container("p", "c")
            assert container.state is ContainerState.RUNNING
            assert resetting.started == [("a",)] * starts
