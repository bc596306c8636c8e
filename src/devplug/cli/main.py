"""The `devplug` command and its arguments. Each command is a function elsewhere, imported when it runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

import click
from click.core import ParameterSource

from devplug import __version__
from devplug.cli.exits import exit_code_of

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

__all__ = ["commands", "main"]

_KUBELET_ROOT = "/var/lib/kubelet"
_POD_RESOURCES = "pod-resources/kubelet.sock"
_EPILOG_RUN = """\b
Example:
  devplug run -c /etc/devplug/config.yaml
"""
_EPILOG_DEMO = """\b
Examples:
  devplug demo
  devplug demo --output json | jq .restart
"""
_EPILOG_VALIDATE = """\b
Examples:
  devplug validate devplug.yaml
  devplug validate --no-host devplug.yaml     in CI: only the file is looked at
  kubectl get cm devplug -o jsonpath='{.data.config\\.yaml}' | devplug validate -
"""
_EPILOG_DISCOVER = """\b
Examples:
  devplug discover
  devplug discover --propose > devplug.yaml
  devplug discover --all -o json | jq '.devices[] | select(.numa_node == 1).id'
"""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(exit_code_of(lambda: commands.main(standalone_mode=False)))


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "DEVPLUG"},
    epilog="Start here:  devplug demo, devplug discover",
)
@click.version_option(__version__, prog_name="devplug")
def commands() -> None:
    """Put a machine's hardware into Kubernetes pods."""


_kubelet_root = click.option(
    "--kubelet-root",
    metavar="DIR",
    envvar="DEVPLUG_KUBELET_ROOT",
    default=_KUBELET_ROOT,
    show_default=True,
    type=click.Path(readable=False),
    help="The kubelet's folder; k0s and microk8s have another one.",
)
_plugin_dir = click.option(
    "--plugin-dir",
    metavar="DIR",
    envvar="DEVPLUG_PLUGIN_DIR",
    type=click.Path(readable=False),
    help="The folder with kubelet.sock. Default: device-plugins in the kubelet's folder.",
)
_output = click.option(
    "-o",
    "--output",
    envvar="DEVPLUG_OUTPUT",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    show_default=True,
    help="A table, one with all there is, or the facts for programs.",
)
_color = click.option(
    "--color",
    envvar="DEVPLUG_COLOR",
    type=click.Choice(["auto", "never"]),
    default="auto",
    show_default=True,
    help="Colour and progress: on a terminal, or not at all.",
)


@commands.command("run", epilog=_EPILOG_RUN)
@click.option(
    "-c",
    "--config",
    metavar="FILE",
    envvar="DEVPLUG_CONFIG",
    help="The file that says which devices to serve. Default: /etc/devplug/config.yaml.",
)
@_kubelet_root
@_plugin_dir
@click.pass_context
def _run(context: click.Context, config: str | None, kubelet_root: str, plugin_dir: str | None) -> int:
    """Serve the devices that a YAML file names, until SIGTERM or Ctrl-C."""
    _do_without_openssl()
    from pathlib import Path

    from devplug.cli.run import run

    folder = _plugin_folder(context, kubelet_root, plugin_dir)
    return run(config, folder, Path(kubelet_root, _POD_RESOURCES).absolute())


@commands.command("validate", epilog=_EPILOG_VALIDATE)
@click.argument("file")
@click.option(
    "--no-host",
    is_flag=True,
    help="Look at the file alone and not at this machine, as in CI.",
)
@_kubelet_root
@_plugin_dir
@_output
@_color
@click.pass_context
def _validate(
    context: click.Context,
    file: str,
    *,
    no_host: bool,
    kubelet_root: str,
    plugin_dir: str | None,
    output: str,
    color: str,
) -> int:
    """Check a configuration, and show what it finds on this machine. FILE may be - for standard input.

    Exit code 0: it can be served, maybe with warnings; 2: it cannot. Needs no root, no cluster and no
    hardware.
    """
    from devplug.cli.validate import validate

    return validate(
        file,
        plugin_dir=str(_plugin_folder(context, kubelet_root, plugin_dir).absolute()),
        looks_at_host=not no_host,
        output=output,
        color=color,
    )


@commands.command("discover", epilog=_EPILOG_DISCOVER)
@click.option(
    "--all", "is_all", is_flag=True, help="Also what no pod would want: terminals, disks and so on."
)
@click.option(
    "--propose", "is_proposal", is_flag=True, help="Write a configuration that serves what is here."
)
@_output
@_color
def _discover(*, is_all: bool, is_proposal: bool, output: str, color: str) -> int:
    """Show which devices this machine has, and the selector that finds each of them."""
    from devplug.cli.discover import discover

    return discover(output=output, color=color, is_all=is_all, is_proposal=is_proposal)


@commands.command("demo", epilog=_EPILOG_DEMO)
@click.option(
    "-o",
    "--output",
    envvar="DEVPLUG_OUTPUT",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A story for people, or one JSON object for machines.",
)
@_color
def _demo(output: str, color: str) -> int:
    """Show this machine's devices in pods: without a cluster, and without root where that is possible.

    A kubelet of ours runs in a temporary folder; nothing outside it is touched, but for a loop device that
    is made and removed when this runs as root.
    """
    from devplug.cli.demo import demo

    return demo(output=output, color=color)


def _do_without_openssl() -> None:
    """Keep OpenSSL out of a process that stays: 8 MB and 20 ms for nothing, since no socket here speaks TLS.

    asyncio and hashlib are made to do without these two modules, as in a Python that was built without them.
    """
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    for name in ("ssl", "_hashlib"):
        modules.setdefault(name, None)


def _plugin_folder(context: click.Context, kubelet_root: str, plugin_dir: str | None) -> Path:
    from pathlib import Path

    root_source, dir_source = map(context.get_parameter_source, ("kubelet_root", "plugin_dir"))
    if root_source is ParameterSource.COMMANDLINE and dir_source is ParameterSource.ENVIRONMENT:
        plugin_dir = None  # flags win
    return Path(plugin_dir) if plugin_dir else Path(kubelet_root, "device-plugins")
