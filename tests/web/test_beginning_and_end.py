"""How a server begins, or says why it cannot, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from devplug.web.addresses import TcpAddress, UnixAddress
from devplug.web.client import get
from devplug.web.messages import Answer, ListenError, Page, Request, Stream
from devplug.web.server import serving
from tests.virtualtime import now
from tests.virtualtime import play as play_in_no_time
from tests.web.raw import GET, HERE, connection, hello, open_files


async def test_a_port_in_use_is_refused_with_what_to_do() -> None:
    async with serving(HERE, hello, name="one") as address:
        with pytest.raises(ListenError) as caught:
            async with serving(address, hello, name="other"):
                pass
    assert str(caught.value) == (
        f"cannot listen on {address}: another program listens there; end it, or name another port"
    )
    async with serving(address, hello, name="other"):  # at once, with no wait for old connections
        assert (await get(address, "/")).status == 200


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("192.0.2.1", "this machine has no such address"),
        ("none.invalid", "the name none.invalid is not known"),
    ],
)
async def test_an_address_of_elsewhere_is_refused_with_what_to_do(host: str, why: str) -> None:
    with pytest.raises(ListenError, match=f"cannot listen on {host}:0: {why}; name "):
        async with serving(TcpAddress(host, 0), hello, name="test"):
            pass


async def test_an_answer_under_way_is_finished_when_the_server_ends() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: Request) -> Page:
        begun.set()
        await go_on.wait()
        return Page("done")

    async with asyncio.TaskGroup() as group:
        async with serving(HERE, slow, name="test") as address:
            asked = group.create_task(get(address, "/"))
            await begun.wait()
            asyncio.get_running_loop().call_soon(go_on.set)
        assert (await asked).body == b"done"


def test_the_server_ends_in_half_a_second_whatever_its_clients_and_handlers_do(short_dir: Path) -> None:
    async def serve() -> float:
        begun, tasks = asyncio.Event(), len(asyncio.all_tasks())
        left = 0.0

        async def never(request: Request) -> Answer:
            async def chunks() -> AsyncIterator[bytes]:
                try:
                    yield b"x" * 10_000_000
                finally:
                    await asyncio.Event().wait()

            if request.path == "/stream":
                return Stream(chunks())
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        async with AsyncExitStack() as stack:
            async with serving(UnixAddress(str(short_dir / "s")), never, name="test") as address:
                for asked in (b"", GET[:10], GET.replace(b"/", b"/stream", 1), GET):
                    _, writer = await stack.enter_async_context(connection(address))
                    writer.write(asked)
                await begun.wait()
                left = now()
            took = now() - left
        assert len(asyncio.all_tasks()) == tasks
        return took

    before = open_files()
    assert play_in_no_time(serve()) <= 0.5
    assert open_files() == before


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    async def serve() -> None:
        async with serving(HERE, hello, name="test"):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await serve()


async def test_a_block_that_is_cancelled_ends_cancelled() -> None:
    entered = asyncio.Event()

    async def stay() -> None:
        async with serving(HERE, hello, name="test"):
            entered.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        staying = group.create_task(stay())
        await entered.wait()
        staying.cancel()
    assert staying.cancelled()
