"""The hunt for inputs that break a reader: the corpus first, then one mutation after the other.

A file of `torture/corpus` has one JSON object a line: `of` (whose input it is), `what` (the word), and the
input as `text`, as `hex`, or as `pieces`, which are texts with how often each is repeated. What a case finds
is told as such a line, cut down to what matters; put into the file, it is replayed first in every run.
Mutations know nothing of what the bytes say: they flip, cut, splice and repeat.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from torture.catalogue import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from torture.catalogue import Trial

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

FOLDER: Final = Path(__file__).parent.parent / "corpus"
MINIMISING_TRIES: Final = 2_000
MINIMISING_SECONDS: Final = 5.0
"""How often, and for how long, a find is tried again on its way to being small."""

ROUNDS_AT_ONCE: Final = 256
"""Rounds between two turns of the loop, which is what ends a case that takes too long."""

SHOWN_BYTES: Final = 4_096
"""Longest find that is told whole."""


# ── mutations ──


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


# ── the corpus ──


@dataclass(frozen=True, slots=True)
class Entry:
    """One input: what it is for, what is special about it, its bytes."""

    of: str
    what: str
    content: bytes

    @property
    def line(self) -> str:
        """The line of a corpus file that keeps it."""
        try:
            text = self.content.decode()
        except UnicodeDecodeError:
            return json.dumps({"of": self.of, "what": self.what, "hex": self.content.hex()})
        return json.dumps({"of": self.of, "what": self.what, "text": text}, ensure_ascii=True)


def entries(name: str, of: str | None = None) -> tuple[Entry, ...]:
    """Return what `torture/corpus/NAME.jsonl` has: all of it, or what it has for one input."""
    lines = (FOLDER / f"{name}.jsonl").read_text().splitlines()
    found = tuple(_entry(json.loads(line)) for line in lines if line)
    return found if of is None else tuple(one for one in found if one.of == of)


def _entry(fields: dict[str, object]) -> Entry:
    match fields:
        case {"text": str(text)}:
            content = text.encode("utf-8", "surrogatepass")
        case {"hex": str(digits)}:
            content = bytes.fromhex(digits)
        case {"pieces": list(pieces)}:
            content = b"".join(str(piece).encode() * int(times) for piece, times in pieces)
        case _:
            raise ValueError(f"no input in {fields}")
    return Entry(str(fields["of"]), str(fields["what"]), content)


def minimised(content: bytes, is_broken: Callable[[bytes], bool]) -> bytes:
    """Return a smaller input that is still broken: parts are left out, then bytes made plain.

    What happens by chance or by time may not be broken again; then it stays as it is.
    """
    tried = 0
    end = time.monotonic() + MINIMISING_SECONDS

    def is_still_broken(smaller: bytes) -> bool:
        nonlocal tried
        tried += 1
        return tried < MINIMISING_TRIES and time.monotonic() < end and is_broken(smaller)

    size = max(1, len(content) // 2)
    while size:
        at = 0
        while at < len(content):
            shorter = content[:at] + content[at + size :]
            if is_still_broken(shorter):
                content = shorter
            else:
                at += size
        size //= 2
    for at in range(min(len(content), MINIMISING_TRIES)):
        plainer = content[:at] + b"a" + content[at + 1 :]
        if content[at : at + 1] != b"a" and is_still_broken(plainer):
            content = plainer
    return content


def of_each(found: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Return entries by whose input they are."""
    grouped: dict[str, list[Entry]] = {}
    for one in found:
        grouped.setdefault(one.of, []).append(one)
    return grouped


# ── the hunt ──

if TYPE_CHECKING:
    Changed = Callable[[Entry, Random], bytes]
    Fault = Callable[[Entry], str]
    """What is wrong about how an input was taken; empty if nothing is."""


def replayed(trial: Trial, kept: Sequence[Entry], fault: Fault) -> None:
    """Try what is in the corpus, as it is."""
    for entry in kept:
        if found := fault(entry):
            trial.broke(f"corpus, {entry.of}, {entry.what!r}: {found}", trial.first)
    trial.figure("replayed from the corpus", len(kept))


async def hunt(trial: Trial, kept: Sequence[Entry], changed: Changed, fault: Fault) -> None:
    """Change what is kept, once for each round, and note every fault with a line for the corpus."""
    for turn in trial.rounds():
        entry = kept[turn.random.randrange(len(kept))]
        made = Entry(entry.of, "", changed(entry, turn.random))
        if found := fault(made):
            trial.broke(f"{found}\n    for the corpus: {_told(made, fault)}", turn.number)
        if not turn.number % ROUNDS_AT_ONCE:
            await asyncio.sleep(0)


def _told(found: Entry, fault: Fault) -> str:
    kind = fault(found).partition(":")[0]
    content = minimised(found.content, lambda one: fault(Entry(found.of, "", one)).startswith(kind))
    return Entry(found.of, "found: ", content[:SHOWN_BYTES]).line


class Clock:
    """The longest time that one input took, in seconds of this thread's processor: a busy machine adds none.

    Enter it around each input. An input that takes longer than `limit_seconds` is a fault.
    """

    def __init__(self, limit_seconds: float) -> None:
        self.limit_seconds = limit_seconds
        self.longest = 0.0
        self.last = 0.0
        self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.last = time.thread_time() - self._begun
        self.longest = max(self.longest, self.last)

    @property
    def fault(self) -> str:
        """What is wrong with the time of the last input; empty if nothing is."""
        if self.last <= self.limit_seconds * PATIENCE.get():
            return ""
        return f"X40: one input took {self.last:.2f} s of processor, over {self.limit_seconds:g} s"
