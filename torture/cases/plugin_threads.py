"""All threads of an author's code hang, and then come back: what is answered meanwhile, and what is told."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from devplug import ContainerResponse, serve
from devplug.errors import RemoteError
from devplug.kubelet.manager import Kubelet
from devplug.plugin.hooks import THREADS_BESIDE
from devplug.plugin.ownership import new_socket_name
from devplug.web.addresses import UnixAddress
from devplug.web.client import get
from devplug.wire import methods
from devplug.wire.sockets import connected
from torture.beds import Fed
from torture.catalogue import PATIENCE, BrokenError, case
from torture.held import nothing_kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug import Device
    from devplug.wire.sockets import Peer
    from torture.catalogue import Trial

DEADLINE_SECONDS: Final = 0.05
LATE_SECONDS: Final = 1.0
"""How much later an answer may come here, beside all the rest."""


class Hanging(Fed):
    """A plugin whose code hangs while it is told to."""

    allocate_timeout_seconds = DEADLINE_SECONDS
    pre_start_timeout_seconds = DEADLINE_SECONDS

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
            await _once(hanging, peer, pages, with_starts=True)
            async with nothing_kept(trial):
                for turn in trial.rounds():
                    with_starts = turn.random.random() < 0.5
                    story = await _once(hanging, peer, pages, with_starts=with_starts, neighbour=neighbour)
                    trial.check(not story, f"I6: {story}", turn.number)


async def _once(
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
            await neighbour.call(methods.ALLOCATE, [("d0",)], timeout_seconds=5)
    finally:
        hanging.free()
    ends = time.monotonic() + LATE_SECONDS * PATIENCE.get()
    while (await get(pages, "/readyz", timeout_seconds=5)).status != 200:
        if time.monotonic() > ends:
            raise BrokenError("I6: /readyz still says that its code hangs")
        await asyncio.sleep(0.01)
    with suppress(RemoteError):
        await peer.call(methods.ALLOCATE, [("d0",)], timeout_seconds=5)
        await peer.call(methods.PRE_START_CONTAINER, ("d0",), timeout_seconds=5)
        return ""
    return "a call failed after the code had come back"


async def _statused(peer: Peer, *, with_starts: bool) -> str:
    """Make one call; return its status, empty for an answer. Raises `BrokenError` for one that is late."""
    started = time.monotonic()
    status = ""
    try:
        if with_starts:
            await peer.call(methods.PRE_START_CONTAINER, ("d0",), timeout_seconds=20)
        else:
            await peer.call(methods.ALLOCATE, [("d0",)], timeout_seconds=20)
    except RemoteError as error:
        status = error.status
    if (took := time.monotonic() - started) > DEADLINE_SECONDS + LATE_SECONDS * PATIENCE.get():
        raise BrokenError(f"I6: an answer took {took:.1f} s")
    return status
