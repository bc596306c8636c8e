"""A small client of the API server for the right driver and its mutants: one connection for each request."""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import h11


class StatusError(Exception):
    """The server answered with another status than was hoped for."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        super().__init__(f"{code}: {text}")


class Api:
    """The API server of a kubeconfig as `devplug` writes it."""

    def __init__(self, kubeconfig: Path) -> None:
        content = json.loads(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        self._url = urlsplit(cluster["server"])
        self._headers = [("Authorization", f"Bearer {user['token']}")] if "token" in user else []
        authority = cluster.get("certificate-authority-data")
        self._tls = ssl.create_default_context(cadata=b64decode(authority).decode()) if authority else None

    async def request(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Return the object of an answer. Raises `StatusError` and `OSError`."""
        async with self._opened(method, path, body) as pieces:
            return dict(json.loads(b"".join([piece async for piece in pieces])))

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Yield the events of a watch as they come."""
        async with self._opened("GET", path, None) as pieces:
            yield _lines(pieces)

    @asynccontextmanager
    async def _opened(self, method: str, path: str, body: object) -> AsyncIterator[AsyncIterator[bytes]]:
        host, port = self._url.hostname or "", self._url.port or 80
        reader, writer = await asyncio.open_connection(host, port, ssl=self._tls)
        try:
            connection = h11.Connection(h11.CLIENT)
            content = b"" if body is None else json.dumps(body).encode()
            head = h11.Request(
                method=method,
                target=f"{self._url.path}{path}",
                headers=[
                    *self._headers,
                    ("Host", f"{host}:{port}"),
                    ("Connection", "close"),
                    ("Content-Type", "application/json"),
                    ("Content-Length", str(len(content))),
                ],
            )
            parts = [head, h11.Data(data=content), h11.EndOfMessage()]
            writer.write(b"".join(connection.send(part) or b"" for part in parts))
            response = await _next(connection, reader)
            assert isinstance(response, h11.Response)
            pieces = _pieces(connection, reader)
            if response.status_code >= 400:
                text = b"".join([piece async for piece in pieces])
                raise StatusError(response.status_code, text.decode())
            yield pieces
        finally:
            writer.transport.abort()


async def _next(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            raise ConnectionResetError(str(error)) from error
        if event is not h11.NEED_DATA:
            return event
        connection.receive_data(await reader.read(65536))


async def _pieces(connection: h11.Connection, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while isinstance(event := await _next(connection, reader), h11.Data):
        yield bytes(event.data)


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.strip():
                yield json.loads(line)
