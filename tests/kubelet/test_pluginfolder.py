"""What a kubelet does to its folder when it starts and when it ends."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from devplug.errors import KubeletError, RemoteError
from devplug.kubelet.pluginfolder import PluginFolder
from tests.kubelet.fakes import FakePlugin, healthy, registered, running, served
from tests.virtualtime import on_virtual_time

anyio_backend = on_virtual_time


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def test_a_start_removes_every_socket_and_link_to_a_socket(short_dir: Path) -> None:
    """C20."""
    for name in ("p.sock", ".hidden.sock", "kubelet.sock"):
        make_socket(short_dir / name)
    (short_dir / "link").symlink_to(short_dir / "p.sock")
    PluginFolder(short_dir).prepare()
    assert list(short_dir.iterdir()) == []


def test_a_start_removes_a_link_to_a_socket_elsewhere(short_dir: Path) -> None:
    """C20."""
    (short_dir / "plugins").mkdir()
    make_socket(short_dir / "elsewhere.sock")
    (short_dir / "plugins" / "link.sock").symlink_to(short_dir / "elsewhere.sock")
    PluginFolder(short_dir / "plugins").prepare()
    assert list((short_dir / "plugins").iterdir()) == []
    assert (short_dir / "elsewhere.sock").is_socket()


def test_a_start_keeps_files_folders_dangling_links_and_the_checkpoint(short_dir: Path) -> None:
    """C20."""
    (short_dir / "DEPRECATION").touch()
    (short_dir / "kubelet_internal_checkpoint").touch()
    (short_dir / "sub").mkdir()
    make_socket(short_dir / "sub" / "deep.sock")
    (short_dir / "dangling").symlink_to("nowhere")
    before = sorted(path.name for path in short_dir.rglob("*"))
    PluginFolder(short_dir).prepare()
    assert sorted(path.name for path in short_dir.rglob("*")) == before


async def test_a_kubelet_starts_in_a_folder_full_of_what_others_left(short_dir: Path) -> None:
    """C20: its own stale socket is one of them."""
    for name in ("p.sock", ".hidden.sock", "kubelet.sock"):
        make_socket(short_dir / name)
    (short_dir / "DEPRECATION").touch()
    (short_dir / "sub").mkdir()

    async with running(short_dir) as kubelet:
        assert sorted(path.name for path in short_dir.iterdir()) == ["DEPRECATION", "kubelet.sock", "sub"]
        async with registered(kubelet, healthy("a")):
            pass


async def test_a_start_makes_the_folder(short_dir: Path) -> None:
    async with running(short_dir / "device-plugins") as kubelet:
        assert kubelet.socket_path.is_socket()


async def test_a_regular_file_in_place_of_the_socket_keeps_the_kubelet_from_starting(short_dir: Path) -> None:
    (short_dir / "kubelet.sock").write_text("mine")

    with pytest.raises(KubeletError, match="address already in use"):
        async with running(short_dir):
            pass
    assert (short_dir / "kubelet.sock").read_text() == "mine"


async def test_the_socket_survives_the_kubelet_and_refuses_connections(short_dir: Path) -> None:
    """C21."""
    async with running(short_dir) as kubelet:
        path = kubelet.socket_path
    assert path.is_socket()
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(str(path))


async def test_an_orderly_stop_removes_the_socket(short_dir: Path) -> None:
    async with running(short_dir) as kubelet:
        await kubelet.restart(orderly=True)
        assert kubelet.socket_path.is_socket()
        await kubelet.device_manager.stop(orderly=True)
        assert not kubelet.socket_path.exists()


async def test_a_restart_takes_the_plugins_socket_away(short_dir: Path) -> None:
    async with served(short_dir, healthy("a")) as (kubelet, plugin):
        await kubelet.restart()
        await plugin.streams(0)
        assert not plugin.socket_path.exists()
        with pytest.raises(RemoteError, match="failed to dial"):
            await plugin.register()


async def test_a_kubelet_can_run_again_on_the_same_folder(short_dir: Path) -> None:
    for _ in range(2):
        async with running(short_dir), FakePlugin(short_dir).serving() as plugin:
            await plugin.register()
