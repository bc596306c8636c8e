"""What the page's server answers over a real socket: files, headers, state, details, events."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote

import pytest

from devplug.monitor.page.server import Follower, Pages
from devplug.web.addresses import Address, TcpAddress
from devplug.web.client import Response, get, lines
from devplug.web.server import serving
from tests.monitor.page.nodes import EVIL, RESOURCE, Source, device, held, node, resource, sick
from tests.virtualtime import play as play_in_no_time


@asynccontextmanager
async def page_of(*sources: Source) -> AsyncIterator[Address]:
    follower = Follower(sources)
    pages = Pages(follower)
    async with (
        serving(TcpAddress("127.0.0.1", 0), pages.answer, name="ui") as address,
        asyncio.TaskGroup() as group,
    ):
        following = group.create_task(follower.run())
        while json.loads((await get(address, "/state.json")).body)["waiting"]:
            await follower.notifier.next.wait()
        yield address
        following.cancel()


async def events(address: Address, path: str = "/events") -> AsyncIterator[Any]:
    async with lines(address, path) as told:
        name = ""
        async for line in told:
            if line.startswith(b"event: "):
                name = line.removeprefix(b"event: ").decode()
            elif line.startswith(b"data: "):
                assert name == "state"
                yield json.loads(line.removeprefix(b"data: "))
            else:
                assert line in {b"", b"retry: 1000"}


def healths(seen: Any) -> dict[str, str]:
    return {
        tile["id"]: tile["health"]
        for one in seen["nodes"]
        for board in one["boards"]
        for group in board["groups"]
        for tile in group["tiles"]
    }


def port(*ids: str) -> Source:
    return Source(node(resource(*map(device, ids))))


async def test_events_are_the_whole_truth_at_once_and_after_each_change() -> None:
    source = port("a")
    async with page_of(source) as address:
        seen = events(address)
        assert healths(await anext(seen)) == {"a": "Healthy"}
        source.become(resource(sick("a", EVIL), device("b")))
        second = await anext(seen)
        assert healths(second) == {"a": "Unhealthy", "b": "Healthy"}
        assert [change["kind"] for change in second["changes"]] == ["appeared", "unhealthy"]
        await seen.aclose()  # type: ignore[attr-defined]


async def test_a_burst_of_changes_is_few_events() -> None:
    source = port()
    async with page_of(source) as address:
        seen = events(address)
        await anext(seen)
        for n in range(200):
            source.become(resource(*(device(f"d{m}") for m in range(n))))
            await asyncio.sleep(0)
        count = 1
        while len(healths(await anext(seen))) < 199:
            count += 1
        assert count < 5
        await seen.aclose()  # type: ignore[attr-defined]


async def test_every_reader_sees_the_same_state_as_one_who_asks_for_it() -> None:
    async with page_of(port("a"), Source(node(name="worker-1"))) as address:
        asked = json.loads((await get(address, "/state.json")).body)
        for _ in range(3):
            seen = events(address)
            told = await anext(seen)
            assert told["nodes"] == asked["nodes"]
            await seen.aclose()  # type: ignore[attr-defined]


async def test_the_filter_is_the_servers_too() -> None:
    async with page_of(port("tty0", "tty1")) as address:
        asked = json.loads((await get(address, "/state.json?filter=TTY1")).body)
        assert healths(asked) == {"tty1": "Healthy"}
        seen = events(address, "/events?filter=tty0")
        assert healths(await anext(seen)) == {"tty0": "Healthy"}
        await seen.aclose()  # type: ignore[attr-defined]


async def test_a_device_is_told_with_all_there_is() -> None:
    source = Source(node(resource(held("tty 0/&", attributes={"serial": "A1"}))))
    async with page_of(source) as address:
        path = f"/device.json?node=worker-0&resource={quote(RESOURCE)}&id={quote('tty 0/&', safe='')}"
        told = json.loads((await get(address, path)).body)
        assert told["attributes"] == {"serial": "A1"}
        assert (await get(address, "/device.json?id=nothing")).status == 404


async def refusing(address: Address) -> dict[str, str]:
    """Return the headers of the page, read by hand, because the client keeps only one of them."""
    assert isinstance(address, TcpAddress)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)


async def test_a_browser_is_told_to_trust_nobody_else() -> None:
    async with page_of(port()) as address:
        headers = await refusing(address)
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; ")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert not [name for name in headers if name.startswith("Access-Control")]


async def test_every_file_that_the_page_names_is_served_and_none_names_another_host() -> None:
    async with page_of(port("a")) as address:
        names = {"/"}
        seen: dict[str, Response] = {}
        while new := names - seen.keys():
            for name in new:
                seen[name] = await get(address, name)
                text = seen[name].body.decode()
                assert seen[name].status == 200, name
                assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name
                found = re.findall(r'(?:src|href)="([^"#]+)"|from "\./([^"]+)"', text)
                names |= {f"/{one or other}" for one, other in found}
        assert {"/page.css", "/page.js", "/keys.js", "/icon.svg"} <= seen.keys()
        assert seen["/keys.js"].media_type.startswith("text/javascript")


@pytest.mark.parametrize("path", ["/nothing", "/static/page.css", "/../pages.py", "/page.html"])
async def test_nothing_else_is_there(path: str) -> None:
    async with page_of(port()) as address:
        assert (await get(address, path)).status == 404


def test_a_node_that_nobody_can_ask_keeps_no_other_from_being_shown() -> None:
    class Mute(Source):
        async def wait_first(self) -> None:
            await asyncio.Event().wait()

    async def story() -> None:
        follower = Follower([Mute(node(name="mute")), port("a")])
        async with asyncio.TaskGroup() as group:
            following = group.create_task(follower.run())
            while not healths(follower.state()):
                await follower.notifier.next.wait()
            assert follower.state()["waiting"] == ["mute"]
            while follower.state()["waiting"]:
                await follower.notifier.next.wait()
            following.cancel()

    play_in_no_time(story())
