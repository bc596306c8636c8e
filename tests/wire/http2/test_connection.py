"""Two ends that talk: what is sent and when, fair among streams, within windows; and what a client takes."""

from __future__ import annotations

import pytest

from devplug.wire.http2 import events
from devplug.wire.http2.connection import Connection, Limits
from devplug.wire.http2.errors import ErrorCode, MisuseError
from devplug.wire.http2.events import Event
from devplug.wire.http2.headers import header_block
from tests.wire.http2.made import (
    CALL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    HELLO,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    Seen,
    block,
    call,
    data,
    frame,
    frames_in,
    head,
    reset,
    settings,
    window_update,
)

BLOCK = block(*CALL)
OK = ((":status", "200"), ("content-type", "application/grpc"))
OK_BLOCK = block(*OK)


class End:
    """A connection, with all that it sent as frames."""

    def __init__(self, *, is_client: bool, limits: Limits | None = None) -> None:
        self.connection = Connection(is_client=is_client, limits=limits or Limits())

    def hear(self, content: bytes, now: float = 0.0) -> list[Event]:
        return self.connection.receive(content, now)

    def sent(self, limit_bytes: int | None = 1 << 20) -> list[Seen]:
        content = self.connection.take(limit_bytes)[0]
        return frames_in(content.removeprefix(HELLO[:24]))


def server(content: bytes = HELLO, **limits: int) -> End:
    end = End(is_client=False, limits=Limits(**limits))
    end.hear(content)
    end.sent()
    return end


def client() -> End:
    end = End(is_client=True)
    end.hear(settings())
    end.sent()
    return end


def joined(seen: list[Seen], stream_id: int) -> bytes:
    return b"".join(one.payload for one in seen if one.kind == DATA and one.stream_id == stream_id)


# ── both ends ─────────────────────────────────────────────────────────────────────────────────────


def test_each_end_says_hello_with_its_settings_first() -> None:
    assert End(is_client=True).connection.take(0)[0].startswith(HELLO[:24])
    for is_client in (True, False):
        assert End(is_client=is_client).sent()[0].kind == SETTINGS


def test_two_ends_have_a_conversation() -> None:
    ours, theirs = End(is_client=True), End(is_client=False)

    def talk() -> list[Event]:
        heard = theirs.hear(ours.connection.take(1 << 20)[0])
        return heard + ours.hear(theirs.connection.take(1 << 20)[0])

    talk()
    stream = ours.connection.open_stream(BLOCK)
    ours.connection.send_content(stream, b"question")
    ours.connection.end(stream)
    heard = talk()
    fields = tuple((name.encode(), value.encode()) for name, value in CALL)
    assert events.HeadersReceived(stream, fields) in heard
    assert events.DataReceived(stream, b"question", 8) in heard
    assert events.StreamEnded(stream) in heard
    theirs.connection.send_head(stream, OK_BLOCK)
    theirs.connection.send_content(stream, b"answer")
    theirs.connection.end(stream, block(("grpc-status", "0")))
    heard = talk()
    assert events.DataReceived(stream, b"answer", 6) in heard
    assert heard[-2:] == [
        events.TrailersReceived(stream, ((b"grpc-status", b"0"),)),
        events.StreamEnded(stream),
    ]
    assert ours.connection.open_streams == theirs.connection.open_streams == 0


def test_our_first_block_says_that_no_table_is_used_and_the_others_do_not() -> None:
    end = server(HELLO + call(1) + call(3))
    for stream in (1, 3):
        end.connection.send_head(stream, OK_BLOCK)
    assert [one.payload for one in end.sent() if one.kind == HEADERS] == [b"\x20" + OK_BLOCK, OK_BLOCK]


def test_a_long_block_is_sent_in_pieces() -> None:
    end = server(HELLO + call(1))
    long = header_block([(b"x", b"v" * 40_000)])
    end.connection.send_head(1, long)
    seen = end.sent()
    assert [(one.kind, one.flags) for one in seen] == [(HEADERS, 0), (CONTINUATION, 0), (CONTINUATION, 4)]
    assert b"".join(one.payload for one in seen) == b"\x20" + long


# ── 5.2, 6.9: what the windows let through ────────────────────────────────────────────────────────


def test_content_waits_for_the_window_of_its_stream() -> None:
    end = server(HELLO + settings((4, 10)) + call(1))
    end.connection.send_head(1, OK_BLOCK)
    end.connection.send_content(1, b"0123456789abcde")
    end.connection.end(1, BLOCK)
    assert joined(end.sent(), 1) == b"0123456789"
    assert end.sent() == []
    end.hear(window_update(1, 3))
    assert joined(end.sent(), 1) == b"abc"
    end.hear(settings((4, 12)))
    last = end.sent()
    assert joined(last, 1) == b"de"
    assert (last[-1].kind, last[-1].flags) == (HEADERS, END_STREAM | END_HEADERS)


