"""Output: tables and colours on a terminal, plain lines, JSON or YAML elsewhere."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.text import Text

from devplug.cli.status.views.text import Cell, Row, Tone, folded, laid_out, plain
from devplug.cli.streams import PrintableStream
from devplug.errors import printable
from devplug.k8s.yaml import yaml_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import ConsoleOptions, RenderableType

    from devplug.cli.status.views.text import Line
    from devplug.k8s.yaml import Value

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


def rich_text(lines: Iterable[Line]) -> Text:
    """Return lines as rich draws them."""
    drawn = [Text.assemble(*((cell.text, _STYLES[cell.tone]) for cell in line)) for line in lines]
    return Text("\n", no_wrap=True, overflow="crop", end="").join(drawn)


class TerminalConsole(Console):
    """A terminal on which rich draws: with its own escapes, and with no other."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 -- rich's
        stdout = sys.stdout
        super().__init__(file=stdout.terminal if isinstance(stdout, PrintableStream) else None, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Draw something; what stands in its texts is made printable."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text, keep="\n"), segment.style)


class Printer:
    """Prints to standard output: a terminal with a width and colours, or something that takes whole lines."""

    def __init__(self, *, color: str) -> None:
        never = color == "never"
        self._is_terminal = sys.stdout.isatty()
        self.is_live = self._is_terminal and not never
        """Whether what was printed can be drawn over."""
        self.console = TerminalConsole(
            highlight=False, no_color=never or None, force_terminal=False if never else None
        )

    @property
    def width(self) -> int | None:
        """How many columns there are; None where nothing has to be folded."""
        return self.console.width if self._is_terminal else None

    def lines(self, lines: Iterable[Line]) -> None:
        """Print lines as they are laid out."""
        for line in lines:
            if self.is_live:
                self.console.print(rich_text([line]), soft_wrap=True)
            else:
                click.echo(plain(line))

    def line(self, text: str) -> None:
        """Print a sentence; what does not fit goes on in the next line, four columns further right."""
        self.lines(folded(Cell(text), self.width))

    def finding(self, place: str, grade: str, text: str) -> None:
        """Print `PLACE: GRADE: TEXT` as compilers do, with the grade in its colour."""
        first, *more = folded(Cell(f"{place}: {grade}: {text}"), self.width)
        before, word, after = plain(first).partition(f" {grade}:")
        tone = Tone.BAD if grade == "error" else Tone.WARN
        self.lines([(Cell(before), Cell(word, tone), Cell(after)), *more])

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], *, folds: bool = True) -> None:
        """Print a table with these headings; with `folds`, its last column is folded to fit the terminal."""
        made = [Row(tuple(map(Cell, row))) for row in rows]
        self.lines(laid_out(columns, made, self.width if folds else None))

    @contextmanager
    def progress(self, total: int) -> Iterator[Callable[[str], None]]:
        """Show how much of `total` is done below what is printed, on a terminal only.

        Yields a function that is called with what was done last.
        """
        if not self.is_live or self.console.no_color:
            yield lambda _: None
            return
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        # What is printed meanwhile goes through the console; what others print stays as it is.
        with Progress(*columns, console=self.console, transient=True, redirect_stdout=False) as shown:
            task = shown.add_task("", total=total)
            yield lambda done: shown.update(task, advance=1, description=done)
