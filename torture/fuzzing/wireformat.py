"""Protobuf messages made wrong with knowledge of the wire format: fields, and what a field may lie about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)

DEPTH_LIMIT: Final = 6
"""How deep bytes are taken for messages: the deepest of ours, a NUMA node of a container, is so deep."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field as it is written; `lie` is added to the length that it states."""

    number: int
    wire_type: int
    value: int | bytes | tuple[Part, ...]
    lie: int = 0


Part: TypeAlias = "Field | bytes"
"""A field, or bytes that are written as they are."""

Parts: TypeAlias = "tuple[Part, ...]"


def varint(number: int) -> bytes:
    """Return a number as protobuf writes it; a negative one as 64 bits."""
    number %= 1 << 64
    content = bytearray()
    while number > 0x7F:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    content.append(number)
    return bytes(content)


def fields_of(content: bytes, depth: int = 0) -> Parts | None:
    """Return the fields of a message; None if it is none. What looks like a message inside is one."""
    found: list[Part] = []
    at = 0
    try:
        while at < len(content):
            tag, at = _number(content, at)
            number, wire_type = tag >> 3, tag & 7
            if wire_type == VARINT and number:
                value, at = _number(content, at)
                found.append(Field(number, VARINT, value))
            elif wire_type == BYTES and number:
                length, at = _number(content, at)
                if at + length > len(content):
                    return None
                piece = content[at : at + length]
                at += length
                inner = fields_of(piece, depth + 1) if piece and depth < DEPTH_LIMIT else None
                found.append(Field(number, BYTES, piece if inner is None else inner))
            else:
                return None
    except IndexError:
        return None
    return tuple(found)


def _number(content: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(10):
        byte = content[at + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise IndexError


def written(parts: Parts) -> bytes:
    """Return the bytes of fields, with their lies."""
    return b"".join(map(_written, parts))


def _written(part: Part) -> bytes:
    if isinstance(part, bytes):
        return part
    tag = varint(part.number << 3 | part.wire_type)
    match part.value:
        case int(number):
            content = varint(number)
        case bytes(content):
            pass
        case inner:
            content = written(inner)
    return tag + varint(len(content) + part.lie) + content if part.wire_type == BYTES else tag + content


# ── changes of one field ──────────────────────────────────────────────────────────────────────────

NUMBERS: Final = (0, 1, -1, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63 - 1, 2**63, 2**64 - 1)

TEXTS: Final = (
    *(b"", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"a\0b", b"\xef\xbb\xbf", b"\n", b"%s", b"..", b"/"),
    *(b"Healthy", b"healthy", b"Unhealthy", b"v1beta1", b"d0", b"d1", b"\xf0\x9f\x92\xa3", b"x" * 64),
    *(b"y" * 300, b"example.com/a", b"kubernetes.io/x", b"../../x.sock", b"kubelet.sock"),
)


def _other_number(field: Field, random: Random) -> Parts:
    number = random.choice((*range(1, 9), 15, 16, 2047, 2048, 19000, 2**29 - 1, 0, 2**29))
    return (replace(field, number=number),)


def _other_type(field: Field, random: Random) -> Parts:
    return (replace(field, wire_type=random.randrange(8)),)


def _other_value(field: Field, random: Random) -> Parts:
    if field.wire_type == VARINT:
        return (replace(field, value=random.choice(NUMBERS)),)
    return (replace(field, value=random.choice(TEXTS)),)


def _lying(field: Field, random: Random) -> Parts:
    return (replace(field, lie=random.choice((-1, 1, 2, 127, 2**31 - 1, 2**31, 2**32, 2**63))),)


def _gone(_: Field, __: Random) -> Parts:
    return ()


def _again(field: Field, random: Random) -> Parts:
    return (field,) * random.choice((2, 3, 20))


def _overlong(field: Field, random: Random) -> Parts:
    """Write a tag longer than it needs to be, as no writer does; at eleven bytes it is none any more."""
    tag = varint(field.number << 3 | field.wire_type)
    padding = bytes([tag[-1] | 0x80]) + b"\x80" * random.randrange(10) + b"\x00"
    return (tag[:-1] + padding, _written(replace(field, number=0))[1:])


def _in_groups(field: Field, random: Random) -> Parts:
    depth = random.choice((1, 2, 50, 99, 100, 101, 2_000))
    opened = varint(field.number << 3 | GROUP) * depth
    return (opened, field, varint(field.number << 3 | END_GROUP) * (depth - random.choice((0, 0, 1))))


def _packed(field: Field, random: Random) -> Parts:
    """Make of a number a packed list of them, and the other way round."""
    numbers = tuple(varint(random.choice(NUMBERS)) for _ in range(random.randint(0, 5)))
    if field.wire_type == VARINT:
        return (Field(field.number, BYTES, b"".join(numbers)),)
    return tuple(Field(field.number, VARINT, number) for number in numbers)


def _unknown(field: Field, random: Random) -> Parts:
    return (field, Field(random.randint(90, 110), BYTES, random.choice(TEXTS)))


def _in_itself(field: Field, random: Random) -> Parts:
    tag, content = varint(field.number << 3 | BYTES), _written(field)
    for _ in range(random.choice((1, 2, 10, 40, 99, 101, 200))):
        content = tag + varint(len(content)) + content
    return (content,)


_CHANGES: Final[tuple[Callable[[Field, Random], Parts], ...]] = (
    *(_other_number, _other_type, _other_value, _other_value, _lying, _gone, _again),
    *(_overlong, _in_groups, _packed, _unknown, _in_itself),
)


def mutated_message(content: bytes, random: Random) -> bytes:
    """Return a message with one to three of its fields changed, at any depth; if it is one, else as it is."""
    parts = fields_of(content)
    if not parts:
        return content
    for _ in range(random.choice((1, 1, 2, 3))):
        parts = _changed(parts, random)
    return written(parts)


def _changed(parts: Parts, random: Random) -> Parts:
    if not parts:
        return parts
    at = random.randrange(len(parts))
    part = parts[at]
    if isinstance(part, bytes):
        return parts
    if isinstance(part.value, tuple) and random.random() < 0.7:
        changed: Parts = (replace(part, value=_changed(part.value, random)),)
    elif len(parts) > 1 and random.random() < 0.1:
        return tuple(random.sample(parts, len(parts)))
    else:
        changed = random.choice(_CHANGES)(part, random)
    return parts[:at] + changed + parts[at + 1 :]
