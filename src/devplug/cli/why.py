"""`devplug why`: why a pod is Pending, waits, or has failed, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import click

from devplug.cli.options import (
    account_of,
    context_option,
    kubeconfig_option,
    kubelet_root,
    namespace_option,
    output_option,
    sandbox_dir,
)
from devplug.cli.options import color as color_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.cli.status.nodes import NodeFolders
    from devplug.k8s.account import Account
    from devplug.k8s.yaml import Value
    from devplug.monitor.why.evidence import Diagnosis

_MOST_COUNTS: Final = 12
"""Nodes are shown down to here, those with the most free first."""

_EPILOG: Final = """\b
Examples:
  devplug why my-pod
  devplug why kube-system/my-pod -o json | jq -r .rejected_by
  devplug why my-pod --dir /tmp/sandbox
"""


@click.command("why", epilog=_EPILOG)
@click.argument("pod")
@namespace_option
@kubeconfig_option
@context_option
@sandbox_dir
@kubelet_root
@output_option("Sentences for people, or one JSON or YAML object for programs.", "table", "json", "yaml")
@color_option
def why_command(
    pod: str,
    *,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
    folder: str | None,
    kubelet_root: str,
    output: str,
    color: str,
) -> int:
    """Say why a pod does not run, and what to do.

    POD may be NAMESPACE/POD. Looks at the pod, its events, and what the nodes have and give, of a cluster or
    a sandbox; on the pod's own node, and in a sandbox, also at its devices one by one. Changes nothing.

    Exit code 0: it runs; 1: something keeps it; 2: that could not be judged.
    """
    return why(
        pod,
        namespace=namespace,
        kubeconfig=kubeconfig,
        context=context,
        folder=folder,
        kubelet_root=kubelet_root,
        output=output,
        color=color,
    )


def why(
    pod: str,
    *,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
    folder: str | None,
    kubelet_root: str,
    output: str,
    color: str,
) -> int:
    """Explain a pod; return the exit code."""
    import asyncio

    from devplug.cli.exits import BAD_INPUT, FAILED, OK
    from devplug.k8s.errors import ClusterError

    named, slash, name = pod.rpartition("/")
    name = name.removeprefix("pod/")
    if slash and named not in {"pod", "pods"}:
        if namespace not in {None, named}:
            raise click.UsageError(f"the pod is of namespace {named}, and -n says {namespace}; name one")
        namespace = named
    if not name or "/" in (namespace or ""):
        raise click.UsageError("name a pod, as in default/my-pod")
    try:
        account = account_of(kubeconfig, context, folder=folder, knows_sandboxes=True)
        click.echo(f"devplug: in {account.where}", err=True)
        nodes, numa = _nodes_here(account, folder, kubelet_root)
        diagnosis = asyncio.run(_diagnosis(account, namespace or account.namespace, name, nodes, numa))
    except ClusterError as error:
        click.echo(f"devplug: {error}", err=True)
        return BAD_INPUT
    _show(diagnosis, output, color)
    if diagnosis.is_unknown:
        return BAD_INPUT
    return OK if diagnosis.is_fine else FAILED


def _nodes_here(
    account: Account, folder: str | None, kubelet_root: str
) -> tuple[dict[str, NodeFolders], tuple[int, ...]]:
    """Return the nodes whose sockets are on this machine, by name: a sandbox's, or this machine itself.

    And with them their NUMA nodes; none if they are not known, as of a sandbox's.
    """
    from devplug.cli.machine import machine_numa_nodes
    from devplug.cli.options import place_of
    from devplug.cli.run_options import folder_of_plugins
    from devplug.cli.status.nodes import folder_fault, machine_folders, sandbox_folders

    place = place_of(folder)
    record = place.running()
    if record is not None and record.server == account.cluster.server:
        return {one.name: one for one in sandbox_folders(str(place.folder), ())}, ()
    here = machine_folders(kubelet_root, folder_of_plugins(kubelet_root, None))
    return ({}, ()) if folder_fault(here) else ({here.name: here}, machine_numa_nodes())


async def _diagnosis(
    account: Account, namespace: str, name: str, nodes: Mapping[str, NodeFolders], numa: tuple[int, ...]
) -> Diagnosis:
    from dataclasses import replace

    from devplug.k8s.client import connected
    from devplug.k8s.objects import text
    from devplug.monitor.cluster_reader import evidence_on
    from devplug.monitor.collector import collected
    from devplug.monitor.why.diagnosis import explain

    async with connected(lambda: account) as server:
        evidence = await evidence_on(server, namespace, name)
    if evidence.pod is not None and (here := nodes.get(text(evidence.pod, "spec", "nodeName"))):
        status = await collected(here.plugin_dir, here.pod_resources, node_name=here.name)
        evidence = replace(evidence, node_status=status, numa_nodes=numa)
    return explain(evidence)


def _show(diagnosis: Diagnosis, output: str, color: str) -> None:
    from devplug.cli.output import Printer, print_value
    from devplug.monitor.cluster_view import NODE_COLUMNS
    from devplug.monitor.why.claims_view import CLAIM_COLUMNS

    if output != "table":
        print_value(cast("Value", diagnosis.value()), output)
        return
    printer = Printer(color=color)
    first, *others = diagnosis.lines()
    printer.line(first)
    if diagnosis.counts:
        rows = sorted(diagnosis.counts, key=lambda one: (-one.free, one.node, one.resource))
        click.echo()
        printer.table(NODE_COLUMNS, [one.row()[: len(NODE_COLUMNS)] for one in rows[:_MOST_COUNTS]])
        if len(rows) > _MOST_COUNTS:
            printer.line(f"and {len(rows) - _MOST_COUNTS} more; -o json has all")
        click.echo()
    if diagnosis.claims is not None and (found := diagnosis.claims.rows()):
        click.echo()
        printer.table(CLAIM_COLUMNS, found[:_MOST_COUNTS])
        if len(found) > _MOST_COUNTS:
            printer.line(f"and {len(found) - _MOST_COUNTS} more; -o json has all")
        click.echo()
    for line in others:
        printer.line(line)
