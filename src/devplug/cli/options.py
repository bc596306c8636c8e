"""Options that several commands have, and what they mean together."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from devplug.cli.machine import SANDBOX_DIR_VARIABLE
from devplug.cli.run_options import (
    CONFIG_OPTION,
    KUBELET_ROOT_OPTION,
    PLUGIN_DIR_OPTION,
    folder_of_plugins,
    has_own_plugins,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devplug.cli.run_options import Option
    from devplug.k8s.account import Account
    from devplug.sandbox.sandboxdir import SandboxDir


Command = TypeVar("Command", bound="Callable[..., Any] | click.Command")


class Commands(click.Group):
    """A group of commands. Without a command it prints its help, with each summary in full."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; print the help and exit with code 0 if there are none."""
        return super().parse_args(ctx, args or ["--help"])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one row for each command. Click cuts summaries at the width of the terminal."""
        commands = {name: self.commands[name] for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(_WHOLE)) for name, one in commands.items() if not one.hidden]
            )


_WHOLE: Final = 1_000
"""Characters of a summary: more than any has."""


def settings_of(option: Option) -> dict[str, Any]:
    """Return what click is told of an option, besides its names."""
    if option.kind == "flag":
        kind: dict[str, Any] = {"is_flag": True}
    elif option.choices:
        kind = {"type": click.Choice(option.choices)}
    else:
        kind = {"type": click.Path(readable=False) if option.kind == "path" else None}
    if option.default is not None:
        kind |= {"default": option.default, "show_default": True}
    return {**kind, "metavar": option.metavar, "envvar": option.variable, "help": option.help}


config_option = click.option(*CONFIG_OPTION.names, **settings_of(CONFIG_OPTION))
color = click.option(
    "--color",
    envvar="DEVPLUG_COLOR",
    type=click.Choice(["auto", "never"]),
    default="auto",
    show_default=True,
    help="Colour and progress: on a terminal, or not at all.",
)
kubelet_root = click.option(*KUBELET_ROOT_OPTION.names, **settings_of(KUBELET_ROOT_OPTION))
plugin_dir = click.option(*PLUGIN_DIR_OPTION.names, **settings_of(PLUGIN_DIR_OPTION))


def output_option(help_text: str, *forms: str) -> Callable[[Command], Command]:
    """Return the option `-o` of a command that prints in these forms, the first of them by default."""
    return click.option(
        "-o",
        "--output",
        envvar="DEVPLUG_OUTPUT",
        type=click.Choice(forms),
        default=forms[0],
        show_default=True,
        help=help_text,
    )


output = output_option(
    "A table, a table with all columns, or a form for programs.", "table", "wide", "json", "yaml"
)
sandbox_dir = click.option(
    "--dir",
    "folder",
    metavar="DIR",
    envvar=SANDBOX_DIR_VARIABLE,
    help="The sandbox's folder. Default: devplug-sandbox in $XDG_RUNTIME_DIR, or in /tmp with the user's ID.",
)
sandbox_folder = click.option(
    "--dir",
    "folder",
    metavar="DIR",
    envvar=SANDBOX_DIR_VARIABLE,
    type=click.Path(readable=False),
    help="Look at the sandbox in this folder and not at this machine.",
)
sandbox_nodes = click.option(
    "--node", "names", multiple=True, metavar="NAME", help="Only this node of the sandbox. Repeatable."
)
kubeconfig_option = click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(readable=False),
    allow_from_autoenv=False,
    help="How to reach the cluster. Default: $KUBECONFIG, else ~/.kube/config, else the pod's account.",
)
context_option = click.option(
    "--context", metavar="NAME", allow_from_autoenv=False, help="A context of the kubeconfig."
)
namespace_option = click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    allow_from_autoenv=False,
    help="The namespace. Default: the context's.",
)


def place_of(folder: str | None) -> SandboxDir:
    """Return the folder of the sandbox that the options and the environment name."""
    from pathlib import Path

    from devplug.sandbox.sandboxdir import SandboxDir, default_folder

    return SandboxDir(Path(folder) if folder else default_folder(os.environ, os.geteuid()))


def plugin_folder(context: click.Context, kubelet_root: str, plugin_dir: str | None) -> Path:
    """Return the folder with `kubelet.sock` that is meant: what is written out wins over the environment."""
    root_source, dir_source = map(context.get_parameter_source, ("kubelet_root", "plugin_dir"))
    if (
        root_source is ParameterSource.COMMANDLINE
        and dir_source is ParameterSource.ENVIRONMENT
        and has_own_plugins(kubelet_root)
    ):
        plugin_dir = None
    return folder_of_plugins(kubelet_root, plugin_dir)


def account_of(
    kubeconfig: str | None, context: str | None, *, folder: str | None = None, knows_sandboxes: bool = False
) -> Account:
    """Return the account of the cluster or sandbox that the options name; raises `ClusterError`.

    A sandbox is meant where its folder is named, or where it is up and nothing names a cluster.
    """
    from devplug.k8s.account import KUBECONFIG_VARIABLE, chosen_account

    besides = ""
    is_sandbox = folder is not None or not os.environ.get(KUBECONFIG_VARIABLE)
    if kubeconfig is None and context is None and knows_sandboxes and is_sandbox:
        place = place_of(folder)
        if place.running() is not None:
            kubeconfig = str(place.kubeconfig)
        elif folder is not None:
            raise click.UsageError(f"no sandbox is up in {place.folder}; start one: devplug sandbox up")
        else:
            besides = "; no sandbox is up either"
    return chosen_account(kubeconfig, context, besides=besides)
