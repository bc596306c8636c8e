"""An author's `async def` blocks the loop on which all plugins of the program run."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from devplug import ContainerResponse, DeviceFeed, serve
from devplug.errors import RemoteError
from devplug.kubelet.manager import Kubelet
from devplug.plugin.ownership import new_socket_name
from devplug.web.addresses import UnixAddress
from devplug.web.client import get
from devplug.wire import methods
from devplug.wire.sockets import connected
from torture.beds import Fed, devices, within
from torture.catalogue import case
from torture.held import nothing_kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from devplug import Device
    from torture.catalogue import Round, Trial

DEADLINE_SECONDS: Final = 0.1
LATE_SECONDS: Final = 2.0
"""How much later than the end of a block an answer may come here, beside all the rest."""


class Blocking(Fed):
    """A plugin whose Allocate blocks the loop for as long as it is told to."""

    allocate_timeout_seconds = DEADLINE_SECONDS

    def __init__(self) -> None:
        super().__init__("d0", resource_name="example.com/blocking")
        self.seconds = 0.0

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        """Answer after a while in which nothing else runs."""
        time.sleep(self.seconds)  # noqa: ASYNC251 -- that is the fault
        return ContainerResponse.of(devices)


@case(
    "loop-blocked",
    fault="X16",
    promise="While an author's code blocks the loop, calls wait; when it is over each is answered, a change "
    "that came meanwhile is listed, /readyz says yes, and no stream or registration was lost",
    count=100,
    unit="blocks",
    invariants="I2 I3 I6 I7",
)
async def loop_blocked(trial: Trial) -> None:
    """Block the loop in a call, have others call and devices change meanwhile; see all of it done after."""
    blocking, good = Blocking(), Fed("d0", resource_name="example.com/good")
    kubelet = Kubelet(trial.folder)
    async with kubelet.running():
        with _served(trial.folder, blocking, good) as loop:
            async with asyncio.timeout(10):
                await kubelet.wait(lambda: sum(kubelet.allocatable().values()) == 2)
            await _once(trial, None, kubelet, loop, blocking, good)
            async with nothing_kept(trial):
                for turn in trial.rounds():
                    await _once(trial, turn, kubelet, loop, blocking, good)
            for plugin in (blocking, good):
                count = kubelet.registrations(plugin.resource_name)
                trial.check(count == 1, f"I7: {plugin.resource_name} has registered {count} times")


@contextmanager
def _served(folder: Path, *plugins: Fed) -> Iterator[asyncio.AbstractEventLoop]:
    """Serve plugins on a loop in a thread of its own for a block, as the kubelet is not to be blocked."""
    begun = threading.Event()
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def story() -> None:
        ended = asyncio.Event()
        loops.append((asyncio.get_running_loop(), ended))
        async with serve(*plugins, plugin_dir=folder, registration="socket", listen=f"unix:{folder}/pages"):
            begun.set()
            await ended.wait()

    thread = threading.Thread(target=asyncio.run, args=(story(),))
    thread.start()
    begun.wait(10)
    (loop, ended), *_ = loops
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)


async def _once(
    trial: Trial,
    turn: Round | None,
    kubelet: Kubelet,
    loop: asyncio.AbstractEventLoop,
    blocking: Blocking,
    good: Fed,
) -> None:
    blocking.seconds = 0.05 if turn is None else turn.random.choice([0.01, 0.05, 2 * DEADLINE_SECONDS])
    number, count = (None, 2) if turn is None else (turn.number, turn.random.randint(1, 5))
    sockets = [
        next(trial.folder.glob(f"{new_socket_name(one.resource_name)[:21]}*")) for one in (blocking, good)
    ]
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(_status(path)) for path in sockets]
        await asyncio.sleep(blocking.seconds / 2)
        _list(loop, good.feed, count)
    (own, own_seconds), (other, other_seconds) = (call.result() for call in calls)
    trial.check(own in {"", "DeadlineExceeded"}, f"I6: its own call ended with {own}", number)
    trial.check(not other, f"I6: another plugin's call ended with {other}", number)
    took = max(own_seconds, other_seconds)
    trial.check(took < blocking.seconds + LATE_SECONDS, f"I6: an answer took {took:.2f} s", number)
    await within(
        LATE_SECONDS,
        kubelet.wait(lambda: kubelet.allocatable().get(good.resource_name) == count),
        lambda: f"I2: {kubelet.allocatable()} after the block, not {count}",
    )
    answer = await get(UnixAddress(f"{trial.folder}/pages"), "/readyz", timeout_seconds=LATE_SECONDS)
    trial.check(answer.status == 200, f"I6: /readyz says {answer.status} {answer.body!r}", number)


def _list(loop: asyncio.AbstractEventLoop, feed: DeviceFeed, count: int) -> None:
    loop.call_soon_threadsafe(feed.replace, devices(*(f"d{number}" for number in range(count))))


async def _status(path: Path) -> tuple[str, float]:
    """Make one Allocate; return its status, empty for an answer, and how many seconds it took."""
    started, status = time.monotonic(), ""
    try:
        async with connected(path) as peer:
            await peer.call(methods.ALLOCATE, [("d0",)], timeout_seconds=2 * LATE_SECONDS)
    except RemoteError as error:
        status = error.status
    return status, time.monotonic() - started
