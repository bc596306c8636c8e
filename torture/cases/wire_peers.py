"""Peers on the socket that do what they like: spoilt bytes, beside grpcio; slow readers; strangers."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import AsyncExitStack, aclosing, suppress
from random import Random
from typing import TYPE_CHECKING

from devplug.devices import ContainerResponse
from devplug.errors import RemoteError
from devplug.wire import deviceplugin
from devplug.wire.sockets import Listener, connected, stream, unary
from devplug.wire.transport import GRPCIO, OWN, chosen
from devplug.wire.values import AdvertisedDevice
from torture.catalogue import Round, case
from torture.footprint import holdings, nothing_kept
from torture.wire_bytes import HELLO, answers, call, raw, spoilt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from devplug.wire.sockets import Binding, Peer
    from devplug.wire.transport import Transport
    from torture.catalogue import Trial

PING = raw(6, 0, 0, b"lastping")
PONG = raw(6, 1, 0, b"lastping")
ANSWER_SECONDS = 5.0
QUIET_SECONDS = 0.05

LISTS_LIMIT = 8
"""What windows and sockets hold of lists that have 320 kB, and one that waits."""

WARM_UP = 10


async def allocate(containers: Sequence[tuple[str, ...]]) -> list[ContainerResponse]:
    """Answer with the IDs that were asked for."""
    return [ContainerResponse(envs={"IDS": ",".join(ids)}) for ids in containers]


async def close(listener: Listener) -> None:
    """Close a listener, also one whose server has died of what it was told: grpcio's then says so again."""
    with suppress(UnicodeDecodeError):
        await listener.close()


async def served(stack: AsyncExitStack, path: Path, transport: Transport, *more: Binding) -> Listener:
    """Serve Allocate, and what else is given, until the stack ends."""
    listener = Listener(path, (unary(deviceplugin.ALLOCATE, allocate), *more))
    with chosen(server=transport, client=OWN):
        await listener.bind()
    stack.push_async_callback(close, listener)
    return listener


async def said_to(
    path: Path, content: bytes, calls: int | None
) -> tuple[bool, list[tuple[int, int, int, bytes]]]:
    """Return whether a server answered a PING behind these bytes, and all frames that it sent.

    It is listened to until so many calls have ended; without a number, only until it has nothing to say.
    """
    reader, writer = await asyncio.open_unix_connection(path)
    heard = bytearray()
    try:
        writer.write(content + PING)
        async with asyncio.timeout(QUIET_SECONDS if calls is None else ANSWER_SECONDS):
            while PONG not in heard or _ended(_whole(heard)) != calls:
                if not (piece := await reader.read(1 << 16)):
                    break
                heard += piece
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.transport.abort()
    return PONG in heard, _whole(heard)


def _whole(heard: bytearray) -> list[tuple[int, int, int, bytes]]:
    end = 0
    while len(heard) >= end + 9 and len(heard) >= end + 9 + int.from_bytes(heard[end : end + 3], "big"):
        end += 9 + int.from_bytes(heard[end : end + 3], "big")
    return answers(bytes(heard[:end]))


def _ended(said: list[tuple[int, int, int, bytes]]) -> int:
    return sum(1 for kind, flags, _, _ in said if kind == 1 and flags & 1)


# ── the same bytes to both servers ────────────────────────────────────────────────────────────────