def test_content_waits_for_the_window_of_the_connection() -> None:
    end = server(HELLO + settings((4, 1 << 20)) + call(1))
    end.connection.send_head(1, OK_BLOCK)
    end.connection.send_content(1, bytes(70_000))
    assert len(joined(end.sent(), 1)) == 65_535
    end.hear(window_update(0, 100))
    assert len(joined(end.sent(), 1)) == 100


def test_a_window_below_zero_has_to_grow_first() -> None:
    end = server(HELLO + settings((4, 10)) + call(1))
    end.connection.send_head(1, OK_BLOCK)
    end.connection.send_content(1, bytes(20))
    end.sent()
    end.hear(settings((4, 0)))
    end.hear(window_update(1, 10))
    assert joined(end.sent(), 1) == b""
    end.hear(window_update(1, 1))
    assert len(joined(end.sent(), 1)) == 1


def test_streams_take_turns_by_the_frame() -> None:
    end = server(HELLO + call(1) + call(3))
    for stream in (1, 3):
        end.connection.send_head(stream, OK_BLOCK)
        end.connection.send_content(stream, bytes(32_000))
    assert [one.stream_id for one in end.sent() if one.kind == DATA] == [1, 3, 1, 3]


def test_a_stream_whose_window_is_shut_holds_up_no_other() -> None:
    end = server(HELLO + settings((4, 5)) + call(1) + call(3) + window_update(3, 1000))
    for stream in (1, 3):
        end.connection.send_head(stream, OK_BLOCK)
        end.connection.send_content(stream, bytes(500))
    seen = end.sent()
    assert (len(joined(seen, 1)), len(joined(seen, 3))) == (5, 500)


def test_no_more_is_taken_out_than_was_asked_for() -> None:
    end = server(HELLO + call(1))
    end.connection.send_head(1, OK_BLOCK)
    end.connection.send_content(1, bytes(60_000))
    assert joined(end.sent(None), 1) == b""
    assert len(joined(end.sent(20_000), 1)) < 40_000


def test_frames_are_as_small_as_the_other_end_wants_and_never_larger_than_ours() -> None:
    end = server(HELLO + settings((5, 1 << 20)) + call(1))
    end.connection.send_head(1, OK_BLOCK)
    end.connection.send_content(1, bytes(60_000))
    assert max(len(one.payload) for one in end.sent()) == 16_384


def test_it_is_told_which_streams_are_through() -> None:
    end = server(HELLO + call(1))
    end.connection.send_head(1, OK_BLOCK)
    end.connection.send_content(1, b"x")
    assert end.connection.take(1 << 16)[1] == [1]
    assert end.connection.take(1 << 16)[1] == []


def test_what_was_read_is_given_back_by_halves_of_the_window() -> None:
    end = server(HELLO + head(1), stream_window_bytes=100, connection_window_bytes=65_635)
    end.hear(data(1, bytes(49), ends=False))
    end.connection.give_back(1, 49)
    assert end.sent() == []
    end.hear(data(1, bytes(1), ends=False))
    end.connection.give_back(1, 1)
    assert end.sent() == [Seen(WINDOW_UPDATE, 0, 1, (50).to_bytes(4, "big"))]


def test_more_than_the_window_of_a_stream_ends_the_stream() -> None:
    end = server(HELLO + head(1), stream_window_bytes=100, connection_window_bytes=100_000)
    end.hear(data(1, bytes(101), ends=False))
    assert [(one.kind, one.code) for one in end.sent()] == [(RST_STREAM, ErrorCode.FLOW_CONTROL_ERROR)]


def test_more_than_the_window_of_the_connection_ends_it() -> None:
    end = server(HELLO + head(1), stream_window_bytes=1 << 20, connection_window_bytes=65_536)
    for _ in range(5):
        end.hear(data(1, bytes(16_384), ends=False))
    assert [(one.kind, one.code) for one in end.sent()] == [(GOAWAY, ErrorCode.FLOW_CONTROL_ERROR)]


def test_content_for_a_stream_that_we_reset_is_dropped_and_its_window_given_back() -> None:
    end = server(HELLO + head(1), connection_window_bytes=65_536)
    end.connection.reset(1, ErrorCode.CANCEL)
    for _ in range(8):
        assert end.hear(data(1, bytes(16_000), ends=False)) == []
    assert {one.kind for one in end.sent()} == {RST_STREAM, WINDOW_UPDATE}


# ── streams ───────────────────────────────────────────────────────────────────────────────────────


def test_streams_beyond_the_limit_are_refused_and_the_others_live() -> None:
    end = server(HELLO + head(1), streams=1)
    end.hear(head(3))
    assert [(one.stream_id, one.code) for one in end.sent()] == [(3, REFUSED_STREAM)]
    assert events.StreamEnded(1) in end.hear(data(1))


def test_an_answer_before_the_end_of_the_request_ends_the_stream_without_an_error() -> None:
    end = server(HELLO + head(1))
    end.connection.end(1, OK_BLOCK)
    seen = end.sent()
    assert [(one.kind, one.flags) for one in seen] == [(HEADERS, END_STREAM | END_HEADERS), (RST_STREAM, 0)]
    assert seen[-1].code == ErrorCode.NO_ERROR
    assert end.hear(data(1)) == []


