"""The floor of all figures: the bare interpreter, and an echo of the same bytes over a socket."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.subjects import Process
from devplug.wire.http2.connection import Connection, Limits
from devplug.wire.rpc import ANSWER_HEAD, OK_TRAILERS, framed, request_block

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BARE = "import sys; print('here', flush=True); sys.stdin.read()"
"""A program that does nothing, and says when it does."""

PORTION_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Floor:
    """A started process that does next to nothing."""

    process: Process
    started_within: float
    """Seconds from its start to its first word."""


class EchoClient(asyncio.Protocol):
    """Asks an echo for one answer, or for many at once."""

    def __init__(self, request_bytes: int, answer_bytes: int) -> None:
        self._request = bytes(request_bytes)
        self._answer_bytes = answer_bytes
        self._missing = 0
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, content: bytes) -> None:
        self._missing -= len(content)
        if self._missing <= 0 and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def seconds(self, at_once: int = 1) -> float:
        """Return how long the last of so many answers takes, all asked for at once."""
        assert self._transport is not None
        self._waiter = asyncio.get_running_loop().create_future()
        self._missing = at_once * self._answer_bytes
        began = time.perf_counter()
        for _ in range(at_once):
            self._transport.write(self._request)
        await self._waiter
        return time.perf_counter() - began

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.close()


def exchanged_bytes(path: str, request: bytes, answer: bytes, timeout_seconds: float) -> tuple[int, int]:
    """Return how many bytes a call sends and gets on a connection that is there, HTTP/2 and all."""
    client, server = (Connection(is_client=is_client, limits=Limits()) for is_client in (True, False))
    server.receive(_taken(client), 0)
    client.receive(_taken(server), 0)
    server.receive(_taken(client), 0)
    stream = client.open_stream(request_block(path, "localhost", timeout_seconds))
    client.send_content(stream, framed(request))
    client.end(stream)
    asked = _taken(client)
    server.receive(asked, 0)
    server.send_head(stream, ANSWER_HEAD)
    server.send_content(stream, framed(answer))
    server.end(stream, OK_TRAILERS)
    return len(asked), len(_taken(server))


def _taken(connection: Connection) -> bytes:
    whole = b""
    while content := connection.take(PORTION_BYTES)[0]:
        whole += content
    return whole


@asynccontextmanager
async def bare_interpreter() -> AsyncIterator[Floor]:
    """Start a Python that does nothing."""
    async with _running("-c", BARE) as floor:
        yield floor


@asynccontextmanager
async def echo(path: Path, request_bytes: int, answer_bytes: int) -> AsyncIterator[Floor]:
    """Start an echo that listens at `path`."""
    async with _running("-m", "bench.echo", str(path), str(request_bytes), str(answer_bytes)) as floor:
        yield floor


@asynccontextmanager
async def echo_client(path: Path, request_bytes: int, answer_bytes: int) -> AsyncIterator[EchoClient]:
    """Connect to an echo."""
    client = EchoClient(request_bytes, answer_bytes)
    await asyncio.get_running_loop().create_unix_connection(lambda: client, str(path))
    try:
        yield client
    finally:
        client.close()


@asynccontextmanager
async def _running(*arguments: str) -> AsyncIterator[Floor]:
    started_at = time.monotonic()
    child = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        await child.stdout.readline()
        yield Floor(Process(child, started_at, Path("/dev/null")), time.monotonic() - started_at)
    finally:
        child.kill()
        await child.wait()


async def import_seconds(*modules: str) -> float:
    """Return how long a new interpreter, with asyncio, takes to import modules."""
    program = (
        f"import asyncio, time; began = time.perf_counter(); import {', '.join(modules)}; "
        "print(time.perf_counter() - began)"
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await child.communicate()
    return float(output)
