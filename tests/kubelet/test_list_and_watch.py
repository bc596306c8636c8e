"""The kubelet's ListAndWatch stream: its end, its largest message, and its loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from devplug.errors import KubeletError, RemoteError
from devplug.kubelet.changes import ChangeKind
from devplug.wire.deviceplugin import LIST_AND_WATCH
from devplug.wire.sockets import connected
from tests.kubelet.fakes import (
    OTHER_RESOURCE,
    RESOURCE,
    FakePlugin,
    happened,
    healthy,
    register,
    registered,
    running,
)
from tests.virtualtime import on_virtual_time

anyio_backend = on_virtual_time


async def test_a_stream_that_ended_is_never_opened_again(short_dir: Path) -> None:
    """C19."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        with kubelet.changes() as changes:
            plugin.end_streams(KubeletError("boom"))
            await happened(changes, ChangeKind.DISCONNECTED)
        # The kubelet still answers, and has had every chance to come back.
        async with registered(kubelet, healthy("b"), OTHER_RESOURCE, "q"):
            assert len(plugin.called("ListAndWatch")) == 1


async def test_a_list_over_four_mebibytes_ends_the_stream(short_dir: Path) -> None:
    """C22."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        with kubelet.changes() as changes:
            plugin.send(healthy(*(f"{number:01000}" for number in range(4500))))
            await happened(changes, ChangeKind.DISCONNECTED)
        assert kubelet.capacity() == {RESOURCE: 1}


@pytest.mark.parametrize(("surplus", "is_taken"), [(0, True), (1, False)])
async def test_the_longest_list_has_four_mebibytes_to_the_byte(
    short_dir: Path, surplus: int, is_taken: bool
) -> None:
    """C22."""
    size = LIST_AND_WATCH.response.encode(healthy("x" * 4_000_000))
    devices = healthy("x" * (4_000_000 + 4 * 1024 * 1024 - len(size) + surplus))
    assert len(LIST_AND_WATCH.response.encode(devices)) == 4 * 1024 * 1024 + surplus

    async with running(short_dir) as kubelet, registered(kubelet, ()) as plugin:
        with kubelet.changes() as changes:
            plugin.send(devices)
            await happened(changes, ChangeKind.LISTED if is_taken else ChangeKind.DISCONNECTED)
        assert kubelet.capacity() == {RESOURCE: int(is_taken)}


async def test_a_registration_over_four_mebibytes_is_refused(short_dir: Path) -> None:
    """C22."""
    async with running(short_dir) as kubelet, FakePlugin(short_dir).serving() as plugin:
        with pytest.raises(RemoteError) as caught:
            await plugin.register("x" * (4 * 1024 * 1024))
        assert caught.value.status == "ResourceExhausted"
        assert kubelet.metrics.exposition().count("registration_total{") == 0


async def test_drop_stream_looks_like_a_transport_loss_to_the_plugin(short_dir: Path) -> None:
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        kubelet.drop_stream(RESOURCE)
        await plugin.streams(0)
        assert kubelet.allocatable() == {RESOURCE: 0}
        async with connected(plugin.socket_path, ready_within_seconds=30):
            pass
        await register(kubelet, plugin)
        assert kubelet.allocatable() == {RESOURCE: 1}


async def test_drop_stream_of_nobody_is_an_error(short_dir: Path) -> None:
    async with running(short_dir) as kubelet:
        with pytest.raises(KubeletError, match=f"no plugin serves {RESOURCE}"):
            kubelet.drop_stream(RESOURCE)
