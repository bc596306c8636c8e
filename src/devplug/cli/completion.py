"""`devplug completion SHELL`: what a shell has to run to complete our commands."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from devplug.cli.exits import OK

_VARIABLE: Final = "_DEVPLUG_COMPLETE"
"""What a shell sets when it asks us; click derives it from the program's name."""

_EPILOG: Final = """\b
Examples:
  devplug completion bash >> ~/.bashrc
  devplug completion zsh >> ~/.zshrc
  devplug completion fish > ~/.config/fish/completions/devplug.fish
"""


@click.command("completion", epilog=_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> int:
    """Print the completion script for SHELL."""
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "devplug", _VARIABLE).source())
    return OK
