"""Paths that have something to say to gRPC: commas, percent signs, and more bytes than a socket takes."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from devplug import errors
from devplug.errors import PluginError, RemoteError
from devplug.linux.unix_sockets import SOCKET_PATH_LIMIT_BYTES
from devplug.wire import deviceplugin
from devplug.wire.sockets import Listener, Peer, connected
from devplug.wire.transport import OWN
from devplug.wire.values import PluginOptions
from tests.wire.fakes import Plugin, refusal, served
from tests.wire.pairings import Pairing

pytestmark = pytest.mark.usefixtures("pairing")

ODD = {
    "comma": "a,b",
    "commas at the ends": ",a,",
    "percent": "a%b",
    "percent and two digits": "a%2Cb",
    "hash": "a#b",
    "question mark": "a?b",
    "space": "a b",
    "not ASCII": "ä日b",
    "not UTF-8": "a\udcffb",
    "line end": "a\nb",
    "backslash": "a\\b",
    "colon": "unix:a",
    "first dot": ".a",
    "all at once": " a,b%2C?#ä",
}


@pytest.fixture
def links(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which temporary folders are made."""
    folder = short_dir / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


async def expect_deadline(path: Path) -> None:
    with pytest.raises(RemoteError) as caught:
        async with connected(path, ready_within_seconds=0.1):
            pass
    assert (caught.value.status, caught.value.text) == ("DeadlineExceeded", "context deadline exceeded")


async def answer(peer: Peer) -> RemoteError:
    """What a server says that came after a failed attempt; until the next, gRPC answers for it."""
    while (refused := await refusal(peer)).status == "Unavailable":
        pass
    return refused


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
async def test_any_file_name_is_a_name_for_a_socket(short_dir: Path, name: str) -> None:
    async with served(short_dir / name, Plugin()) as peer:
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()
        assert [file.name for file in short_dir.iterdir()] == [name]
    assert list(short_dir.iterdir()) == []


@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
@pytest.mark.parametrize("by_rename", [False, True])
async def test_any_folder_is_a_place_for_a_socket(short_dir: Path, name: str, *, by_rename: bool) -> None:
    folder = short_dir / name
    folder.mkdir()
    async with served(folder / f"{name}.sock", Plugin(), by_rename=by_rename) as peer:
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()
        assert [file.name for file in folder.iterdir()] == [f"{name}.sock"]
    assert list(short_dir.iterdir()) == [folder]
    assert list(folder.iterdir()) == []


async def test_a_path_with_a_comma_leads_to_no_other_socket(short_dir: Path) -> None:
    async with served(short_dir / "p", Plugin()):
        await expect_deadline(short_dir / "p,q")
        await expect_deadline(short_dir / f"p,{'q' * 60},{'r' * 60}")


async def test_a_path_with_a_zero_byte_leads_to_no_other_socket(short_dir: Path) -> None:
    async with served(short_dir / "p", Plugin()):
        await expect_deadline(short_dir / "p\0q")


async def test_a_socket_with_a_comma_may_come_late_and_may_be_replaced(short_dir: Path) -> None:
    path = short_dir / "a,b"
    async with connected(path) as peer:
        assert (await refusal(peer)).status == "Unavailable"
        for name in ("first", "second"):
            plugin = Plugin()
            plugin.error = errors.AllocationError(name)
            listener = Listener(path, plugin.bindings())
            await listener.bind()
            assert (await answer(peer)).text == name
            await listener.close()


@pytest.mark.parametrize("name", ["p", "a%b?#ä"])
async def test_a_path_without_a_comma_needs_no_link(short_dir: Path, links: Path, name: str) -> None:
    links.rmdir()

    async with served(short_dir / name, Plugin()) as peer:
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()


async def test_the_link_to_a_path_with_a_comma_goes_with_the_connection(
    short_dir: Path, links: Path, pairing: Pairing
) -> None:
    if pairing.client is OWN:
        pytest.skip("it needs no link")

    async with served(short_dir / "a,b", Plugin()):
        (folder,) = links.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(links.iterdir()) == []
    await expect_deadline(short_dir / "a,b")
    assert list(links.iterdir()) == []


async def test_a_path_with_a_comma_is_unavailable_where_no_link_can_be_made(
    short_dir: Path, links: Path, pairing: Pairing
) -> None:
    if pairing.client is OWN:
        pytest.skip("it needs no link")
    links.rmdir()

    path = short_dir / "a,b"
    with pytest.raises(RemoteError, match=f"Unavailable desc = cannot dial {path}: no folder for a link"):
        async with connected(path):
            pass


async def test_the_longest_socket_path_works_and_the_next_is_refused(short_dir: Path) -> None:
    room = SOCKET_PATH_LIMIT_BYTES - len(f"{short_dir}/")
    async with served(short_dir / ("x" * room), Plugin()) as peer:
        assert await peer.call(deviceplugin.GET_OPTIONS, None) == PluginOptions()
    with pytest.raises(PluginError, match="is 108 bytes; Unix sockets take 107: use a shorter folder"):
        await Listener(short_dir / ("x" * (room + 1)), ()).bind()
    assert list(short_dir.iterdir()) == []


@pytest.mark.parametrize("last", ["x", ","])
async def test_a_path_that_is_too_long_is_dialled_in_vain(
    short_dir: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """Also when a socket stands there, made with a shorter name for its folder."""
    name = "x" * (SOCKET_PATH_LIMIT_BYTES - len(f"{short_dir}/")) + last

    monkeypatch.chdir(short_dir)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        await expect_deadline(short_dir / name)
        async with connected(short_dir / name) as peer:
            assert (await refusal(peer)).status == "Unavailable"
    assert capfd.readouterr() == ("", "")
