"""A node's status from real daemons' sockets and a real kubelet's end, by events."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from devplug.daemon.grammar.loading import load
from devplug.daemon.serving import serve_config
from devplug.kubelet.manager import Kubelet
from devplug.kubelet.pods import Container, Pod
from devplug.monitor.collecting import Collector, collected
from devplug.status.values import Holder
from tests.daemon.served import play
from tests.plugin.fakes import Fed, devices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from devplug.status.values import NodeStatus

A = "- {name: example.com/a, discover: {static: {ids: [a0, a1], numaNodes: {a1: 1}}}}"
B = "- {name: example.com/b, discover: {static: {ids: [b0]}}}"


def text(*resources: str) -> str:
    return "version: 1\nresources:\n" + "\n".join(resources) + "\n"


def pod(name: str) -> Pod:
    return Pod(f"uid-{name}", name, containers=(Container("main", {"example.com/a": 1}),))


@asynccontextmanager
async def daemon(root: Path, file: Path) -> AsyncIterator[None]:
    config = load(file.read_text(), str(file))
    socket = root / "pod-resources" / "kubelet.sock"
    async with serve_config(
        config, plugin_dir=root / "device-plugins", pod_resources=socket, file=file
    ) as one:
        await one.wait_registered()
        yield


@asynccontextmanager
async def followed(root: Path) -> AsyncIterator[Collector]:
    socket = root / "pod-resources" / "kubelet.sock"
    collector = Collector(root / "device-plugins", socket, node_name="here")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(collector.run())
        yield collector
        running.cancel()


async def until(collector: Collector, claim: Callable[[NodeStatus], object]) -> NodeStatus:
    while True:
        changed = collector.pulse.next
        if claim(status := collector.status()):
            return status
        await changed.wait()


def devices_of(status: NodeStatus, name: str) -> dict[str, tuple[Holder, ...]]:
    found = {one.name: one for one in status.resources}
    return {device.id: device.holders for device in found[name].devices} if name in found else {}


def test_a_daemon_its_devices_and_their_holders_are_seen_as_they_come_and_go(short_dir: Path) -> None:
    file = short_dir / "devplug.yaml"
    file.write_text(text(A))

    async def story() -> None:
        kubelet = Kubelet.under(short_dir)
        async with kubelet.running(), followed(short_dir) as collector:
            assert not collector.status().resources
            async with daemon(short_dir, file):
                status = await until(collector, lambda one: devices_of(one, "example.com/a"))
                assert devices_of(status, "example.com/a") == {"a0": (), "a1": ()}
                assert status.resources[0].is_registered
                await kubelet.admit(pod("p"))
                held = Holder("default", "p", "main")
                await until(collector, lambda one: (held,) in devices_of(one, "example.com/a").values())
                file.write_text(text(A, B))
                await until(collector, lambda one: devices_of(one, "example.com/b"))
                file.write_text("nonsense")
                status = await until(collector, lambda one: one.processes[0].config.problems)  # type: ignore[union-attr]
                assert len(status.resources) == 2
            # The kubelet goes on to say who holds what.
            await until(collector, lambda one: not one.processes)
            await until(collector, lambda one: (held,) in devices_of(one, "example.com/a").values())

    play(story())


def test_one_look_tells_what_is_there(short_dir: Path) -> None:
    file = short_dir / "devplug.yaml"
    file.write_text(text(A))

    async def story() -> None:
        async with Kubelet.under(short_dir).running(), daemon(short_dir, file), followed(short_dir) as seen:
            await until(seen, lambda one: one.processes)
            socket = short_dir / "pod-resources" / "kubelet.sock"
            status = await collected(short_dir / "device-plugins", socket, node_name="here")
            assert status.name == "here"
            assert [(one.name, one.capacity, one.is_ready) for one in status.resources] == [
                ("example.com/a", 2, True)
            ]
            assert [one.numa_nodes for one in status.resources[0].devices] == [(), (1,)]
            assert status.processes[0].config is not None
            assert status.pod_resources.trouble == ""

    play(story())


def test_where_nobody_is_the_status_says_so(short_dir: Path) -> None:
    async def story() -> None:
        status = await collected(short_dir / "device-plugins", short_dir / "none.sock", node_name="here")
        assert (status.resources, status.processes) == ((), ())
        assert "none.sock is not there" in status.pod_resources.trouble

    play(story())


def test_a_plugin_that_is_not_ours_is_shown_from_what_the_kubelet_tells(short_dir: Path) -> None:
    async def story() -> None:
        from devplug import serve

        kubelet = Kubelet.under(short_dir)
        foreign = Fed("x", "y", resource_name="vendor.io/theirs")
        async with kubelet.running(), serve(foreign, plugin_dir=short_dir / "device-plugins") as serving:
            await serving.wait_registered()
            await kubelet.wait(lambda: kubelet.allocatable().get("vendor.io/theirs") == 2)
            foreign.feed.replace(devices("x", "y"))
            async with followed(short_dir) as collector:
                status = await until(collector, lambda one: one.resources)
                assert devices_of(status, "vendor.io/theirs") == {"x": (), "y": ()}
                assert status.processes == ()
                await kubelet.admit(Pod("u", "p", containers=(Container("c", {"vendor.io/theirs": 1}),)))
                # The kubelet's checkpoint changes with each Allocate, so nobody waits for the next question.
                held = (Holder("default", "p", "c"),)
                await until(collector, lambda one: held in devices_of(one, "vendor.io/theirs").values())

    play(story())
