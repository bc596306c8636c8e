"""The commands of `devplug` and their arguments. What each does is elsewhere, imported when it runs."""

from __future__ import annotations

import click
from click.core import ParameterSource

from devplug import __version__
from devplug.cli.options import (
    Commands,
    color,
    config_option,
    kubelet_root,
    output,
    output_option,
    place_of,
    plugin_dir,
    plugin_folder,
    sandbox_dir,
)
from devplug.cli.run_options import DEFAULT_CONFIG
from devplug.cli.startup import LazyCommands

_EPILOG_ADVERTISE = """\b
Examples:
  devplug advertise worker-0 example.com/license=2
  devplug advertise worker-0 --remove example.com/license
  devplug advertise worker-0 example.com/license=2 --context my-cluster --dry-run
  devplug advertise worker-0 --remove DevicesReady --context my-cluster
"""
_EPILOG_DEMO = """\b
Examples:
  devplug demo
  devplug demo --output json | jq .restart
"""
_EPILOG_VALIDATE = """\b
Examples:
  devplug validate -c devplug.yaml
  devplug validate -c devplug.yaml --no-host     in CI: checks the file alone
  kubectl get cm devplug -o jsonpath='{.data.config\\.yaml}' | devplug validate -c -
"""
_EPILOG_DISCOVER = """\b
Examples:
  devplug discover
  devplug discover --propose > devplug.yaml
  devplug discover --all -o json | jq '.devices[] | select(.numa_node == 1).id'
"""
_EPILOG_NEW = """\b
Examples:
  devplug new my-fpga
  devplug new my-fpga --resource fpga.example.com/card --directory plugins/my-fpga
"""

_HOMES = {
    "completion": "devplug.cli.completion:completion_command",
    "exporter": "devplug.cli.exporter:exporter_command",
    "import": "devplug.cli.import_:import_",
    "manifests": "devplug.cli.manifests:manifests_command",
    "run": "devplug.cli.run_arguments:run_command",
    "sandbox": "devplug.cli.sandbox.arguments:sandbox",
    "status": "devplug.cli.status.arguments:status",
    "top": "devplug.cli.status.arguments:top",
    "ui": "devplug.cli.ui:ui_command",
    "verify": "devplug.cli.verify_arguments:verify_command",
    "why": "devplug.cli.why:why_command",
}


@click.group(
    cls=Commands,
    commands=LazyCommands(_HOMES),
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "DEVPLUG"},
    epilog="Start here:  devplug demo, devplug discover, devplug sandbox up",
)
@click.version_option(__version__, prog_name="devplug")
def commands() -> None:
    """Put a machine's hardware into Kubernetes pods."""


@commands.command("validate", epilog=_EPILOG_VALIDATE)
@config_option
@click.argument("file", required=False)
@click.option(
    "--no-host",
    is_flag=True,
    help="Check the file alone, without looking at this machine, as in CI.",
)
@kubelet_root
@plugin_dir
@output
@color
@click.pass_context
def _validate(
    context: click.Context,
    config: str | None,
    file: str | None,
    *,
    no_host: bool,
    kubelet_root: str,
    plugin_dir: str | None,
    output: str,
    color: str,
) -> int:
    """Check a configuration and show what it matches here. FILE may be - for standard input.

    FILE without -c means the same. Exit code 0: the configuration can be served, maybe with warnings; 2: it
    cannot. Needs no root, no cluster and no hardware.
    """
    from devplug.cli.validate import validate

    if config and file and context.get_parameter_source("config") is ParameterSource.COMMANDLINE:
        raise click.UsageError(f"name one configuration: -c {config} or {file}")
    return validate(
        file or config or DEFAULT_CONFIG,
        plugin_dir=str(plugin_folder(context, kubelet_root, plugin_dir).absolute()),
        looks_at_host=not no_host,
        output=output,
        color=color,
    )


@commands.command("discover", epilog=_EPILOG_DISCOVER)
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help="Show also devices that no pod would want: terminals, disks and so on.",
)
@click.option(
    "--propose",
    "is_proposal",
    is_flag=True,
    help="Print a configuration that serves the devices of this machine.",
)
@output
@color
def _discover(*, is_all: bool, is_proposal: bool, output: str, color: str) -> int:
    """Show this machine's devices and the selectors that find them."""
    from devplug.cli.discover import discover

    return discover(output=output, color=color, is_all=is_all, is_proposal=is_proposal)


@commands.command("demo", epilog=_EPILOG_DEMO)
@output_option("Text for people, or one JSON object for programs.", "table", "json")
@color
def _demo(output: str, color: str) -> int:
    """Show this machine's devices in pods, without a cluster.

    devplug's kubelet emulator runs in a temporary folder. It needs no root. As root the demo also makes and
    removes a loop device; nothing else outside the folder is changed.
    """
    from devplug.cli.demo import demo

    return demo(output=output, color=color)


@commands.command("new", epilog=_EPILOG_NEW)
@click.argument("name")
@click.option(
    "--resource",
    "resource_name",
    metavar="NAME",
    help="The resource that pods ask for. Default: example.com/NAME.",
)
@click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(readable=False),
    help="The folder to make. Default: NAME in the current folder.",
)
def _new(name: str, resource_name: str | None, directory: str | None) -> int:
    """Create the project of a device plugin in Python.

    The project works as it is: package, tests, image, DaemonSet and CI. The folder must not exist yet, or be
    empty. Its README says what to change where.
    """
    from devplug.cli.new import new

    return new(name, resource_name=resource_name, directory=directory)


@commands.command("advertise", epilog=_EPILOG_ADVERTISE)
@click.argument("node")
@click.argument("counts", nargs=-1, metavar="vendor.com/kind=N...")
@click.option(
    "--remove",
    multiple=True,
    metavar="NAME",
    help="Remove this resource, or DevicesReady, the condition that a daemon with --kube-events leaves on "
    "its node. Repeatable.",
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="The kubeconfig of a cluster, instead of the sandbox. Default: $KUBECONFIG.",
)
@click.option("--context", metavar="NAME", help="The context of the kubeconfig.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@click.option(
    "--force",
    is_flag=True,
    help="Change also a resource that a device plugin serves; the kubelet soon writes its own count again.",
)
@sandbox_dir
def _advertise(
    node: str,
    counts: tuple[str, ...],
    *,
    remove: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    dry_run: bool,
    force: bool,
    folder: str | None,
) -> int:
    """Set counted resources of NODE, without a plugin.

    Licences, seats and the like: they are counted, and nothing of them is in a container. Changes the sandbox
    if one is up, else the cluster of the kubeconfig.
    """
    from devplug.cli.advertise import advertise

    return advertise(
        place_of(folder),
        node,
        counts,
        remove,
        kubeconfig=kubeconfig,
        context=context,
        dry_run=dry_run,
        force=force,
    )