def test_a_server_that_leaves_takes_no_more_streams_and_ends_those_that_it_has() -> None:
    end = server(HELLO + head(1))
    end.connection.go_away()
    assert [(one.kind, one.payload[:4]) for one in end.sent()] == [(GOAWAY, b"\0\0\0\1")]
    assert end.hear(call(3) + reset(5) + window_update(7, 1)) == []
    assert events.StreamEnded(1) in end.hear(data(1))


def test_nothing_is_taken_after_the_end() -> None:
    end = server(HELLO + data(1))
    assert end.connection.is_over
    assert end.hear(call(1)) == []


def test_a_reset_drops_what_was_to_be_sent() -> None:
    end = server(HELLO + settings((4, 0)) + call(1))
    end.connection.send_head(1, OK_BLOCK)
    end.connection.send_content(1, b"x")
    end.sent()
    assert end.hear(reset(1)) == [events.StreamReset(1, ErrorCode.CANCEL, "")]
    end.hear(window_update(1, 100))
    assert end.sent() == []


def test_what_is_said_on_a_stream_that_is_over_goes_nowhere() -> None:
    end = server(HELLO + call(1) + reset(1))
    end.connection.send_head(1, OK_BLOCK)
    end.connection.send_content(1, b"x")
    end.connection.end(1)
    end.connection.reset(1, ErrorCode.CANCEL)
    end.connection.give_back(1, 5)
    assert end.sent() == []


# ── a client ──────────────────────────────────────────────────────────────────────────────────────


def asked() -> End:
    end = client()
    assert end.connection.open_stream(BLOCK) == 1
    end.connection.end(1)
    end.sent()
    return end


def answer(*fields: tuple[str, str], ends: bool = False, stream_id: int = 1) -> bytes:
    return frame(HEADERS, END_HEADERS | (END_STREAM if ends else 0), stream_id, block(*fields))


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (answer(("x", "1")), PROTOCOL_ERROR),
        (answer((":status", "2000")), PROTOCOL_ERROR),
        (answer((":status", "ok")), PROTOCOL_ERROR),
        (answer((":path", "/")), PROTOCOL_ERROR),
        (answer((":status", "100"), ends=True), PROTOCOL_ERROR),
        (data(1), PROTOCOL_ERROR),
        (answer(*OK) + answer(*OK), PROTOCOL_ERROR),
        (answer(*OK, ("content-length", "3")) + data(1, b"1234"), PROTOCOL_ERROR),
    ],
)
def test_a_malformed_answer_ends_its_stream(said: bytes, code: int) -> None:
    end = asked()
    heard = end.hear(said)
    assert [(one.kind, one.code) for one in end.sent()] == [(RST_STREAM, code)]
    assert isinstance(heard[-1], events.StreamReset)
    assert heard[-1].why


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (answer(*OK, stream_id=2), PROTOCOL_ERROR),
        (answer(*OK, stream_id=3), PROTOCOL_ERROR),
        (frame(PUSH_PROMISE, 4, 1, bytes(4)), PROTOCOL_ERROR),
        (settings((2, 1)), PROTOCOL_ERROR),
        (answer(*OK, ends=True) + data(1), STREAM_CLOSED),
        (frame(DATA, 0, 1, bytes(16_385)), FRAME_SIZE_ERROR),
        (answer((":status", "103")) * 1200, ENHANCE_YOUR_CALM),
    ],
)
def test_an_answer_against_the_rules_of_the_connection_ends_it(said: bytes, code: int) -> None:
    end = asked()
    heard = end.hear(said)
    assert [(one.kind, one.code) for one in end.sent() if one.kind == GOAWAY] == [(GOAWAY, code)]
    assert isinstance(heard[-1], events.ConnectionEnded)


def test_an_answer_that_says_to_wait_is_passed_over() -> None:
    end = asked()
    heard = end.hear(answer((":status", "100")) + answer(*OK, ends=True))
    assert [type(one) for one in heard] == [events.HeadersReceived, events.StreamEnded]


def test_a_client_opens_no_more_streams_than_the_server_takes() -> None:
    end = End(is_client=True)
    end.hear(settings((3, 1)))
    end.connection.open_stream(BLOCK)
    assert not end.connection.can_open
    with pytest.raises(MisuseError):
        end.connection.open_stream(BLOCK)
    end.connection.reset(1, ErrorCode.CANCEL)
    assert end.connection.open_stream(BLOCK) == 3


def test_a_server_that_leaves_is_asked_nothing_more() -> None:
    end = asked()
    gone = frame(GOAWAY, 0, 0, (1).to_bytes(4, "big") + bytes(4) + b"bye")
    assert end.hear(gone) == [events.GoAwayReceived(1, 0, "bye")]
    assert end.connection.is_used_up
    assert events.StreamEnded(1) in end.hear(answer(*OK, ends=True))
