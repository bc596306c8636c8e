"""Those who connect and mean no good, or know no better: the server says so or closes, and goes on."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devplug.web.addresses import TcpAddress, UnixAddress
from devplug.web.client import get
from devplug.web.messages import Answer, Limits, Page, Request, Stream
from devplug.web.server import serving
from tests.virtualtime import in_no_time, in_virtual_time, now, passes
from tests.waiting import until
from tests.web.raw import GET, HERE, LAST_GET, answer_to, connection, hello, one_answer, open_files

Handler = Callable[[Request], Awaitable[Answer]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

PATIENT = Limits(header_seconds=50, idle_seconds=50)


def status_of(content: bytes) -> bytes:
    """The status that the server gives to these bytes; afterwards it must serve the next client."""

    async def ask() -> bytes:
        async with serving(HERE, hello, name="test", limits=PATIENT) as address:
            answer = await answer_to(address, content)
            assert (await get(address, "/")).status == 200
        return answer[9:12]

    return asyncio.run(ask())


@asynccontextmanager
async def heard(folder: Path, answer: Handler = hello) -> AsyncIterator[Streams]:
    """A connection to a server of the usual limits, all of which come in no time on a clock that jumps."""
    async with (
        serving(UnixAddress(f"{folder}/s"), answer, name="test") as address,
        connection(address) as streams,
    ):
        yield streams


async def test_a_flood_of_connections_delays_no_other_client() -> None:
    """The loop has no turn meanwhile: what does not wait for it here tries again after a second."""
    async with serving(HERE, hello, name="test") as address:
        assert isinstance(address, TcpAddress)
        with ExitStack() as stack:
            for _ in range(500):
                client = stack.enter_context(socket.socket())
                client.settimeout(0.9)
                client.connect((address.host, address.port))


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"\r\n\r\n", b"400"),
        (b"hello\r\n\r\n", b"400"),
        (b"GET /\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nA b: c\r\n\r\n", b"400"),
        (b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", b"413"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"413"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", b"501"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 100_000, b"405"),
        (b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", b"405"),
        (b"GET /" + b"a" * 20_000, b"431"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100_000, b"431"),
        (LAST_GET.replace(b"\r\n\r\n", b"\r\nA: " + b"b" * 16_384 + b"\r\n\r\n"), b"431"),
        (LAST_GET.replace(b"\r\n\r\n", b"\r\nA: " + b"b" * 16_300 + b"\r\n\r\n"), b"200"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", b"400"),
    ],
)
def test_each_malformed_request_gets_its_status(content: bytes, status: bytes) -> None:
    assert status_of(content) == status


mutated = st.builds(
    lambda start, length, put: GET[:start] + put + GET[start + length :],
    st.integers(0, len(GET)),
    st.integers(0, 8),
    st.one_of(st.binary(max_size=8), st.sampled_from([b"\r\n", b"\0", b" ", b"HTTP/1.0", b"\n\n", b"%"])),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=200), mutated, st.lists(mutated, max_size=3).map(b"".join)))
async def test_garbage_never_harms_the_server(caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    async with serving(HERE, hello, name="test", limits=PATIENT) as address:
        answer = await answer_to(address, content, half_closed=True)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200", b"HTTP/1.1 501"))
        assert (await get(address, "/")).status == 200
    assert caplog.records == []


@pytest.mark.parametrize(
    ("content", "first", "end"),
    [(GET[:-2], b"HTTP/1.1 408", b""), (b"", b"", b""), (GET, b"HTTP/1.1 200", b"hello /")],
    ids=["headers that trickle are cut off with a word", "nothing is closed without one", "idle is closed"],
)
@in_no_time
async def test_a_connection_is_closed_in_time(
    short_dir: Path, content: bytes, first: bytes, end: bytes
) -> None:
    async with heard(short_dir) as (reader, writer):
        writer.write(content)
        answer = await reader.read()
        assert (answer[:12], answer[len(answer) - len(end) :]) == (first, end)


@in_no_time
async def test_headers_that_trickle_without_end_are_cut_off_in_time(short_dir: Path) -> None:
    async with heard(short_dir) as (reader, writer), asyncio.TaskGroup() as group:
        answer = group.create_task(reader.read(12))
        while not answer.done():
            writer.write(b"G")
            await passes(0.1)
        assert answer.result() == b"HTTP/1.1 408"


@pytest.mark.parametrize(("content", "rest"), [(GET + GET[:9], b""), (GET, GET[:9])])
@in_no_time
async def test_a_later_request_must_not_trickle_either(short_dir: Path, content: bytes, rest: bytes) -> None:
    async with heard(short_dir) as (reader, writer):
        writer.write(content)
        await one_answer(reader)
        writer.write(rest)
        assert (await reader.read()).startswith(b"HTTP/1.1 408")


async def test_the_oldest_answer_makes_room_where_nothing_else_does() -> None:
    go_on = asyncio.Event()
    busy = 0

    async def slow(_: Request) -> Page:
        nonlocal busy
        busy += 1
        await go_on.wait()
        return Page("done")

    limits = Limits(connections=3, linger_seconds=50)
    async with serving(HERE, slow, name="test", limits=limits) as address, AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connection(address)) for _ in range(3)]
        for _, writer in opened:
            writer.write(LAST_GET)
        await until(lambda: busy == 3)
        reader, writer = await stack.enter_async_context(connection(address))
        writer.write(LAST_GET)
        await until(lambda: busy == 4)
        go_on.set()
        ends = [(await one.read())[-4:] for one in (*(early for early, _ in opened), reader)]
        assert ends == [b"", b"done", b"done", b"done"]


@pytest.mark.parametrize("content", [b"", GET[:-2], GET])
async def test_however_many_connect_and_wait_another_client_is_answered(content: bytes) -> None:
    async with serving(HERE, hello, name="test", limits=PATIENT) as address, AsyncExitStack() as stack:
        before = open_files(), len(asyncio.all_tasks())
        for _ in range(4 * PATIENT.connections):
            _, writer = await stack.enter_async_context(connection(address))
            writer.write(content)
        assert (await get(address, "/")).status == 200
        await stack.aclose()
        await until(lambda: (open_files(), len(asyncio.all_tasks())) == before)


async def test_readers_that_do_not_read_make_room_for_another_client() -> None:
    async def large(asked: Request) -> Page:
        return Page(b"x" * 2**24 if asked.path == "/large" else b"small")

    async with serving(HERE, large, name="test", limits=PATIENT) as address, AsyncExitStack() as stack:
        for _ in range(2 * PATIENT.connections):
            reader, writer = await stack.enter_async_context(connection(address))
            writer.write(GET.replace(b" / ", b" /large "))
            await reader.readexactly(12)
        assert (await get(address, "/")).body == b"small"


async def test_streams_leave_half_of_the_connections_to_others() -> None:
    async def lasting(asked: Request) -> Answer:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"first"
            await asyncio.get_running_loop().create_future()

        return Stream(chunks()) if asked.path == "/stream" else Page("page")

    async with serving(HERE, lasting, name="test", limits=PATIENT) as address, AsyncExitStack() as stack:
        for number in range(PATIENT.streams + 1):
            reader, writer = await stack.enter_async_context(connection(address))
            writer.write(GET.replace(b" / ", b" /stream "))
            status = (await reader.readexactly(12))[9:]
            assert status == (b"200" if number < PATIENT.streams else b"503")
        assert (await get(address, "/")).body == b"page"


async def test_a_client_of_another_address_keeps_its_connection() -> None:
    here = TcpAddress("127.0.0.1", 0)
    async with serving(here, hello, name="test", limits=PATIENT) as address, AsyncExitStack() as stack:
        assert isinstance(address, TcpAddress)
        probe = await asyncio.open_connection("127.0.0.1", address.port, local_addr=("127.0.0.2", 0))
        for _ in range(2 * PATIENT.connections):
            _, writer = await stack.enter_async_context(connection(address))
            writer.write(GET[:-2])
            await asyncio.sleep(0)
        reader, writer = probe
        writer.write(LAST_GET)
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_idle_connections_make_room_for_a_new_one() -> None:
    limits = Limits(connections=2, idle_seconds=50)
    async with (
        serving(HERE, hello, name="test", limits=limits) as address,
        connection(address) as (oldest, one),
        connection(address) as (newest, other),
    ):
        for reader, writer in ((newest, other), (oldest, one), (newest, other)):
            writer.write(GET)
            await one_answer(reader)
        assert (await get(address, "/")).status == 200
        assert await oldest.read() == b""
        other.write(GET)
        assert (await one_answer(newest))[1] == b"hello /"


@in_no_time
async def test_a_reader_that_does_not_read_is_dropped(short_dir: Path) -> None:
    closed = asyncio.Event()

    async def endless(_: Request) -> Answer:
        async def chunks() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 100_000
            finally:
                closed.set()

        return Stream(chunks())

    async with heard(short_dir, endless) as (_, writer):
        transport = writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()
        writer.write(GET)
        await closed.wait()


async def test_a_client_that_resets_leaves_nothing() -> None:
    async with serving(HERE, hello, name="test") as address:
        before = open_files(), len(asyncio.all_tasks())
        for content in (b"", GET[:10], GET, GET * 50):
            async with connection(address) as (_, writer):
                opened = writer.get_extra_info("socket")
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                writer.write(content)
        await until(lambda: (open_files(), len(asyncio.all_tasks())) == before)


async def test_a_process_out_of_descriptors_serves_again_when_it_has_some(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(HERE, hello, name="test") as address, connection(address) as (reader, writer):
        writer.write(GET)
        await one_answer(reader)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        loop = asyncio.get_running_loop()
        with socket.socket() as late, ExitStack() as stack:
            late.settimeout(0)
            resource.setrlimit(resource.RLIMIT_NOFILE, (late.fileno() + 1, hard))
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
            with suppress(OSError):
                while True:
                    stack.callback(os.close, os.dup(late.fileno()))
            assert isinstance(address, TcpAddress)
            await loop.sock_connect(late, (address.host, address.port))
            await until(lambda: bool(caplog.records))
            writer.write(GET)  # who is connected is served meanwhile
            assert (await one_answer(reader))[1] == b"hello /"
            stack.close()
            await loop.sock_sendall(late, LAST_GET)
            assert await loop.sock_recv(late, 12) == b"HTTP/1.1 200"
    assert [record.message for record in caplog.records] == ["cannot accept connections; trying again"]


@in_virtual_time
async def test_those_who_waited_for_a_descriptor_are_served_as_soon_as_there_is_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not a few of them a second: a scrape behind a hundred who have gone would never come to its turn."""
    waiting = 30

    async with serving(HERE, hello, name="test") as address:
        assert isinstance(address, TcpAddress)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with ExitStack() as stack:
            for _ in range(waiting):
                with socket.create_connection((address.host, address.port)) as gone:
                    gone.sendall(LAST_GET)
            last = stack.enter_context(socket.create_connection((address.host, address.port)))
            last.settimeout(0)
            last.send(LAST_GET)
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
            with socket.socket() as free:
                resource.setrlimit(resource.RLIMIT_NOFILE, (free.fileno() + 1, hard))
            there_is_one = now()
            assert await asyncio.get_running_loop().sock_recv(last, 12) == b"HTTP/1.1 200"
            assert now() < there_is_one + 2.0
    assert [record.message for record in caplog.records] == ["cannot accept connections; trying again"]
