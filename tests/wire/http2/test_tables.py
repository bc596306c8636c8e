"""The tables and small rules by themselves: states, windows, blocks of header fields, floods."""

from __future__ import annotations

from itertools import product

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.wire.http2.errors import (
    ConnectionFaultError,
    ErrorCode,
    MisuseError,
    StreamFaultError,
    code_name,
)
from devplug.wire.http2.flow_control import (
    FORGIVEN_PER_SECOND,
    STRIKES_LIMIT,
    WINDOW_LIMIT,
    FloodGuard,
    ReceiveWindow,
    SendWindow,
)
from devplug.wire.http2.frames import Headers
from devplug.wire.http2.headers import BlockReader, header_block
from devplug.wire.http2.streams import STEPS, WRONG, State, Step, after


def test_each_step_of_the_other_end_is_right_or_wrong_and_nothing_is_both() -> None:
    theirs = [step for step in Step if step.name.startswith("RECEIVE")]
    for pair in product(State, theirs):
        assert (pair in STEPS) != (pair in WRONG), pair
    assert not [pair for pair in WRONG if pair[1].name.startswith("SEND")]


@pytest.mark.parametrize(
    "pair", list(product(State, Step)), ids=lambda pair: f"{pair[0].name}-{pair[1].name}"
)
def test_a_step_leads_where_the_table_says_or_raises_the_fault_of_who_took_it(
    pair: tuple[State, Step],
) -> None:
    if pair in STEPS:
        assert after(*pair, 7) is STEPS[pair]
    elif pair in WRONG:
        fault = ConnectionFaultError if WRONG[pair].ends_connection else StreamFaultError
        with pytest.raises(fault) as caught:
            after(*pair, 7)
        assert getattr(caught.value, "code", None) is WRONG[pair].code
    else:
        with pytest.raises(MisuseError):
            after(*pair, 7)


def test_no_step_leads_back_from_the_end() -> None:
    assert {STEPS[pair] for pair in STEPS if pair[0] is State.CLOSED} == {State.CLOSED}
    assert State.IDLE not in STEPS.values()


@given(st.lists(st.integers(0, 5000)))
def test_a_window_that_is_read_never_shuts(sizes: list[int]) -> None:
    window = ReceiveWindow(10_000)
    allowed = 10_000
    for size in sizes:
        assert size <= allowed
        assert window.take(size)
        allowed += window.give_back(size) - size
        assert 0 <= 10_000 - allowed <= 5000


def test_a_window_that_nobody_reads_takes_what_it_has_and_no_byte_more() -> None:
    window = ReceiveWindow(100)
    assert window.take(100)
    assert not window.take(1)


def test_a_window_grows_to_its_limit_and_not_beyond() -> None:
    window = SendWindow()
    assert window.grow(WINDOW_LIMIT - window.room)
    assert not window.grow(1)


FIELDS = [(b":path", b"/a"), (b"content-type", b"application/grpc"), (b"grpc-timeout", b"5S")]


def test_a_block_is_read_by_others_as_it_was_meant() -> None:
    assert [tuple(field) for field in hpack.Decoder().decode(header_block(FIELDS), raw=True)] == FIELDS


def test_blocks_leave_no_trace_in_the_table_of_the_other_end() -> None:
    decoder = hpack.Decoder()
    decoder.decode(header_block(FIELDS))
    assert len(decoder.header_table.dynamic_entries) == 0
    assert header_block(FIELDS[:1]) + header_block(FIELDS[1:]) == header_block(FIELDS)


def read(reader: BlockReader, block: bytes) -> list[tuple[bytes, bytes]]:
    return list(reader.begin(Headers(1, block, ends_stream=False, ends_headers=True)) or ())


SOME_FIELDS = [*FIELDS, (b"x", b"1"), (b"x", b"2"), (b"y", b"1" * 200), (b"z" * 127, b"1")]


@given(st.lists(st.lists(st.tuples(st.sampled_from(SOME_FIELDS), st.booleans()))))
def test_blocks_mean_the_same_whether_they_were_seen_before(
    lists: list[list[tuple[tuple[bytes, bytes], bool]]],
) -> None:
    """What a block of indices means changes with the table; it may be remembered only until then.

    Fields that are never indexed leave the table as it is.
    """
    encoder, reader = hpack.Encoder(), BlockReader()
    for fields in lists:
        for _ in range(2):
            block = encoder.encode([(name, value, is_secret) for (name, value), is_secret in fields])
            assert read(reader, block) == [field for field, _ in fields]


def test_a_block_that_is_never_indexed_is_decoded_once() -> None:
    reader = BlockReader()
    block = header_block(FIELDS)
    first = reader.begin(Headers(1, block, ends_stream=False, ends_headers=True))
    assert reader.begin(Headers(3, block, ends_stream=False, ends_headers=True)) is first


def test_a_block_of_one_index_means_another_field_when_the_table_has_changed() -> None:
    reader = BlockReader()
    literal = b"\x40\x01x\x01"
    assert read(reader, literal + b"1") == [(b"x", b"1")]
    assert read(reader, b"\xbe") == [(b"x", b"1")]
    assert read(reader, literal + b"2") == [(b"x", b"2")]
    assert read(reader, b"\xbe") == [(b"x", b"2")]


def test_the_guard_gives_up_after_its_limit_and_comes_back_with_time() -> None:
    floods = FloodGuard()
    assert all(floods.strike(0.0) for _ in range(STRIKES_LIMIT))
    assert not floods.strike(0.0)
    assert floods.strike(2 / FORGIVEN_PER_SECOND)


def test_the_guard_bears_for_ever_a_client_that_asks_after_each_answer() -> None:
    floods = FloodGuard()
    for _ in range(3 * STRIKES_LIMIT):
        assert floods.strike(0.0)
        floods.reward()


def test_codes_have_names_and_unknown_ones_numbers() -> None:
    assert code_name(ErrorCode.CANCEL) == "CANCEL"
    assert code_name(0x77) == "error code 0x77"