def oddly_said(random: Random, stream_id: int) -> bytes:
    """Return a call that every server has to answer, in one of the many ways of saying it.

    But for padding, which grpcio does not take.
    """
    request = deviceplugin.ALLOCATE.request.encode([(f"d{random.randrange(100)}",) * random.randrange(1, 4)])
    said = call(stream_id, request)
    if random.random() < 0.5:
        return said
    head_size = 9 + int.from_bytes(said[:3], "big")
    block, content = said[9:head_size], said[head_size + 9 :]
    cut = random.randrange(1, len(block))
    blocks = (
        raw(1, 0, stream_id, block[:cut]) + raw(9, 4, stream_id, block[cut:]),
        raw(1, 0x24, stream_id, bytes(4) + b"\x10" + block),
    )
    cut = random.randrange(1, len(content))
    contents = (
        raw(0, 0, stream_id, content[:cut]) + raw(0, 1, stream_id, content[cut:]),
        raw(0, 0, stream_id, content) + raw(0, 1, stream_id, b""),
    )
    between = (b"", PING.replace(b"last", b"some"), raw(0x77, 3, stream_id, b"?"), raw(8, 0, 0, b"\0\0\0\1"))
    return random.choice(blocks) + random.choice(between) + random.choice(contents)


@case(
    "wire-same-bytes",
    fault="X30",
    promise="The same bytes to our server and to grpcio's: a right call gets one answer, and ours stays well",
    count=3_000,
    unit="connections",
    invariants="I4 I6",
    limit_seconds=600,
)
async def wire_same_bytes(trial: Trial) -> None:
    """Say calls oddly, and every third time spoil them; compare what is carried on the streams."""
    async with AsyncExitStack() as stack:
        ours = await served(stack, trial.folder / "own.sock", OWN)
        theirs = await served(stack, trial.folder / "grpcio.sock", GRPCIO)
        differences = deaths = 0
        for turn in trial.rounds():
            # A path that is not UTF-8 ends the whole server of grpcio, and not only the call.
            while (differs := await _compare(trial, turn, ours.path, theirs.path)) is None:
                deaths += 1
                theirs = await served(stack, trial.folder / f"grpcio-{deaths}.sock", GRPCIO)
            differences += differs
            trial.check(ours.is_bound(), "I4: our socket is gone", turn.number)
        # The referee may have died of the last bytes, as of others before.
        async with connected(ours.path) as peer:
            await peer.call(deviceplugin.ALLOCATE, [("a",)], timeout_seconds=ANSWER_SECONDS)
    trial.figure("spoilt and judged otherwise", differences)
    trial.figure("deaths of the referee", deaths)


async def _compare(trial: Trial, turn: Round, ours: Path, theirs: Path) -> bool | None:
    """Return whether the two judge otherwise, None if the referee is not there to judge."""
    random = turn.random
    count = random.randrange(1, 6)
    content = HELLO + b"".join(oddly_said(random, 2 * number + 1) for number in range(count))
    is_spoilt = turn.number % 3 == 2
    if is_spoilt:
        content = HELLO + spoilt(random, content[len(HELLO) :])
    answered, said = await said_to(ours, content, None if is_spoilt else count)
    trial.check(answered or is_spoilt, "I6: a right connection was ended", turn.number)
    try:
        expected, told = await said_to(theirs, content, None if is_spoilt else count)
    except ConnectionRefusedError:
        return None
    if not is_spoilt:
        if not _carried(told):
            return None
        same = _carried(said) == _carried(told)
        trial.check(same, f"I6: {_carried(said)} and not {_carried(told)}", turn.number)
    return answered != expected


def _carried(said: list[tuple[int, int, int, bytes]]) -> dict[int, bytes]:
    """Return the content of each stream."""
    found: dict[int, bytes] = {}
    for kind, _, stream_id, payload in said:
        if kind == 0:
            found[stream_id] = found.get(stream_id, b"") + payload
    return found


# ── readers that do not read ──────────────────────────────────────────────────────────────────────


