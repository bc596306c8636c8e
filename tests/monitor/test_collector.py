"""A node's status from real daemons' sockets and a real kubelet's end, by events."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from devplug.daemon.config.loader import load
from devplug.daemon.service import serve_config
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod
from devplug.monitor.collector import Collector, collected
from devplug.monitor.node_view import UNANSWERED
from devplug.plugin.environment import Registration
from devplug.plugin.serving import serve, served
from devplug.status import Holder, NodeStatus
from tests.plugin.fakes import Fed, devices
from tests.virtualtime import on_virtual_time

anyio_backend = on_virtual_time


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
        changed = collector.notifier.next
        if claim(status := collector.status()):
            return status
        await changed.wait()


def devices_of(status: NodeStatus, name: str) -> dict[str, tuple[Holder, ...]]:
    found = {one.name: one for one in status.resources}
    return {device.id: device.holders for device in found[name].devices} if name in found else {}


async def test_a_daemon_its_devices_and_their_holders_are_seen_as_they_come_and_go(short_dir: Path) -> None:
    file = short_dir / "devplug.yaml"
    file.write_text(text(A))

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
        status = await until(collector, lambda one: one.resources[0].fault)
        assert status.resources[0].fault == UNANSWERED


async def test_one_look_tells_what_is_there(short_dir: Path) -> None:
    file = short_dir / "devplug.yaml"
    file.write_text(text(A))

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


async def test_where_nobody_is_the_status_says_so(short_dir: Path) -> None:
    status = await collected(short_dir / "device-plugins", short_dir / "none.sock", node_name="here")
    assert (status.resources, status.processes) == ((), ())
    assert "none.sock is not there" in status.pod_resources.trouble


@pytest.mark.parametrize("registration", ["socket", "watcher"])
async def test_a_plugin_of_the_library_is_seen_as_a_daemon_is(
    registration: Registration, short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet, plugin_dir = Kubelet.under(short_dir), short_dir / "device-plugins"
    plugin = Fed("a0", "a1", resource_name="example.com/a")
    async with followed(short_dir) as collector:
        async with kubelet.running(), serve(plugin, plugin_dir=plugin_dir, registration=registration):
            status = await until(collector, lambda one: one.resources and one.resources[0].is_registered)
            (resource,), (process,) = status.resources, status.processes
            assert (resource.process, resource.capacity, resource.fault) == (os.getpid(), 2, "")
            assert None not in {resource.registered_at, *(one.since for one in resource.devices)}
            assert (process.process, process.config, process.faults) == (os.getpid(), None, ())
            await kubelet.admit(pod("p"))
            held = (Holder("default", "p", "main"),)
            await until(collector, lambda one: held in devices_of(one, "example.com/a").values())
            assert collector.status().resources[0].held == 1
            kubelet.remove_pod("uid-p")
            await until(collector, lambda one: not one.resources[0].held)
            caplog.set_level(logging.INFO, "devplug.kubelet")
            await kubelet.restart()
            await kubelet.wait(lambda: kubelet.allocatable().get("example.com/a") == 2)
        await until(collector, lambda one: not one.processes)
    asked = [vars(one)["path"] for one in caplog.records if one.msg == "found the socket of a plugin"]
    assert not any("status" in path for path in asked)


async def test_a_plugin_that_is_not_ours_is_shown_from_what_the_kubelet_tells(short_dir: Path) -> None:
    kubelet = Kubelet.under(short_dir)
    foreign = Fed("x", "y", resource_name="vendor.io/theirs")
    async with kubelet.running(), served(foreign, plugin_dir=short_dir / "device-plugins") as serving:
        await serving.wait_registered()
        await kubelet.wait(lambda: kubelet.allocatable().get("vendor.io/theirs") == 2)
        foreign.feed.replace(devices("x", "y"))
        async with followed(short_dir) as collector:
            status = await until(collector, lambda one: one.resources)
            assert devices_of(status, "vendor.io/theirs") == {"x": (), "y": ()}
            assert (status.processes, status.resources[0].fault) == ((), "")
            await kubelet.admit(Pod("u", "p", containers=(Container("c", {"vendor.io/theirs": 1}),)))
            # The kubelet's checkpoint changes with each Allocate, so nobody waits for the next question.
            held = (Holder("default", "p", "c"),)
            await until(collector, lambda one: held in devices_of(one, "vendor.io/theirs").values())


@asynccontextmanager
async def answering(path: Path, answer: bytes, *, is_over: bool = False) -> AsyncIterator[None]:
    """A program that takes connections at a socket and sends the same to each; is it over, it closes."""
    opened: list[asyncio.StreamWriter] = []

    def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        writer.write(answer)
        if is_over:
            writer.close()

    path.parent.mkdir(parents=True, exist_ok=True)
    async with await asyncio.start_unix_server(take, path):
        try:
            yield
        finally:
            for writer in opened:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()


def fake_socket(root: Path) -> Path:
    return root / "device-plugins" / ".devplug" / ".status-1-fake.sock"


HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


async def test_who_takes_the_question_and_never_answers_is_named(short_dir: Path) -> None:
    path, silent = fake_socket(short_dir), short_dir / "silent.sock"
    async with answering(path, b""), answering(silent, b""):
        status = await collected(short_dir / "device-plugins", silent, node_name="here")
        assert status.problems == (f"{path} did not answer within 3 s", f"{silent} did not answer within 3 s")
        assert (status.processes, status.pod_resources.trouble) == ((), "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"process": 1, "vers', "broke off its answer|ended the connection"),
        (b"nonsense\n", "malformed"),
        (b"{}\n", "missing required field `process`"),
        (b'{"process": "one", "version": "1", "python": "3", "started_at": 0}\n', "Expected `int`"),
        (b"\xff" * 100_000 + b"\n", "malformed"),
    ],
)
async def test_what_is_no_status_is_a_problem_and_ends_nothing(
    short_dir: Path, text: bytes, problem: str
) -> None:
    path = fake_socket(short_dir)
    head = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Length: 1000000\r\n\r\n")
    sent = (head if "broke" in problem else HEAD) + text
    async with answering(path, sent, is_over=True), followed(short_dir) as collector:
        status = await until(collector, lambda one: one.problems)
        assert status.problems[0].startswith(path.name)
        assert re.search(problem, status.problems[0])
        path.unlink()
        await until(collector, lambda one: not one.problems)


async def test_a_status_of_a_later_version_is_read_as_far_as_it_is_known(short_dir: Path) -> None:
    later = (
        b'{"process": 7, "version": "9", "python": "4", "started_at": 1, "tomorrow": {"a": [1]}, '
        b'"resources": [{"name": "example.com/a", "devices": [{"id": "a0", "health": "Weak", "new": 1}]}]}\n'
    )

    async with answering(fake_socket(short_dir), HEAD + later), followed(short_dir) as collector:
        status = await until(collector, lambda one: one.processes)
        assert (status.processes[0].version, status.resources[0].devices[0].health) == ("9", "Weak")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only uid 0 can become another user")
@pytest.mark.parametrize("closed", [".devplug", "."])
async def test_who_may_not_look_for_plugins_is_told_so(short_dir: Path, closed: str) -> None:
    plugin_dir = short_dir / "device-plugins"
    (plugin_dir / ".devplug").mkdir(parents=True)
    short_dir.chmod(0o755)
    (plugin_dir / closed).chmod(0o700)
    os.seteuid(65534)
    try:
        status = await collected(plugin_dir, short_dir / "none.sock", node_name="here")
    finally:
        os.seteuid(0)
    assert status.problems == (
        f"cannot look for plugins in {plugin_dir}/.devplug: Permission denied; run as root, as they do",
    )
