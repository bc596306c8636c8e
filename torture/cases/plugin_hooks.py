"""An author's code that misbehaves: it raises anything, answers anything, hangs, blocks, and is cancelled."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from devplug import AllocationError, ContainerResponse, Device, UnhealthyDeviceError
from devplug.errors import RemoteError
from devplug.plugin.callbacks import THREADS_BESIDE
from devplug.plugin.resource_lock import new_socket_name
from devplug.wire import deviceplugin
from devplug.wire.sockets import connected
from devplug.wire.values import PreferenceRequest
from torture.catalogue import case
from torture.footprint import nothing_kept
from torture.testbed import Fed, bed

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from devplug.wire.sockets import Peer
    from torture.catalogue import Trial

DEADLINE_SECONDS: Final = 0.08
"""Of Allocate and of pre-start; `prefer` has one second, which is nobody's to change."""

SLACK_SECONDS: Final = 0.5
"""How much later than its deadline an answer may come on a machine that is busy with all the rest."""

PREFER_SECONDS: Final = 1.0
SIDE_BY_SIDE: Final = 4
"""Plugins of each kind: one that hangs holds up its own calls only."""


class OddError(BaseException):
    """What nobody catches who catches errors."""


class Misbehaving(Fed):
    """A plugin whose code does what the ID of the device says that it is called for."""

    allocate_timeout_seconds = DEADLINE_SECONDS
    pre_start_timeout_seconds = DEADLINE_SECONDS

    def __init__(self, name: str) -> None:
        super().__init__(*WAYS, resource_name=f"example.com/{name}")


class OnTheLoop(Misbehaving):
    """One whose code is all `async def`."""

    async def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        """Answer, or not."""
        await _hang_on_the_loop(devices)
        response: ContainerResponse = _answer(devices)
        return response

    async def prefer(self, available: Sequence[Device], _: Sequence[Device], __: int, /) -> Sequence[Device]:
        """Rank, or not."""
        await _hang_on_the_loop(available)
        _answer(available)
        return available

    async def pre_start(self, devices: Sequence[Device], /) -> None:
        """Start, or not."""
        await _hang_on_the_loop(devices)
        _answer(devices)


class InThreads(Misbehaving):
    """One whose code is all `def`, so that it runs in threads."""

    def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        """Answer, or not."""
        _block(devices)
        response: ContainerResponse = _answer(devices)
        return response

    def prefer(self, available: Sequence[Device], _: Sequence[Device], __: int, /) -> Sequence[Device]:
        """Rank, or not."""
        _block(available)
        _answer(available)
        return available

    def pre_start(self, devices: Sequence[Device], /) -> None:
        """Start, or not."""
        _block(devices)
        _answer(devices)


def _raise(error: BaseException) -> Any:  # noqa: ANN401 -- it never returns
    raise error


WAYS: Final[dict[str, tuple[Callable[[Device], object], str]]] = {
    "well": (lambda device: ContainerResponse.of([device]), ""),
    "raises": (lambda _: _raise(ValueError("secret")), "Internal"),
    "fails": (lambda _: _raise(OSError(5, "secret")), "Internal"),
    "times-out": (lambda _: _raise(TimeoutError("secret")), "Internal"),
    "is-remote": (lambda _: _raise(RemoteError("Unavailable", "secret")), "Internal"),
    "stops": (lambda _: _raise(StopIteration("secret")), "Internal"),
    "exits": (lambda _: _raise(SystemExit("secret")), "Internal"),
    "is-cancelled": (lambda _: _raise(asyncio.CancelledError("secret")), "Internal"),
    "is-odd": (lambda _: _raise(OddError("secret")), "Internal"),
    "is-a-group": (lambda _: _raise(BaseExceptionGroup("secret", [SystemExit(1)])), "Internal"),
    "recurses": (lambda _: _raise(RecursionError("secret")), "Internal"),
    "refuses": (lambda _: _raise(AllocationError("no")), "FailedPrecondition"),
    "is-unwell": (lambda device: _raise(UnhealthyDeviceError("no", device)), "FailedPrecondition"),
    "returns-nothing": (lambda _: None, "Internal"),
    "returns-text": (lambda _: "secret", "Internal"),
    "returns-a-class": (lambda _: ContainerResponse, "Internal"),
    "returns-much": (lambda _: ContainerResponse(annotations={"A": "x" * 5_000_000}), "Internal"),
    "hangs": (lambda device: ContainerResponse.of([device]), "DeadlineExceeded"),
    "hangs-and-tidies": (lambda device: ContainerResponse.of([device]), "DeadlineExceeded"),
}
"""By device ID: what the code does, and the status of Allocate."""

