"""Whom no server wants: conversations over HTTP/2, of one kind each, made of chance; and those who hold them.

A conversation is what is sent, and how it ends. What comes back is read and looked at by nobody but the
caller; that the server goes on is looked at beside.
"""

from __future__ import annotations

import select
import socket
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from torture.fuzzing.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_LIMIT_BYTES,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    call,
    frame,
    greeting,
    headers_of,
    hpack_number,
    literal,
    message,
    setting,
)
from torture.fuzzing.hunt import mutated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from random import Random


@dataclass(frozen=True, slots=True)
class Target:
    """A server to talk to: its socket, a call that it serves, and a right request of that."""

    socket: Path
    method: str
    """The path of the call."""
    request: bytes


@dataclass(frozen=True, slots=True)
class Conversation:
    """What one stranger sends, in these pieces, and what he does then."""

    pieces: tuple[bytes, ...]
    end: Literal["close", "half-close", "wait"] = "wait"
    """`wait`: until the server has closed, or is silent for a moment."""


def _of(*content: bytes, end: Literal["close", "half-close", "wait"] = "wait") -> Conversation:
    return Conversation((b"".join(content),), end)


# ── the kinds ─────────────────────────────────────────────────────────────────────────────────────


def _random_bytes(random: Random, _: Target) -> Conversation:
    start = PREFACE if random.random() < 0.3 else b""
    return _of(start, random.randbytes(random.choice((1, 9, 64, 500, 4_000))))


def _cut_off(random: Random, target: Target) -> Conversation:
    whole = greeting() + call(target.method, target.request)
    return _of(whole[: random.randrange(len(whole))], end=random.choice(("close", "half-close", "wait")))


def _other_protocols(random: Random, target: Target) -> Conversation:
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.randbytes(500)
    return _of(
        random.choice(
            (
                b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
                b"POST " + target.method.encode() + b" HTTP/1.1\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r",
                b"SSH-2.0-OpenSSH_9.0\r\n",
                b"\x00\x00\x00\x01*2\r\n$4\r\nPING\r\n",
                hello,
            )
        )
    )


def _bad_settings(random: Random, target: Target) -> Conversation:
    odd = b"".join(
        setting(
            random.choice((1, 2, 3, 4, 5, 6, 7, 0xFE03, 0xFFFF)),
            random.choice((0, 1, 2, 16_383, 2**24, 2**31, -1)),
        )
        for _ in range(random.choice((1, 3, 50, 2_000)))
    )
    wrong = random.choice(
        (
            frame(SETTINGS, 0, 0, odd),
            frame(SETTINGS, 0, 0, odd[:-1]),
            frame(SETTINGS, ACK, 0, odd[:6]),
            frame(SETTINGS, 0, 1, odd[:6]),
            frame(SETTINGS, ACK) * 500,
            frame(SETTINGS) * 500,
        )
    )
    return _of(PREFACE, wrong, call(target.method, target.request))


def _in_frames(block: bytes, size: int, stream: int = 1) -> bytes:
    """Return a header block in a HEADERS frame and as many CONTINUATION frames as it takes."""
    parts = [block[start : start + size] for start in range(0, len(block), size)] or [b""]
    kinds = [HEADERS] + [CONTINUATION] * (len(parts) - 1)
    last = len(parts) - 1
    return b"".join(
        frame(kind, END_HEADERS if number == last else 0, stream, part)
        for number, (kind, part) in enumerate(zip(kinds, parts, strict=True))
    )


