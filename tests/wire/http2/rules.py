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
    name: str
    """The section, and what it says."""
    sent: bytes
    outcome: Ends | Resets | Serves
    only_before_answer: bool = False
    """Whether it is another one once the stream was answered."""


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
BOMB = b"\x40\x01x" + b"\x7f\xa1\x1e" + b"v" * 4000 + b"\xbe" * 60
PIECES = [block(*CALL)[:10], block(*CALL)[10:20], block(*CALL)[20:]]


BEFORE_SETTINGS = {
    "3.4: what is not the preface": b"GET / HTTP/1.1\r\n\r\n",
    "3.4: a preface with one wrong byte": PREFACE[:-1] + b"\r" + settings(),
    "3.4: a first frame that is not SETTINGS": PREFACE + ping(),
    "3.4: a first frame that only acknowledges": PREFACE + settings(ack=True),
}
"""What comes in the place of the preface and the first SETTINGS, and ends the connection."""

SERVED = {
    "4.1: a frame of unknown kind is ignored": frame(0x42, 0xFF, 7, b"what"),
    "4.1: flags without meaning are ignored": frame(PING, 0xFE, 0, b"12345678"),
    "4.1: the reserved bit of a stream is ignored": frame(PING, 0, 1 << 31, b"12345678"),
    "4.2: a frame of the largest size is taken": head(1) + data(1, bytes(16384), ends=False),
    "5.1: PRIORITY on a stream that never began is ignored": frame(PRIORITY, 0, 9, bytes(5)),
    "5.1: WINDOW_UPDATE on a stream that is over is ignored": call(1) + reset(1) + window_update(1, 1),
    "5.1: RST_STREAM on a stream that is over is ignored": call(1) + reset(1) + reset(1),
    "5.1: PRIORITY on a stream that is over is ignored": call(1) + frame(PRIORITY, 0, 1, bytes(5)),
    "5.1.1: numbers may be left out": call(9),
    "6.1: padding is taken away": (
        head(1) + frame(DATA, PADDED | END_STREAM, 1, b"\x03" + bytes(5) + bytes(3))
    ),
    "6.2: padding and priority are taken away": (
        frame(HEADERS, PADDED | PRIORITISED | END_HEADERS, 1, b"\x02" + bytes(5) + block(*CALL) + bytes(2))
        + data(1)
    ),
    "6.4: RST_STREAM of an unknown code ends the stream only": head(1) + reset(1, 0xDEAD),
    "6.5.2: a client may want pushes": settings((2, 1)),
    "6.5.2: unknown settings are ignored": settings((0x99, 1), (0xFE03, 1)),
    "6.5.3: the last of several values counts": settings((4, 0), (4, 65535)),
    "6.7: an answer to no PING is ignored": ping(ack=True),
    "6.10: a block may come in pieces": (
        frame(HEADERS, 0, 1, PIECES[0])
        + frame(CONTINUATION, 0, 1, PIECES[1])
        + frame(CONTINUATION, 4, 1, PIECES[2])
        + data(1)
    ),
    "6.10: pieces may be empty": frame(HEADERS, 0, 1) + frame(CONTINUATION, 4, 1, block(*CALL)) + data(1),
    "8.1: trailers of a client are taken": (
        head(1) + data(1, ends=False) + frame(HEADERS, END_STREAM | END_HEADERS, 1, block(("x", "1")))
    ),
    "8.1.1: content as long as promised is taken": head(1, (*CALL, ("content-length", "5"))) + data(1),
    "10.5: some PINGs are answered": ping() * 500,
    "HPACK 4.2: a smaller table is taken": frame(HEADERS, 4, 1, b"\x20" + block(*CALL)) + data(1),
}
FRAME_SIZE_ERRORS = {
    "4.2: a frame that is too large": head(1) + frame(DATA, 0, 1, bytes(16385)),
    "4.2: header fields in a frame that is too large": frame(HEADERS, 4, 1, bytes(16385)),
    "6.9: WINDOW_UPDATE of the wrong size": frame(WINDOW_UPDATE, 0, 0, b"123"),
    "6.1: padding without its length": head(1) + frame(DATA, PADDED, 1, b""),
    "6.2: a priority that is cut off": frame(HEADERS, PRIORITISED | END_HEADERS, 1, bytes(4)),
    "6.4: RST_STREAM of the wrong size": head(1) + frame(RST_STREAM, 0, 1, bytes(3)),
    "6.5: SETTINGS of the wrong size": frame(SETTINGS, 0, 0, bytes(5)),
    "6.5: an acknowledgement with content": frame(SETTINGS, ACK, 0, bytes(6)),
    "6.7: PING of the wrong size": frame(PING, 0, 0, bytes(7)),
    "6.8: GOAWAY that is cut off": frame(GOAWAY, 0, 0, bytes(7)),
}
COMPRESSION_ERRORS = {
    "4.3: a block that cannot be read": frame(HEADERS, 5, 1, b"\xff\xff\xff\xff\xff\xff"),
    "HPACK 2.3.3: an index beyond the table": frame(HEADERS, 5, 1, b"\xfe"),
    "HPACK 4.2: a table larger than allowed": frame(HEADERS, 5, 1, b"\x3f\xe2\x1f" + block(*CALL)),
    "HPACK 4.2: a change of the table after a field": frame(HEADERS, 5, 1, block(*CALL) + b"\x20"),
    "HPACK 5.1: a number without end": frame(HEADERS, 5, 1, b"\x7f" + b"\xff" * 12),
    "HPACK 5.2: Huffman code with more than seven bits of padding": (
        frame(HEADERS, 5, 1, block(*CALL) + b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff")
    ),
    "HPACK 5.2: Huffman code with the end mark in it": (
        frame(HEADERS, 5, 1, block(*CALL) + b"\x00\x85\xf2\xb2\x4a\x87\xff\xff\xff\xfd\x25\x42\x7f")
    ),
    "HPACK 6.1: an index of nothing": frame(HEADERS, 5, 1, b"\x80"),
}
PROTOCOL_ERRORS = {
    "4.3: another frame amid a block": frame(HEADERS, 0, 1, PIECES[0]) + ping(),
    "4.3: another stream amid a block": frame(HEADERS, 0, 1, PIECES[0]) + head(3),
    "5.5: an unknown frame amid a block": frame(HEADERS, 0, 1, PIECES[0]) + frame(0x42),
    "5.1: DATA on a stream that never began": data(1),
    "5.1: RST_STREAM on a stream that never began": reset(1),
    "5.1: WINDOW_UPDATE on a stream that never began": window_update(1, 1),
    "5.1: CONTINUATION without a block": frame(CONTINUATION, 4, 1),
    "5.1.1: a stream with an even number": head(2),
    "5.1.1: a number below an earlier one": head(5) + data(5) + head(3),
    "6.9: WINDOW_UPDATE by nothing": window_update(0, 0),
    "6.1: DATA on stream 0": frame(DATA, 0, 0, b"x"),
    "6.1: padding as long as the payload": head(1) + frame(DATA, PADDED, 1, b"\x06" + bytes(5)),
    "6.2: HEADERS on stream 0": head(0),
    "6.2: padding as long as the payload": frame(HEADERS, PADDED | END_HEADERS, 1, b"\x09" + bytes(8)),
    "6.3: PRIORITY on stream 0": frame(PRIORITY, 0, 0, bytes(5)),
    "6.4: RST_STREAM on stream 0": reset(0),
    "6.5: SETTINGS on a stream": frame(SETTINGS, 0, 1),
    "6.5.2: ENABLE_PUSH of 2": settings((2, 2)),
    "6.5.2: a MAX_FRAME_SIZE below the least": settings((5, 16383)),
    "6.5.2: a MAX_FRAME_SIZE beyond the most": settings((5, 1 << 24)),
    "6.6: PUSH_PROMISE of a client": head(1) + frame(PUSH_PROMISE, 4, 1, bytes(4)),
    "6.7: PING on a stream": frame(PING, 0, 1, bytes(8)),
    "6.8: GOAWAY on a stream": frame(GOAWAY, 0, 1, bytes(8)),
    "6.10: CONTINUATION on stream 0": frame(HEADERS, 0, 1, PIECES[0]) + frame(CONTINUATION, 4, 0),
    "6.10: CONTINUATION of another stream": frame(HEADERS, 0, 1, PIECES[0]) + frame(CONTINUATION, 4, 3),
    "6.10: CONTINUATION after the end of a block": head(1) + frame(CONTINUATION, 4, 1),
}
ON_CLOSED_STREAMS = {
    "5.1: DATA after a reset": head(1) + reset(1) + data(1),
    "5.1: HEADERS after a reset": head(1) + reset(1) + head(1),
}
FLOW_CONTROL_ERRORS = {
    "6.9.1: a connection's window beyond the limit": window_update(0, 0x7FFFFFFF),
    "6.9.2: settings that carry a stream's window beyond the limit": (
        head(1) + window_update(1, 0x7FFFFFFF - 65535) + settings((4, 65536))
    ),
    "6.5.2: an INITIAL_WINDOW_SIZE beyond the limit": settings((4, 1 << 31)),
}
FLOODS = {
    "10.5: streams that are reset at once": (
        b"".join(head(2 * n + 1) + reset(2 * n + 1) for n in range(1200))
    ),
    "10.5: very many PINGs": ping() * 1200,
    "10.5: very many SETTINGS": settings() * 1200,
    "10.5: very many empty DATA": head(1) + data(1, b"", ends=False) * 1200,
    "10.5: very many PRIORITY": frame(PRIORITY, 0, 1, bytes(5)) * 1200,
    "10.5: very many malformed requests": (b"".join(head(2 * n + 1, without(":path")) for n in range(1200))),
    "10.5.1: a block without an end": frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, 0, 1, b"") * 20,
    "10.5.1: a block of very many bytes": (
        frame(HEADERS, 0, 1, bytes(16384)) + frame(CONTINUATION, 0, 1, bytes(16384)) * 4
    ),
    "HPACK 7.3: few bytes that stand for very many": frame(HEADERS, 5, 1, BOMB),
}
RESETS = {
    "6.9: WINDOW_UPDATE by nothing": (head(1) + window_update(1, 0), PROTOCOL_ERROR),
    "8.1: trailers that end nothing": (
        head(1) + frame(HEADERS, END_HEADERS, 1, block(("x", "1"))),
        PROTOCOL_ERROR,
    ),
    "8.1: trailers with a pseudo-field": (
        head(1) + frame(HEADERS, END_STREAM | END_HEADERS, 1, block((":path", "/"))),
        PROTOCOL_ERROR,
    ),
    "8.1.1: less content than promised": (
        head(1, (*CALL, ("content-length", "6"))) + data(1),
        PROTOCOL_ERROR,
    ),
    "8.1.1: more content than promised": (
        head(1, (*CALL, ("content-length", "4"))) + data(1),
        PROTOCOL_ERROR,
    ),
    "8.1.1: no content where some was promised": (
        head(1, (*CALL, ("content-length", "5")), ends=True),
        PROTOCOL_ERROR,
    ),
    "6.9.1: a stream's window beyond the limit": (head(1) + window_update(1, 0x7FFFFFFF), FLOW_CONTROL_ERROR),
    "6.3: PRIORITY of the wrong size": (head(1) + frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR),
}

