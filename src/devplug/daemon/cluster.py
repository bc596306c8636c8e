"""What the API server knows: this machine's labels, and the resource names of others. Nothing else asks it.

The only module that knows lightkube (the extra `[k8s]`), which is imported at the first question.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import random
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from devplug.errors import DevplugError, one_line, quoted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping

    from lightkube import AsyncClient

__all__ = [
    "ACCOUNT_FOLDER",
    "KUBECONFIG_VARIABLE",
    "ClusterError",
    "MissingExtraError",
    "Retries",
    "extended_resource_names",
    "label_changes",
]

logger = logging.getLogger(__name__)

ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts a pod's ServiceAccount: its token, and the certificate of the API server."""

KUBECONFIG_VARIABLE: Final = "KUBECONFIG"
"""Names a kubeconfig for where there is no ServiceAccount, as outside of a pod."""

ANSWER_SECONDS: Final = 30.0
"""Longest wait for an answer."""

WATCH_SECONDS: Final = 300
"""How long one watch goes on before all is asked anew: a connection may be dead without anybody noticing."""

DEVICE_CLASS_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Versions of resource.k8s.io whose DeviceClasses can have an extendedResourceName, newest first."""

LIST_PAGE: Final = 500

_NODE_RIGHTS: Final = "get, list and watch nodes"
_CLASS_RIGHTS: Final = "list deviceclasses"
_NAME_ADVICE: Final = "set NODE_NAME from the pod's spec.nodeName"


class ClusterError(DevplugError):
    """The API server cannot be asked, or does not tell; it may pass. Look at the rights, or at the cluster.

    The text says what to change.
    """


class MissingExtraError(ClusterError):
    """lightkube is not installed, so nobody can ask the API server."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How long to wait after a failure: twice as long after each more, half of it by chance."""

    first_seconds: float = 1.0
    most_seconds: float = 60.0

    def wait_seconds(self, failures: int) -> float:
        """Return the wait after so many failures in a row."""
        longest = min(self.most_seconds, self.first_seconds * 2.0 ** min(failures - 1, 32))
        return longest * random.uniform(0.5, 1)  # noqa: S311 -- so that not all machines come back at once


async def label_changes(
    node_name: str,
    *,
    account: Path = ACCOUNT_FOLDER,
    retries: Retries | None = None,
    watch_seconds: float = WATCH_SECONDS,
) -> AsyncGenerator[Mapping[str, str]]:
    """Yield the labels of a machine's Node once they are known, and whenever they change, for ever.

    Raises nothing: what is wrong is logged once, and asked for again; the last labels stand meanwhile.
    Ends only if lightkube is not installed. Close it (`aclosing`) to close the connection.
    """
    retries = retries or Retries()
    last: Mapping[str, str] | None = None
    told = ""
    failures = 0
    while True:
        try:
            async with (
                _connected(account, _NODE_RIGHTS) as client,
                aclosing(_looks(client, node_name, watch_seconds)) as looks,
            ):
                async for labels, is_watched in looks:
                    if is_watched:
                        failures = 0
                        if told:
                            logger.info(
                                "the labels of this machine are known again", extra={"node": node_name}
                            )
                        told = ""
                    if labels != last:
                        last = labels
                        yield labels
        except ClusterError as error:
            failures += 1
            if str(error) != told:
                told = str(error)
                _tell(node_name, told, is_known=last is not None)
            if isinstance(error, MissingExtraError):
                return
            await asyncio.sleep(retries.wait_seconds(failures))


def _tell(node_name: str, reason: str, *, is_known: bool) -> None:
    extra = {"node": node_name, "reason": reason}
    if is_known:
        logger.warning("changes of this machine's labels cannot be seen; the last ones stand", extra=extra)
    else:
        logger.error(
            "the labels of this machine cannot be read; resources with nodeSelector are not served until "
            "they can, those with nodeNames are",
            extra=extra,
        )


