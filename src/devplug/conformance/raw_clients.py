"""Clients unlike any kubelet: raw bytes on the socket, and very many connections and streams.

The bytes are requests that are no message, and HTTP/2 frames made by hand. Whether a plugin serves before and
after such clients is asked here, too.
"""

from __future__ import annotations

import asyncio
import resource
import time
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from devplug.conformance.streams import fall, require_steady
from devplug.conformance.testbed import once_in_a_run
from devplug.conformance.verdicts import FailedError, SkippedError
from devplug.errors import RemoteError
from devplug.wire.codecs import Codec
from devplug.wire.deviceplugin import ALLOCATE, GET_OPTIONS, LIST_AND_WATCH, Method
from devplug.wire.sockets import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from devplug.conformance.figures import Figures
    from devplug.conformance.testbed import TestBed
    from devplug.wire.sockets import Peer

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _CONTINUATION = 0, 1, 4, 9
_END_HEADERS: Final = 4
_FRAME_LIMIT_BYTES: Final = 16384
"""The frame size that every server takes (RFC 9113, SETTINGS_MAX_FRAME_SIZE)."""

_BYTES: Final[Codec[bytes]] = Codec("bytes", lambda content: content, lambda content, _: content)

UNKNOWN_METHODS: Final[Sequence[Method[bytes, bytes]]] = (
    Method(ALLOCATE.service, "DevplugVerifyNoSuchCall", _BYTES, _BYTES),
    Method("v9.DevicePlugin", LIST_AND_WATCH.name, _BYTES, _BYTES),
    Method("devplug.verify.NoSuchService", "NoSuchCall", _BYTES, _BYTES),
)
"""A method that no version of the API has, a version that does not exist, and an unknown service."""


# ── bytes as they are ──


def raw(method: Method[Any, Any]) -> Method[bytes, bytes]:
    """Return the method as one that takes and gives bytes as they are."""
    return replace(method, request=_BYTES, response=_BYTES)


# ── requests ──


@dataclass(frozen=True, slots=True)
class Malformed:
    """A request that a careful server does not take."""

    name: str
    content: bytes
    must_be_refused: bool
    """Whether every decoder must refuse it; for the others a decoder may be more or less strict."""


MALFORMED: Final[Sequence[Malformed]] = (
    Malformed("a number without end", b"\xff" * 11, must_be_refused=True),
    Malformed("a message that is cut off", b"\x0a\x20\x0a\x05dev", must_be_refused=True),
    Malformed("a length of 2 GiB", b"\x0a\xff\xff\xff\xff\x07", must_be_refused=True),
    Malformed("a field without a number", b"\x00\x00", must_be_refused=False),
    Malformed("an ID that is not UTF-8", b"\x0a\x04\x0a\x02\xff\xfe", must_be_refused=False),
    Malformed("20,000 groups in each other", b"\x13" * 20_000 + b"\x14" * 20_000, must_be_refused=False),
)


def allocate_request(ids: bytes, *, count: int = 1) -> bytes:
    """Return a request of one container for `count` devices that are all called `ids`."""
    one = b"\x0a" + _varint(len(ids)) + ids
    return b"\x0a" + _varint(len(one) * count) + one * count


def _varint(number: int) -> bytes:
    content = b""
    while number > 0x7F:
        content += bytes([number & 0x7F | 0x80])
        number >>= 7
    return content + bytes([number])


