"""Limits of the wire: messages at the limit, strangers who say nothing, a server that gRPC has ended."""

from __future__ import annotations

import asyncio
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING, Any, Final

from devplug.errors import RemoteError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.settings import KubeletSettings
from devplug.wire import deviceplugin, podresources
from devplug.wire.deviceplugin import REGISTER
from devplug.wire.limits import KUBELET_RECEIVE_LIMIT_BYTES, PLUGIN_RECEIVE_LIMIT_BYTES
from devplug.wire.sockets import connected
from devplug.wire.values import PluginOptions, RegisterRequest
from torture.catalogue import Round, case
from torture.footprint import forget_highest, highest_bytes, holdings, nothing_kept
from torture.fuzzing.both_ends import SERVED_SECONDS, answer_fault, both_ends, raw
from torture.fuzzing.frames import DATA, END_HEADERS, HEADERS, frame, greeting, headers_of
from torture.fuzzing.hunt import Entry, entries, mutated
from torture.fuzzing.wireformat import varint
from torture.testbed import RESOURCE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from devplug.wire.deviceplugin import Method
    from devplug.wire.sockets import Peer
    from torture.catalogue import Trial
    from torture.fuzzing.both_ends import BothEnds

MIB: Final = 1024 * 1024

# ── sizes ─────────────────────────────────────────────────────────────────────────────────────────

CALLS: Final[tuple[tuple[str, Method[Any, Any], int], ...]] = (
    ("plugin", deviceplugin.ALLOCATE, PLUGIN_RECEIVE_LIMIT_BYTES),
    ("plugin", deviceplugin.GET_PREFERRED_ALLOCATION, PLUGIN_RECEIVE_LIMIT_BYTES),
    ("plugin", deviceplugin.PRE_START_CONTAINER, PLUGIN_RECEIVE_LIMIT_BYTES),
    ("plugin", deviceplugin.GET_OPTIONS, PLUGIN_RECEIVE_LIMIT_BYTES),
    ("kubelet", deviceplugin.REGISTER, KUBELET_RECEIVE_LIMIT_BYTES),
    ("podresources", podresources.GET, KUBELET_RECEIVE_LIMIT_BYTES),
    ("podresources", podresources.LIST, KUBELET_RECEIVE_LIMIT_BYTES),
)
"""Every call of both ends, and how much it takes: our plugin takes more than the kubelet."""

PEAK_BYTES: Final = 100 * MIB
"""How far memory may rise meanwhile: this process has both ends, each with copies of 16 MiB."""


