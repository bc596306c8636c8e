"""Bytes that are nearly messages: right in most places, and wrong as chance has it."""

from __future__ import annotations

from random import Random
from typing import Any

from devplug.wire.protobuf import Field, Kind, Layout
from devplug.wire.wireformat import varint

NUMBERS = (1, 2, 3, 15, 16, 99, (1 << 29) - 1, 1 << 29)
TEXTS = (b"", b"a", b"abc", "é".encode(), b"\xff", b"\xed\xa0\x80", b"\0", b"\xf4\x90\x80\x80")

PAIR: Layout[Any] = Layout(
    "pair", (Field(1, "key"), Field(2, "value")), lambda value: value, lambda *parts: parts
)


def messy(random: Random, layout: Layout[Any] | None, depth: int = 0) -> bytes:
    """Fields of a layout and others; a few are cut, too long, of the wrong form, or spelt oddly."""
    out = b"".join(_field(random, layout, depth) for _ in range(random.randrange(5)))
    if out and random.random() < 0.05:
        out = out[: random.randrange(len(out))]
    if out and random.random() < 0.05:
        place = random.randrange(len(out))
        out = out[:place] + bytes([random.randrange(256)]) + out[place + 1 :]
    return out


def _field(random: Random, layout: Layout[Any] | None, depth: int) -> bytes:
    known = random.choice(layout.fields) if layout and layout.fields and random.random() < 0.8 else None
    if known is None:
        number, wire_type = random.choice(NUMBERS), random.choice((0, 1, 2, 3, 5, random.randrange(8)))
    else:
        number, wire_type = known.number, 0 if known.is_number else 2
        if known.is_number and known.is_repeated and random.random() < 0.5:
            wire_type = 2
        if random.random() < 0.05:
            wire_type = random.randrange(8)
    head = _odd(random, varint(number << 3 | wire_type))
    if wire_type == 0:
        return head + _number(random)
    if wire_type == 2:
        content = _content(random, known, depth)
        return head + _odd(random, varint(len(content))) + content
    if wire_type == 3:
        inside = messy(random, None, depth + 1) if depth < 6 else b""
        return head + inside + (varint(number << 3 | 4) if random.random() < 0.9 else b"")
    return head + random.randbytes({1: 8, 5: 4}.get(wire_type, 0))


def _content(random: Random, field: Field | None, depth: int) -> bytes:
    if field is not None and field.is_number:
        return b"".join(_number(random) for _ in range(random.randrange(4)))
    inner = PAIR if field is not None and field.kind is Kind.MAP else field.layout if field else None
    if depth < 6 and (inner or random.random() < 0.2):
        return messy(random, inner, depth + 1)
    return random.choice(TEXTS)


def _number(random: Random) -> bytes:
    chance = random.random()
    if chance < 0.6:
        return bytes([random.randrange(128)])
    if chance < 0.8:
        return varint(random.getrandbits(random.randrange(1, 65)))
    length = random.randrange(1, 12)
    return bytes(random.randrange(128, 256) for _ in range(length - 1)) + bytes([random.randrange(128)])


def _odd(random: Random, number: bytes) -> bytes:
    """Mostly the same; now and then with zeros that make it longer, or another number."""
    chance = random.random()
    if chance < 0.03:
        return number[:-1] + bytes([number[-1] | 0x80]) + b"\x80" * random.randrange(5) + b"\0"
    return _number(random) if chance < 0.04 else number
