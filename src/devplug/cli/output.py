"""Output: tables and colours on a terminal, plain lines, JSON or YAML elsewhere."""

from __future__ import annotations

import json
import sys
import textwrap
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from devplug.cli.status.views.text import Tone, plain
from devplug.k8s.yaml import yaml_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from devplug.cli.status.views.text import Line
    from devplug.k8s.yaml import Value

__all__ = ["Printer", "Terminal", "print_value", "rich_text"]

CONTINUATION: Final = "    "
LONGEST_LINE: Final = 1_000_000
NARROW_COLUMNS: Final = 40
"""Text is not folded into less than this."""

_STYLES: Final = {
    Tone.PLAIN: "",
    Tone.HEAD: "bold",
    Tone.GOOD: "green",
    Tone.WARN: "yellow",
    Tone.BAD: "bold red",
    Tone.DIM: "dim",
    Tone.CHOSEN: "reverse",
}


def print_value(value: Value, output: str) -> None:
    """Print a value as `json` or `yaml`."""
    click.echo(json.dumps(value, indent=2) if output == "json" else yaml_text(value), nl=output == "json")


class Printer:
    """Prints to standard output, as wide as the terminal is; a program that reads gets whole lines."""

    def __init__(self, *, color: str) -> None:
        never = color == "never"
        self._console, self._unfolded = (
            Console(
                highlight=False,
                no_color=never or None,
                force_terminal=False if never else None,
                width=width,
            )
            for width in (None, LONGEST_LINE)
        )
        self._folds = sys.stdout.isatty()

    def line(self, text: str) -> None:
        """Print a sentence; what does not fit goes on in the next line, four columns further right."""
        self._print_text(text)

    def finding(self, place: str, grade: str, text: str) -> None:
        """Print `PLACE: GRADE: TEXT` as compilers do, with the grade in its colour."""
        self._print_text(
            f"{place}: {grade}: {text}", f" {grade}:", "bold red" if grade == "error" else "bold yellow"
        )

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], *, folds: bool = True) -> None:
        """Print a table with these headings; with `folds`, it is no wider than the terminal."""
        folds = folds and self._folds
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold", no_wrap=not folds)
        for row in rows:
            table.add_row(*map(Text, row))
        console = self._console if folds else self._unfolded
        with console.capture() as captured:
            console.print(table)
        click.echo("\n".join(line.rstrip() for line in captured.get().removesuffix("\n").split("\n")))

    @contextmanager
    def progress(self, total: int) -> Iterator[Callable[[str], None]]:
        """Show how much of `total` is done below what is printed, on a terminal only.

        Yields a function that is called with what was done last.
        """
        if not self._folds or self._console.no_color:
            yield lambda _: None
            return
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as shown:
            task = shown.add_task("", total=total)
            yield lambda done: shown.update(task, advance=1, description=done)

    def _print_text(self, text: str, word: str = "", style: str = "") -> None:
        if not self._folds:
            click.echo(text)
            return
        width = max(NARROW_COLUMNS, self._console.width)
        lines = textwrap.wrap(
            text, width, subsequent_indent=CONTINUATION, break_long_words=False, break_on_hyphens=False
        )
        shown = Text("\n".join(lines))
        shown.highlight_words([word] if word else [], style)
        self._console.print(shown, soft_wrap=True)


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
