"""A client without manners: it sends bytes as they are, and shows what comes back."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from devplug.web.addresses import Address, TcpAddress, UnixAddress
from devplug.web.messages import Page, Request

HERE = TcpAddress("127.0.0.1", 0)
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST_GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def hello(request: Request) -> Page:
    return Page(f"hello {request.path}")


@asynccontextmanager
async def connection(address: Address) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    if isinstance(address, UnixAddress):
        reader, writer = await asyncio.open_unix_connection(address.path)
    else:
        reader, writer = await asyncio.open_connection(address.host or "127.0.0.1", address.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


async def answer_to(address: Address, content: bytes, *, half_closed: bool = False) -> bytes:
    """All that comes back until the other end closes."""
    async with connection(address) as (reader, writer):
        writer.write(content)
        if half_closed:
            writer.write_eof()
        return await reader.read()


async def one_answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of the next answer, which has a Content-Length."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    return head, await reader.readexactly(int(length.partition(b":")[2]))


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def open_files() -> int:
    gc.collect()
    return len(names(Path("/proc/self/fd")))