def _huge_headers(random: Random, target: Target) -> Conversation:
    size = random.choice((9_000, 17_000, 70_000, 150_000))
    more = literal(b"x", b"x" * size) if random.random() < 0.5 else literal(b"x", b"v" * 20) * (size // 25)
    return _of(greeting(), _in_frames(headers_of(target.method) + more, FRAME_LIMIT_BYTES))


def _continuations(random: Random, target: Target) -> Conversation:
    block = headers_of(target.method)
    first = frame(HEADERS, 0, 1, block[: random.randrange(len(block))])
    more = random.choice((b"", b"", literal(b"a", b"b"), b"\x20"))
    return _of(greeting(), first, frame(CONTINUATION, 0, 1, more) * random.choice((10, 500, 3_000)))


def _rapid_resets(random: Random, target: Target) -> Conversation:
    code = random.choice((0, 2, 8)).to_bytes(4, "big")
    block = headers_of(target.method)
    count = random.choice((2, 5))
    streams = range(1, 2 * count, 2)
    if random.random() < 0.5:
        return _of(
            greeting(),
            *(
                frame(HEADERS, END_HEADERS, stream, block) + frame(RST_STREAM, 0, stream, code)
                for stream in streams
            ),
        )
    return _of(
        greeting(),
        *(
            call(target.method, target.request, stream) + frame(RST_STREAM, 0, stream, code)
            for stream in streams
        ),
    )


def _pings(random: Random, _: Target) -> Conversation:
    ping = frame(PING, 0, 0, random.randbytes(8))
    odd = random.choice((ping, ping, frame(PING, ACK, 0, bytes(8)), frame(PING, 0, 1, bytes(8))))
    return _of(greeting(), odd * random.choice((10, 200, 2_000)), frame(PING, 0, 0, b"short"))


def _windows(random: Random, target: Target) -> Conversation:
    if random.random() < 0.5:
        # No room for the answer, now or ever.
        return _of(greeting(setting(4, 0)), call(target.method, target.request), end="close")
    update = frame(
        WINDOW_UPDATE, 0, random.choice((0, 1)), random.choice((0, 1, 2**31 - 1)).to_bytes(4, "big")
    )
    return _of(
        greeting(),
        frame(HEADERS, END_HEADERS, 1, headers_of(target.method)),
        update * random.choice((1, 2, 500)),
        frame(WINDOW_UPDATE, 0, 0, b"\0\0"),
    )


def _byte_by_byte(random: Random, target: Target) -> Conversation:
    whole = greeting() + call(target.method, target.request)
    stop = random.choice((len(whole), len(whole), random.randrange(len(whole))))
    return Conversation(tuple(whole[at : at + 1] for at in range(stop)))


def _gone_at_once(_: Random, __: Target) -> Conversation:
    return Conversation((), "close")


def _hpack_bombs(random: Random, target: Target) -> Conversation:
    block = headers_of(target.method)
    big = literal(b"x", b"y" * 3_900, indexed=True)
    odd = random.choice(
        (
            big + b"\xbe" * random.choice((10, 1_000, 8_000)),  # one kept header, told again and again
            hpack_number(10**9, 7, 0x80),  # an index that nothing has
            hpack_number(2**70, 7, 0x80),
            hpack_number(2**31, 5, 0x20),  # a table of two gigabytes
            b"\x3f" + b"\xff" * 40,  # a number without end
            b"\x00\x7f" + b"\xff\xff\xff\x7f",  # a name of 256 MB
            b"\x00\x85\xff\xff\xff\xff\xff\x01a",  # Huffman's end mark, over and over
            b"\x80",  # index 0
            b"\x20" * 4_000,  # the table emptied again and again
            b"".join(literal(b"k%d" % number, b"v", indexed=True) for number in range(100)),
        )
    )
    return _of(greeting(), _in_frames(random.choice((odd, block + odd, odd + block)), FRAME_LIMIT_BYTES))


def _stream_numbers(random: Random, target: Target) -> Conversation:
    numbers = random.choice(
        ((2,), (0,), (3, 1), (1, 1), (2**31 - 1, 1), (2**31 + 1,), (1, 4), (5, 3, 1), tuple(range(1, 20, 2)))
    )
    return _of(greeting(), *(call(target.method, target.request, number) for number in numbers))


def _half_closed(random: Random, target: Target) -> Conversation:
    data = frame(DATA, END_STREAM, 1, message(target.request))
    headers = frame(HEADERS, END_HEADERS, 1, headers_of(target.method))
    return _of(
        greeting(),
        random.choice(
            (
                headers + data + data,  # more after the end
                headers + data + headers,
                frame(HEADERS, END_HEADERS | END_STREAM, 1, headers_of(target.method)),  # no message at all
                headers,
                headers + frame(DATA, 0, 1, message(target.request)),
                data,
                headers + frame(DATA, END_STREAM, 1, message(target.request) * 3),
            )
        ),
        end=random.choice(("half-close", "wait", "close")),
    )


def _odd_frames(random: Random, target: Target) -> Conversation:
    odd = random.choice(
        (
            frame(random.randrange(10, 256), 255, random.randrange(3), random.randbytes(20)),
            frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2" + headers_of(target.method)),
            frame(PRIORITY, 0, 1, b"\0\0\0\1\x10") * 500,  # a stream that depends on itself
            frame(PRIORITY, 0, 0, b"\0\0\0\1"),
            frame(GOAWAY, 0, 0, bytes(8) + b"debug" * 100),
            frame(GOAWAY, 0, 1, bytes(3)),
            frame(RST_STREAM, 0, 0, bytes(4)),
            frame(RST_STREAM, 0, 9, bytes(3)),
            frame(DATA, PADDED, 1, b"\xff" + bytes(10)),  # more padding than frame
            frame(HEADERS, PADDED | END_HEADERS, 1, b"\xff" + headers_of(target.method)),
            frame(CONTINUATION, END_HEADERS, 1, headers_of(target.method)),
            frame(DATA, 0, 1, b"", lie=2**24 - 1),
            frame(DATA, 0, 1, bytes(20_000)),
            frame(HEADERS, END_HEADERS, 1, headers_of(target.method), lie=random.choice((-5, 5))),
        )
    )
    start = frame(HEADERS, END_HEADERS, 1, headers_of(target.method)) if random.random() < 0.5 else b""
    return _of(greeting(), start, odd, call(target.method, target.request, 3))


def _odd_calls(random: Random, target: Target) -> Conversation:
    """Speak HTTP/2 rightly, and gRPC wrongly."""
    name, value = random.choice(
        (
            *(("_path", None), ("_path", b""), ("_path", b"*"), ("_path", b"/" * 5_000), ("_method", b"GET")),
            *(("_method", None), ("_scheme", b"gopher"), ("_authority", b"\0"), ("content_type", None)),
            *(("content_type", b"text/html"), ("te", b"gzip"), ("te", None), ("grpc_timeout", b"0n")),
            *(("grpc_timeout", b"99999999999H"), ("grpc_timeout", b"-1S"), ("grpc_encoding", b"gzip")),
            *(("grpc_encoding", b"nonsense"), ("Upper", b"case"), ("x_bin", b"%%%"), ("_status", b"200")),
            *(("connection", b"close"), ("content_length", b"1")),
        )
    )
    content = message(
        target.request,
        flag=random.choice((0, 0, 1, 2, 255)),
        lie=random.choice((0, 0, -1, 1, 2**31 - 1, -99)),
    )
    return _of(
        greeting(),
        frame(HEADERS, END_HEADERS, 1, headers_of(target.method, **{name: value})),
        frame(DATA, END_STREAM, 1, content),
    )


def _changed(random: Random, target: Target) -> Conversation:
    """Change some bytes of a conversation that is right, but not of the path: what that does is known."""
    block = headers_of(target.method)
    head = frame(HEADERS, END_HEADERS, 1, block)[: -len(block)]
    data = frame(DATA, END_STREAM, 1, message(target.request))
    others = [frame(PING, 0, 0, bytes(8)), frame(WINDOW_UPDATE, 0, 0, b"\0\0\1\0"), greeting()]
    parts = [greeting(setting(3, 100)), head, data, call(target.method, target.request, 3)[:9]]
    at = random.randrange(len(parts))
    parts[at] = mutated(parts[at], random, others=others)
    return _of(*parts[:2], block, *parts[2:])


KINDS: Final[Mapping[str, Callable[[Random, Target], Conversation]]] = {
    "random-bytes": _random_bytes,
    "cut-off": _cut_off,
    "other-protocols": _other_protocols,
    "bad-settings": _bad_settings,
    "huge-headers": _huge_headers,
    "continuations": _continuations,
    "rapid-resets": _rapid_resets,
    "pings": _pings,
    "windows": _windows,
    "byte-by-byte": _byte_by_byte,
    "gone-at-once": _gone_at_once,
    "hpack-bombs": _hpack_bombs,
    "stream-numbers": _stream_numbers,
    "half-closed": _half_closed,
    "odd-frames": _odd_frames,
    "odd-calls": _odd_calls,
    "changed-bytes": _changed,
}


# ── holding them ──────────────────────────────────────────────────────────────────────────────────

ANSWER_SECONDS: Final = 0.5
"""How long the slowest of those who talk at once waits for the server's end, or for its silence."""
SILENCE_SECONDS: Final = 0.01
READ_BYTES: Final = 65_536


@dataclass(slots=True)
class Outcome:
    """What came of conversations: how many the server ended, and how much it said."""

    held: int = 0
    ended_by_server: int = 0
    answer_bytes: int = 0
    refused: int = 0
    """Could not even connect."""


def hold(target: Target, conversations: Sequence[Conversation], outcome: Outcome) -> None:
    """Hold conversations side by side, each over a connection of its own. Blocks: call it in a thread."""
    with ExitStack() as stack:
        waiting: dict[int, socket.socket] = {}
        for one in conversations:
            opened = stack.enter_context(socket.socket(socket.AF_UNIX))
            opened.settimeout(ANSWER_SECONDS)
            try:
                opened.connect(str(target.socket))
            except OSError:
                outcome.refused += 1
                continue
            outcome.held += 1
            with suppress(OSError):  # it has closed while it was talked to, which is an answer
                for piece in one.pieces:
                    opened.sendall(piece)
                if one.end == "half-close":
                    opened.shutdown(socket.SHUT_WR)
            if one.end == "close":
                opened.close()
            else:
                waiting[opened.fileno()] = opened
        _listen(waiting, outcome)


def _listen(waiting: dict[int, socket.socket], outcome: Outcome) -> None:
    """Read until the server has ended all, or has been silent for a moment."""
    poll = select.poll()
    for number in waiting:
        poll.register(number, select.POLLIN)
    end = time.monotonic() + ANSWER_SECONDS
    while waiting and time.monotonic() < end:
        ready = poll.poll(1000 * SILENCE_SECONDS)
        if not ready:
            return
        for number, _ in ready:
            try:
                content = waiting[number].recv(READ_BYTES)
            except OSError:
                content = b""
            outcome.answer_bytes += len(content)
            if not content:
                poll.unregister(number)
                waiting.pop(number).close()
                outcome.ended_by_server += 1
