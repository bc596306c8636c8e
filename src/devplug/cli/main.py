"""The `devplug` command and its arguments. Each command is a function elsewhere, imported when it runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

import click
from click.core import ParameterSource

from devplug import __version__
from devplug.cli.completion import completion_command
from devplug.cli.exits import exit_code_of
from devplug.cli.options import color as _color
from devplug.cli.importing import import_
from devplug.cli.manifests import manifests_command
from devplug.cli.sandbox.acting import advertise, sandbox
from devplug.cli.why import why_command

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
_EPILOG_VERIFY = """\b
Examples:
  devplug verify -- ./my-plugin --dir {dir}
  devplug verify --quick -o junit -- python -m my_plugin > report.xml
  sudo devplug verify -- ./plugin-with-the-folder-compiled-in
  devplug verify --unplug 'rm {work}/dev0' --replug 'touch {work}/dev0' -- ./my-plugin {dir} {work}
  devplug verify --attach /var/lib/kubelet/device-plugins/my.sock
  devplug verify --explain STR07
"""
_EPILOG_NEW = """\b
Examples:
  devplug new my-fpga
  devplug new my-fpga --resource fpga.example.com/card --directory plugins/my-fpga
"""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(exit_code_of(lambda: commands.main(standalone_mode=False)))


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "DEVPLUG"},
    epilog="Start here:  devplug demo, devplug discover, devplug sandbox up",
)
@click.version_option(__version__, prog_name="devplug")
def commands() -> None:
    """Put a machine's hardware into Kubernetes pods."""


commands.add_command(sandbox)
commands.add_command(advertise)
commands.add_command(completion_command)
commands.add_command(import_)
commands.add_command(manifests_command)
commands.add_command(why_command)


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
@click.option(
    "--listen",
    metavar="ADDRESS",
    envvar="DEVPLUG_LISTEN",
    help="Serve /healthz, /readyz and /metrics there: 127.0.0.1:9410, :9410 or unix:PATH. Default: only at "
    "the status socket, which devplug status reads.",
)
@click.pass_context
def _run(
    context: click.Context, config: str | None, kubelet_root: str, plugin_dir: str | None, listen: str | None
) -> int:
    """Serve the devices that a YAML file names, until SIGTERM or Ctrl-C."""
    _do_without_openssl()
    from pathlib import Path

    from devplug.cli.run import run

    folder = _plugin_folder(context, kubelet_root, plugin_dir)
    return run(config, folder, Path(kubelet_root, _POD_RESOURCES).absolute(), listen)


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


@commands.command("verify", epilog=_EPILOG_VERIFY)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--quick", is_flag=True, help="Only what takes less than ten seconds in all.")
@click.option(
    "--only", multiple=True, metavar="CHECK", help="Only this check, group or glob (RES*). Repeatable."
)
@click.option("--skip", multiple=True, metavar="CHECK", help="Not this check, group or glob. Repeatable.")
@click.option("--list", "is_list", is_flag=True, help="Show the checks; starts nothing.")
@click.option("--explain", metavar="CHECK", help="Say what a check is about, and where its rule comes from.")
@click.option(
    "--attach",
    metavar="SOCKET",
    type=click.Path(readable=False),
    help="Judge the plugin that serves this socket, by harmless checks only.",
)
@click.option(
    "--env",
    "environment",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set this for the plugin. Repeatable. {dir} works in VALUE, and DEVPLUG_PLUGIN_DIR always has it.",
)
@click.option("--resource", "resource_name", metavar="NAME", help="Judge this one of several resources.")
@click.option("--unplug", default="", metavar="COMMAND", help="A command that takes a device away.")
@click.option("--replug", default="", metavar="COMMAND", help="A command that brings it back.")
@click.option(
    "--cdi-dir",
    "cdi_dirs",
    multiple=True,
    metavar="DIR",
    default=["/etc/cdi", "/var/run/cdi"],
    show_default=True,
    help="Where the runtime looks for CDI files. Repeatable; {work} works in it.",
)
@click.option(
    "--jobs",
    default=6,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many copies of the plugin may run at a time; 1 for one that bears no other.",
)
@click.option(
    "-o",
    "--output",
    envvar="DEVPLUG_OUTPUT",
    type=click.Choice(["table", "json", "junit", "tap"]),
    default="table",
    show_default=True,
    help="For people, programs, CI systems or test harnesses.",
)
@_color
def _verify(
    command: tuple[str, ...],
    *,
    quick: bool,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    is_list: bool,
    explain: str | None,
    attach: str | None,
    environment: tuple[str, ...],
    resource_name: str | None,
    unplug: str,
    replug: str,
    cdi_dirs: tuple[str, ...],
    jobs: int,
    output: str,
    color: str,
) -> int:
    """Judge a device plugin, in any language, by numbered checks: COMMAND starts it where we are the kubelet.

    In COMMAND, {dir} becomes the plugin folder and {work} a private one. A plugin that is told no folder
    finds ours at the kubelet's own path, in a mount namespace of its own; that needs root. Exit code 0: it
    passed, maybe with notes; 1: it failed; 2: it could not be judged.
    """
    from pathlib import Path

    from devplug.cli import verify as judge

    if explain is not None:
        return judge.explain(explain)
    checks = judge.selected(only=only, skip=skip, quick=quick, attached=attach is not None)
    if is_list:
        return judge.list_checks(checks, color)
    if bool(command) == (attach is not None):
        raise click.UsageError("name either a COMMAND after --, or a socket with --attach")
    if attach is not None and not Path(attach).is_socket():
        raise click.UsageError(f"{attach} is no socket; those of plugins are beside kubelet.sock")
    return judge.verify(
        judge.subject_of(
            command,
            environment=environment,
            resource_name=resource_name,
            unplug=unplug,
            replug=replug,
            cdi_dirs=cdi_dirs,
        ),
        checks,
        quick=quick,
        jobs=jobs,
        attached=Path(attach) if attach is not None else None,
        output=output,
        color=color,
    )


@commands.command("new", epilog=_EPILOG_NEW)
@click.argument("name")
@click.option(
    "--resource", "resource_name", metavar="NAME", help="What pods ask for. Default: example.com/ and NAME."
)
@click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(readable=False),
    help="The folder to make. Default: NAME in the current folder.",
)
def _new(name: str, resource_name: str | None, directory: str | None) -> int:
    """Make a project for a device plugin that works: package, tests, image, DaemonSet and CI.

    The folder must not exist yet, or be empty. Its README says what to change where.
    """
    from devplug.cli.new import new

    return new(name, resource_name=resource_name, directory=directory)


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
