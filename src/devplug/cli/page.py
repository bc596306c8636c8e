"""The reference page of the commands, from click's own tree: `python -m devplug.cli.page`.

What stands here is how a command is shown; what it says is its own help, so that both are always the same.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

import click

from devplug.cli.exits import BAD_INPUT, FAILED, INTERRUPTED, OK, OUR_BUG

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_CODES: Final = {
    OK: "It worked, or ended as asked: Ctrl-C is how one stops `run`, `exporter`, `ui` and `sandbox up`.",
    FAILED: "A check failed, or the command cannot go on; the last line says why.",
    BAD_INPUT: "Bad input: the arguments, the file, or a right that is missing.",
    OUR_BUG: "A bug of devplug. The lines above the last one are what to report.",
    INTERRUPTED: "Interrupted, for commands that end by themselves.",
}
"""What an exit code means to whoever wrote the command line."""

_INTRODUCTION: Final = """\
# The command line

Every command, as `--help` shows it. [Where to begin](README.md) says which of them is for what.

A flag on the command line wins over its environment variable, and that over the default. What stands after
`--` is a command of yours and is left as it is. `-h` is short for `--help`.

## What programs can rely on

| Output | Stability |
|---|---|
| exit codes | stable |
| `-o json`, `-o yaml`: keys in `snake_case` | stable; keys may be added, and the changelog names changes |
| Kubernetes objects, as `devplug manifests` prints them | keys as in the API of Kubernetes |
| `verify -o junit`, `-o tap`; IDs of checks | stable |
| `--log-format json`: `time`, `level`, `message`, facts of audit lines | stable; texts may change |
| tables, `-o csv`, sentences in any output, `--help` | for people; may change in any version |

## Exit codes

| Code | Means |
|---|---|
"""


def page(*roots: tuple[str, click.Command]) -> str:
    """Return the whole page as Markdown, of these commands by the names they are started with."""
    codes = "".join(f"| {code} | {text} |\n" for code, text in EXIT_CODES.items())
    entries = [text for name, root in roots for text in _entries(root, name, None)]
    return _INTRODUCTION + codes + "".join(entries)


def _entries(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    """Yield what is said of a command and of all below it, but nothing of a group that only groups."""
    # A child's info name has its parent's before it, as in the first line of its help.
    context = click.Context(command, info_name=name, parent=parent)
    if command.hidden:
        return
    if parent is not None or not isinstance(command, click.Group):
        yield _entry(command, context)
    if isinstance(command, click.Group):
        for child in sorted(command.commands):
            yield from _entries(command.commands[child], child, context)


def _entry(command: click.Command, context: click.Context) -> str:
    usage = " ".join(command.get_usage(context).removeprefix("Usage:").split())
    parts = [
        f"\n## `{context.command_path}`\n",
        f"```text\n{usage}\n```\n",
        f"{_prose(command.help or '')}\n",
    ]
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    rows = [_row(one, context) for one in options if set(one.opts) != {"-h", "--help"}]
    if rows:
        parts.append("| Option | What it is | Default | Variable |\n|---|---|---|---|\n" + "".join(rows))
    if command.epilog:
        examples = re.sub(r"(?m)^  ", "", re.sub(r"\A\x08?\s*Examples?:\n", "", command.epilog)).rstrip()
        parts.append(f"```sh\n{examples}\n```\n")
    return "\n".join(parts)


def _prose(text: str) -> str:
    """Return help as Markdown: paragraphs, and what click keeps in its lines as a block."""
    shown = []
    for paragraph in re.split(r"\n\s*\n", text.replace("\f", "").strip()):
        if paragraph.startswith("\b"):
            lines = paragraph.removeprefix("\b").strip("\n")
            shown.append(f"```text\n{lines}\n```")
        else:
            shown.append(" ".join(paragraph.split()))
    return _escaped("\n\n".join(shown))


def _row(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    assert record is not None
    names, described = record
    what = re.sub(r"\s*\[[^\[\]]*(default|required)[^\[\]]*\]$", "", option.help or described)
    what, _, default = what.partition(" Default: ")
    if not default and option.show_default:
        default = f"`{_default(option, context)}`"
    default = "required" if option.required else default.rstrip(".") or ("off" if option.is_flag else "none")
    variables = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    cells = (
        f"`{names}`",
        _escaped(what),
        default if default.startswith("`") else _escaped(default),
        ", ".join(f"`{one}`" for one in variables),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _default(option: click.Option, context: click.Context) -> str:
    default = option.get_default(context)
    if isinstance(default, list | tuple):
        return ", ".join(map(str, default))
    return ("on" if default else "off") if isinstance(default, bool) else str(default)


def _escaped(text: str) -> str:
    """Return text with what Markdown would take for HTML, or for emphasis, as it is meant."""
    return text.replace("<", "&lt;").replace("*", "\\*")


def _main() -> None:
    from devplug.cli.commands import commands
    from devplug.cli.kubectl import devices_command

    sys.stdout.write(page(("devplug", commands), ("kubectl devices", devices_command)))


if __name__ == "__main__":
    _main()
