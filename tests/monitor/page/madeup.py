"""The page of made-up nodes, served by a thread of the test, so that a browser can look at it meanwhile."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from devplug.monitor.page.server import Follower, Pages
from devplug.web.addresses import TcpAddress
from devplug.web.server import serving
from tests.monitor.page.nodes import Source


@contextmanager
def made_up(*sources: Source, port: int = 0) -> Iterator[tuple[str, Callable[[Callable[[], None]], None]]]:
    """Serve the page of these nodes; yields its address, and what has something done on its loop."""
    ready: queue.Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        follower, stop = Follower(sources), asyncio.Event()
        pages = Pages(follower)
        async with (
            serving(TcpAddress("127.0.0.1", port), pages.answer, name="ui") as address,
            asyncio.TaskGroup() as group,
        ):
            following = group.create_task(follower.run())
            ready.put((f"http://{address}/", asyncio.get_running_loop(), stop))
            await stop.wait()
            following.cancel()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="the page's server")
    thread.start()
    url, loop, stop = ready.get(timeout=30)
    try:
        yield url, lambda change: void(loop.call_soon_threadsafe(change))
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def void(_: object) -> None:
    pass
