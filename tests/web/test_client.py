"""The client against servers that are wrong, slow, silent or not there, in plain words."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.web.addresses import Address, TcpAddress, UnixAddress
from devplug.web.client import Response, get, lines
from devplug.web.messages import Answer, Page, Request, Stream, WebClientError, not_found
from devplug.web.server import serving
from tests.web.raw import HERE, open_files


@asynccontextmanager
async def answering(answer: bytes, *, stays: bool = False) -> AsyncIterator[TcpAddress]:
    """A server that sends these bytes to whoever connects, and closes or does not."""
    left = asyncio.Event()

    async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if stays:
            await left.wait()
        writer.close()

    server = await asyncio.start_server(answer_all, "127.0.0.1", 0)
    try:
        yield TcpAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        left.set()
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0)


async def why_not(address: Address, *, timeout_seconds: float = 30, limit_bytes: int = 1000) -> str:
    with pytest.raises(WebClientError) as caught:
        await get(address, "/x", timeout_seconds=timeout_seconds, limit_bytes=limit_bytes)
    return str(caught.value)


async def test_an_answer_is_returned_whatever_its_status() -> None:
    async with answering(
        b"HTTP/1.1 503 No\r\nContent-Type: text/x\r\nContent-Length: 2\r\n\r\nab"
    ) as address:
        assert await get(address, "/") == Response(503, "text/x", b"ab")
    async with answering(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\n\r\nabc") as address:
        assert await get(address, "/") == Response(200, "", b"abc")


async def test_whoever_is_not_there_is_named(short_dir: Path) -> None:
    async with answering(b"") as gone:
        pass
    assert await why_not(gone) == (
        f"cannot ask {gone}/x: nothing listens there; the program that should is not running"
    )
    path = short_dir / "a.sock"
    assert await why_not(UnixAddress(str(path))) == (
        f"cannot ask unix:{path}/x: there is no such socket; the program that makes it is not running"
    )
    assert "the name is not known" in await why_not(TcpAddress("none.invalid", 1))


async def test_a_socket_of_someone_else_is_named(short_dir: Path) -> None:
    async with serving(UnixAddress(str(short_dir / "a")), not_there, name="test") as address:
        (short_dir / "a").chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)  # root may open every socket
        try:
            assert "no right to connect; ask as the user who runs it" in await why_not(address)
        finally:
            os.seteuid(user)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100_000,
    ],
)
async def test_an_answer_that_is_no_http_or_breaks_off_is_named(answer: bytes) -> None:
    async with answering(answer) as address:
        assert f"{address}/x did not answer in HTTP, or broke off its answer" in await why_not(address)


async def test_an_answer_that_is_too_large_is_refused() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000, stays=True) as address:
        assert await why_not(address) == f"{address}/x answered with more than 1000 bytes"


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n", stays=True) as address:
        assert await why_not(address, timeout_seconds=0.05) == f"{address}/x did not answer within 0.05 s"
        with pytest.raises(WebClientError, match="did not answer within"):
            async with lines(address, "/x", timeout_seconds=0.05):
                pass


async def not_there(_: Request) -> Page:
    return not_found()


async def test_lines_of_an_answer_that_is_no_200_are_refused() -> None:
    async with serving(HERE, not_there, name="test") as address:
        with pytest.raises(WebClientError) as caught:
            async with lines(address, "/status"):
                pass
    assert str(caught.value) == f"{address}/status answered 404 Not Found"


async def test_what_the_block_raises_is_not_taken_for_a_failure_of_the_server() -> None:
    async def ask() -> None:
        async with answering(b"HTTP/1.1 200 OK\r\n\r\n") as address, lines(address, "/"):
            raise FileNotFoundError("mine")

    with pytest.raises(FileNotFoundError, match="mine"):
        await ask()


@given(st.lists(st.binary(min_size=1, max_size=12).map(lambda piece: piece.replace(b"a", b"\n")), max_size=8))
async def test_lines_are_the_same_however_they_are_cut(pieces: list[bytes]) -> None:
    async def cut(_: Request) -> Answer:
        async def chunks() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        return Stream(chunks())

    async with serving(HERE, cut, name="test") as address, lines(address, "/") as found:
        expected = b"".join(pieces).split(b"\n")
        assert [line async for line in found] == expected[: None if expected[-1] else -1]


async def test_a_line_that_is_too_long_is_refused() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n\r\nshort\n" + b"x" * 2000, stays=True) as address:
        with pytest.raises(WebClientError, match="a line of more than 1000 bytes"):
            async with lines(address, "/", limit_bytes=1000) as found:
                assert [line async for line in found] == [b"short"]


async def test_the_path_is_sent_as_it_may_stand_in_a_request() -> None:
    async def tell(request: Request) -> Page:
        return Page(f"{request.path} {request.query}")

    async with serving(HERE, tell, name="test") as address:
        assert (await get(address, "/a ä/%41?watch=1")).body.decode() == "/a ä/A {'watch': '1'}"


async def test_a_client_leaves_no_descriptor() -> None:
    async def ask() -> None:
        async with serving(HERE, not_there, name="test") as address:
            for _ in range(3):
                await get(address, "/")
        assert open_files() <= before + 5  # those of the loop

    before = open_files()
    await ask()
    assert open_files() == before