RULES = [
    *(
        Rule(f"{name} ends the connection", sent, Ends(PROTOCOL_ERROR))
        for name, sent in BEFORE_SETTINGS.items()
    ),
    *(Rule(name, HELLO + sent, Serves()) for name, sent in SERVED.items()),
    *(
        Rule(f"{name} ends the connection", HELLO + sent, Ends(code))
        for code, rules in (
            (FRAME_SIZE_ERROR, FRAME_SIZE_ERRORS),
            (COMPRESSION_ERROR, COMPRESSION_ERRORS),
            (PROTOCOL_ERROR, PROTOCOL_ERRORS),
            (STREAM_CLOSED, ON_CLOSED_STREAMS),
            (FLOW_CONTROL_ERROR, FLOW_CONTROL_ERRORS),
            (ENHANCE_YOUR_CALM, FLOODS),
        )
        for name, sent in rules.items()
    ),
    *(
        Rule(f"{name} ends the stream", HELLO + sent, Resets(1, code))
        for name, (sent, code) in RESETS.items()
    ),
    *(
        Rule(f"{name} ends the stream", HELLO + head(1, fields), Resets(1, PROTOCOL_ERROR))
        for name, fields in MALFORMED.items()
    ),
    Rule(
        "6.1: DATA after the end of a request ends the stream",
        HELLO + head(1) + data(1) + data(1),
        Resets(1, STREAM_CLOSED),
        only_before_answer=True,
    ),
]
"""What a client may not do and a server may not notice is not here."""