async def _looks(
    client: AsyncClient, node_name: str, watch_seconds: float
) -> AsyncGenerator[tuple[Mapping[str, str], bool]]:
    """Yield the labels for as long as one watch lasts, and whether it is that which told them."""
    from lightkube.resources.core_v1 import Node

    with _explained(_NODE_RIGHTS, f"the cluster has no Node {quoted(node_name)}; {_NAME_ADVICE}"):
        async with asyncio.timeout(ANSWER_SECONDS):
            labels = _labels(await client.get(Node, node_name))
    yield labels, False
    deadline = asyncio.get_running_loop().time() + watch_seconds
    # Without a version, a watch begins with what there is: the first event shows that watching is allowed.
    events = client.watch(Node, fields={"metadata.name": node_name}, server_timeout=int(watch_seconds) + 1)
    async with aclosing(cast("AsyncGenerator[tuple[str, Node]]", events)) as stream:
        while True:
            with _explained(_NODE_RIGHTS):
                try:
                    async with asyncio.timeout_at(deadline):
                        kind, node = await anext(stream)
                except TimeoutError:
                    return
                labels = _labels(node)
            if kind == "DELETED":
                raise ClusterError(f"the Node {quoted(node_name)} was deleted; {_NAME_ADVICE}")
            yield labels, True


def _labels(node: Any) -> Mapping[str, str]:  # noqa: ANN401 -- lightkube decodes at the first look
    return MappingProxyType(dict(node.metadata.labels or {}))


async def extended_resource_names(*, account: Path = ACCOUNT_FOLDER) -> frozenset[str]:
    """Return the resource names that the cluster's DeviceClasses claim (KEP-5004); none before DRA.

    Raises `ClusterError` if the API server cannot be asked, or does not tell.
    """
    async with _connected(account, _CLASS_RIGHTS) as client:
        for version in DEVICE_CLASS_VERSIONS:
            device_class = await asyncio.to_thread(_device_class, version)
            try:
                with _explained(_CLASS_RIGHTS, "the API server has no such API"):
                    async with asyncio.timeout(ANSWER_SECONDS):
                        classes = client.list(device_class, chunk_size=LIST_PAGE)
                        names = [one.spec.extendedResourceName async for one in classes]
            except _NotThereError:
                continue
            return frozenset(name for name in names if name)
    return frozenset()


def _device_class(version: str) -> Any:  # noqa: ANN401 -- one of three classes with one shape
    return importlib.import_module(f"lightkube.resources.resource_{version}").DeviceClass


# ── the connection ──


class _NotThereError(ClusterError):
    """The API server answers that it has no such thing."""


@asynccontextmanager
async def _connected(account: Path, rights: str) -> AsyncIterator[AsyncClient]:
    """A client for the API server; nothing is asked yet."""
    # In a thread: the import and the certificates take a fifth of a second, in which pods may be admitted.
    client = await asyncio.to_thread(_connect, account, rights)
    try:
        yield client
    finally:
        await client.close()


def _connect(account: Path, rights: str) -> AsyncClient:
    try:
        import lightkube
    except ImportError as error:
        raise MissingExtraError("lightkube is not installed; install devplug[k8s]") from error
    # It logs each request at INFO.
    http = logging.getLogger("httpx2")
    if http.level == logging.NOTSET:
        http.setLevel(logging.WARNING)
    kubeconfig = os.environ.get(KUBECONFIG_VARIABLE)
    try:
        if (account / "token").exists():
            config = lightkube.KubeConfig.from_service_account(account)
        elif kubeconfig:
            config = lightkube.KubeConfig.from_file(kubeconfig)
        else:
            raise ClusterError(
                f"no ServiceAccount is mounted and {KUBECONFIG_VARIABLE} is not set; give the pod a "
                f"ServiceAccount that may {rights}"
            )
        return lightkube.AsyncClient(config)
    except ClusterError:
        raise
    except Exception as error:
        where = kubeconfig if kubeconfig and not (account / "token").exists() else account
        reason = one_line(f"{type(error).__name__}: {error}", 120)
        raise ClusterError(f"cannot use the account in {where}: {reason}; mend or mount it anew") from error


@contextmanager
def _explained(rights: str, when_absent: str = "") -> Iterator[None]:
    """Turn whatever goes wrong within one question to the API server into a `ClusterError`.

    Whatever: between us and it are proxies and load balancers, which answer as they like.
    """
    try:
        yield
    except Exception as error:
        code = getattr(getattr(error, "response", None), "status_code", None)
        if code is None:
            code = getattr(getattr(error, "status", None), "code", None)
        said = one_line(str(error), 120) or type(error).__name__
        if code == 404 and when_absent:
            raise _NotThereError(when_absent) from error
        if code in {401, 403}:
            raise ClusterError(
                f"the API server refuses ({code} {said}); let the ServiceAccount {rights}"
            ) from error
        raise ClusterError(f"the API server gives no answer to use ({said})") from error
