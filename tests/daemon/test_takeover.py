"""A foreign program takes a resource name: with a real daemon and a kubelet as of 1.36."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devplug.daemon.config.loader import load
from devplug.daemon.service import compare_lists, serve_config
from devplug.devices import Device
from devplug.kubelet.kubelet import Kubelet
from devplug.logs import AUDIT
from devplug.plugin.inventory import Inventory
from devplug.plugin.takeover import TakeoverDetector
from devplug.status import STATUS_SOCKETS, process_of
from devplug.web.addresses import UnixAddress
from devplug.web.client import get
from tests.daemon.test_status import pod, told
from tests.kubelet.fakes import RESOURCE, FakePlugin, healthy
from tests.virtualtime import in_virtual_time, now, passes
from tests.waiting import until

NAME = "example.com/a"
FILE = """version: 1
resources:
- {name: example.com/a, discover: {static: {ids: [a0, a1]}}}
- {name: example.com/b, discover: {static: {ids: [b0]}}}
"""
IDS = healthy("a0", "a1")


@asynccontextmanager
async def rival(folder: Path) -> AsyncIterator[None]:
    """Somebody else's plugin that has registered our name; dead at the end."""
    plugin = FakePlugin(folder, "vendor", healthy("x0"))
    async with plugin.serving():
        await plugin.register(NAME)
        yield


async def page(address: UnixAddress, path: str) -> tuple[int, str]:
    answer = await get(address, path)
    return answer.status, answer.body.decode()


def named(status: Any, name: str = NAME) -> Any:
    return next(one for one in status["resources"] if one["name"] == name)


@asynccontextmanager
async def serving(root: Path) -> AsyncIterator[tuple[Kubelet, Path, UnixAddress]]:
    """A kubelet, a daemon with two resources, and its status socket; entered when both are allocatable."""
    kubelet, plugin_dir = Kubelet.under(root), root / "device-plugins"
    pod_resources = root / "pod-resources" / "kubelet.sock"
    async with (
        kubelet.running(),
        serve_config(load(FILE, "devplug.yaml"), plugin_dir=plugin_dir, pod_resources=pod_resources),
    ):
        await kubelet.wait(lambda: kubelet.allocatable() == {NAME: 2, "example.com/b": 1})
        await until(lambda: list(plugin_dir.glob(STATUS_SOCKETS)))
        yield kubelet, plugin_dir, UnixAddress(str(next(plugin_dir.glob(STATUS_SOCKETS))))


@in_virtual_time
async def test_a_name_that_a_foreign_program_takes_is_told_everywhere_and_is_ours_again_at_its_end(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """From the first sign over status, metrics, readiness and log to the registration after its end."""
    caplog.set_level(logging.INFO)
    async with serving(short_dir) as (kubelet, plugin_dir, address):
        assert await page(address, "/readyz") == (200, "ready\n")
        async with rival(plugin_dir):
            await kubelet.wait(lambda: [one.id for one in kubelet.devices(NAME)] == ["x0"])
            status = await told(address, lambda one: named(one)["takeover"])
            takeover = named(status)["takeover"]
            assert (takeover["signs"], takeover["device_ids"]) == (["listed"], ["x0"])
            assert f"vendor.sock (process {os.getpid()}, " in takeover["reason"]
            # Only the resource that was lost is not ready; and the kubelet still listens to both.
            assert [one["is_registered"] for one in status["resources"]] == [True, True]
            assert named(status, "example.com/b")["takeover"] is None
            code, text = await page(address, "/readyz")
            assert code == 503
            assert text == f"not ready: {NAME}: {takeover['reason']}\n"
            _, metrics = await page(address, "/metrics")
            assert f'devplug_takeover_suspected{{resource="{NAME}"}} 1' in metrics
            assert 'devplug_takeover_suspected{resource="example.com/b"} 0' in metrics
        # Both its stream and its calls have ended; the kubelet has nobody for the name now.
        await kubelet.wait(lambda: kubelet.allocatable()[NAME] == 0)
        await kubelet.wait(lambda: kubelet.allocatable()[NAME] == 2)
        status = await told(address, lambda one: not one["faults"])
        assert (await page(address, "/readyz"))[0] == 200
        # What happened is told for ten minutes more, and read by whoever reads the status.
        takeover = process_of(json.dumps(status).encode()).resources[0].takeover
        assert takeover is not None
        assert (takeover.signs, takeover.is_lost) == (("listed",), False)
        assert (await kubelet.admit(pod("p"))).message == ""
    lines_told = [record for record in caplog.records if record.name == AUDIT]
    (warned,) = [one for one in lines_told if "another plugin registers this resource name" in one.message]
    assert vars(warned)["resource_name"] == NAME
    assert [one.message for one in lines_told].count("registered with the kubelet") == 3


@in_virtual_time
async def test_a_kubelet_that_forgets_us_while_our_stream_is_open_is_registered_with_again(
    short_dir: Path,
) -> None:
    """As at the end of an older stream, which it takes for ours (1.36), before it was asked what it has."""
    async with serving(short_dir) as (kubelet, _, _):
        kubelet.device_manager.plugin_disconnected(NAME)
        assert kubelet.allocatable() == {NAME: 0, "example.com/b": 1}
        await kubelet.wait(lambda: kubelet.allocatable()[NAME] == 2)
        assert (await kubelet.admit(pod("p"))).message == ""


@in_virtual_time
async def test_a_kubelet_that_keeps_forgetting_us_is_asked_again_after_a_minute(short_dir: Path) -> None:
    kubelet = Kubelet.under(short_dir)
    inventory = Inventory(RESOURCE)
    times: list[float] = []

    def register_again() -> None:
        if guard.take_renewal():
            times.append(now())
            guard.review(registered_at=now(), cuts=())
            (kubelet.plugin_dir / f"registered-{len(times)}").touch()

    guard = TakeoverDetector(RESOURCE, inventory, short_dir, lambda: None, register_again)
    await inventory.replace([Device("a")])
    async with kubelet.running(), asyncio.TaskGroup() as group:
        guard.review(registered_at=now(), cuts=())
        socket = short_dir / "pod-resources" / "kubelet.sock"
        comparing = group.create_task(compare_lists(kubelet.plugin_dir, lambda: {RESOURCE: guard}, socket))
        await passes(250)
        comparing.cancel()
    first, second, *_ = times
    assert first < 10
    assert 60 <= second - first < 75
