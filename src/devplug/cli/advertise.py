"""`devplug advertise`: set or remove what a node counts, in the sandbox or in a cluster."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote

import click

from devplug.cli.exits import OK
from devplug.daemon.events.objects import CONDITION_TYPE
from devplug.errors import quoted
from devplug.k8s.account import chosen_account
from devplug.k8s.client import NODES, connected
from devplug.k8s.objects import Object, entries, text
from devplug.sandbox.advertising import (
    AdvertisementError,
    advertisement_of,
    changes,
    counted_by_kubelet,
    lines,
    served,
)
from devplug.sandbox.client import SandboxClient

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from contextlib import AbstractContextManager

    from devplug.k8s.account import Account
    from devplug.sandbox.sandboxdir import SandboxDir

_JSON_PATCH: Final = "application/json-patch+json"
_RIGHTS: Final = (
    "kubectl create clusterrole devplug-advertise --verb=get,patch --resource=nodes,nodes/status, "
    "and bind it with kubectl create clusterrolebinding"
)


class _Nodes(Protocol):
    """Where nodes are read and patched; its methods raise `DevplugError`."""

    @property
    def where(self) -> str:
        """Its name for people, as in `the sandbox in /tmp/x`."""

    def get(self, name: str) -> Object:
        """Return a node."""

    def counted(self, node: Object) -> Collection[str]:
        """Return the resources that the kubelet of a node counts by itself."""

    def patch_status(self, name: str, patch: list[Object], *, dry_run: bool) -> None:
        """Change a node's status by a JSON patch."""


def advertise(
    place: SandboxDir,
    node_name: str,
    counts: Sequence[str],
    removed: Sequence[str],
    *,
    kubeconfig: str | None,
    context: str | None,
    dry_run: bool,
    force: bool,
) -> int:
    """Make a node advertise these counts, and tell what changes; return the exit code.

    A resource that a device plugin serves is left alone, with an error, unless `force` is true.
    """
    try:
        wish = advertisement_of(counts, removed, {CONDITION_TYPE})
    except AdvertisementError as error:
        raise click.UsageError(str(error)) from error
    with _nodes(place, kubeconfig, context) as nodes:
        click.echo(f"devplug: in {nodes.where}", err=True)
        node = nodes.get(node_name)
        if patch := changes(node, wish):
            overwritten = served(node_name, node, wish, nodes.counted(node))
            if overwritten and not force:
                raise AdvertisementError(f"{'; '.join(overwritten)}; stop the plugin, or write --force")
            for warning in overwritten:
                click.echo(f"devplug: warning: {warning}", err=True)
            nodes.patch_status(node_name, patch, dry_run=dry_run)
        for line in lines(node_name, node, wish):
            click.echo(f"{line} (dry run)" if dry_run else line)
    return OK


def _nodes(place: SandboxDir, kubeconfig: str | None, context: str | None) -> AbstractContextManager[_Nodes]:
    is_here = kubeconfig is None and context is None
    if kubeconfig is not None and context is None:
        is_here = Path(kubeconfig).absolute() == place.kubeconfig
    if is_here and place.running() is not None:
        where = f"the sandbox in {place.folder}"
        return nullcontext(_SandboxNodes(SandboxClient(place), where))
    besides = "; no sandbox is up either" if is_here else ""
    return nullcontext(_ClusterNodes(chosen_account(kubeconfig, context, besides=besides)))


class _SandboxNodes:
    def __init__(self, client: SandboxClient, where: str) -> None:
        self._client = client
        self.where = where

    def get(self, name: str) -> Object:
        answer = self._client.ask("GET", _path(name))
        if answer.code == 404:
            known = ", ".join(self._client.record.nodes)
            raise AdvertisementError(f"the sandbox has no node {quoted(name)}; it has {known}")
        if answer.code != 200:
            raise AdvertisementError(text(answer.body, "message"))
        return answer.body

    def counted(self, node: Object) -> Collection[str]:
        # The sandbox does not note who wrote which field, and its kubelets can be asked.
        known = self._client.operate("GET", "nodes", text(node, "metadata", "name"))
        return {text(one, "name") for one in entries(known, "resources")}

    def patch_status(self, name: str, patch: list[Object], *, dry_run: bool) -> None:
        path = f"{_path(name)}/status{'?dryRun=All' if dry_run else ''}"
        answer = self._client.ask("PATCH", path, patch, _JSON_PATCH)
        if answer.code != 200:
            raise AdvertisementError(text(answer.body, "message"))


def _path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"


class _ClusterNodes:
    def __init__(self, account: Account) -> None:
        self._account = account
        self.where = account.where

    def get(self, name: str) -> Object:
        return asyncio.run(self._get(name))

    def counted(self, node: Object) -> Collection[str]:
        return counted_by_kubelet(node)

    def patch_status(self, name: str, patch: list[Object], *, dry_run: bool) -> None:
        asyncio.run(self._patch_status(name, patch, dry_run))

    async def _get(self, name: str) -> Object:
        async with connected(lambda: self._account) as server:
            return await server.get(NODES, name, rights=_RIGHTS, when_absent=self._absent(name))

    async def _patch_status(self, name: str, patch: list[Object], dry_run: bool) -> None:  # noqa: FBT001
        async with connected(lambda: self._account) as server:
            absent = self._absent(name)
            await server.patch_status(NODES, name, patch, dry_run=dry_run, rights=_RIGHTS, when_absent=absent)

    def _absent(self, name: str) -> str:
        return f"{self.where} has no node {quoted(name)}; kubectl get nodes names them"
