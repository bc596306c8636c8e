"""The reader of ResourceClaims: one connection to the API server, made anew when it failed or is old."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from devplug.driver.api_versions import served_version
from devplug.driver.offer import ClusterClaims
from devplug.k8s.client import connected
from devplug.k8s.errors import ClusterError, NotThereError

if TYPE_CHECKING:
    from collections.abc import Callable

    from devplug.k8s.account import Account
    from devplug.k8s.objects import Object

__all__ = ["READER_RIGHTS", "ConnectedClaims"]

READER_RIGHTS: Final = "get resourceclaims"

CONNECTION_SECONDS: Final = 600.0
"""How long a connection is used: the token of a pod is replaced within the hour."""


class ConnectedClaims:
    """The claims of the cluster, over a connection of its own; lives as long as its driver, until `close`.

    `account_of` returns the account, and is called for each connection.
    """

    def __init__(self, account_of: Callable[[], Account]) -> None:
        self._account_of = account_of
        self._stack = AsyncExitStack()
        self._claims: ClusterClaims | None = None
        self._outdated_at = 0.0
        self._connecting = asyncio.Lock()

    async def get_claim(self, namespace: str, name: str) -> Object:
        """Return a claim's object, of the version that is served.

        Raises `NotThereError` if there is none, and else `ClusterError`.
        """
        async with self._connecting:
            claims = await self._connected()
        try:
            return await claims.get_claim(namespace, name)
        except NotThereError:
            raise
        except ClusterError:
            if self._claims is claims:
                self._outdated_at = 0.0
            raise

    async def _connected(self) -> ClusterClaims:
        now = asyncio.get_running_loop().time()
        if self._claims is None or now >= self._outdated_at:
            await self.close()
            server = await self._stack.enter_async_context(connected(self._account_of))
            self._claims = ClusterClaims(server, await served_version(server, rights=READER_RIGHTS))
            self._outdated_at = now + CONNECTION_SECONDS
        return self._claims

    async def close(self) -> None:
        """Close the connection."""
        self._claims = None
        await self._stack.aclose()
