"""Bytes made slightly wrong, without knowing what they say: flipped, cut, spliced, repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

__all__ = ["ODD_TEXTS", "mutated"]

ODD_BYTES: Final = (
    b"\x00",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff" * 11,
    b"\x80\x00",
    b"\x00\x00\x00\x80",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
)
"""Numbers at their ends, and what only looks like UTF-8."""

ODD_TEXTS: Final = (
    *("\0", "\x0b", "\x0c", "\x1c", "\x7f", "\x85", "\u2028", "\u2029", "\ufeff", "\ufffe", "\U0010ffff"),
    *("\r", "\n", "\r\n", "\t", " ", "'", '"', "\\", "{", "}", "[", "]", "(", ")", "<", ">", "&", "%", "$"),
    *("*", "?", "|", "#", "!", "~", "@", "=", ",", ":", ";", "/", "//", "/../", "..", ".", "-", "_", "+"),
    *("0", "-1", "1e9", "9" * 25, "0x7f", "0o17", "017", "1_000", "nan", "inf", "null", "true", "no", "~"),
    *("%s%n", "${HOME}", "{0.__class__}", "$(id)", "`id`", "../../etc/passwd", "/proc/self/mem", "<script>"),
    *("é", "İ", "ß", "\u202e", "\u0301", "𝟙", "٣", "𐀀"),
)
"""Characters with a meaning to somebody, numbers that are none, and what programs have stumbled over."""


def _flip(content: bytes, random: Random) -> bytes:
    at = random.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << random.randrange(8)]) + content[at + 1 :]


def _overwrite(content: bytes, random: Random) -> bytes:
    at = random.randrange(len(content))
    return content[:at] + bytes([random.randrange(256)]) + content[at + 1 :]


def _cut(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content))]


def _leave_out(content: bytes, random: Random) -> bytes:
    start = random.randrange(len(content))
    return content[:start] + content[start + random.randint(1, 8) :]


def _repeat(content: bytes, random: Random) -> bytes:
    start = random.randrange(len(content))
    piece = content[start : start + random.randint(1, 16)]
    return content[:start] + piece * random.choice((2, 3, 17, 64)) + content[start:]


def _insert_bytes(content: bytes, random: Random) -> bytes:
    at = random.randint(0, len(content))
    return content[:at] + random.choice(ODD_BYTES) + content[at:]


def _insert_text(content: bytes, random: Random) -> bytes:
    at = random.randint(0, len(content))
    return content[:at] + random.choice(ODD_TEXTS).encode() + content[at:]


def _swap(content: bytes, random: Random) -> bytes:
    one, other, third = sorted(random.randint(0, len(content)) for _ in range(3))
    return content[:one] + content[other:third] + content[one:other] + content[third:]


_ANYWHERE: Final[tuple[Callable[[bytes, Random], bytes], ...]] = (_insert_bytes, _insert_text)
_SOMEWHERE: Final[tuple[Callable[[bytes, Random], bytes], ...]] = (
    *(_flip, _overwrite, _cut, _leave_out, _repeat, _swap),
    *_ANYWHERE,
)


def mutated(
    content: bytes,
    random: Random,
    *,
    others: Sequence[bytes] = (),
    words: Sequence[bytes] = (),
    limit_bytes: int = 1 << 16,
) -> bytes:
    """Return `content` with one to four changes; `others` lend pieces, `words` are put in as they are."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        chance = random.random()
        if others and chance < 0.12:
            content = _spliced(content, random.choice(others), random)
        elif words and chance < 0.35:
            at = random.randint(0, len(content))
            content = content[:at] + random.choice(words) + content[at:]
        else:
            content = random.choice(_SOMEWHERE if content else _ANYWHERE)(content, random)
    return content[:limit_bytes]


def _spliced(content: bytes, other: bytes, random: Random) -> bytes:
    """Return the begin of one with the end of the other, or a piece of the other inside of the one."""
    if random.random() < 0.5:
        return content[: random.randint(0, len(content))] + other[random.randint(0, len(other)) :]
    start = random.randint(0, len(other))
    at = random.randint(0, len(content))
    return content[:at] + other[start : start + random.randint(1, 64)] + content[at:]
