"""Connections that stay for the next request, against servers that end them, and through proxies."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest

from devplug.web.addresses import TcpAddress
from devplug.web.client_connection import ClientRequest
from devplug.web.connections import Connections, Proxy, Server
from devplug.web.messages import WebClientError

Answer: TypeAlias = "Callable[[int, bytes], Awaitable[bytes | None]]"
"""Of the number of the request on its connection, and its head: the bytes of the answer, None to close."""

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Peer:
    """What has come to a server."""

    address: TcpAddress = field(default_factory=lambda: TcpAddress("", 0))
    heads: list[list[bytes]] = field(default_factory=list)
    """Of each connection, the heads of its requests."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a connection has been closed here."""


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[Peer]:
    peer = Peer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads: list[bytes] = []
        peer.heads.append(heads)
        try:
            while True:
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                reply = await answer(len(heads), heads[-1])
                if reply is None:
                    break
                writer.write(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        peer.ended.set()

    async with asyncio.TaskGroup() as tasks:

        def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.create_task(serve(reader, writer))

        server = await asyncio.start_server(served, "127.0.0.1", 0)
        peer.address = TcpAddress("127.0.0.1", server.sockets[0].getsockname()[1])
        try:
            yield peer
        finally:
            server.close()


@asynccontextmanager
async def connections(server: Server) -> AsyncIterator[Connections]:
    opened = Connections(server)
    try:
        yield opened
    finally:
        opened.close()


async def asked(opened: Connections, method: str = "GET") -> bytes:
    connection, _ = await opened.ask(ClientRequest(method, "/x", [("Host", "there")]))
    body = await connection.body(1000)
    opened.keep(connection)
    return body


async def always(_: int, __: bytes) -> bytes:
    return OK


async def once(number: int, _: bytes) -> bytes | None:
    return OK if number == 1 else None


async def test_requests_after_each_other_have_one_connection_and_those_at_once_have_their_own() -> None:
    async with answering(always) as peer, connections(Server(peer.address, "it")) as opened:
        assert [await asked(opened) for _ in range(3)] == [b"ok"] * 3
        assert [len(heads) for heads in peer.heads] == [3]
        async with asyncio.TaskGroup() as tasks:
            both = [tasks.create_task(asked(opened)) for _ in range(2)]
        assert [task.result() for task in both] == [b"ok", b"ok"]
        assert sum(len(heads) for heads in peer.heads) == 5
        assert len(peer.heads) == 2


async def test_a_connection_that_the_server_has_closed_is_not_used_again() -> None:
    async def closing(_: int, __: bytes) -> bytes:
        return OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")

    async with answering(closing) as peer, connections(Server(peer.address, "it")) as opened:
        assert [await asked(opened, "POST") for _ in range(3)] == [b"ok"] * 3
        assert [len(heads) for heads in peer.heads] == [1, 1, 1]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_a_request_that_meets_the_end_of_its_connection_is_asked_again(method: str) -> None:
    async with answering(once) as peer, connections(Server(peer.address, "it")) as opened:
        assert [await asked(opened, method) for _ in range(2)] == [b"ok"] * 2
        assert [len(heads) for heads in peer.heads] == [2, 1]


async def test_what_may_not_be_done_twice_is_not_asked_again() -> None:
    async with answering(once) as peer, connections(Server(peer.address, "it")) as opened:
        await asked(opened, "POST")
        with pytest.raises(WebClientError, match="it "):
            await asked(opened, "POST")
        assert [len(heads) for heads in peer.heads] == [2]


async def test_a_request_that_fails_on_a_new_connection_is_not_asked_again() -> None:
    async def never(_: int, __: bytes) -> None:
        return None

    async with answering(never) as peer, connections(Server(peer.address, "it")) as opened:
        with pytest.raises(WebClientError, match="it "):
            await asked(opened)
        assert [len(heads) for heads in peer.heads] == [1]


async def test_an_answer_that_is_left_unread_leaves_its_connection_to_nobody() -> None:
    async with answering(always) as peer, connections(Server(peer.address, "it")) as opened:
        connection, _ = await opened.ask(ClientRequest("GET", "/x", [("Host", "there")]))
        opened.keep(connection)
        await peer.ended.wait()
        assert await asked(opened) == b"ok"
        assert [len(heads) for heads in peer.heads] == [1, 1]


async def test_a_proxy_is_told_the_server_and_its_password_with_each_request() -> None:
    async with answering(always) as peer:
        server = Server(TcpAddress("there.test", 8080), "it", proxy=Proxy(peer.address, "me:word"))
        async with connections(server) as opened:
            assert [await asked(opened) for _ in range(2)] == [b"ok"] * 2
        ((first, second),) = peer.heads
        assert first == second
        assert first.startswith(b"GET http://there.test:8080/x HTTP/1.1\r\n")
        assert b"Proxy-Authorization: Basic " + b64encode(b"me:word") in first
