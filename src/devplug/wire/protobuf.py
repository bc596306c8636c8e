"""Protocol Buffers, as much as the kubelet's APIs use: layouts of messages as data, values ⇄ bytes by them.

It decides as google.protobuf does, which the tests hold it against: unknown fields are skipped, the last of
several values wins and messages are merged, numbers come packed or one by one, text is UTF-8, and what is cut
off, too deep or too long is malformed. Pure.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from msgspec import Struct

from devplug.wire.limits import ELEMENTS_LIMIT
from devplug.wire.wireformat import (
    LENGTH,
    VARINT,
    Bounds,
    MalformedError,
    TooManyElementsError,
    read_span,
    read_tag,
    read_varint,
    skipped,
    varint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Value = TypeVar("Value")

DEPTH_LIMIT: Final = 100
"""How deep messages and groups may be nested, as in google.protobuf."""


class Kind(Enum):
    """The type of a field."""

    STRING = auto()
    BOOL = auto()
    INT32 = auto()
    INT64 = auto()
    UINT64 = auto()
    MESSAGE = auto()
    """What the layout of the field says."""
    MAP = auto()
    """Text by text; on the wire a message for each pair."""


class Field(Struct, frozen=True):
    """One field of a message. Its name is for readers and tests: only the number crosses a socket."""

    number: int
    name: str
    kind: Kind = Kind.STRING
    layout: Layout[Any] | None = None
    is_repeated: bool = False
    is_optional: bool = False
    """Whether a missing text differs from an empty one; without a value it is None."""

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers, which come without a length."""
        return self.kind not in {Kind.STRING, Kind.MESSAGE, Kind.MAP}


class Layout(Generic[Value]):
    """A message: its fields in the order of their numbers, and what they have to do with our value.

    `parts` takes a value apart, into one part for each field; `value` puts it together again. There a
    repeated field is a list, and a message that is missing None.
    """

    def __init__(
        self,
        name: str,
        fields: Sequence[Field],
        parts: Callable[[Value], Sequence[Any]],
        value: Callable[..., Value],
    ) -> None:
        self.name = name
        self.fields = tuple(fields)
        self.parts = parts
        self.value = value
        self.writers = tuple(_writer(one) for one in fields)
        self.readers = {
            tag: (index, reader) for index, one in enumerate(fields) for tag, reader in _readers(one).items()
        }
        self.single_messages = tuple(
            (index, one.layout) for index, one in enumerate(fields) if one.layout and not one.is_repeated
        )

    def empty(self) -> list[Any]:
        """Return the slots of a message without any field: one for each field."""
        return [_nothing(one) for one in self.fields]


def _nothing(field: Field) -> Any:  # noqa: ANN401 -- a list, a dict, a text, a number or None
    if field.is_repeated:
        return []
    if field.kind is Kind.MAP:
        return {}
    if field.kind is Kind.MESSAGE or field.is_optional:
        return None
    return "" if field.kind is Kind.STRING else field.kind is not Kind.BOOL and 0


# ── value → bytes ─────────────────────────────────────────────────────────────────────────────────

_Writer: TypeAlias = "Callable[[list[bytes], Any], None]"

_RANGES: Final = {
    Kind.BOOL: range(2),
    Kind.INT32: range(-(1 << 31), 1 << 31),
    Kind.INT64: range(-(1 << 63), 1 << 63),
    Kind.UINT64: range(1 << 64),
}


def encode(layout: Layout[Value], value: Value) -> bytes:
    """Return the bytes of a value; equal values have equal ones. Raises ValueError for a large number."""
    out: list[bytes] = []
    for write, part in zip(layout.writers, layout.parts(value), strict=True):
        write(out, part)
    return b"".join(out)


def _writer(field: Field) -> _Writer:
    """Return what writes a part of this field; nothing is written where it is as in an empty message."""
    wire_type = VARINT if field.is_number and not field.is_repeated else LENGTH
    head = varint(field.number << 3 | wire_type)
    if field.is_number:
        return partial(_write_numbers if field.is_repeated else _write_number, head, field.kind)
    if field.kind is Kind.MAP:
        return partial(_write_map, head)
    if field.layout is not None:
        return partial(_write_messages if field.is_repeated else _write_message, head, field.layout)
    if field.is_repeated:
        return partial(_write_texts, head)
    return partial(_write_text, head, None if field.is_optional else "")


def _write_text(head: bytes, nothing: str | None, out: list[bytes], text: str | None) -> None:
    if text is not None and text != nothing:
        content = text.encode()
        out += (head, varint(len(content)), content)


def _write_texts(head: bytes, out: list[bytes], texts: Sequence[str]) -> None:
    for text in texts:
        content = text.encode()
        out += (head, varint(len(content)), content)


def _write_number(head: bytes, kind: Kind, out: list[bytes], number: int) -> None:
    if number:
        out += (head, _number(kind, number))


def _write_numbers(head: bytes, kind: Kind, out: list[bytes], numbers: Sequence[int]) -> None:
    if numbers:
        content = b"".join([_number(kind, number) for number in numbers])
        out += (head, varint(len(content)), content)


def _write_message(head: bytes, layout: Layout[Any], out: list[bytes], message: object) -> None:
    if message is not None:
        content = encode(layout, message)
        out += (head, varint(len(content)), content)


def _write_messages(head: bytes, layout: Layout[Any], out: list[bytes], messages: Sequence[object]) -> None:
    for message in messages:
        content = encode(layout, message)
        out += (head, varint(len(content)), content)


def _write_map(head: bytes, out: list[bytes], pairs: Mapping[str, str]) -> None:
    for key in sorted(pairs):
        content = encode(_ENTRY, (key, pairs[key]))
        out += (head, varint(len(content)), content)


