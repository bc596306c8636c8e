"""`kubectl devices`, a kubectl plugin: which devices a cluster's nodes have, and which pods hold them."""

from __future__ import annotations

import csv
import io
import sys
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import click

from devplug import __version__
from devplug.cli.exits import BAD_INPUT, OK, exit_code_of
from devplug.cli.options import account_of, context_option, kubeconfig_option, namespace_option
from devplug.cli.options import color as color_option
from devplug.cli.streams import guard_output
from devplug.errors import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devplug.k8s.account import Account
    from devplug.k8s.yaml import Value
    from devplug.monitor.cluster_reader import ClusterLists
    from devplug.monitor.cluster_view import NodeCount, PodDevices

_EPILOG: Final = """\b
Examples:
  kubectl devices
  kubectl devices -A --pods -o wide
  kubectl devices -n lab -l app=trainer
  kubectl devices --nodes -o csv > devices.csv
"""


def main() -> None:
    """Run the plugin and end the process with its exit code."""
    guard_output()
    sys.exit(exit_code_of(partial(devices_command.main, prog_name="kubectl devices", standalone_mode=False)))


@click.command("devices", epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-A", "--all-namespaces", "is_everywhere", is_flag=True, help="Pods of all namespaces.")
@namespace_option
@click.option(
    "-l",
    "--selector",
    "labels",
    default="",
    metavar="LABELS",
    help="Pods with these labels; nodes, with --nodes.",
)
@click.option("--nodes", "only_nodes", is_flag=True, help="Show only the table of nodes.")
@click.option("--pods", "only_pods", is_flag=True, help="Show only the table of pods.")
@kubeconfig_option
@context_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml", "csv"]),
    default="table",
    show_default=True,
    help="A table, a table with all columns, or a form for programs.",
)
@color_option
@click.version_option(__version__, prog_name="kubectl devices")
def devices_command(
    *,
    is_everywhere: bool,
    namespace: str | None,
    labels: str,
    only_nodes: bool,
    only_pods: bool,
    kubeconfig: str | None,
    context: str | None,
    output: str,
    color: str,
) -> int:
    """Show the devices of a cluster: what its nodes have, and which pods hold what.

    These are extended resources, whoever serves them, and devices by claims, with class, claim and request.
    Which devices of a device plugin a pod holds is known in clusters whose kubelets have the feature gate
    ResourceHealthStatus (on from Kubernetes 1.36).
    """
    if only_nodes and only_pods:
        raise click.UsageError("both tables are shown without --nodes and --pods; write one of them at most")
    if output == "csv" and not only_nodes and not only_pods:
        raise click.UsageError("-o csv prints one table; choose it with --nodes or --pods")
    return devices(
        namespace="" if is_everywhere else namespace,
        labels=labels,
        wants_nodes=not only_pods,
        wants_pods=not only_nodes,
        kubeconfig=kubeconfig,
        context=context,
        output=output,
        color=color,
    )


def devices(
    *,
    namespace: str | None,
    labels: str,
    wants_nodes: bool,
    wants_pods: bool,
    kubeconfig: str | None,
    context: str | None,
    output: str,
    color: str,
) -> int:
    """Print the tables; `namespace` is None for the context's and empty for all. Return the exit code."""
    import asyncio

    from devplug.k8s.errors import ClusterError
    from devplug.monitor.cluster_view import node_counts, pod_devices

    async def read(account: Account) -> ClusterLists:
        from devplug.k8s.client import connected
        from devplug.monitor.cluster_reader import cluster_lists

        where = account.namespace if namespace is None else namespace
        async with connected(lambda: account) as server:
            return await cluster_lists(
                server, namespace=where, labels=labels, wants_nodes=wants_nodes, wants_pods=wants_pods
            )

    try:
        lists = asyncio.run(read(account_of(kubeconfig, context)))
    except ClusterError as error:
        click.echo(f"devplug: {error}", err=True)
        return BAD_INPUT
    for sentence in lists.unread:
        click.echo(f"devplug: {sentence}", err=True)
    if lists.nodes is not None and lists.everyone is None:
        click.echo("devplug: some pods could not be read; REQUESTED and FREE count only the others", err=True)
    counted = lists.everyone if lists.everyone is not None else lists.pods
    nodes = (
        None if lists.nodes is None else node_counts(lists.nodes, counted or (), lists.claims, lists.slices)
    )
    pods = None if lists.pods is None else pod_devices(lists.pods, lists.claims, lists.slices)
    _show(nodes, pods, output, color)
    return OK


def _show(
    nodes: Sequence[NodeCount] | None, pods: Sequence[PodDevices] | None, output: str, color: str
) -> None:
    from devplug.cli.output import Printer, print_value
    from devplug.monitor import cluster_view as view

    if output in {"json", "yaml"}:
        parts = {"nodes": nodes, "pods": pods}
        value = {name: [one.value() for one in part] for name, part in parts.items() if part is not None}
        print_value(cast("Value", value), output)
        return
    is_wide = output != "table"
    tables: list[tuple[Sequence[str], list[tuple[str, ...]], str]] = []
    if nodes is not None:
        heads = view.NODE_COLUMNS_WIDE if is_wide else view.NODE_COLUMNS
        tables.append((heads, [one.row() for one in nodes], "No node has devices."))
    if pods is not None:
        titles = view.POD_COLUMNS_WIDE if is_wide else view.POD_COLUMNS
        tables.append(
            (
                titles,
                [one.row() for one in pods],
                "No pod here asks for devices.",
            )
        )
    for number, (columns, rows, nothing) in enumerate(tables):
        cut = [row[: len(columns)] for row in rows]
        if output == "csv":
            click.echo(_csv(columns, cut), nl=False)
            continue
        if number:
            click.echo()
        if cut:
            Printer(color=color).table(columns, cut)
        else:
            click.echo(nothing)


def _csv(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([printable(cell) for cell in row] for row in rows)
    return text.getvalue()
