"""Each rule of HTTP/2: without I/O, all at once and byte by byte; and against our server on its socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from devplug.wire import deviceplugin
from devplug.wire.http2.connection import Connection, Limits
from devplug.wire.http2.events import Event, StreamEnded
from devplug.wire.sockets import Listener, connected, unary
from devplug.wire.values import PluginOptions
from tests.wire.http2.made import DATA, GOAWAY, HEADERS, PING, RST_STREAM, Seen, call, frames_in, ping
from tests.wire.http2.rules import RULES, Ends, Resets, Rule

NEXT_STREAM = 101
"""On which a call may follow."""


class Judged:
    """A server that ends each stream when its client has, and what it has sent."""

    def __init__(self) -> None:
        self.connection = Connection(is_client=False, limits=Limits(streams=2000))
        self.sent = b""

    def hear(self, pieces: Iterable[bytes]) -> list[Event]:
        events = []
        for piece in pieces:
            events += self.connection.receive(piece, 0.0)
            self.sent += self.connection.take(1 << 16)[0]
        return events


def check(rule: Rule, pieces: list[bytes]) -> None:
    judged = Judged()
    judged.hear(pieces)
    seen = frames_in(judged.sent)
    codes = [one.code for one in seen if one.kind == GOAWAY]
    if isinstance(rule.outcome, Ends):
        assert codes == [rule.outcome.code]
        assert judged.connection.is_over
        return
    resets = [(one.stream_id, one.code) for one in seen if one.kind == RST_STREAM]
    if isinstance(rule.outcome, Resets):
        assert (rule.outcome.stream_id, rule.outcome.code) in resets
    else:
        assert not resets
    assert not codes
    events = judged.hear([call(NEXT_STREAM), ping(b"lastping")])
    assert StreamEnded(NEXT_STREAM) in events
    last = frames_in(judged.sent)[-1]
    assert (last.kind, last.payload) == (PING, b"lastping")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_server_keeps_the_rule(rule: Rule) -> None:
    check(rule, [rule.sent])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_server_keeps_the_rule_byte_by_byte(rule: Rule) -> None:
    content = rule.sent
    check(rule, [content[start : start + 1] for start in range(len(content))])


async def options(_: None) -> PluginOptions:
    return PluginOptions(pre_start_required=True)


async def answer_to(path: Path, content: bytes, *, closes: bool) -> list[Seen]:
    """What a server says to bytes: until it closes, or until it has answered a last PING."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(content)
        heard = bytearray()
        while closes or b"lastping" not in heard:
            try:
                piece = await reader.read(1 << 16)
            except ConnectionResetError:
                break  # it closed while more was under way to it
            if not piece:
                break
            heard += piece
        return frames_in(bytes(heard))
    finally:
        writer.close()


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if not rule.only_before_answer], ids=lambda rule: rule.name
)
async def test_the_server_keeps_the_rule_on_its_socket(short_dir: Path, rule: Rule) -> None:
    listener = Listener(short_dir / "p.sock", (unary(deviceplugin.GET_OPTIONS, options),))
    await listener.bind()
    async with connected(listener.path) as other:
        ends = isinstance(rule.outcome, Ends)
        more = b"" if ends else call(NEXT_STREAM) + ping(b"lastping")
        seen = await answer_to(listener.path, rule.sent + more, closes=ends)
        codes = [one.code for one in seen if one.kind == GOAWAY]
        if isinstance(rule.outcome, Ends):
            assert codes == [rule.outcome.code]
        else:
            assert not codes
            assert any(one.kind == PING for one in seen)
        if isinstance(rule.outcome, Resets):
            expected = (rule.outcome.stream_id, rule.outcome.code)
            assert expected in [(one.stream_id, one.code) for one in seen if one.kind == RST_STREAM]
        assert await other.call(deviceplugin.GET_OPTIONS, None) == PluginOptions(pre_start_required=True)
    await listener.close()


async def test_a_call_made_by_hand_is_answered(short_dir: Path) -> None:
    listener = Listener(short_dir / "p.sock", (unary(deviceplugin.GET_OPTIONS, options),))
    await listener.bind()
    reader, writer = await asyncio.open_unix_connection(listener.path)
    rule = next(rule for rule in RULES if rule.name == "5.1.1: numbers may be left out")
    writer.write(rule.sent)
    heard = bytearray()
    while [one.kind for one in _whole(heard) if one.stream_id].count(HEADERS) < 2:
        heard += await reader.read(1 << 16)
    assert [one.payload for one in _whole(heard) if one.kind == DATA] == [b"\0\0\0\0\2\x08\1"]
    writer.close()
    await listener.close()


def _whole(heard: bytearray) -> list[Seen]:
    try:
        return frames_in(bytes(heard))
    except AssertionError:
        return []
