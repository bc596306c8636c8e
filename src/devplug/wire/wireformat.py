"""The bytes of Protocol Buffers below any layout: numbers, tags, lengths, and unknown fields.

Pure.
"""

from __future__ import annotations

from typing import Final

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)

_ONE_BYTE: Final = tuple(bytes([number]) for number in range(0x80))


class MalformedError(ValueError):
    """Bytes that are no message of any layout, or not of this one."""


class TooManyElementsError(ValueError):
    """A message with more elements than the reader accepts."""


class Bounds:
    """The nesting and the number of elements that a message may still have.

    Elements are fields, known or not, and the numbers of a packed field. A limit on bytes is not enough:
    an element takes two bytes on the wire, and a hundred or more in memory.
    """

    __slots__ = ("depth", "elements")

    def __init__(self, depth: int, elements: int) -> None:
        self.depth = depth
        self.elements = elements

    def spend(self) -> None:
        """Count one element; raises `TooManyElementsError`."""
        self.elements -= 1
        if self.elements < 0:
            raise TooManyElementsError


def varint(number: int) -> bytes:
    """Return a number, not below zero, in the form of varying length."""
    if number < 0x80:
        return _ONE_BYTE[number]
    content = bytearray()
    while number >= 0x80:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    content.append(number)
    return bytes(content)


def read_varint(content: bytes, start: int) -> tuple[int, int]:
    """Return a number of ten bytes at most, and where it ends."""
    number = 0
    for shift in range(0, 70, 7):
        byte = content[start]
        start += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, start
    raise MalformedError("a number without end")


def read_tag(content: bytes, start: int) -> tuple[int, int]:
    """Return a tag of five bytes at most, which 32 bits hold, and where it ends."""
    tag, end = read_varint(content, start)
    if end - start > 5 or tag >> 32:
        raise MalformedError("a tag that is too long")
    return tag, end


def read_span(content: bytes, start: int, end: int) -> tuple[int, int]:
    """Return where a field with a length begins behind that, and where it ends.

    A length has five bytes at most, and 31 bits hold it.
    """
    size = content[start]
    begin = start + 1
    if size >= 0x80:
        size, begin = read_varint(content, start)
        if begin - start > 5 or size >> 31:
            raise MalformedError("a length that is too long")
    stop = begin + size
    if stop > end:
        raise MalformedError("cut off")
    return begin, stop


def skipped(content: bytes, start: int, end: int, tag: int, bounds: Bounds) -> int:
    """Return where an unknown field ends, the tag of which has been read."""
    groups: list[int] = []
    while True:
        number, wire_type = tag >> 3, tag & 7
        if not number:
            raise MalformedError("a field without a number")
        if wire_type == START_GROUP:
            groups.append(number)
            if len(groups) > bounds.depth + 1:  # the message around it has taken its level
                raise MalformedError("too deep")
        elif wire_type == END_GROUP:
            if not groups or groups.pop() != number:
                raise MalformedError("the end of no group")
        else:
            start = _value_end(content, start, end, wire_type)
        if start > end:
            raise MalformedError("cut off")
        if not groups:
            return start
        bounds.spend()
        tag, start = read_tag(content, start)


def _value_end(content: bytes, start: int, end: int, wire_type: int) -> int:
    if wire_type == VARINT:
        return read_varint(content, start)[1]
    if wire_type == LENGTH:
        return read_span(content, start, end)[1]
    if wire_type in {FIXED32, FIXED64}:
        return start + (4 if wire_type == FIXED32 else 8)
    raise MalformedError("a field of no known form")
