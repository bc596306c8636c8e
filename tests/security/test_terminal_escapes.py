"""No text of others reaches the terminal as a command, or breaks a log line."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from devplug.cli.output import TerminalConsole
from devplug.cli.status.views.text import Cell, Row, folded, laid_out, plain
from devplug.cli.streams import PrintableStream
from devplug.errors import printable
from devplug.logs import FactFormatter
from devplug.monitor.page.markup import _shown
from devplug.monitor.page.server import _json

HOSTILE = {
    "ESC": "\x1b[2J\x1b]0;owned\x07",
    "C1": "\x9b2J",
    "bidi": "abc\u202edef\u2066",
    "return": "fine\rhidden",
    "backspace": "a\x08\x08b",
}
DANGEROUS = "\x1b\x07\x08\r\x9b\u202e\u2066"

texts = st.text(st.one_of(st.characters(), st.sampled_from(DANGEROUS + "\n\t\\")))


def dangers(text: str, *, allowed: str = "\n\t") -> list[str]:
    """The characters of a text that a terminal may obey."""
    return [c for c in text if not (c.isprintable() or c in allowed)]


@given(texts)
def test_what_a_stream_writes_is_printable(text: str) -> None:
    out = io.StringIO(newline="")
    PrintableStream(out).write(text)
    assert dangers(out.getvalue().replace("\r\n", "\n")) == []


def test_bytes_are_escaped_as_text_is() -> None:
    out = io.StringIO(newline="")
    PrintableStream(out).write(b"plain,validate\x1b\xff")
    assert out.getvalue() == r"plain,validate\x1b\xff"


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.sampled_from("\n\té漢")))
def test_harmless_text_is_written_as_it_is(text: str) -> None:
    out = io.StringIO(newline="")
    PrintableStream(out).write(text)
    assert out.getvalue() == text


@given(texts)
def test_a_row_of_a_table_is_printable_and_no_cell_makes_another_row(text: str) -> None:
    table = laid_out(["A", "B"], [Row((Cell(text), Cell("end")))], None)
    assert len(table) == 2
    assert [dangers(plain(line), allowed="") for line in table] == [[], []]
    below = [plain(line) for line in laid_out(["A", "B"], [Row((Cell("a"), Cell(text)))], None)]
    assert all(not dangers(line, allowed="") and line[0] in "Aa " for line in below)


@given(texts, st.sampled_from([None, 30, 200]), st.sampled_from(["", "  ", "  - "]))
def test_no_text_makes_a_line_that_begins_as_a_sentence(text: str, width: int | None, before: str) -> None:
    """A message of a pod may have line breaks: what follows one is four columns further right."""
    first, *more = folded(Cell(f"{before}message: {text}"), width)
    assert plain(first).startswith(f"{before}message:")
    indent = " " * (len(before) - len(before.lstrip()) + 4)
    assert all(plain(line).startswith(indent) or not plain(line) for line in more)
    assert not any("\n" in plain(line) for line in (first, *more))


@given(texts)
def test_what_rich_draws_has_no_escapes_but_its_own(text: str) -> None:
    out = io.StringIO()
    console = TerminalConsole(width=200, force_terminal=True, no_color=True)
    console.file = out
    console.print(Text(text))
    assert dangers(out.getvalue()) == []


@given(texts, texts)
def test_a_log_record_is_one_printable_line(message: str, fact: str) -> None:
    record = logging.makeLogRecord({"msg": message.replace("%", ""), "levelname": "INFO", "fact": fact})
    line = FactFormatter().format(record)
    assert dangers(line, allowed="\t") == []


@given(texts)
def test_the_page_shows_codes_of_direction_marks(text: str) -> None:
    assert dangers(_shown(text), allowed="") == []
    got = json.loads(_json({"text": text}))["text"]
    assert not set(got) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
    if not set(text) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"):
        assert got == text.encode(errors="surrogatepass").decode(errors="surrogatepass")


def on_terminal(*arguments: str, **variables: str) -> str:
    """What a command writes to a terminal, its own escapes included."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "dumb", "COLUMNS": "200"} | variables
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "devplug", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    ):
        os.close(theirs)
        written = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            if not part:
                break
            written += part
    os.close(ours)
    return written.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(text, id=name, marks=() if name == "ESC" else pytest.mark.nightly)
        for name, text in HOSTILE.items()
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ["validate", "-c", "{file}"],
        ["run", "-c", "{file}"],
        ["manifests", "-c", "{file}"],
        ["status", "--dir", "{folder}/{hostile}"],
        ["sandbox", "run", "--dir", "{folder}/{hostile}", "--", "true"],
        ["advertise", "{hostile}", "x=1"],
        ["verify", "--explain", "{hostile}"],
        ["new", "{hostile}"],
        ["{hostile}"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_no_command_writes_a_foreign_escape(command: list[str], hostile: str, short_dir: Path) -> None:
    file = short_dir / f"x{hostile.replace('/', '')}.yaml"
    file.write_text(f"version: 1\nresources:\n  - name: {json.dumps(hostile)}\n    discover: {{path: 5}}\n")
    values = {"file": str(file), "folder": str(short_dir), "hostile": hostile}
    words = [word.format(**values) for word in command]
    written = on_terminal(*words, DEVPLUG_SANDBOX_DIR=str(short_dir / "none"))
    assert dangers(written) == []


def test_escapes_stay_readable() -> None:
    assert printable("a\x1b[2Jb\u202e") == r"a\x1b[2Jb\u202e"
