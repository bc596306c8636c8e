"""The corpus: small inputs kept in the repository, valid and hostile, each with a word on what it is.

A file of `torture/corpus` has one JSON object a line: `of` (whose input it is), `what` (the word), and the
input as `text`, as `hex`, or as `pieces`, which are texts with how often each is repeated. What a case finds
is told as such a line, cut down to what matters; put into the file, it is replayed first in every run.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Entry", "entries", "minimised", "of_each"]

FOLDER: Final = Path(__file__).parent.parent / "corpus"

MINIMISING_TRIES: Final = 2_000
MINIMISING_SECONDS: Final = 5.0
"""How often, and for how long, a find is tried again on its way to being small."""


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
