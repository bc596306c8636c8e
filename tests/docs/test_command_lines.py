"""Every `devplug` command line in the pages is one that the program understands, whether it is run or not."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from devplug.cli.commands import commands
from devplug.cli.kubectl import devices_command
from tests.docs.pages import PAGES, ROOT, blocks_of, prose_of, spans_of

LANGUAGES = {"console", "sh", "shell", "bash", ""}
OPERATORS = {"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1"}
ROOTS = {"devplug": commands, "kubectl devices": devices_command, "kubectl-devices": devices_command}


def command_lines(page: Path) -> Iterator[str]:
    """Yield every line of a page that may have a command, and every code in its sentences."""
    if page.name != "CHANGELOG.md":
        yield from (span for span in spans_of(prose_of(page)) if not span.endswith("…"))
    for block in blocks_of(page):
        if block.language in LANGUAGES:
            text = re.sub(r"\\\n[> ]*", " ", block.text)
            for line in text.splitlines():
                is_shown = block.language != "console" or line.startswith("$ ")
                if is_shown:
                    yield from (line.removeprefix("$ "), *re.findall(r"\$\((.*?)\)", line))


def invocations(line: str) -> Iterator[tuple[click.Command, list[str]]]:
    """Yield the commands of ours in a line of a shell, with their words up to `--`, a pipe or a comment."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return
    starts = [0, *(at + 1 for at, word in enumerate(words) if word in OPERATORS or word == "--")]
    for start in starts:
        rest = words[start:]
        while rest and (re.match(r"\w+=", rest[0]) or rest[0] in {"sudo", "timeout", "exec"}):
            rest = rest[1:]
        for name, root in ROOTS.items():
            length = len(name.split())
            if rest[:length] == name.split():
                ended = next((at for at, word in enumerate(rest) if word in {*OPERATORS, "--"}), len(rest))
                yield root, rest[length:ended]


def fault_of(root: click.Command, words: list[str]) -> str:
    """Return what is wrong with the words after a command's name; nothing if it could be run."""
    command, context = root, click.Context(root, info_name="devplug")
    while isinstance(command, click.Group):
        if not words or words[0].startswith(("-", "…")):
            break
        child = command.get_command(context, words[0])
        if child is None:
            return f"no such command: {words[0]}"
        command, words = child, words[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    known = {name for one in command.get_params(context) for name in (*one.opts, *one.secondary_opts)}
    for word in words:
        name = word.partition("=")[0]
        if re.match(r"--?[a-zA-Z]", word) and name not in known:
            return f"{context.command_path} has no option {name}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_line_of_a_page_is_understood(page: Path) -> None:
    faults = [
        f"{line}: {fault}"
        for line in command_lines(page)
        for root, words in invocations(line)
        if (fault := fault_of(root, words))
    ]
    assert not faults


def test_a_command_line_that_is_wrong_is_found() -> None:
    (found,) = invocations("sudo devplug discover --propose --nonsense > devplug.yaml")
    assert "no option --nonsense" in fault_of(*found)
    (found,) = invocations("X=1 devplug rnu -c a.yaml | devplug-like")
    assert "no such command: rnu" in fault_of(*found)
    assert [words for _, words in invocations("devplug sandbox run -- devplug run -c a.yaml &")] == [
        ["sandbox", "run"],
        ["run", "-c", "a.yaml"],
    ]
