"""The labels of this node's Node object."""

from __future__ import annotations

import logging
from contextlib import aclosing
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from devplug.errors import quoted
from devplug.k8s.account import ACCOUNT_FOLDER, mounted_account
from devplug.k8s.client import NODES, Retries, connected, until_next_try
from devplug.k8s.errors import ClusterError
from devplug.k8s.objects import texts

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from devplug.k8s.client import ApiServer
    from devplug.k8s.objects import Object

logger = logging.getLogger(__name__)

WATCH_SECONDS: Final = 300
"""How long one watch lasts before it is started again, as its connection may be dead without a sign."""

_NODE_RIGHTS: Final = "get, list and watch nodes"
_NAME_ADVICE: Final = "set NODE_NAME from the pod's spec.nodeName"


async def label_changes(
    node_name: str,
    *,
    account: Path = ACCOUNT_FOLDER,
    retries: Retries | None = None,
    watch_seconds: float = WATCH_SECONDS,
) -> AsyncGenerator[Mapping[str, str]]:
    """Yield the labels of a machine's Node once they are known, and whenever they change, for ever.

    Raises nothing: an error is logged once, and retried; the last labels stay in effect meanwhile.
    Close it (`aclosing`) to close the connection.
    """
    retries = retries or Retries()
    last: Mapping[str, str] | None = None
    logged_error = ""
    failures = 0
    while True:
        try:
            async with (
                connected(lambda: mounted_account(account, _NODE_RIGHTS)) as server,
                aclosing(_looks(server, node_name, watch_seconds)) as looks,
            ):
                async for labels, is_watched in looks:
                    if is_watched:
                        failures = 0
                        if logged_error:
                            logger.info("the labels of this Node are read again", extra={"node": node_name})
                        logged_error = ""
                    if labels != last:
                        last = labels
                        yield labels
        except ClusterError as error:
            failures += 1
            if str(error) != logged_error:
                logged_error = str(error)
                _log_error(node_name, logged_error, is_known=last is not None)
            await until_next_try(retries.wait_seconds(failures), error)


def _log_error(node_name: str, reason: str, *, is_known: bool) -> None:
    extra = {"node": node_name, "reason": reason}
    if is_known:
        logger.warning("cannot watch the labels of this Node; those read last stay in effect", extra=extra)
    else:
        logger.error(
            "cannot read the labels of this Node; resources with nodeSelector are served once they "
            "can be read",
            extra=extra,
        )


async def _looks(
    server: ApiServer, node_name: str, watch_seconds: float
) -> AsyncGenerator[tuple[Mapping[str, str], bool]]:
    """Yield the labels during one watch, each time with whether they come from the watch."""
    absent = f"the cluster has no Node {quoted(node_name)}; {_NAME_ADVICE}"
    node = await server.get(NODES, node_name, rights=_NODE_RIGHTS, when_absent=absent)
    yield _labels(node), False
    changes = server.watch(
        NODES, seconds=watch_seconds, fields={"metadata.name": node_name}, rights=_NODE_RIGHTS
    )
    async with aclosing(changes):
        async for kind, node in changes:
            if kind == "DELETED":
                raise ClusterError(f"the Node {quoted(node_name)} was deleted; {_NAME_ADVICE}")
            yield _labels(node), True


def _labels(node: Object) -> Mapping[str, str]:
    return MappingProxyType(texts(node, "metadata", "labels"))
