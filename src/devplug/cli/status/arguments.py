"""The arguments of `devplug status` and `devplug top`. What they do is elsewhere, imported when they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import click

from devplug.cli.options import color, kubelet_root, output_option, plugin_dir, sandbox_folder, sandbox_nodes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from devplug.cli.status.nodes import NodeFolders

_F = TypeVar("_F", bound="Callable[..., Any]")

_EPILOG_STATUS = """\b
Examples:
  devplug status
  devplug status -r serial --unhealthy
  devplug status -w
  devplug status -o json | jq -r '.resources[].devices[] | select(.is_held).id'
  devplug status --dir /tmp/sandbox --node worker-0
"""
_EPILOG_TOP = """\b
Keys:
  q       quit                  arrows, page keys   move
  u       only unhealthy        r                   next resource
  h       only held             s                   sort: state, device, age, holder
  n       next node of a sandbox
\b
Examples:
  devplug top
  devplug top -r fpga
"""


_resources = click.option(
    "-r",
    "--resource",
    "resources",
    multiple=True,
    metavar="GLOB",
    help="Only these resources, by name or kind: example.com/serial, serial, 'gpu*'. Repeatable.",
)


def _nodes(function: _F) -> _F:
    """Give a command the options that say which nodes are meant, and which resources of them."""
    for option in (sandbox_nodes, sandbox_folder, plugin_dir, kubelet_root, _resources):
        function = option(function)
    return function


@click.command("status", epilog=_EPILOG_STATUS)
@click.option("-w", "--watch", "is_watch", is_flag=True, help="Show each change as well, until Ctrl-C.")
@click.option("--unhealthy", is_flag=True, help="List only devices that are not healthy.")
@_nodes
@output_option(
    "A table, a table with all columns, or a form for programs.", "table", "wide", "json", "yaml", "csv"
)
@color
@click.pass_context
def status(
    context: click.Context,
    *,
    is_watch: bool,
    unhealthy: bool,
    resources: tuple[str, ...],
    kubelet_root: str,
    plugin_dir: str | None,
    folder: str | None,
    names: tuple[str, ...],
    output: str,
    color: str,
) -> int:
    """Show a node's devices, their health and their holders.

    Exit code 0: all is well; 1: a resource is not registered, an unhealthy device is held, the daemon, its
    configuration or the kubelet has a fault, or no such resource exists; 2: there is nothing to look at. With
    -w it is 0.
    """
    if is_watch and output == "csv":
        raise click.UsageError("CSV cannot show changes; write -o json with -w")
    from devplug.cli.status.report import StatusQuery, watch
    from devplug.cli.status.report import status as show

    nodes, is_listed = _chosen(context, kubelet_root, plugin_dir, folder, names)
    query = StatusQuery(
        nodes=nodes,
        resources=resources,
        unhealthy=unhealthy,
        output=output,
        color=color,
        is_listed=is_listed,
    )
    return watch(query) if is_watch else show(query)


@click.command("top", epilog=_EPILOG_TOP)
@_nodes
@color
@click.pass_context
def top(
    context: click.Context,
    *,
    resources: tuple[str, ...],
    kubelet_root: str,
    plugin_dir: str | None,
    folder: str | None,
    names: tuple[str, ...],
    color: str,
) -> int:
    """Show a node's devices live, on the whole terminal."""
    from devplug.cli.status.report import StatusQuery
    from devplug.cli.status.top import top as show

    nodes, _ = _chosen(context, kubelet_root, plugin_dir, folder, names)
    return show(StatusQuery(nodes=nodes, resources=resources, color=color))


def _chosen(
    context: click.Context,
    kubelet_root: str,
    plugin_dir: str | None,
    folder: str | None,
    names: tuple[str, ...],
) -> tuple[tuple[NodeFolders, ...], bool]:
    from devplug.cli.status.nodes import chosen_folders

    nodes, is_listed = chosen_folders(context, kubelet_root, plugin_dir, folder, names)
    return tuple(nodes), is_listed
