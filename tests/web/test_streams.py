"""Answers that come piece by piece: they last as long as both ends want, and leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from devplug.errors import DevplugError
from devplug.web.client import lines
from devplug.web.messages import Page, Request, Stream, WebClientError
from devplug.web.server import serving
from tests.waiting import until
from tests.web.raw import GET, HERE, answer_to, connection, open_files


class Ticker:
    """Serves a stream of its ticks, and knows who listens."""

    def __init__(self) -> None:
        self.ticks: asyncio.Queue[bytes] = asyncio.Queue()
        self.listening = 0
        self.closed = 0

    async def __call__(self, request: Request) -> Stream:
        return Stream(self._lines(), "application/x-ndjson")

    async def _lines(self) -> AsyncIterator[bytes]:
        self.listening += 1
        try:
            while tick := await self.ticks.get():
                yield tick
        finally:
            await asyncio.sleep(0)  # closing may take a turn of the loop
            self.listening -= 1
            self.closed += 1


async def test_each_piece_arrives_at_once() -> None:
    ticker = Ticker()
    async with serving(HERE, ticker, name="test") as address, lines(address, "/") as found:
        for number in range(5):
            ticker.ticks.put_nowait(b"%d\n" % number)
            assert await anext(found) == b"%d" % number
        ticker.ticks.put_nowait(b"")
        assert [line async for line in found] == []


async def test_a_stream_ends_when_its_reader_goes_while_it_waits() -> None:
    ticker = Ticker()
    async with serving(HERE, ticker, name="test") as address:
        before = open_files(), len(asyncio.all_tasks())
        for _ in range(5):
            async with connection(address) as (reader, writer):
                writer.write(GET)
                await reader.readuntil(b"\r\n\r\n")
                await until(lambda: ticker.listening == 1)
            await until(lambda: ticker.listening == 0)
        assert ticker.closed == 5
        await until(lambda: (open_files(), len(asyncio.all_tasks())) == before)


async def test_a_stream_ends_when_its_reader_goes_while_it_is_written() -> None:
    closed = asyncio.Event()

    async def endless(_: Request) -> Stream:
        async def chunks() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 1_000_000
            finally:
                closed.set()

        return Stream(chunks())

    async with serving(HERE, endless, name="test") as address:
        async with connection(address) as (reader, writer):
            writer.write(GET)
            await reader.readexactly(3_000_000)
        await closed.wait()


async def test_what_a_reader_sends_meanwhile_is_ignored() -> None:
    ticker = Ticker()
    async with serving(HERE, ticker, name="test") as address, connection(address) as (reader, writer):
        writer.write(GET + GET)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"x" * 100_000)
        await writer.drain()
        ticker.ticks.put_nowait(b"still here\n")
        assert b"still here" in await reader.readuntil(b"here\n")
        ticker.ticks.put_nowait(b"")
        assert await reader.read() == b"\r\n0\r\n\r\n"


async def test_streams_end_in_order_when_the_server_does() -> None:
    ticker = Ticker()
    async with asyncio.TaskGroup() as group:

        async def all_lines() -> list[bytes]:
            async with lines(address, "/") as found:
                return [line async for line in found]

        async with serving(HERE, ticker, name="test") as address:
            following = [group.create_task(all_lines()) for _ in range(3)]
            await until(lambda: ticker.listening == 3)
        assert ticker.closed == 3
    assert [task.result() for task in following] == [[], [], []]


async def test_a_stream_that_fails_breaks_off_and_is_told_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def failing(_: Request) -> Stream:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"one\n"
            raise TimeoutError("a secret")

        return Stream(chunks())

    async with serving(HERE, failing, name="test") as address:
        answer = await answer_to(address, GET)
        assert answer.endswith(b"one\n\r\n")
        assert b"secret" not in answer
        with pytest.raises(WebClientError, match="broke off its answer"):
            async with lines(address, "/") as found:
                assert [line async for line in found] == [b"one"]
    assert [record.message for record in caplog.records] == ["a request failed"] * 2


async def test_an_iterator_that_cannot_be_closed_is_fine() -> None:
    class Countdown:
        def __init__(self) -> None:
            self.left = 3

        def __aiter__(self) -> Countdown:
            return self

        async def __anext__(self) -> bytes:
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return b"%d\n" % self.left

    async def count(_: Request) -> Stream:
        return Stream(Countdown())

    async with serving(HERE, count, name="test") as address, lines(address, "/") as found:
        assert [line async for line in found] == [b"2", b"1", b"0"]


async def test_an_iterator_that_fails_when_it_is_closed_is_told_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def stubborn(_: Request) -> Stream:
        async def chunks() -> AsyncIterator[bytes]:
            try:
                yield b"x\n"
                await asyncio.Event().wait()
            finally:
                raise DevplugError("no")

        return Stream(chunks())

    async with serving(HERE, stubborn, name="test") as address:
        async with lines(address, "/") as found:
            assert await anext(found) == b"x"
        await until(lambda: bool(caplog.records))


async def test_a_head_of_a_stream_does_not_begin_it() -> None:
    ticker = Ticker()
    async with serving(HERE, ticker, name="test") as address:
        answer = await answer_to(address, GET.replace(b"GET", b"HEAD"))
    assert answer.startswith(b"HTTP/1.1 200")
    assert (ticker.listening, ticker.closed) == (0, 0)


async def test_pages_are_served_beside_streams() -> None:
    ticker = Ticker()

    async def both(request: Request) -> Stream | Page:
        return await ticker(request) if request.path == "/" else Page("page")

    async with serving(HERE, both, name="test") as address, lines(address, "/") as found:
        assert b"page" in await answer_to(address, GET.replace(b"/ ", b"/p "), half_closed=True)
        ticker.ticks.put_nowait(b"tick\n")
        assert await anext(found) == b"tick"