SELDOM: Final = frozenset({"hangs", "hangs-and-tidies", "returns-much"})


def _answer(devices: Sequence[Device]) -> Any:  # noqa: ANN401 -- anything, as without a type checker
    return WAYS[devices[0].id][0](devices[0])


async def _hang_on_the_loop(devices: Sequence[Device]) -> None:
    if devices[0].id == "hangs":
        await asyncio.Event().wait()
    elif devices[0].id == "hangs-and-tidies":
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)


def _block(devices: Sequence[Device]) -> None:
    """Block the thread for longer than the deadline, and for shorter than the next one's patience."""
    if devices[0].id in {"hangs", "hangs-and-tidies"}:
        time.sleep(1.5 * DEADLINE_SECONDS)


class Lister(Fed):
    """A plugin whose `devices` gives a good list each time that it is asked, and then ends in another way."""

    def __init__(self) -> None:
        super().__init__("l0", resource_name="example.com/lister")
        self.times = 0

    async def devices(self) -> AsyncIterator[list[Device]]:  # type: ignore[override]  # another of its forms
        """Yield the list, then do what is wrong."""
        self.times += 1
        yield [Device("l0")]
        match self.times % 4:
            case 0:
                raise asyncio.CancelledError
            case 1:
                raise SystemExit("secret")
            case 2:
                yield None  # type: ignore[misc]  # as authors do who have no type checker
            case _:
                raise OddError


@case(
    "hooks-misbehave",
    fault="X16",
    promise="Whatever an author's code raises, returns or waits for, each call is answered within its "
    "deadline, with the right code and no secret; other plugins notice nothing",
    count=5_000,
    unit="calls",
    invariants="I3 I4 I6 I11",
)
async def hooks_misbehave(trial: Trial) -> None:
    """Make many calls of plugins whose code does something else each time, beside one that is good."""
    wrong: list[Fed] = [OnTheLoop(f"loop-{number}") for number in range(SIDE_BY_SIDE)]
    wrong += [InThreads(f"threads-{number}") for number in range(SIDE_BY_SIDE)]
    good, lister = Fed("well", resource_name="example.com/good"), Lister()
    async with bed(trial.folder, *wrong, good, lister) as stage, AsyncExitStack() as stack:
        peers = {
            one: await stack.enter_async_context(connected(_socket(trial, one))) for one in (*wrong, good)
        }
        calls = _Calls(trial)
        for plugin in wrong:
            for way in WAYS.keys() - SELDOM:
                await calls.make(peers[plugin], "Allocate", way, None)
                await calls.make(peers[plugin], "pre-start", way, None)
        # All threads that there may be: they last for a while when nobody needs them.
        async with asyncio.TaskGroup() as group:
            for plugin in wrong:
                group.create_task(calls.make(peers[plugin], "Allocate", "well", None))
                for _ in range(THREADS_BESIDE):
                    group.create_task(calls.make(peers[plugin], "pre-start", "hangs", None))
        await asyncio.to_thread(threading.get_ident)  # holds are written in a thread
        before = threading.active_count()
        async with nothing_kept(trial):
            await calls.make_all([peers[plugin] for plugin in wrong], peers[good])
            # Who hung has come back by now, or will in a moment.
            await asyncio.sleep(2 * DEADLINE_SECONDS)
            for plugin in wrong:
                await calls.make(peers[plugin], "Allocate", "well", None)
        trial.check(calls.most_threads <= before, f"I3: {calls.most_threads} threads, {before} before")
        trial.check(stage.allocatable(lister.resource_name) == 1, "I4: the list of a plugin was lost")
        trial.check(calls.missed <= trial.done / 20, f"I6: {calls.missed} calls missed their deadline")
    trial.figure("asked for devices", lister.times)
    trial.figure("most threads", calls.most_threads)
    trial.times("answer after its deadline", calls.late_seconds, p99_within=SLACK_SECONDS)
    trial.times("a good plugin's Allocate meanwhile", calls.good_seconds, p99_within=SLACK_SECONDS)


