"""What a client may do to a server and what that says to it, rule by rule: RFC 9113 and 7541 as data."""

from __future__ import annotations

from dataclasses import dataclass

from tests.wire.http2.made import (
    ACK,
    CALL,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    HELLO,
    PADDED,
    PING,
    PREFACE,
    PRIORITISED,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    block,
    call,
    data,
    frame,
    head,
    ping,
    reset,
    settings,
    window_update,
)


@dataclass(frozen=True)
class Ends:
    """The connection ends, with a code."""

    code: int


@dataclass(frozen=True)
class Resets:
    """A stream ends with a code, and the connection serves on."""

    stream_id: int
    code: int


@dataclass(frozen=True)
class Serves:
    """All is well: a call after it is answered."""


@dataclass(frozen=True)
class Rule:
    section: str
    sentence: str
    sent: bytes
    outcome: Ends | Resets | Serves
    greets: bool = True
    """Whether the preface and settings come before it."""
    only_before_answer: bool = False
    """Whether it is another one once the stream was answered."""
    next_stream: int = 101
    """On which a call may follow."""

    @property
    def content(self) -> bytes:
        return (HELLO if self.greets else b"") + self.sent


def without(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple(field for field in CALL if field[0] not in names)


def changed(name: str, value: str) -> tuple[tuple[str, str], ...]:
    return tuple((one, value if one == name else old) for one, old in CALL)


MALFORMED = {
    "8.2: an upper-case name": (*CALL, ("X-Upper", "1")),
    "8.2.1: a name with a blank": (*CALL, ("x y", "1")),
    "8.2.1: a name with a colon within": (*CALL, ("x:y", "1")),
    "8.2.1: an empty name": (*CALL, ("", "1")),
    "8.2.1: a value with a line end": (*CALL, ("x", "a\nb")),
    "8.2.1: a value with a zero byte": (*CALL, ("x", "a\0b")),
    "8.2.1: a value with a blank before it": (*CALL, ("x", " a")),
    "8.2.1: a value with a tab after it": (*CALL, ("x", "a\t")),
    "8.2.2: connection": (*CALL, ("connection", "keep-alive")),
    "8.2.2: proxy-connection": (*CALL, ("proxy-connection", "keep-alive")),
    "8.2.2: keep-alive": (*CALL, ("keep-alive", "5")),
    "8.2.2: transfer-encoding": (*CALL, ("transfer-encoding", "chunked")),
    "8.2.2: upgrade": (*CALL, ("upgrade", "h2c")),
    "8.2.2: te that is not trailers": changed("te", "trailers, deflate"),
    "8.3: an unknown pseudo-field": ((":test", "ok"), *CALL),
    "8.3: a pseudo-field of a response": ((":status", "200"), *CALL),
    "8.3: a pseudo-field after others": (*without(":path"), (":path", "/")),
    "8.3.1: an empty path": changed(":path", ""),
    "8.3.1: no method": without(":method"),
    "8.3.1: no scheme": without(":scheme"),
    "8.3.1: no path": without(":path"),
    "8.3.1: two methods": ((":method", "POST"), *CALL),
    "8.3.1: two schemes": ((":scheme", "http"), *CALL),
    "8.3.1: two paths": ((":path", "/"), *CALL),
    "8.5: CONNECT with a path": changed(":method", "CONNECT"),
    "8.1.1: a content-length that is no number": (*CALL, ("content-length", "five")),
    "8.1.1: two content-lengths": (*CALL, ("content-length", "5"), ("content-length", "6")),
}
LARGE = block(*CALL, *((f"x-{number}", "v" * 1000) for number in range(40)))
BOMB = b"\x40\x01x" + b"\x7f\xa1\x1e" + b"v" * 4000 + b"\xbe" * 60
PIECES = [block(*CALL)[:10], block(*CALL)[10:20], block(*CALL)[20:]]


def data_frames(stream_id: int, size: int) -> bytes:
    whole, rest = divmod(size, 16384)
    return frame(DATA, 0, stream_id, bytes(16384)) * whole + frame(DATA, 0, stream_id, bytes(rest))


RULES = [
    # ── 3.4: the preface ──
    Rule(
        "3.4",
        "what is not the preface ends the connection",
        b"GET / HTTP/1.1\r\n\r\n",
        Ends(PROTOCOL_ERROR),
        greets=False,
    ),
    Rule(
        "3.4",
        "a preface with one wrong byte ends it",
        PREFACE[:-1] + b"\r" + settings(),
        Ends(PROTOCOL_ERROR),
        greets=False,
    ),
    Rule(
        "3.4",
        "a first frame that is not SETTINGS ends it",
        PREFACE + ping(),
        Ends(PROTOCOL_ERROR),
        greets=False,
    ),
    Rule(
        "3.4",
        "a first frame that only acknowledges ends it",
        PREFACE + settings(ack=True),
        Ends(PROTOCOL_ERROR),
        greets=False,
    ),
    # ── 4: frames ──
    Rule("4.1", "a frame of unknown kind is ignored", frame(0x42, 0xFF, 7, b"what"), Serves()),
    Rule("4.1", "flags without meaning are ignored", frame(PING, 0xFE, 0, b"12345678"), Serves()),
    Rule("4.1", "the reserved bit of a stream is ignored", frame(PING, 0, 1 << 31, b"12345678"), Serves()),
    Rule(
        "4.2", "a frame of the largest size is taken", head(1) + data(1, bytes(16384), ends=False), Serves()
    ),
    Rule(
        "4.2",
        "a frame that is too large ends the connection",
        head(1) + frame(DATA, 0, 1, bytes(16385)),
        Ends(FRAME_SIZE_ERROR),
    ),
    Rule(
        "4.2",
        "header fields in a frame that is too large end it",
        frame(HEADERS, 4, 1, bytes(16385)),
        Ends(FRAME_SIZE_ERROR),
    ),
    Rule(
        "4.3",
        "a block that cannot be read ends the connection",
        frame(HEADERS, 5, 1, b"\xff\xff\xff\xff\xff\xff"),
        Ends(COMPRESSION_ERROR),
    ),
    Rule(
        "4.3",
        "another frame amid a block ends it",
        frame(HEADERS, 0, 1, PIECES[0]) + ping(),
        Ends(PROTOCOL_ERROR),
    ),
    Rule(
        "4.3",
        "another stream amid a block ends it",
        frame(HEADERS, 0, 1, PIECES[0]) + head(3),
        Ends(PROTOCOL_ERROR),
    ),
    Rule(
        "5.5",
        "an unknown frame amid a block ends it",
        frame(HEADERS, 0, 1, PIECES[0]) + frame(0x42),
        Ends(PROTOCOL_ERROR),
    ),
    # ── 5.1: states ──
    Rule("5.1", "DATA on a stream that never began ends the connection", data(1), Ends(PROTOCOL_ERROR)),
    Rule("5.1", "RST_STREAM on one ends it", reset(1), Ends(PROTOCOL_ERROR)),
    Rule("5.1", "WINDOW_UPDATE on one ends it", window_update(1, 1), Ends(PROTOCOL_ERROR)),
    Rule("5.1", "CONTINUATION without a block ends it", frame(CONTINUATION, 4, 1), Ends(PROTOCOL_ERROR)),
    Rule(
        "5.1", "PRIORITY on a stream that never began is ignored", frame(PRIORITY, 0, 9, bytes(5)), Serves()
    ),
    Rule(
        "5.1",
        "WINDOW_UPDATE on a stream that is over is ignored",
        call(1) + reset(1) + window_update(1, 1),
        Serves(),
    ),
    Rule("5.1", "RST_STREAM on a stream that is over is ignored", call(1) + reset(1) + reset(1), Serves()),
    Rule(
        "5.1",
        "PRIORITY on a stream that is over is ignored",
        call(1) + frame(PRIORITY, 0, 1, bytes(5)),
        Serves(),
    ),
    Rule("5.1", "DATA after a reset ends the connection", head(1) + reset(1) + data(1), Ends(STREAM_CLOSED)),
    Rule("5.1", "HEADERS after a reset end it", head(1) + reset(1) + head(1), Ends(STREAM_CLOSED)),
    Rule("5.1.1", "a stream with an even number ends the connection", head(2), Ends(PROTOCOL_ERROR)),
    Rule("5.1.1", "a number below an earlier one ends it", head(5) + data(5) + head(3), Ends(PROTOCOL_ERROR)),
    Rule("5.1.1", "numbers may be left out", call(9), Serves()),
    # ── 5.2, 6.9: flow control ──
    Rule("6.9", "WINDOW_UPDATE by nothing ends the connection", window_update(0, 0), Ends(PROTOCOL_ERROR)),
    Rule(
        "6.9",
        "WINDOW_UPDATE by nothing ends a stream",
        head(1) + window_update(1, 0),
        Resets(1, PROTOCOL_ERROR),
    ),
    Rule(
        "6.9",
        "WINDOW_UPDATE of the wrong size ends the connection",
        frame(WINDOW_UPDATE, 0, 0, b"123"),
        Ends(FRAME_SIZE_ERROR),
    ),
    Rule(
        "6.9.1",
        "a connection's window beyond the limit ends it",
        window_update(0, 0x7FFFFFFF),
        Ends(FLOW_CONTROL_ERROR),
    ),
    Rule(
        "6.9.1",
        "a stream's window beyond the limit ends the stream",
        head(1) + window_update(1, 0x7FFFFFFF),
        Resets(1, FLOW_CONTROL_ERROR),
    ),
    Rule(
        "6.9.2",
        "settings that carry a window beyond the limit end it",
        head(1) + window_update(1, 0x7FFFFFFF - 65535) + settings((4, 65536)),
        Ends(FLOW_CONTROL_ERROR),
    ),
    # ── 6.1, 6.2: DATA, HEADERS ──
    Rule("6.1", "DATA on stream 0 ends the connection", frame(DATA, 0, 0, b"x"), Ends(PROTOCOL_ERROR)),
    Rule(
        "6.1",
        "padding is taken away",
        head(1) + frame(DATA, PADDED | END_STREAM, 1, b"\x03" + bytes(5) + bytes(3)),
        Serves(),
    ),
    Rule(
        "6.1",
        "padding as long as the payload ends the connection",
        head(1) + frame(DATA, PADDED, 1, b"\x06" + bytes(5)),
        Ends(PROTOCOL_ERROR),
    ),
    Rule(
        "6.1",
        "padding without its length ends it",
        head(1) + frame(DATA, PADDED, 1, b""),
        Ends(FRAME_SIZE_ERROR),
    ),
    Rule(
        "6.1",
        "DATA after the end of a request ends the stream",
        head(1) + data(1) + data(1),
        Resets(1, STREAM_CLOSED),
        only_before_answer=True,
    ),
    Rule("6.2", "HEADERS on stream 0 end the connection", head(0), Ends(PROTOCOL_ERROR)),
    Rule(
        "6.2",
        "padding and priority are taken away",
        frame(HEADERS, PADDED | PRIORITISED | END_HEADERS, 1, b"\x02" + bytes(5) + block(*CALL) + bytes(2))
        + data(1),
        Serves(),
    ),
    Rule(
        "6.2",
        "padding as long as the payload ends the connection",
        frame(HEADERS, PADDED | END_HEADERS, 1, b"\x09" + bytes(8)),
        Ends(PROTOCOL_ERROR),
    ),
    Rule(
        "6.2",
        "a priority that is cut off ends it",
        frame(HEADERS, PRIORITISED | END_HEADERS, 1, bytes(4)),
        Ends(FRAME_SIZE_ERROR),
    ),
    # ── 6.3 to 6.8 ──
    Rule(
        "6.3",
        "PRIORITY on stream 0 ends the connection",
        frame(PRIORITY, 0, 0, bytes(5)),
        Ends(PROTOCOL_ERROR),
    ),
    Rule(
        "6.3",
        "PRIORITY of the wrong size ends the stream",
        head(1) + frame(PRIORITY, 0, 1, bytes(4)),
        Resets(1, FRAME_SIZE_ERROR),
    ),
    Rule("6.4", "RST_STREAM on stream 0 ends the connection", reset(0), Ends(PROTOCOL_ERROR)),
    Rule(
        "6.4",
        "RST_STREAM of the wrong size ends it",
        head(1) + frame(RST_STREAM, 0, 1, bytes(3)),
        Ends(FRAME_SIZE_ERROR),
    ),
    Rule("6.4", "RST_STREAM of an unknown code ends the stream only", head(1) + reset(1, 0xDEAD), Serves()),
    Rule("6.5", "SETTINGS on a stream end the connection", frame(SETTINGS, 0, 1), Ends(PROTOCOL_ERROR)),
    Rule("6.5", "SETTINGS of the wrong size end it", frame(SETTINGS, 0, 0, bytes(5)), Ends(FRAME_SIZE_ERROR)),
    Rule(
        "6.5",
        "an acknowledgement with content ends it",
        frame(SETTINGS, ACK, 0, bytes(6)),
        Ends(FRAME_SIZE_ERROR),
    ),
    Rule("6.5.2", "ENABLE_PUSH of 2 ends it", settings((2, 2)), Ends(PROTOCOL_ERROR)),
    Rule("6.5.2", "a client may want pushes", settings((2, 1)), Serves()),
    Rule(
        "6.5.2",
        "an INITIAL_WINDOW_SIZE beyond the limit ends it",
        settings((4, 1 << 31)),
        Ends(FLOW_CONTROL_ERROR),
    ),
    Rule("6.5.2", "a MAX_FRAME_SIZE below the least ends it", settings((5, 16383)), Ends(PROTOCOL_ERROR)),
    Rule("6.5.2", "a MAX_FRAME_SIZE beyond the most ends it", settings((5, 1 << 24)), Ends(PROTOCOL_ERROR)),
    Rule("6.5.2", "unknown settings are ignored", settings((0x99, 1), (0xFE03, 1)), Serves()),
    Rule("6.5.3", "the last of several values counts", settings((4, 0), (4, 65535)), Serves()),
    Rule(
        "6.6",
        "PUSH_PROMISE of a client ends the connection",
        head(1) + frame(PUSH_PROMISE, 4, 1, bytes(4)),
        Ends(PROTOCOL_ERROR),
    ),
    Rule("6.7", "PING on a stream ends it", frame(PING, 0, 1, bytes(8)), Ends(PROTOCOL_ERROR)),
    Rule("6.7", "PING of the wrong size ends it", frame(PING, 0, 0, bytes(7)), Ends(FRAME_SIZE_ERROR)),
    Rule("6.7", "an answer to no PING is ignored", ping(ack=True), Serves()),
    Rule("6.8", "GOAWAY on a stream ends it", frame(GOAWAY, 0, 1, bytes(8)), Ends(PROTOCOL_ERROR)),
    Rule("6.8", "GOAWAY that is cut off ends it", frame(GOAWAY, 0, 0, bytes(7)), Ends(FRAME_SIZE_ERROR)),
    # ── 6.10: CONTINUATION ──
    Rule(
        "6.10",
        "a block may come in pieces",
        frame(HEADERS, 0, 1, PIECES[0])
        + frame(CONTINUATION, 0, 1, PIECES[1])
        + frame(CONTINUATION, 4, 1, PIECES[2])
        + data(1),
        Serves(),
    ),
    Rule(
        "6.10",
        "pieces may be empty",
        frame(HEADERS, 0, 1) + frame(CONTINUATION, 4, 1, block(*CALL)) + data(1),
        Serves(),
    ),
    Rule(
        "6.10",
        "CONTINUATION on stream 0 ends the connection",
        frame(HEADERS, 0, 1, PIECES[0]) + frame(CONTINUATION, 4, 0),
        Ends(PROTOCOL_ERROR),
    ),
    Rule(
        "6.10",
        "CONTINUATION of another stream ends it",
        frame(HEADERS, 0, 1, PIECES[0]) + frame(CONTINUATION, 4, 3),
        Ends(PROTOCOL_ERROR),
    ),
    Rule(
        "6.10",
        "CONTINUATION after the end of a block ends it",
        head(1) + frame(CONTINUATION, 4, 1),
        Ends(PROTOCOL_ERROR),
    ),
    # ── 8: messages ──
    *(
        Rule(
            name.partition(":")[0],
            f"{name.partition(': ')[2]} ends the stream",
            head(1, fields),
            Resets(1, PROTOCOL_ERROR),
        )
        for name, fields in MALFORMED.items()
    ),
    Rule(
        "8.1",
        "trailers of a client are taken",
        head(1) + data(1, ends=False) + frame(HEADERS, END_STREAM | END_HEADERS, 1, block(("x", "1"))),
        Serves(),
    ),
    Rule(
        "8.1",
        "trailers that end nothing end the stream",
        head(1) + frame(HEADERS, END_HEADERS, 1, block(("x", "1"))),
        Resets(1, PROTOCOL_ERROR),
    ),
    Rule(
        "8.1",
        "trailers with a pseudo-field end the stream",
        head(1) + frame(HEADERS, END_STREAM | END_HEADERS, 1, block((":path", "/"))),
        Resets(1, PROTOCOL_ERROR),
    ),
    Rule(
        "8.1.1",
        "content as long as promised is taken",
        head(1, (*CALL, ("content-length", "5"))) + data(1),
        Serves(),
    ),
    Rule(
        "8.1.1",
        "less content than promised ends the stream",
        head(1, (*CALL, ("content-length", "6"))) + data(1),
        Resets(1, PROTOCOL_ERROR),
    ),
    Rule(
        "8.1.1",
        "more content than promised ends the stream",
        head(1, (*CALL, ("content-length", "4"))) + data(1),
        Resets(1, PROTOCOL_ERROR),
    ),
    Rule(
        "8.1.1",
        "no content where some was promised ends the stream",
        head(1, (*CALL, ("content-length", "5")), ends=True),
        Resets(1, PROTOCOL_ERROR),
    ),
    # ── 10.5: floods ──
    Rule(
        "10.5",
        "streams that are reset at once end the connection in the end",
        b"".join(head(2 * n + 1) + reset(2 * n + 1) for n in range(1200)),
        Ends(ENHANCE_YOUR_CALM),
    ),
    Rule("10.5", "very many PINGs end it", ping() * 1200, Ends(ENHANCE_YOUR_CALM)),
    Rule("10.5", "very many SETTINGS end it", settings() * 1200, Ends(ENHANCE_YOUR_CALM)),
    Rule(
        "10.5",
        "very many empty DATA end it",
        head(1) + data(1, b"", ends=False) * 1200,
        Ends(ENHANCE_YOUR_CALM),
    ),
    Rule(
        "10.5", "very many PRIORITY end it", frame(PRIORITY, 0, 1, bytes(5)) * 1200, Ends(ENHANCE_YOUR_CALM)
    ),
    Rule(
        "10.5",
        "very many malformed requests end it",
        b"".join(head(2 * n + 1, without(":path")) for n in range(1200)),
        Ends(ENHANCE_YOUR_CALM),
    ),
    Rule("10.5", "some PINGs do not", ping() * 500, Serves()),
    Rule(
        "10.5.1",
        "a block without an end ends it",
        frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, b"") * 20,
        Ends(ENHANCE_YOUR_CALM),
    ),
    Rule(
        "10.5.1",
        "a block of very many bytes ends it",
        frame(HEADERS, 0, 1, bytes(16384)) + frame(CONTINUATION, 0, 1, bytes(16384)) * 4,
        Ends(ENHANCE_YOUR_CALM),
    ),
    # ── RFC 7541 ──
    Rule(
        "HPACK 2.3.3",
        "an index beyond the table ends the connection",
        frame(HEADERS, 5, 1, b"\xfe"),
        Ends(COMPRESSION_ERROR),
    ),
    Rule(
        "HPACK 4.2",
        "a table larger than allowed ends it",
        frame(HEADERS, 5, 1, b"\x3f\xe2\x1f" + block(*CALL)),
        Ends(COMPRESSION_ERROR),
    ),
    Rule(
        "HPACK 4.2",
        "a change of the table after a field ends it",
        frame(HEADERS, 5, 1, block(*CALL) + b"\x20"),
        Ends(COMPRESSION_ERROR),
    ),
    Rule(
        "HPACK 4.2",
        "a smaller table is taken",
        frame(HEADERS, 4, 1, b"\x20" + block(*CALL)) + data(1),
        Serves(),
    ),
    Rule(
        "HPACK 5.1",
        "a number without end ends it",
        frame(HEADERS, 5, 1, b"\x7f" + b"\xff" * 12),
        Ends(COMPRESSION_ERROR),
    ),
    Rule(
        "HPACK 5.2",
        "Huffman code with more than seven bits of padding ends it",
        frame(HEADERS, 5, 1, block(*CALL) + b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff"),
        Ends(COMPRESSION_ERROR),
    ),
    Rule(
        "HPACK 5.2",
        "Huffman code with the end mark in it ends it",
        frame(HEADERS, 5, 1, block(*CALL) + b"\x00\x85\xf2\xb2\x4a\x87\xff\xff\xff\xfd\x25\x42\x7f"),
        Ends(COMPRESSION_ERROR),
    ),
    Rule("HPACK 6.1", "an index of nothing ends it", frame(HEADERS, 5, 1, b"\x80"), Ends(COMPRESSION_ERROR)),
    Rule(
        "HPACK 7.3",
        "few bytes that stand for very many end it",
        frame(HEADERS, 5, 1, BOMB),
        Ends(ENHANCE_YOUR_CALM),
    ),
]
"""In the order of the sections. What a client may not do and a server may not notice is not here."""