@case(
    "sizes",
    fault="X32",
    promise="A message over the limit is RESOURCE_EXHAUSTED, one below is read, and memory stays bounded",
    count=250,
    unit="messages",
    invariants="I3 I4 I11",
    brief=True,
)
async def sizes(trial: Trial) -> None:
    """Send messages a byte below the limit, at it and over it, of 64 MiB, and announce 2 GiB."""
    loop = asyncio.get_running_loop()
    async with both_ends(trial.folder) as ends:
        before, peak = holdings().resident_bytes, 0
        async with nothing_kept(trial):
            for turn in trial.rounds():
                end, method, limit = CALLS[turn.number % len(CALLS)]
                size = (limit - 1, limit, limit + 1, 64 * MIB, 2 << 30)[turn.number // len(CALLS) % 5]
                forget_highest()
                if size == 2 << 30:
                    with ThreadPoolExecutor(1) as thread:
                        await loop.run_in_executor(thread, _announce, ends.sockets[end], method)
                else:
                    async with connected(ends.sockets[end]) as peer:
                        found = await _sized_fault(peer, method, size, limit)
                    trial.check(not found, found, turn.number)
                if size != 64 * MIB:  # which is in this process several times, as it is sent from here
                    peak = max(peak, highest_bytes() - before)
                await ends.check_served(end)
        trial.figure("highest memory", f"{peak / MIB:+.0f} MiB, both ends in one process")
        trial.check(peak <= PEAK_BYTES, f"X32: memory rose by {peak / MIB:.0f} MiB")


async def _sized_fault(peer: Peer, method: Method[Any, Any], size: int, limit: int) -> str:
    # A field that no API has, so that every message may be so long.
    head = varint(1000 << 3 | 2)
    length = size - len(head) - 4
    content = head + varint(length) + bytes(length)
    assert len(content) == size
    try:
        answer: bytes | RemoteError = await peer.call(
            raw(method), content, timeout_seconds=2 * SERVED_SECONDS
        )
    except RemoteError as error:
        answer = error
    if size > limit:
        is_right = isinstance(answer, RemoteError) and answer.status == "ResourceExhausted"
        return "" if is_right else f"I11: {method.name} of {size} bytes is answered {str(answer)[:200]}"
    return answer_fault(method, content[:0], answer) if isinstance(answer, RemoteError) else ""


def _announce(path: Path, method: Method[Any, Any]) -> None:
    """Say that a message of 2 GiB follows, send some of it, and wait for the end of the call."""
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(SERVED_SECONDS)
        stranger.connect(str(path))
        head = b"\0" + (2**31 - 1).to_bytes(4, "big") + bytes(1_000)
        stranger.sendall(
            greeting() + frame(HEADERS, END_HEADERS, 1, headers_of(method.path)) + frame(DATA, 0, 1, head)
        )
        content = b""
        while b"grpc-status" not in content and (more := stranger.recv(65_536)):
            content += more


# ── strangers who say nothing ─────────────────────────────────────────────────────────────────────


@case(
    "idle-connections",
    fault="X33",
    promise="A thousand connections that say nothing cost no call its time; the oldest make room, all come "
    "back",
    count=1_000,
    unit="connections",
    invariants="I3 I4 I6",
)
async def idle_connections(trial: Trial) -> None:
    """Hold silent connections, and such as stop in their greeting, at both servers.

    Over 64 of them, the oldest silent one has to make room.
    """
    async with both_ends(trial.folder) as ends:
        times: list[float] = []
        await _hold_silent(ends, (Round(number, Random(number)) for number in range(trial.count)), times)
        times.clear()
        async with nothing_kept(trial):
            over = await _hold_silent(ends, trial.rounds(), times)
        trial.figure("ended by the server at once", over)
        trial.times("a new connection and a call beside them", times, p99_within=1.0)


async def _hold_silent(ends: BothEnds, turns: Iterable[Round], times: list[float]) -> int:
    """Hold one silent connection for each turn; return how many of them the server has ended."""
    with ExitStack() as stack:
        held = []
        for turn in turns:
            stranger = stack.enter_context(socket.socket(socket.AF_UNIX))
            stranger.settimeout(SERVED_SECONDS)
            stranger.connect(str(ends.sockets[("plugin", "kubelet")[turn.number % 2]]))
            stranger.sendall(greeting()[: turn.random.choice((0, 1, 12, 24, 33))])
            held.append(stranger)
            if not turn.number % 50:
                started = time.monotonic()
                await ends.check_served("plugin")
                times.append(time.monotonic() - started)
        await asyncio.sleep(0.2)
        return sum(map(_is_over, held))


def _is_over(stranger: socket.socket) -> bool:
    stranger.settimeout(0)
    try:
        while content := stranger.recv(65_536):
            del content
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


# ── a server that gRPC has ended ──────────────────────────────────────────────────────────────────


@case(
    "dead-servers",
    fault="X30",
    promise="A call whose path is no text ends grpcio's server: both ends make another, and register again",
    count=50,
    unit="servers",
    invariants="I2 I4",
)
async def dead_servers(trial: Trial) -> None:
    """End the plugin's server, or the kubelet's, and look when it serves again.

    The plugin finds it at its level check, after 5 s at most; here its socket is moved away and back, so that
    it looks at once.
    """
    call = greeting() + frame(HEADERS, END_HEADERS, 1, headers_of("", _path=b"/\xff"))
    async with both_ends(trial.folder) as ends:
        times: list[float] = []
        for turn in trial.rounds():
            end = ("plugin", "kubelet", "podresources")[turn.number % 3]
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(str(ends.sockets[end]))
                stranger.sendall(call)
                started = time.monotonic()
                while _listens(ends.sockets[end]) and time.monotonic() < started + 2:
                    await asyncio.sleep(0.005)
            if end == "plugin":
                away = ends.sockets[end].with_name("away")
                ends.sockets[end].rename(away)
                away.rename(ends.sockets[end])
            while not _listens(ends.sockets[end]) and time.monotonic() < started + 8:
                await asyncio.sleep(0.01)
            await ends.check_served(end)
            times.append(time.monotonic() - started)
            await _until_listed(ends)
    trial.times("dead → serves again", times)


async def _until_listed(ends: BothEnds) -> None:
    await ends.stage.until_allocatable(4, seconds=8)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


# ── requests to register ──────────────────────────────────────────────────────────────────────────


@case(
    "register-requests",
    fault="X08",
    promise="A hostile Register gets the kubelet's words, in both modes, and costs the next plugin nothing",
    count=3_000,
    unit="requests",
    invariants="I4 I11",
)
async def register_requests(trial: Trial) -> None:
    """Register with changed versions, names and endpoints at a kubelet of each mode."""
    kept = entries("registers")
    for compat in (True, False):
        folder = trial.folder / f"c{compat:d}"
        kubelet = Kubelet(folder, KubeletSettings(compat=compat, dial_timeout_seconds=0.03))
        async with kubelet.running(orderly=True), connected(kubelet.socket_path) as peer:
            for entry in kept:
                request = _request(entry)
                found = await _register_fault(peer, request)
                trial.check(not found, f"corpus, {entry.what!r}: {found}", trial.first)
            for turn in trial.rounds(max(1, trial.count // 2)):
                request = _changed_request(_request(turn.random.choice(kept)), turn.random)
                found = await _register_fault(peer, request)
                trial.check(not found, f"{found}: {request}", turn.number)
            found = await _register_fault(peer, RegisterRequest("v1beta1", "none.sock", RESOURCE))
            trial.check(not found, found, trial.first)


def _request(entry: Entry) -> RegisterRequest:
    return REGISTER.request.decode(entry.content)


def _changed_request(request: RegisterRequest, chance: Random) -> RegisterRequest:
    def text(value: str, often: float) -> str:
        if chance.random() > often:
            return value
        return mutated(value.encode(), chance, limit_bytes=2_000).decode("utf-8", "replace")

    return RegisterRequest(
        text(request.version, 0.1),
        text(request.endpoint, 0.4),
        text(request.resource_name, 0.6),
        PluginOptions(pre_start_required=chance.random() < 0.5),
    )


async def _register_fault(peer: Peer, request: RegisterRequest) -> str:
    """Return what is wrong with the answer; nobody serves anything here, so all are refused."""
    try:
        await peer.call(REGISTER, request, timeout_seconds=SERVED_SECONDS)
    except RemoteError as error:
        if request.version != "v1beta1" and "is not supported by kubelet" not in error.text:
            return f"I11: of a version it says {error}"
        return answer_fault(REGISTER, REGISTER.request.encode(request), error)
    return "I4: it is registered"