def _socket(trial: Trial, plugin: Fed) -> Path:
    mark = new_socket_name(plugin.resource_name)[:MARK_LENGTH]
    (found,) = trial.folder.glob(f"{mark}*.sock")
    return found


MARK_LENGTH: Final = len("devplug-0123456789ab-")


class _Calls:
    """Calls of all kinds, and what came of them."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self.late_seconds: list[float] = []
        self.good_seconds: list[float] = []
        self.most_threads = 0
        self.missed = 0
        """Calls that missed their deadline because of others."""

    async def make_all(self, peers: Sequence[Peer], good: Peer) -> None:
        """Make the trial's calls, one at a time of each plugin, and those of a good plugin meanwhile."""
        turns = self._trial.rounds()

        async def work(peer: Peer) -> None:
            for turn in turns:
                call, way = _drawn(turn.random)
                await self.make(peer, call, way, turn.number)

        async def be_good() -> None:
            while True:
                started = time.monotonic()
                await good.call(deviceplugin.ALLOCATE, [("well",)], timeout_seconds=5)
                self.good_seconds.append(time.monotonic() - started)
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            steady = group.create_task(be_good())
            async with asyncio.TaskGroup() as workers:
                for peer in peers:
                    workers.create_task(work(peer))
            steady.cancel()

    async def make(self, peer: Peer, call: str, way: str, number: int | None) -> None:
        """Make one call, and hold its answer against what is expected of it."""
        started = time.monotonic()
        status = text = ""
        try:
            if call == "Allocate":
                await peer.call(deviceplugin.ALLOCATE, [(way,)], timeout_seconds=10)
            elif call == "pre-start":
                await peer.call(deviceplugin.PRE_START_CONTAINER, (way,), timeout_seconds=10)
            else:
                request = PreferenceRequest((way,), (), 1)
                await peer.call(deviceplugin.GET_PREFERRED_ALLOCATION, [request], timeout_seconds=10)
        except RemoteError as error:
            status, text = error.status, error.text
        deadline = PREFER_SECONDS if call == "prefer" else DEADLINE_SECONDS
        late_seconds = time.monotonic() - started - deadline
        self.late_seconds.append(max(0.0, late_seconds))
        self.most_threads = max(self.most_threads, threading.active_count())
        expected = _expected(call, way)
        story = f"{call} of one that {way}: {status or 'OK'} {text}, not {expected or 'OK'}"
        # A thread that hung may have the turn for a moment yet; and here is much to do.
        if status != expected and status == "DeadlineExceeded" and late_seconds >= 0:
            self.missed += 1
        else:
            self._trial.check(status == expected, f"I11: {story}", number)
        self._trial.check("secret" not in text, f"I11: {story}", number)


def _drawn(chance: random.Random) -> tuple[str, str]:
    """Return a call and a way to misbehave; those that take long are drawn seldom."""
    call = chance.choice(["Allocate", "Allocate", "pre-start", "prefer"])
    way = chance.choice([*WAYS])
    seldom = 0.02 if call == "prefer" else 0.5
    return call, way if way not in SELDOM or chance.random() < seldom else "well"


def _expected(call: str, way: str) -> str:
    """Return the status that a call must end with; empty for an answer."""
    if call == "prefer" or (call == "pre-start" and way.startswith("returns-")):
        return ""
    return WAYS[way][1]
