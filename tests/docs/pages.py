"""The pages of the documentation as the tests read them: their links, anchors, blocks and commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").glob("*.md")])

_FENCE: Final = re.compile(r"^( *)(```+)(\S*) *([^\n]*)\n(.*?)^\1\2$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(\s*([^()\s]+)\s*\)")
_SPAN: Final = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    words: str
    """What follows the language on its line."""
    text: str

    def __str__(self) -> str:
        """Return where it is, as compilers say it."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        body = "".join(line.removeprefix(found[1]) for line in found[5].splitlines(keepends=True))
        yield Block(page, text.count("\n", 0, found.start(5)) + 1, found[3], found[4], body)


def prose_of(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links_of(page: Path) -> list[str]:
    """Return where the links and images of a page lead; what is only shown as code is none."""
    return _LINK.findall(_SPAN.sub("``", prose_of(page)))


def spans_of(text: str) -> list[str]:
    """Return what stands in backticks, on one line each."""
    return [" ".join(found[2].split()) for found in _SPAN.finditer(text)]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    anchors: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", prose_of(page), re.MULTILINE):
        bare = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        anchor = re.sub(r"[^\w\- ]", "", bare.lower()).replace(" ", "-")
        number = 0
        while (one := f"{anchor}-{number}" if number else anchor) in anchors:
            number += 1
        anchors.add(one)
    return anchors
