"""Each rule of HTTP/2, against what makes no I/O: all at once, and byte by byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from devplug.wire.http2.connection import Connection, Limits
from devplug.wire.http2.events import StreamEnded
from tests.wire.http2.made import GOAWAY, PING, RST_STREAM, call, frames_in, ping
from tests.wire.http2.rules import RULES, Ends, Resets, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.wire.http2.events import Event


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
    events = judged.hear([call(rule.next_stream), ping(b"lastping")])
    assert StreamEnded(rule.next_stream) in events
    last = frames_in(judged.sent)[-1]
    assert (last.kind, last.payload) == (PING, b"lastping")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.section}: {rule.sentence}")
def test_a_server_keeps_the_rule(rule: Rule) -> None:
    check(rule, [rule.content])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.section}: {rule.sentence}")
def test_a_server_keeps_the_rule_byte_by_byte(rule: Rule) -> None:
    content = rule.content
    check(rule, [content[start : start + 1] for start in range(len(content))])