@case(
    "wire-slow-readers",
    fault="X10",
    promise="A stream that nobody reads holds one list; the next one that is read is the latest",
    count=400,
    unit="streams",
    invariants="I3 I8",
    limit_seconds=300,
)
async def wire_slow_readers(trial: Trial) -> None:
    """Open a stream, let a thousand lists pass by, then read."""
    asked = 0
    latest = 0

    async def lists(_: None) -> AsyncIterator[list[AdvertisedDevice]]:
        nonlocal asked
        while True:
            asked += 1
            yield [AdvertisedDevice(f"{latest}-{number:0200}", "Healthy") for number in range(1500)]

    async def one_round(path: Path, turn: Round) -> None:
        nonlocal asked, latest
        latest, asked = 0, 0
        async with (
            connected(path, ready_within_seconds=5) as peer,
            aclosing(peer.stream(deviceplugin.LIST_AND_WATCH, None)) as lists_read,
        ):
            found = await anext(lists_read)
            for _ in range(99):
                latest += 1
                await asyncio.sleep(0)
            trial.check(asked <= LISTS_LIMIT, f"I3: {asked} lists were made for one reader", turn.number)
            for _ in range(asked):
                found = await anext(lists_read)
            trial.check(found[0].id.startswith("99-"), f"I8: the last is {found[0].id[:9]}", turn.number)

    async with AsyncExitStack() as stack:
        listener = await served(
            stack, trial.folder / "p.sock", OWN, stream(deviceplugin.LIST_AND_WATCH, lists)
        )
        for number in range(WARM_UP):
            await one_round(listener.path, Round(-1, Random(number)))
        async with nothing_kept(trial):
            for turn in trial.rounds():
                await one_round(listener.path, turn)


# ── strangers ─────────────────────────────────────────────────────────────────────────────────────


@case(
    "wire-strangers",
    fault="X33",
    promise="Whatever strangers do on the socket, the kubelet's stream goes on, and its calls are answered",
    count=3_000,
    unit="strangers",
    invariants="I3 I6",
    limit_seconds=300,
)
async def wire_strangers(trial: Trial) -> None:
    """Silent ones, ones that break off, ones that flood, and more of them than fit."""

    async def lists(_: None) -> AsyncIterator[list[AdvertisedDevice]]:
        yield [AdvertisedDevice("a", "Healthy")]
        await asyncio.Event().wait()

    async with AsyncExitStack() as stack:
        listener = await served(
            stack, trial.folder / "p.sock", OWN, stream(deviceplugin.LIST_AND_WATCH, lists)
        )
        peer = await stack.enter_async_context(connected(listener.path, ready_within_seconds=5))
        watched = await stack.enter_async_context(aclosing(peer.stream(deviceplugin.LIST_AND_WATCH, None)))
        await anext(watched)
        open_before = holdings().descriptors
        held: list[socket.socket] = []
        for turn in trial.rounds():
            held.append(await _stranger(turn.random, listener.path))
            if len(held) > 100:
                held.pop(turn.random.randrange(len(held))).close()
            if turn.number % 10 == 0:
                await _still_served(trial, turn, peer)
        for one in held:
            one.close()
        await asyncio.sleep(0.2)
        await _still_served(trial, turn, peer)
        left = holdings().descriptors - open_before
        trial.check(left <= 0, f"I3: {left} descriptors are left")


async def _stranger(random: Random, path: Path) -> socket.socket:
    loop = asyncio.get_running_loop()
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    await loop.sock_connect(one, os.fsencode(path))
    said = random.choice(
        (
            b"",
            HELLO,
            b"GET / HTTP/1.1\r\n\r\n",
            HELLO + call(1, b"\xff")[: random.randrange(1, 60)],
            HELLO + PING * 2000,
            HELLO + b"".join(call(2 * n + 1, b"") + raw(3, 0, 2 * n + 1, bytes(4)) for n in range(30)),
            random.randbytes(100),
        )
    )
    with suppress(OSError):
        one.send(said)
    if random.random() < 0.4:
        one.close()
    await asyncio.sleep(0)
    return one


async def _still_served(trial: Trial, turn: Round, peer: Peer) -> None:
    try:
        await peer.call(deviceplugin.ALLOCATE, [("a",)], timeout_seconds=ANSWER_SECONDS)
    except RemoteError as error:
        trial.broke(f"I6: the kubelet's call beside strangers: {error}", turn.number)