def _number(kind: Kind, number: int) -> bytes:
    if number not in _RANGES[kind]:
        raise ValueError(f"{number} is no {kind.name.lower()}")
    return varint(number & 0xFFFFFFFFFFFFFFFF)


# ── bytes → value ─────────────────────────────────────────────────────────────────────────────────

_Reader: TypeAlias = "Callable[[bytes, int, int, Any, Bounds], tuple[Any, int]]"
"""Takes the bytes, the start, the end, what the slot holds and the bounds that are left; returns what the
slot holds then and where the field ends. It may raise IndexError, which `decode` catches.
"""


def decode(layout: Layout[Value], content: bytes, elements: int = ELEMENTS_LIMIT) -> Value:
    """Return the value of a message with at most so many elements.

    Raises `MalformedError` and `TooManyElementsError`.
    """
    bounds = Bounds(DEPTH_LIMIT, elements)
    try:
        return _built(layout, _read(layout, content, 0, len(content), layout.empty(), bounds))
    except (IndexError, UnicodeDecodeError) as error:
        raise MalformedError(str(error)) from error


def _built(layout: Layout[Value], slots: list[Any]) -> Value:
    """Return the value of what was read; a single message is put together when all of it is there."""
    for index, inner in layout.single_messages:
        if slots[index] is not None:
            slots[index] = _built(inner, slots[index])
    return layout.value(*slots)


def _read(
    layout: Layout[Any], content: bytes, start: int, end: int, slots: list[Any], bounds: Bounds
) -> list[Any]:
    """Read fields into slots that may hold some already."""
    if not bounds.depth:
        raise MalformedError("too deep")
    bounds.depth -= 1
    while start < end:
        bounds.elements -= 1
        if bounds.elements < 0:
            raise TooManyElementsError
        tag = content[start]
        start += 1
        if tag >= 0x80:
            tag, start = read_tag(content, start - 1)
        found = layout.readers.get(tag)
        if found is None:
            start = skipped(content, start, end, tag, bounds)
        else:
            index, read = found
            slots[index], start = read(content, start, end, slots[index], bounds)
    bounds.depth += 1
    if start > end:
        raise MalformedError("cut off")
    return slots


def _readers(field: Field) -> dict[int, _Reader]:
    """Return the functions that read this field, by the tags that it may have."""
    with_length = field.number << 3 | LENGTH
    if field.is_number:
        alone = field.number << 3 | VARINT
        if not field.is_repeated:
            return {alone: partial(_read_number, field.kind)}
        return {
            alone: partial(_read_one_number, field.kind),
            with_length: partial(_read_numbers, field.kind),
        }
    if field.kind is Kind.MAP:
        return {with_length: _read_pair}
    if field.layout is not None:
        return {with_length: partial(_read_one_message if field.is_repeated else _read_message, field.layout)}
    return {with_length: _read_one_text if field.is_repeated else _read_text}


def _read_text(content: bytes, start: int, end: int, _: object, __: Bounds) -> tuple[str, int]:
    start, stop = read_span(content, start, end)
    return content[start:stop].decode(), stop


def _read_one_text(
    content: bytes, start: int, end: int, texts: list[str], _: Bounds
) -> tuple[list[str], int]:
    start, stop = read_span(content, start, end)
    texts.append(content[start:stop].decode())
    return texts, stop


def _read_number(kind: Kind, content: bytes, start: int, _end: int, _: object, __: Bounds) -> tuple[int, int]:
    number, start = read_varint(content, start)
    return _as(kind, number), start


def _read_one_number(
    kind: Kind, content: bytes, start: int, _end: int, numbers: list[int], _: Bounds
) -> tuple[list[int], int]:
    number, start = read_varint(content, start)
    numbers.append(_as(kind, number))
    return numbers, start


def _read_numbers(
    kind: Kind, content: bytes, start: int, end: int, numbers: list[int], bounds: Bounds
) -> tuple[list[int], int]:
    start, stop = read_span(content, start, end)
    while start < stop:
        bounds.spend()
        number, start = read_varint(content, start)
        numbers.append(_as(kind, number))
    if start > stop:
        raise MalformedError("a number beyond its field")
    return numbers, stop


def _read_message(
    layout: Layout[Any], content: bytes, start: int, end: int, slots: list[Any] | None, bounds: Bounds
) -> tuple[list[Any], int]:
    start, stop = read_span(content, start, end)
    return _read(layout, content, start, stop, slots or layout.empty(), bounds), stop


def _read_one_message(
    layout: Layout[Any], content: bytes, start: int, end: int, messages: list[Any], bounds: Bounds
) -> tuple[list[Any], int]:
    start, stop = read_span(content, start, end)
    messages.append(_built(layout, _read(layout, content, start, stop, layout.empty(), bounds)))
    return messages, stop


def _read_pair(
    content: bytes, start: int, end: int, pairs: dict[str, str], bounds: Bounds
) -> tuple[dict[str, str], int]:
    start, stop = read_span(content, start, end)
    key, text = _built(_ENTRY, _read(_ENTRY, content, start, stop, _ENTRY.empty(), bounds))
    pairs[key] = text
    return pairs, stop


def _as(kind: Kind, number: int) -> int:
    """Return what a number of 64 bits is for a kind."""
    if kind is Kind.BOOL:
        return number != 0
    if kind is Kind.INT32:
        number &= 0xFFFFFFFF
        return number - (1 << 32) if number >> 31 else number
    return number - (1 << 64) if kind is Kind.INT64 and number >> 63 else number


# A pair is written with both fields, also where they are empty.
_ENTRY: Final[Layout[tuple[str, str]]] = Layout(
    "Entry",
    (Field(1, "key", is_optional=True), Field(2, "value", is_optional=True)),
    lambda pair: pair,
    lambda key, value: (key or "", value or ""),
)
