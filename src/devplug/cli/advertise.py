"""`devplug advertise`: set or remove what a node counts, in the sandbox or in a cluster."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote

import click

from devplug.cli.exits import OK
from devplug.daemon.cluster import KUBECONFIG_VARIABLE, ClusterError, MissingExtraError
from devplug.errors import one_line, quoted
from devplug.sandbox.advertising import AdvertisementError, changes, lines, warnings, wish_of
from devplug.sandbox.api.objects import text
from devplug.sandbox.client import SandboxClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from lightkube import Client

    from devplug.sandbox.api.objects import Object
    from devplug.sandbox.place import Place

__all__ = ["advertise"]

_JSON_PATCH: Final = "application/json-patch+json"
_RIGHTS: Final = "kubectl create clusterrole devplug-advertise --verb=get,patch --resource=nodes,nodes/status"
_DEFAULT_KUBECONFIG: Final = "~/.kube/config"


class _Nodes(Protocol):
    """Where nodes are read and patched; its methods raise `DevplugError`."""

    @property
    def where(self) -> str:
        """What is told of it, as in `the sandbox in /tmp/x`."""

    def get(self, name: str) -> Object:
        """Return a node."""

    def patch_status(self, name: str, patch: list[Object], *, dry_run: bool) -> None:
        """Change a node's status by a JSON patch."""


def advertise(
    place: Place,
    node_name: str,
    counts: Sequence[str],
    removed: Sequence[str],
    *,
    kubeconfig: str | None,
    context: str | None,
    dry_run: bool,
) -> int:
    """Make a node advertise these counts, and tell what changes; return the exit code."""
    try:
        wish = wish_of(counts, removed)
    except AdvertisementError as error:
        raise click.UsageError(str(error)) from error
    with _nodes(place, kubeconfig, context) as nodes:
        click.echo(f"devplug: in {nodes.where}", err=True)
        node = nodes.get(node_name)
        for warning in warnings(node_name, node, wish):
            click.echo(f"devplug: warning: {warning}", err=True)
        patch = changes(node, wish)
        if patch:
            nodes.patch_status(node_name, patch, dry_run=dry_run)
        for line in lines(node_name, node, wish):
            click.echo(f"{line} (dry run)" if dry_run else line)
    return OK


def _nodes(place: Place, kubeconfig: str | None, context: str | None) -> AbstractContextManager[_Nodes]:
    is_here = kubeconfig is None and context is None
    if kubeconfig is not None and context is None:
        is_here = Path(kubeconfig).absolute() == place.kubeconfig
    if is_here and place.running() is not None:
        where = f"the sandbox in {place.folder}"
        return nullcontext(_SandboxNodes(SandboxClient(place), where))
    file = kubeconfig or os.environ.get(KUBECONFIG_VARIABLE) or _DEFAULT_KUBECONFIG
    return _cluster_nodes(file, context, "; no sandbox is up either" if is_here else "")


class _SandboxNodes:
    def __init__(self, client: SandboxClient, where: str) -> None:
        self._client = client
        self.where = where

    def get(self, name: str) -> Object:
        answer = self._client.ask("GET", _path(name))
        if answer.code == 404:
            known = ", ".join(self._client.record.nodes)
            raise AdvertisementError(f"the sandbox has no node {quoted(name)}; there is {known}")
        if answer.code != 200:
            raise AdvertisementError(text(answer.body, "message"))
        return answer.body

    def patch_status(self, name: str, patch: list[Object], *, dry_run: bool) -> None:
        path = f"{_path(name)}/status{'?dryRun=All' if dry_run else ''}"
        answer = self._client.ask("PATCH", path, patch, _JSON_PATCH)
        if answer.code != 200:
            raise AdvertisementError(text(answer.body, "message"))


def _path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"


@contextmanager
def _cluster_nodes(kubeconfig: str, context: str | None, besides: str) -> Iterator[_Nodes]:
    try:
        import lightkube
    except ImportError as error:
        raise MissingExtraError(
            "a cluster is reached with lightkube, which is not installed: install devplug[k8s]; "
            "or start a sandbox: devplug sandbox up"
        ) from error
    if os.pathsep in kubeconfig:
        raise ClusterError(f"KUBECONFIG names several files ({kubeconfig}); name one with --kubeconfig")
    try:
        config = lightkube.KubeConfig.from_file(kubeconfig).get(context)
        client = lightkube.Client(config)
    except Exception as error:  # a file of anybody's, which may have anything in it
        why = one_line(f"{type(error).__name__}: {error}", 120)
        which = f"context {context} of {kubeconfig}" if context else kubeconfig
        raise ClusterError(f"cannot use {which}: {why}{besides}") from error
    assert config is not None
    with client:
        yield _ClusterNodes(client, f"the cluster of context {config.context_name}")


class _ClusterNodes:
    def __init__(self, client: Client, where: str) -> None:
        self._client = client
        self.where = where

    def get(self, name: str) -> Object:
        from lightkube.resources.core_v1 import Node

        with self._explained(name):
            return dict(self._client.get(Node, name).to_dict())

    def patch_status(self, name: str, patch: list[Object], *, dry_run: bool) -> None:
        from lightkube.resources.core_v1 import NodeStatus
        from lightkube.types import PatchType

        with self._explained(name):
            self._client.patch(NodeStatus, name, patch, patch_type=PatchType.JSON, dry_run=dry_run)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        """Turn whatever goes wrong into a `ClusterError`: proxies on the way answer as they like."""
        try:
            yield
        except Exception as error:
            code = getattr(getattr(error, "response", None), "status_code", None)
            said = one_line(str(error), 160) or type(error).__name__
            if code == 404:
                raise ClusterError(
                    f"{self.where} has no node {quoted(name)}; kubectl get nodes names them"
                ) from error
            if code in {401, 403}:
                raise ClusterError(
                    f"{self.where} refuses ({code} {said}); have somebody who may do it give you the "
                    f"rights: {_RIGHTS}, and bind it with kubectl create clusterrolebinding"
                ) from error
            raise ClusterError(f"{self.where} gives no answer to use ({said})") from error
