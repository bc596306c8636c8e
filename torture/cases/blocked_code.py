"""An author's code that blocks: the loop on which all plugins of the program run, or every thread.

The threads hang, and then come back; what is answered meanwhile, and what is told, is looked at.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from devplug import ContainerResponse, DeviceFeed, serve
from devplug.errors import RemoteError
from devplug.kubelet.kubelet import Kubelet
from devplug.plugin.callbacks import THREADS_BESIDE
from devplug.plugin.resource_lock import new_socket_name
from devplug.web.addresses import UnixAddress
from devplug.web.client import get
from devplug.wire import deviceplugin
from devplug.wire.sockets import connected
from torture.catalogue import PATIENCE, BrokenError, case
from torture.footprint import nothing_kept
from torture.testbed import Fed, devices, within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from devplug import Device
    from devplug.wire.sockets import Peer
    from torture.catalogue import Round, Trial

DEADLINE_SECONDS: Final = 0.1
LATE_SECONDS: Final = 2.0
"""How much later than the end of a block an answer may come here, beside all the rest."""

HOOK_SECONDS: Final = 0.05
ANSWER_SECONDS: Final = 1.0
"""How much later an answer may come here, beside all the rest."""


# ── the loop ──


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
            await _block_once(trial, None, kubelet, loop, blocking, good)
            async with nothing_kept(trial):
                for turn in trial.rounds():
                    await _block_once(trial, turn, kubelet, loop, blocking, good)
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


async def _block_once(
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
            await peer.call(deviceplugin.ALLOCATE, [("d0",)], timeout_seconds=2 * LATE_SECONDS)
    except RemoteError as error:
        status = error.status
    return status, time.monotonic() - started


# ── the threads ──


class Hanging(Fed):
    """A plugin whose code hangs while it is told to."""

    allocate_timeout_seconds = HOOK_SECONDS
    pre_start_timeout_seconds = HOOK_SECONDS

    def __init__(self) -> None:
        super().__init__("d0", resource_name="example.com/hanging")
        self.allocates, self.starts = threading.Event(), threading.Event()
        self.free()

    def free(self) -> None:
        """Have all code come back that hangs."""
        self.allocates.set()
        self.starts.set()

    def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        """Answer once that is allowed."""
        self.allocates.wait(30)
        return ContainerResponse.of(devices)

    def pre_start(self, _: Sequence[Device], /) -> None:
        """Return once that is allowed."""
        self.starts.wait(30)


@case(
    "threads-used-up",
    fault="X16",
    promise="Where all threads of a plugin's code hang, each call still ends at its deadline, other plugins "
    "serve on, /readyz tells of it; and calls succeed as soon as the code comes back",
    count=60,
    unit="times",
    invariants="I3 I4 I6",
)
async def threads_used_up(trial: Trial) -> None:
    """Have the code of one plugin hang in one way or two, look at calls and pages, let it come back."""
    hanging, good = Hanging(), Fed("d0", resource_name="example.com/good")
    pages = UnixAddress(str(trial.folder / "pages"))
    kubelet = Kubelet(trial.folder)
    async with (
        kubelet.running(),
        serve(hanging, good, plugin_dir=trial.folder, listen=f"unix:{pages.path}") as serving,
    ):
        async with asyncio.timeout(10):
            await serving.wait_registered()
        sockets = {
            status: next(iter(trial.folder.glob(f"{new_socket_name(status)[:21]}*")))
            for status in (hanging.resource_name, good.resource_name)
        }
        async with (
            connected(sockets[hanging.resource_name]) as peer,
            connected(sockets[good.resource_name]) as neighbour,
        ):
            await _hang_once(hanging, peer, pages, with_starts=True)
            async with nothing_kept(trial):
                for turn in trial.rounds():
                    with_starts = turn.random.random() < 0.5
                    story = await _hang_once(
                        hanging, peer, pages, with_starts=with_starts, neighbour=neighbour
                    )
                    trial.check(not story, f"I6: {story}", turn.number)


async def _hang_once(
    hanging: Hanging, peer: Peer, pages: UnixAddress, *, with_starts: bool, neighbour: Peer | None = None
) -> str:
    """Use up the threads and free them; return what was wrong, or nothing."""
    (hanging.starts if with_starts else hanging.allocates).clear()
    try:
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(_statused(peer, with_starts=with_starts)) for _ in range(THREADS_BESIDE + 4)
            ]
        statuses = {call.result() for call in calls}
        if statuses != {"DeadlineExceeded"}:
            return f"calls that hang ended with {statuses}"
        answer = await get(pages, "/readyz", timeout_seconds=5)
        if answer.status != 503 or b"hangs in" not in answer.body:
            return f"/readyz does not tell: {answer.status} {answer.body!r}"
        other = await _statused(peer, with_starts=not with_starts)
        if with_starts and other not in {"", "DeadlineExceeded"}:
            return f"the other call ended with {other}"
        if neighbour is not None:
            await neighbour.call(deviceplugin.ALLOCATE, [("d0",)], timeout_seconds=5)
    finally:
        hanging.free()
    ends = time.monotonic() + ANSWER_SECONDS * PATIENCE.get()
    while (await get(pages, "/readyz", timeout_seconds=5)).status != 200:
        if time.monotonic() > ends:
            raise BrokenError("I6: /readyz still says that its code hangs")
        await asyncio.sleep(0.01)
    with suppress(RemoteError):
        await peer.call(deviceplugin.ALLOCATE, [("d0",)], timeout_seconds=5)
        await peer.call(deviceplugin.PRE_START_CONTAINER, ("d0",), timeout_seconds=5)
        return ""
    return "a call failed after the code had come back"


async def _statused(peer: Peer, *, with_starts: bool) -> str:
    """Make one call; return its status, empty for an answer. Raises `BrokenError` for one that is late."""
    started = time.monotonic()
    status = ""
    try:
        if with_starts:
            await peer.call(deviceplugin.PRE_START_CONTAINER, ("d0",), timeout_seconds=20)
        else:
            await peer.call(deviceplugin.ALLOCATE, [("d0",)], timeout_seconds=20)
    except RemoteError as error:
        status = error.status
    if (took := time.monotonic() - started) > HOOK_SECONDS + ANSWER_SECONDS * PATIENCE.get():
        raise BrokenError(f"I6: an answer took {took:.1f} s")
    return status
