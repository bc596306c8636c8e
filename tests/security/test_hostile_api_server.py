"""An API server, or what stands between it and us, that answers more than fits into memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from devplug.k8s.account import chosen_account
from devplug.k8s.client import CLAIMS, NODES, connected
from devplug.k8s.errors import ClusterError
from tests.k8s.test_connected import written

MIB = 2**20
Answer = Callable[[dict[str, list[str]]], tuple[bytes, int]]
"""Takes the query; returns a piece of the body, and how often it comes."""


@asynccontextmanager
async def answering(folder: Path, answer: Answer) -> AsyncIterator[str]:
    """Yield the kubeconfig of a server that answers each request in this way."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line, *_ = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            piece, count = answer(parse_qs(urlsplit(line.split()[1].decode()).query))
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(piece) * count}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode())
            for _ in range(count):
                writer.write(piece)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield written(folder, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")


async def why_no_node(kubeconfig: str) -> str:
    async with connected(lambda: chosen_account(kubeconfig, None)) as server:
        with pytest.raises(ClusterError) as refused:
            await server.get(NODES, "n")
    return str(refused.value)


async def test_an_answer_of_256_mib_is_refused_after_16(tmp_path: Path) -> None:
    async with answering(tmp_path, lambda _: (b" " * MIB, 256)) as kubeconfig:
        assert "answered with more than 16777216 bytes" in await why_no_node(kubeconfig)


async def test_an_answer_with_a_million_values_is_refused_in_words(tmp_path: Path) -> None:
    body = b'{"a": [' + b"{}," * MIB + b"{}]}"
    async with answering(tmp_path, lambda _: (body, 1)) as kubeconfig:
        assert "answered with more than 262144 values" in await why_no_node(kubeconfig)


async def test_a_watch_whose_line_never_ends_is_refused(tmp_path: Path) -> None:
    async with (
        answering(tmp_path, lambda _: (b"x" * MIB, 256)) as kubeconfig,
        connected(lambda: chosen_account(kubeconfig, None)) as server,
        aclosing(server.watch(NODES, seconds=60)) as changes,
    ):
        with pytest.raises(ClusterError, match="a line of more than 16777216 bytes"):
            await anext(changes)


async def test_a_page_that_is_too_large_is_asked_for_in_parts(tmp_path: Path) -> None:
    count, sizes = 300, []

    def page(query: dict[str, list[str]]) -> tuple[bytes, int]:
        size, start = int(query["limit"][0]), int(query.get("continue", ["0"])[0])
        sizes.append(size)
        items = [{"metadata": {"name": f"c{n}"}, "spec": [0] * 2000} for n in range(start, count)[:size]]
        after = str(start + size) if start + size < count else ""
        return json.dumps({"metadata": {"continue": after}, "items": items}).encode(), 1

    async with (
        answering(tmp_path, page) as kubeconfig,
        connected(lambda: chosen_account(kubeconfig, None)) as server,
    ):
        assert len(await server.list(CLAIMS)) == count
    assert sizes == [500, 125, 125, 125]
