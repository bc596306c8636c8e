"""Servers on socket files: who may open them, what they replace, and what they leave."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest

from devplug.web.addresses import UnixAddress
from devplug.web.client import get, lines
from devplug.web.messages import ListenError, Page, Request
from devplug.web.server import serving
from tests.web.raw import hello, names, open_files


def refusal(path: Path) -> str:
    async def serve() -> None:
        async with serving(UnixAddress(str(path)), hello, name="test"):
            pass

    with pytest.raises(ListenError) as caught:
        asyncio.run(serve())
    return str(caught.value)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
async def test_only_its_user_may_open_the_socket_and_it_is_gone_afterwards(
    short_dir: Path, umask: int
) -> None:
    path = short_dir / "a.sock"

    async def serve() -> None:
        async with serving(UnixAddress(str(path)), hello, name="test") as address:
            assert address == UnixAddress(str(path))
            assert stat.filemode(path.stat().st_mode) == "srw-------"
            assert names(short_dir) == ["a.sock"]
            assert (await get(address, "/x")).body == b"hello /x"
        assert names(short_dir) == []

    former = os.umask(umask)
    try:
        await serve()
    finally:
        os.umask(former)


async def test_a_request_over_it_is_local_and_any_host_will_do(short_dir: Path) -> None:
    async def tell(request: Request) -> Page:
        return Page(str(request.is_local))

    async with serving(UnixAddress(str(short_dir / "a")), tell, name="test") as address:
        assert (await get(address, "/")).body == b"True"


async def test_the_socket_of_a_dead_process_is_replaced(short_dir: Path) -> None:
    path = short_dir / "a.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()

    async with serving(UnixAddress(str(path)), hello, name="test") as address:
        assert (await get(address, "/")).status == 200
    assert not path.exists()


def test_a_socket_that_somebody_serves_is_left_alone(short_dir: Path) -> None:
    path = short_dir / "a.sock"
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(path))
        alive.listen(0)
        assert refusal(path) == (
            f"cannot listen on unix:{path}: another program listens there; name another path"
        )
        assert refusal(path).endswith("name another path")  # now its queue is full
        assert names(short_dir) == ["a.sock"]


@pytest.mark.parametrize("kind", ["file", "folder", "link to nothing"])
def test_what_is_not_a_socket_is_left_alone(short_dir: Path, kind: str) -> None:
    path = short_dir / "a.sock"
    match kind:
        case "file":
            path.write_text("x")
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to("nowhere")
    assert "something that is not a socket is there; name another path" in refusal(path)
    assert names(short_dir) == ["a.sock"]


def test_a_folder_that_is_not_there_is_named(short_dir: Path) -> None:
    path = short_dir / "none" / "a.sock"
    assert refusal(path) == (
        f"cannot listen on unix:{path}: its folder does not exist; make it, or name another path"
    )
    (short_dir / "none").write_text("x")
    assert "what should be its folder is a file" in refusal(path)


async def test_a_path_longer_than_the_kernel_takes_is_served(short_dir: Path) -> None:
    folder = short_dir / ("d" * 100) / ("e" * 100)
    folder.mkdir(parents=True)
    path = folder / "status.sock"

    before = open_files()
    for _ in range(2):
        async with serving(UnixAddress(str(path)), hello, name="test") as address:
            assert (await get(address, "/")).body == b"hello /"
            async with lines(address, "/long") as found:
                assert [line async for line in found] == [b"hello /long"]
            assert "another program listens there" in await asyncio.to_thread(refusal, path)
        assert names(folder) == []
    assert open_files() == before


def test_a_name_longer_than_any_detour_is_refused(short_dir: Path) -> None:
    assert "its name is too long; name a shorter path" in refusal(short_dir / ("a" * 300))


async def test_a_socket_that_another_has_put_in_its_place_stays(short_dir: Path) -> None:
    path = short_dir / "a.sock"

    async with serving(UnixAddress(str(path)), hello, name="one"):
        path.unlink()
        async with serving(UnixAddress(str(path)), hello, name="other") as address:
            pass
        path.write_text("somebody else's")
    assert path.read_text() == "somebody else's"
    assert isinstance(address, UnixAddress)
