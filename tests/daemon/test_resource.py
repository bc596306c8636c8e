"""Devices of the file that come and go, in the table of a kubelet."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from devplug import serve
from devplug.daemon.context import DaemonContext
from devplug.daemon.resource import ConfiguredPlugin
from devplug.devices import DeviceNode
from devplug.errors import PluginError
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.kubelet import Kubelet
from tests.daemon.hosts import link, resource
from tests.daemon.served import container, look_again, plugin, serving, table
from tests.kubelet.fakes import RESOURCE, Clock, happened
from tests.waiting import until


async def test_a_numa_node_that_the_machine_lacks_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    static = resource("discover: {static: {ids: [a, b], numaNodes: {a: 0, b: 1}}}")
    for numa_nodes, told in (((0,), 1), ((0, 1), 0), ((), 0)):
        caplog.clear()
        one = ConfiguredPlugin(static, DaemonContext(numa_nodes=numa_nodes))
        async with aclosing(one.devices()) as lists:
            assert len(await anext(lists)) == 2
        assert [vars(line)["device_ids"] for line in caplog.records] == [["b"]] * told


# ── coming and going ──────────────────────────────────────────────────────────────────────────────


async def test_a_node_that_comes_and_goes_is_in_the_kubelets_table_and_keeps_its_id(short_dir: Path) -> None:
    """As an adapter does that was /dev/ttyUSB0 and is /dev/ttyUSB1 now."""
    node = short_dir / "by-id" / "x0"
    async with serving(short_dir, plugin(short_dir)) as kubelet:
        assert table(kubelet) == {}
        for target in ("/dev/null", "/dev/null", "/dev/zero"):
            link(node, target)
            await kubelet.wait(lambda: table(kubelet) == {"x0": "Healthy"})
            if target == "/dev/zero":
                assert (await container(kubelet)).device_nodes == (DeviceNode(node),)
            node.unlink()
            await kubelet.wait(lambda: table(kubelet) == {"x0": "Unhealthy"})


async def test_a_device_that_is_gone_is_dropped_once_it_was_kept_long_enough(short_dir: Path) -> None:
    link(short_dir / "by-id" / "x0")
    clock = Clock()
    one = plugin(short_dir, "whenUnplugged: {keepUnhealthyFor: 5m}", clock)
    async with serving(short_dir, one) as kubelet:
        (short_dir / "by-id" / "x0").unlink()
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Unhealthy"})
        clock.seconds += 300
        look_again(short_dir)
        await kubelet.wait(lambda: table(kubelet) == {})


async def test_with_0s_a_device_that_is_gone_is_dropped_at_once(short_dir: Path) -> None:
    node = link(short_dir / "by-id" / "x0")
    one = plugin(short_dir, "whenUnplugged: {keepUnhealthyFor: 0s}")
    async with serving(short_dir, one) as kubelet:
        with kubelet.changes() as changes:
            node.unlink()
            await happened(changes, ChangeKind.LISTED)
        assert table(kubelet) == {}


async def test_with_0s_a_device_that_a_pod_holds_stays_listed(short_dir: Path) -> None:
    link(short_dir / "by-id" / "x0")
    one = plugin(short_dir, "whenUnplugged: {keepUnhealthyFor: 0s}")
    async with serving(short_dir, one) as kubelet:
        await container(kubelet)
        (short_dir / "by-id" / "x0").unlink()
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Unhealthy"})


async def test_nothing_is_sent_when_a_look_shows_the_same(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    link(short_dir / "by-id" / "x0")
    async with serving(short_dir, plugin(short_dir)) as kubelet:
        with kubelet.changes() as changes:
            look_again(short_dir)
            await until(lambda: "left out" in caplog.text)
            link(short_dir / "by-id" / "x1")
            await happened(changes, ChangeKind.LISTED)
            assert table(kubelet) == {"x0": "Healthy", "x1": "Healthy"}


# ── no device at the start ────────────────────────────────────────────────────────────────────────


async def test_without_a_device_nothing_is_advertised_by_default(short_dir: Path) -> None:
    async with serving(short_dir, plugin(short_dir)) as kubelet:
        assert kubelet.capacity() == {RESOURCE: 0}


async def test_with_wait_a_resource_is_registered_once_it_has_a_device(short_dir: Path) -> None:
    link(short_dir / "by-id" / "no-device", short_dir)
    kubelet = Kubelet(short_dir)
    waiting = plugin(short_dir, "whenNone: wait")
    async with kubelet.running(), serve(waiting, plugin_dir=short_dir) as served:
        with kubelet.changes() as changes:
            link(short_dir / "by-id" / "x0")
            await served.wait_registered()
            kinds = [(await anext(changes)).kind for _ in range(2)]
        assert kinds == [ChangeKind.REGISTERED, ChangeKind.LISTED]
        assert table(kubelet) == {"x0": "Healthy"}


async def test_with_fail_a_resource_without_a_device_is_an_error(short_dir: Path) -> None:
    with pytest.raises(PluginError) as refused:
        async with serving(short_dir, plugin(short_dir, "whenNone: fail")):
            await asyncio.Event().wait()
    assert str(refused.value) == "example.com/a: no device was found, and whenNone says fail"


async def test_with_fail_a_device_may_vanish_later(short_dir: Path) -> None:
    link(short_dir / "by-id" / "x0")
    async with serving(short_dir, plugin(short_dir, "whenNone: fail")) as kubelet:
        (short_dir / "by-id" / "x0").unlink()
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Unhealthy"})
