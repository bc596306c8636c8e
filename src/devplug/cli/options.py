"""Options that several commands have, and what they mean together."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from devplug.k8s.kubelet_dir import KUBELET_ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from devplug.daemon.sources.host import Host
    from devplug.k8s.account import Account
    from devplug.sandbox.sandboxdir import SandboxDir

__all__ = [
    "account_of",
    "color",
    "context_option",
    "kubeconfig_option",
    "kubelet_root",
    "machine_numa_nodes",
    "namespace_option",
    "output",
    "place_of",
    "plugin_dir",
    "plugin_folder",
    "pod_resources_socket",
    "sandbox_dir",
    "sandbox_folder",
    "sandbox_nodes",
]

SANDBOX_DIR_VARIABLE: Final = "DEVPLUG_SANDBOX_DIR"
"""The variable that names the folder of a sandbox; set for each program in one."""

color = click.option(
    "--color",
    envvar="DEVPLUG_COLOR",
    type=click.Choice(["auto", "never"]),
    default="auto",
    show_default=True,
    help="Colour and progress: on a terminal, or not at all.",
)
kubelet_root = click.option(
    "--kubelet-root",
    metavar="DIR",
    envvar="DEVPLUG_KUBELET_ROOT",
    default=KUBELET_ROOT,
    show_default=True,
    type=click.Path(readable=False),
    help="The kubelet's folder; k0s and microk8s have another one.",
)
plugin_dir = click.option(
    "--plugin-dir",
    metavar="DIR",
    envvar="DEVPLUG_PLUGIN_DIR",
    type=click.Path(readable=False),
    help="The folder with kubelet.sock. Default: device-plugins in the kubelet's folder.",
)
output = click.option(
    "-o",
    "--output",
    envvar="DEVPLUG_OUTPUT",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    show_default=True,
    help="A table, a table with all columns, or a form for programs.",
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


def machine_numa_nodes(host: Host | None = None) -> tuple[int, ...]:
    """Return the NUMA nodes that the kubelet here knows; none in a sandbox, whose nodes have their own."""
    import os

    from devplug.daemon.sources.hardware import numa_nodes
    from devplug.daemon.sources.host import Host

    return () if os.environ.get(SANDBOX_DIR_VARIABLE) else numa_nodes(host or Host())


def plugin_folder(context: click.Context, kubelet_root: str, plugin_dir: str | None) -> Path:
    """Return the folder with `kubelet.sock` that is meant: what is written out wins over the environment."""
    from pathlib import Path

    root_source, dir_source = map(context.get_parameter_source, ("kubelet_root", "plugin_dir"))
    if root_source is ParameterSource.COMMANDLINE and dir_source is ParameterSource.ENVIRONMENT:
        plugin_dir = None
    return Path(plugin_dir) if plugin_dir else Path(kubelet_root, "device-plugins")


def pod_resources_socket(kubelet_root: str) -> Path:
    """Return the kubelet's socket for monitors, absolute."""
    from pathlib import Path

    return Path(kubelet_root, "pod-resources", "kubelet.sock").absolute()


def account_of(
    kubeconfig: str | None, context: str | None, *, folder: str | None = None, knows_sandboxes: bool = False
) -> Account:
    """Return the account of the cluster or sandbox that the options name; raises `ClusterError`.

    A sandbox is meant where its folder is named, or where it is up and nothing names a cluster.
    """
    from devplug.k8s.account import KUBECONFIG_VARIABLE, chosen_account

    besides = ""
    if kubeconfig is None and context is None and knows_sandboxes:
        place = place_of(folder)
        is_up = place.running() is not None
        if folder is not None and not is_up:
            raise click.UsageError(f"no sandbox is up in {place.folder}; start one: devplug sandbox up")
        if is_up and (folder is not None or not os.environ.get(KUBECONFIG_VARIABLE)):
            kubeconfig = str(place.kubeconfig)
        elif not is_up:
            besides = "; no sandbox is up either"
    return chosen_account(kubeconfig, context, besides=besides)
