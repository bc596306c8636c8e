"""The pages that are made from the code are as the code makes them now, and say what people look for."""

from __future__ import annotations

import re
import subprocess
import sys

import click
import pytest

from devplug.cli import exits
from devplug.cli.commands import commands
from devplug.cli.kubectl import devices_command
from devplug.cli.page import EXIT_CODES
from devplug.cli.page import page as command_page
from devplug.daemon.config.page import page as key_page
from tests.docs.pages import DOCS


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("architecture.md", "tests.docs.transitions"),
        ("checks.md", "devplug.conformance.page"),
        ("cli.md", "devplug.cli.page"),
        ("keys.md", "devplug.daemon.config.page"),
        ("metrics.md", "devplug.metrics.catalogue"),
        ("performance.md", "bench.page"),
        ("reliability.md", "torture.page"),
    ],
)
def test_a_page_is_as_the_code_makes_it(file: str, module: str) -> None:
    made = subprocess.run([sys.executable, "-m", module], capture_output=True, text=True, check=True)
    assert (DOCS / file).read_text() == made.stdout, f"run: python -m {module} > docs/{file}"


def all_commands(command: click.Command, name: str) -> list[tuple[str, click.Command]]:
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return [(name, command)] + [pair for one in below for pair in all_commands(one, f"{name} {one.name}")]


def test_every_command_is_on_the_page_with_every_option_and_an_example() -> None:
    made = command_page(("devplug", commands), ("kubectl devices", devices_command))
    sections = dict(re.findall(r"^## `(.+?)`\n(.*?)(?=^## |\Z)", made, re.MULTILINE | re.DOTALL))
    for name, command in (*all_commands(commands, "devplug")[1:], ("kubectl devices", devices_command)):
        section = sections.pop(name)
        assert "```sh\n" in section, f"{name} has no example"
        for option in command.params:
            if isinstance(option, click.Option):
                assert f"`{', '.join(option.opts)}" in section or option.secondary_opts, (name, option.opts)
    assert not sections


def test_every_exit_code_is_explained() -> None:
    assert set(EXIT_CODES) == {value for value in vars(exits).values() if type(value) is int}


def test_a_help_with_characters_of_markdown_is_shown_as_it_is_meant() -> None:
    @click.command("try", epilog="\b\nExamples:\n  devplug try 'a*'\n")
    @click.option("--only", metavar="GLOB", default="b*", show_default=True, help="Takes <this> | that*.")
    @click.option("--hidden", hidden=True)
    def tried() -> None:
        """Try *it*."""

    made = command_page(("devplug try", tried))
    assert "Try \\*it\\*." in made
    assert "| `--only GLOB` | Takes &lt;this> \\| that\\*. | `b*` |  |" in made
    assert "```sh\ndevplug try 'a*'\n```" in made
    assert "hidden" not in made


def test_every_key_is_on_the_page_with_what_it_may_be() -> None:
    made = key_page()
    assert "one device with so many shares. | whole number, 1 or more | 1 |" in made
    assert "| `keepUnhealthyFor` |" in made
    assert "duration, 0s to 168h, or forever | 10m |" in made
    assert "## `discover.usb[]`" in made
    assert '| `vendor` | Vendor ID: 4 hex digits in quotes, as in "0403". | 4 hex digits | any |' in made
    assert (
        "| `name` | What pods write under limits, as in example.com/serial. | resource name | required |"
        in made
    )
