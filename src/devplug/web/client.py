"""The client: one request over a connection of its own, with the answer as a whole or line by line."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from msgspec import Struct

from devplug.web.addresses import UnixAddress
from devplug.web.client_connection import ClientConnection, ClientRequest, connect
from devplug.web.messages import WebClientError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from devplug.web.addresses import Address

_ANSWER_LIMIT_BYTES: Final = 64 * 1024 * 1024


class Response(Struct, frozen=True):
    """An answer, whatever its status."""

    status: int
    media_type: str
    """As the other end wrote it, with its parameters; empty without one."""
    body: bytes


async def get(
    address: Address,
    path: str,
    *,
    timeout_seconds: float = 5,
    limit_bytes: int = _ANSWER_LIMIT_BYTES,
) -> Response:
    """Return the answer to a GET of `path`, which may have a query.

    Raises `WebClientError` if there is none within `timeout_seconds`, or one of more than `limit_bytes`.
    """
    async with _within(timeout_seconds, address, path):
        with closing(await connect(address, f"{address}{path}")) as connection:
            head = await connection.ask(_request(address, path))
            body = await connection.body(limit_bytes)
    return Response(head.status, head.headers.get("content-type", ""), body)


@asynccontextmanager
async def lines(
    address: Address,
    path: str,
    *,
    timeout_seconds: float = 5,
    limit_bytes: int = _ANSWER_LIMIT_BYTES,
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Yield the lines of a streamed answer, without their ends, until the other end ends it.

    The block is entered when the answer has begun, within `timeout_seconds`; a line may then take any time.
    Raises `WebClientError` if the answer is no 200, breaks off, or has a line of more than `limit_bytes`.
    """
    connection: ClientConnection | None = None
    try:
        async with _within(timeout_seconds, address, path):
            connection = await connect(address, f"{address}{path}")
            head = await connection.ask(_request(address, path))
        if head.status != 200:
            raise WebClientError(f"{address}{path} answered {head}")
        found = connection.lines(limit_bytes)
        try:
            yield found
        finally:
            await found.aclose()
    finally:
        if connection is not None:
            connection.close()


@asynccontextmanager
async def _within(seconds: float, address: Address, path: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise WebClientError(f"{address}{path} did not answer within {seconds:g} s") from None


def _request(address: Address, path: str) -> ClientRequest:
    headers = [
        ("Host", _authority(address)),
        ("User-Agent", "devplug"),
        ("Accept", "*/*"),
        ("Connection", "close"),
    ]
    return ClientRequest("GET", quote(path, safe="/?&=%:,;+@!$'()*~"), headers)


def _authority(address: Address) -> str:
    if isinstance(address, UnixAddress):
        return "localhost"
    return str(address) if address.host else f"localhost:{address.port}"
