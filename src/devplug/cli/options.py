"""Options that several commands have."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, cast

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from devplug.daemon.sources.host import Host
    from devplug.sandbox.place import Place

__all__ = [
    "color",
    "do_without_openssl",
    "kubelet_root",
    "machine_numa_nodes",
    "output",
    "place_of",
    "plugin_dir",
    "plugin_folder",
    "pod_resources_socket",
    "sandbox_dir",
    "sandbox_folder",
    "sandbox_nodes",
]

KUBELET_ROOT: Final = "/var/lib/kubelet"
SANDBOX_DIR_VARIABLE: Final = "DEVPLUG_SANDBOX_DIR"
"""Set by who means a sandbox, and for each program in one."""

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
    help="A table, one with all there is, or the facts for programs.",
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


def place_of(folder: str | None) -> Place:
    """Return the sandbox's folder that is meant."""
    import os
    from pathlib import Path

    from devplug.sandbox.place import Place, default_folder

    return Place(Path(folder) if folder else default_folder(os.environ, os.geteuid()))


def machine_numa_nodes(host: Host | None = None) -> tuple[int, ...]:
    """Return the NUMA nodes that the kubelet here knows; none in a sandbox, whose nodes have their own."""
    import os

    from devplug.daemon.preference.numa import numa_nodes
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


def do_without_openssl() -> None:
    """Keep OpenSSL out of a process that stays: 8 MB and 20 ms for nothing, since no socket here speaks TLS.

    asyncio and hashlib are made to do without these two modules, as in a Python that was built without them.
    """
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    for name in ("ssl", "_hashlib"):
        modules.setdefault(name, None)
