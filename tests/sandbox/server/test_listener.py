"""The end of the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from devplug.sandbox.registry import Registry
from devplug.sandbox.server.app import Application
from devplug.sandbox.server.listener import ApiServer
from tests.sandbox.server.beds import no_control, no_logs, no_metrics
from tests.virtualtime import on_virtual_time

anyio_backend = on_virtual_time


async def test_end_of_the_server_cuts_a_request_without_an_answer() -> None:
    begun = asyncio.Event()

    async def never(_scope: Any, _receive: Any, _send: Callable[[Any], Awaitable[None]]) -> None:
        begun.set()
        await asyncio.shield(asyncio.Event().wait())

    def around(_app: Application) -> Application:
        return never

    server = ApiServer(
        Registry(), logs=no_logs, metrics=no_metrics, control=no_control, token="t", around=around
    )
    server.listen()
    port = server.port
    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.run())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await begun.wait()
        running.cancel()
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
