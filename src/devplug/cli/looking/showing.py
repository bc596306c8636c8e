"""Lines on a terminal in their colours, and on anything else as plain text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.text import Text

from devplug.cli.looking.views.layout import plain
from devplug.cli.looking.views.words import Tone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.cli.looking.views.layout import Line

__all__ = ["Terminal", "rich_text"]

_STYLES: Final = {
    Tone.PLAIN: "",
    Tone.HEAD: "bold",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "bold red",
    Tone.DIM: "dim",
    Tone.CHOSEN: "reverse",
}


def rich_text(lines: Iterable[Line]) -> Text:
    """Return lines as rich draws them."""
    drawn = [Text.assemble(*((cell.text, _STYLES[cell.tone]) for cell in line)) for line in lines]
    return Text("\n", no_wrap=True, overflow="crop", end="").join(drawn)


class Terminal:
    """Standard output: a terminal with a width and colours, or something that takes whole lines."""

    def __init__(self, *, color: str) -> None:
        self.is_live = sys.stdout.isatty() and color != "never"
        """Whether what was printed can be drawn over."""
        self.console = Console(highlight=False, no_color=True if color == "never" else None)

    @property
    def width(self) -> int | None:
        """How many columns there are; None where nothing has to be folded."""
        return self.console.width if sys.stdout.isatty() else None

    @property
    def height(self) -> int:
        """How many lines there are."""
        return self.console.height

    def print(self, lines: Iterable[Line]) -> None:
        """Print lines."""
        for line in lines:
            if self.is_live:
                self.console.print(rich_text([line]), soft_wrap=True)
            else:
                click.echo(plain(line))