# ── frames by hand ──


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def headers_of(method: Method[Any, Any], **more: str) -> bytes:
    """Return the header block of a call: every field literal, none of them indexed (RFC 7541, 6.2.2)."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method.path,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
        **more,
    }
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields.items())


def _text(text: str) -> bytes:
    """Return a string as HPACK has it, its length a number with a prefix of 7 bits."""
    content = text.encode()
    length = bytes([len(content)]) if len(content) < 0x7F else b"\x7f" + _varint(len(content) - 0x7F)
    return length + content


def cut_request(method: Method[Any, Any], request: bytes) -> bytes:
    """Return what a caller has sent of a call when its process is killed in the middle of the message."""
    message = b"\x00" + len(request).to_bytes(4, "big") + request
    data = _frame(_DATA, 0, 1, message)
    call = _frame(_HEADERS, _END_HEADERS, 1, headers_of(method))
    return _PREFACE + _frame(_SETTINGS, 0, 0, b"") + call + data[: len(data) - len(request) // 2 - 1]


def huge_headers(method: Method[Any, Any], size_bytes: int) -> bytes:
    """Return the begin of a call with more headers than fit into one frame."""
    block = headers_of(method, x="x" * size_bytes)
    first, rest = block[:_FRAME_LIMIT_BYTES], block[_FRAME_LIMIT_BYTES:]
    frames = _frame(_HEADERS, 0 if rest else _END_HEADERS, 1, first)
    while rest:
        part, rest = rest[:_FRAME_LIMIT_BYTES], rest[_FRAME_LIMIT_BYTES:]
        frames += _frame(_CONTINUATION, 0 if rest else _END_HEADERS, 1, part)
    return _PREFACE + _frame(_SETTINGS, 0, 0, b"") + frames


NOT_HTTP2: Final[Sequence[tuple[str, bytes]]] = (
    ("bytes without sense", bytes((number * number * 167 + 13 * number) % 251 for number in range(4096))),
    ("an HTTP/1 request", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("an HTTP/2 preface that is cut off", _PREFACE[:11]),
    ("settings of the wrong size", _PREFACE + _frame(_SETTINGS, 0, 0, b"\x00" * 5)),
)
"""Bytes that another program may send to the socket."""

# ── whether it serves ──


async def probe(bed: TestBed, peer: Peer, seconds: float) -> None:
    """Call as the kubelet does for a pod, or for the options where there is no device."""
    ids = bed.client.healthy_ids[:1]
    if ids:
        await bed.call(ALLOCATE, [tuple(ids)], seconds=seconds, peer=peer)
    else:
        await bed.call(GET_OPTIONS, None, seconds=seconds, peer=peer)


async def require_service(bed: TestBed) -> None:
    """Raise `SkippedError` unless the plugin serves, as in `expect_served`, before anything is done to it.

    A plugin that ends its streams at any connection is skipped, too: the cause of their end would be unknown.
    """
    if trouble := await once_in_a_run(bed, _trouble):
        raise SkippedError(trouble)
    if await fall(bed) not in {"", "stream"}:
        await require_steady(bed)


async def _trouble(bed: TestBed) -> str:
    """Return why it fails to allocate a device twice; empty if it succeeds."""
    try:
        for _ in range(2):
            await probe(bed, bed.client.peer, bed.times.answer_seconds)
    except RemoteError as error:
        return f"before anything is done to it, a healthy device is answered with {error} (see ALL01, ALL10)"
    return ""


async def expect_served(bed: TestBed, what: str) -> None:
    """Raise `FailedError` unless it serves after `what`, over the connection that is there and a new one."""
    try:
        await bed.check_serves()
        async with connected(bed.client.path, ready_within_seconds=bed.times.answer_seconds) as peer:
            await bed.call(GET_OPTIONS, None, peer=peer)
    except (FailedError, RemoteError) as error:
        # What is still ending must not be taken for a plugin that the next check can use.
        await bed.kubelet.until(lambda: not bed.is_ready(), bed.times.settle_seconds)
        raise FailedError(f"{what}: {error}") from error


async def settled(bed: TestBed, is_right: Callable[[Figures], bool]) -> Figures:
    """Return the figures of its process, as soon as they are right or when nothing more is to come."""
    end = time.monotonic() + bed.times.change_seconds
    while True:
        figures = bed.program.figures()
        if is_right(figures) or time.monotonic() > end:
            return figures
        await asyncio.sleep(bed.times.settle_seconds / 10)


# ── connections and streams ──


async def talk(bed: TestBed, content: bytes) -> None:
    """Send bytes on a connection of its own, read for a moment, and close it."""
    with suppress(OSError, TimeoutError):
        async with connection(bed) as (reader, writer):
            writer.write(content)
            await writer.drain()
            async with asyncio.timeout(bed.times.settle_seconds / 4):
                while await reader.read(2**16):
                    pass


@asynccontextmanager
async def connection(bed: TestBed) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Hold one connection, broken off at the end of the block. Raises `OSError` where it is not taken."""
    reader, writer = await asyncio.open_unix_connection(bed.client.path)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def silent_connections(bed: TestBed, count: int) -> AsyncIterator[int]:
    """Hold up to `count` connections; yield how many there were."""
    async with AsyncExitStack() as stack:
        held = 0
        with suppress(OSError):  # its queue is full, which is as good
            for _ in range(count):
                await stack.enter_async_context(connection(bed))
                held += 1
        yield held


async def come_and_go(bed: TestBed, count: int) -> None:
    """Connect and break off, one time after the other."""
    for _ in range(count):
        with suppress(OSError):
            async with connection(bed):
                pass


@asynccontextmanager
async def streams(bed: TestBed, peer: Peer, count: int, request: bytes) -> AsyncIterator[int]:
    """Hold up to `count` streams that have sent a list; yield how many. A plugin may have a limit of them."""
    method: Method[bytes, bytes] = raw(LIST_AND_WATCH)
    async with AsyncExitStack() as stack:
        opened = 0
        with suppress(RemoteError, TimeoutError, StopAsyncIteration):
            for _ in range(count):
                lists = await stack.enter_async_context(aclosing(peer.stream(method, request)))
                async with asyncio.timeout(bed.times.first_list_limit_seconds):
                    await anext(lists)
                opened += 1
        yield opened


@contextmanager
def no_free_descriptors(bed: TestBed) -> Iterator[None]:
    """Have no process of the plugin open anything more within the block. Raises `SkippedError`."""
    limits = {}
    try:
        for pid in bed.program.pids():
            soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            in_use = max((int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()), default=0) + 1
            limits[pid] = (soft, hard)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(soft, in_use), hard))
    except OSError as error:
        _restore(limits)
        raise SkippedError(f"the limit of its descriptors cannot be set: {error.strerror}") from error
    try:
        yield
    finally:
        _restore(limits)


def _restore(limits: dict[int, tuple[int, int]]) -> None:
    for pid, limit in limits.items():
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
