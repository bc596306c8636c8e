"""Plugins and kubelets that are absent, slow, dead or refuse."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from devplug import Device, serve
from devplug.errors import RegistrationError
from devplug.kubelet.kubelet import Kubelet
from devplug.wire import deviceplugin
from devplug.wire.sockets import connected
from devplug.wire.values import RegisterRequest
from tests.plugin.fakes import (
    RESOURCE,
    Fed,
    Listed,
    Registrar,
    allocatable,
    devices,
    plugin_sockets,
    said,
    waiting,
)
from tests.virtualtime import now, on_virtual_time, passes
from tests.waiting import until

anyio_backend = on_virtual_time


async def test_a_refused_registration_is_tried_again_one_at_a_time_until_it_is_accepted(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse_at_first(_: RegisterRequest) -> None:
        if len(registrar.requests) <= 6:
            raise RegistrationError("no room")

    caplog.set_level(logging.INFO)
    registrar = Registrar(short_dir, refuse_at_first)
    async with registrar.running(), serve(Fed("a"), plugin_dir=short_dir):
        await until(lambda: said(caplog, "registered with the kubelet"))
        assert len(registrar.requests) == 7
        assert registrar.most_at_once == 1
    assert said(caplog, "the kubelet refused the registration") == 1


async def test_a_registration_says_version_endpoint_and_options(short_dir: Path) -> None:
    class Choosy(Listed):
        def pre_start(self, devices: Sequence[Device], /) -> None:
            """Only its presence matters."""

    async def accept(_: RegisterRequest) -> None:
        """As a kubelet that then says no more."""

    registrar = Registrar(short_dir, accept)
    async with registrar.running(), serve(Choosy(), plugin_dir=short_dir):
        await until(lambda: registrar.requests)
        (request,) = registrar.requests
        assert request.version == "v1beta1"
        assert request.endpoint == plugin_sockets(short_dir)[0].name
        assert request.resource_name == RESOURCE
        assert request.options.pre_start_required
        assert request.options.preferred_allocation_available  # to steer away from devices in use


async def test_a_late_answer_is_waited_for_without_a_second_registration(short_dir: Path) -> None:
    answer, plugin = asyncio.Event(), Fed("a")
    registrar = Registrar(short_dir, waiting(answer))
    async with registrar.running(), serve(plugin, plugin_dir=short_dir):
        await until(lambda: registrar.requests)
        plugin.feed.put(*devices("b"))
        (path,) = plugin_sockets(short_dir)
        path.unlink()
        await until(path.exists)
        assert len(registrar.requests) == 1
        answer.set()
        await passes(10)
        assert len(registrar.requests) == 1


async def test_a_kubelet_may_take_its_ten_seconds_to_dial_back_before_it_answers(short_dir: Path) -> None:
    registrar = Registrar(short_dir, lambda _: passes(10.0))
    async with registrar.running(), serve(Fed("a"), plugin_dir=short_dir):
        await until(lambda: registrar.requests)
        await passes(14.0)
        assert len(registrar.requests) == 1


async def test_a_kubelet_that_hangs_and_dies_is_left_for_the_next_one(short_dir: Path) -> None:
    registrar = Registrar(short_dir, waiting())
    async with serve(Fed("a"), plugin_dir=short_dir) as serving:
        async with registrar.running():
            await until(lambda: registrar.requests)
        async with Kubelet(short_dir).running() as kubelet:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
    assert registrar.most_at_once == 1


async def test_a_socket_that_listens_and_accepts_nobody_is_left_when_a_kubelet_takes_its_place(
    short_dir: Path,
) -> None:
    """Its own time would be five seconds: so long it may take to speak HTTP/2."""
    path = short_dir / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(path))
        deaf.listen(8)
        deaf.setblocking(False)
        async with serve(Fed("a"), plugin_dir=short_dir) as serving:
            called = await asyncio.get_running_loop().sock_accept(deaf)
            async with Kubelet(short_dir).running() as kubelet:
                began = now()
                await serving.wait_registered()
                assert now() - began < 2
                await kubelet.wait(lambda: allocatable(kubelet) == 1)
                assert kubelet.registrations(RESOURCE) == 1
            called[0].close()


async def test_a_kubelet_that_hangs_alive_is_left_when_another_takes_its_place(short_dir: Path) -> None:
    """Its own time would be sixteen seconds. It may have heard us, so it finds us no more."""
    hanging = Registrar(short_dir, waiting())
    async with hanging.running(), serve(Fed("a"), plugin_dir=short_dir) as serving:
        await until(lambda: hanging.requests)
        (short_dir / "kubelet.sock").unlink()
        async with Kubelet(short_dir).running() as kubelet:
            began = now()
            await serving.wait_registered()
            assert now() - began < 2
            await kubelet.wait(lambda: allocatable(kubelet) == 1)
        assert len(hanging.requests) == 1
        assert not (short_dir / hanging.requests[0].endpoint).exists()


async def test_a_refusal_after_a_lost_stream_is_tried_again_soon(short_dir: Path) -> None:
    """Not when the stream of the registration before would have been given up: after fifteen seconds."""
    cut, at = asyncio.Event(), []

    async def listen_once(endpoint: str) -> None:
        async with (
            connected(short_dir / endpoint) as peer,
            aclosing(peer.stream(deviceplugin.LIST_AND_WATCH, None)) as lists,
        ):
            await anext(lists)
            await cut.wait()

    async def answer(request: RegisterRequest) -> None:
        at.append(now())
        if len(at) == 1:
            group.create_task(listen_once(request.endpoint))
        if len(at) == 2:
            raise RegistrationError("not now")

    async with (
        asyncio.TaskGroup() as group,
        Registrar(short_dir, answer).running(),
        serve(Fed("a"), plugin_dir=short_dir) as serving,
    ):
        await serving.wait_registered()
        cut.set()
        await until(lambda: len(at) == 3)
    assert at[2] - at[1] < 1


@pytest.mark.parametrize("kind", ["a file", "a folder", "a fifo", "a dead socket", "a link to nowhere"])
async def test_a_kubelet_socket_that_is_none_is_waited_out(
    short_dir: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    def make(path: Path) -> None:
        match kind:
            case "a file":
                path.touch()
            case "a folder":
                path.mkdir()
            case "a fifo":
                os.mkfifo(path)
            case "a link to nowhere":
                path.symlink_to("nowhere")
            case _:
                with socket.socket(socket.AF_UNIX) as dead:
                    dead.bind(str(path))

    path = short_dir / "kubelet.sock"
    make(path)
    async with serve(Fed("a"), plugin_dir=short_dir) as serving:
        await until(lambda: plugin_sockets(short_dir))
        if kind != "a link to nowhere":
            await until(lambda: said(caplog, "kubelet.sock refuses connections"))
        path.rmdir() if path.is_dir() else path.unlink()
        async with Kubelet(short_dir).running() as kubelet:
            await serving.wait_registered()
            await kubelet.wait(lambda: allocatable(kubelet) == 1)


async def test_a_missing_folder_is_said_once_for_all_plugins(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plugins = [Fed("a", resource_name=f"example.com/r{n}") for n in range(3)]
    async with serve(*plugins, plugin_dir=short_dir / "missing"):
        await until(lambda: said(caplog, "no kubelet here"))
        await passes(10)
    assert said(caplog, "no kubelet here") == 1
