"""Frames and messages: ten million that no right peer sends, at their readers, and beside google.protobuf."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from devplug.wire.http2 import events
from devplug.wire.http2.connection import Connection, Limits
from devplug.wire.http2.errors import ErrorCode
from devplug.wire.http2.headers import header_block
from devplug.wire.protobuf import decode
from devplug.wire.wireformat import MalformedError
from tests.wire.messy import messy
from tests.wire.referee import NAMES, agree, plain, verdict
from torture.catalogue import Round, case
from torture.footprint import nothing_kept
from torture.wire_bytes import HELLO, answers, chain, frames, raw, spoilt

if TYPE_CHECKING:
    from torture.catalogue import Trial

AT_ONCE = 100
"""Frames of one round."""

WARM_UP_DIVISOR = 20
"""What part of the rounds comes before: by the 5,000th the C library has the memory that it keeps."""

LIMITS = Limits(streams=16, stream_window_bytes=1 << 16, connection_window_bytes=1 << 17)
REQUEST = header_block([(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a")])


WRONG: Final = (
    (16_385).to_bytes(3, "big") + bytes(5) + b"\1",
    raw(0, 0x8, 1, b"\5abc"),
    raw(0, 0, 0, b"a"),
    raw(1, 0x24, 3, bytes(4)),
    raw(1, 0x4, 0, REQUEST),
    raw(3, 0, 1, bytes(3)),
    raw(3, 0, 0, bytes(4)),
    raw(4, 0, 0, bytes(5)),
    raw(4, 0, 1, b""),
    raw(4, 1, 0, bytes(6)),
    raw(5, 0x4, 1, bytes(4) + REQUEST),
    raw(6, 0, 0, bytes(7)),
    raw(6, 0, 1, bytes(8)),
    raw(7, 0, 0, bytes(7)),
    raw(8, 0, 0, bytes(4)),
    raw(8, 0, 0, bytes(3)),
    raw(8, 0, 0, b"\x7f\xff\xff\xff"),
    raw(9, 0x4, 1, REQUEST),
)
"""Frames that end a server's connection, whose stream 1 is open, by what they are (RFC 9113, section 6)."""


class End:
    """A connection that is sent anything; it answers, and it gives back what it reads."""

    def __init__(self, *, is_client: bool) -> None:
        self.is_client = is_client
        self.connection = Connection(is_client=is_client, limits=LIMITS)
        if is_client:
            self.connection.receive(HELLO[24:], 0.0)
            for _ in range(10):
                self.connection.end(self.connection.open_stream(REQUEST))
        else:
            self.connection.receive(HELLO, 0.0)
        self.sent = self.connection.take(1 << 16)[0]

    def hear(self, content: bytes, random: Random) -> None:
        """Take bytes, and do with what they mean what a careless user might."""
        for event in self.connection.receive(content, 0.0):
            if isinstance(event, events.DataReceived):
                self.connection.give_back(event.stream_id, event.size)
            elif isinstance(event, events.HeadersReceived) and not self.is_client:
                self.connection.send_head(event.stream_id, REQUEST)
                self.connection.send_content(event.stream_id, bytes(random.randrange(20_000)))
            elif isinstance(event, events.StreamEnded) and not self.is_client:
                self.connection.end(event.stream_id, REQUEST)
        if random.random() < 0.05:
            self.connection.reset(random.randrange(20), ErrorCode.CANCEL)
        self.sent = self.connection.take(random.choice((None, 1000, 1 << 16)))[0]


@case(
    "wire-frames",
    fault="X30",
    promise="Whatever frames come, a connection goes on or ends with a reason, and no limit is passed",
    count=10_000_000,
    unit="frames",
    invariants="I3 I4",
    limit_seconds=1200,
)
async def wire_frames(trial: Trial) -> None:
    """Send frames in any order, whole and spoilt, to both ends."""
    # The frames to choose from are the same for each round, so that one can be played by itself.
    pools = {
        is_client: frames(Random(f"{trial.seed}/pool"), of_client=not is_client)
        for is_client in (False, True)
    }
    ended = 0
    rounds = max(1, trial.count // AT_ONCE)
    for number in range(rounds // WARM_UP_DIVISOR):
        _one_round(trial, Round(-1, Random(number)), pools[number % 2 == 1], is_client=number % 2 == 1)
    async with nothing_kept(trial):
        for turn in trial.rounds(rounds):
            is_client = turn.number % 2 == 1
            ended += _one_round(trial, turn, pools[is_client], is_client=is_client)
            trial.done += AT_ONCE - 1
    trial.figure("connections ended", ended)


def _one_round(trial: Trial, turn: Round, pool: list[bytes], *, is_client: bool) -> int:
    random = turn.random
    chosen = random.choices(pool, k=AT_ONCE)
    if random.random() < 0.02:
        _hear_wrong(trial, turn)
    if random.random() < 0.2:
        chosen.append(chain(random, of_client=not is_client))
    ended = 0
    end = End(is_client=is_client)
    while chosen:
        batch = [chosen.pop() for _ in range(min(len(chosen), random.choice((1, 1, 3, 20))))]
        content = b"".join(batch)
        if random.random() < 0.02:
            content = spoilt(random, content)
        end.hear(content, random)
        _judge(trial, turn, end)
        if end.connection.is_over:
            ended += 1
            end = End(is_client=is_client)
    return ended


def _hear_wrong(trial: Trial, turn: Round) -> None:
    """Send one frame that cannot be, to a connection that is in order: it must not go on."""
    wrong = turn.random.choice(WRONG)
    end = End(is_client=False)
    end.connection.receive(raw(1, 0x4, 1, REQUEST), 0.0)
    trial.check(not end.connection.is_over, "I4: a right request ends it", turn.number)
    end.hear(wrong, turn.random)
    trial.check(end.connection.is_over, f"I4: it goes on after {wrong[:40].hex()}", turn.number)


def _judge(trial: Trial, turn: Round, end: End) -> None:
    connection = end.connection
    limit = 10 if end.is_client else LIMITS.streams
    trial.check(connection.open_streams <= limit, "I4: more streams than allowed", turn.number)
    try:
        said = answers(end.sent)
    except ValueError:
        trial.broke("I4: half a frame was sent", turn.number)
        return
    if connection.is_over:
        trial.check(any(kind == 7 for kind, *_ in said), "I4: an end without a word", turn.number)
    for kind, _, _, payload in said:
        trial.check(kind <= 9 and len(payload) <= 1 << 14, "I4: a frame of no known form", turn.number)


@case(
    "wire-messages",
    fault="X31",
    promise="Of any bytes for any message of the APIs, our codec thinks as google.protobuf does",
    count=500_000,
    unit="messages",
    invariants="I4",
    limit_seconds=600,
)
async def wire_messages(trial: Trial) -> None:
    """Hold verdict against verdict."""
    layouts = {name: plain(name) for name in NAMES}
    taken = 0
    for turn in trial.rounds():
        name = NAMES[turn.number % len(NAMES)]
        is_deep = turn.random.random() < 0.01
        content = _nested(turn.random) if is_deep else messy(turn.random, layouts[name])
        try:
            ours, why = decode(layouts[name], content), ""
        except MalformedError as error:
            ours, why = None, str(error)
        taken += ours is not None
        trial.check(agree(ours, verdict(name, content), why), f"I4: {name} {content.hex()}", turn.number)
    trial.figure("taken", taken)


def _nested(random: Random) -> bytes:
    """Return groups of unknown fields within each other, about as deep as anybody reads them."""
    depth = random.randint(90, 110)
    return b"\xc3\x3e" * depth + b"\xc4\x3e" * depth
