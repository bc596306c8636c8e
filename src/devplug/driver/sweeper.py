"""The sweeper of claims that no kubelet remembers: it ends their use once nobody can.

A kubelet whose state was wiped does not unprepare what it prepared before, and its claims may be deleted
while it is away. So a claim is ended that is free by the API server, and was so at an earlier look, with one
kubelet connected from then on: such a one unprepares what it knows within a minute, and tries again every ten
seconds (dra.md D26 to D28). What that kubelet lists, or has had prepared itself, is not ended. Of the others
one claim a minute is asked about.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from devplug.driver.claims import is_free
from devplug.errors import DevplugError
from devplug.k8s.errors import NotThereError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from devplug.driver.claim_uses import ClaimUse
    from devplug.driver.offer import ClaimReader
    from devplug.driver.prepared_claims import PreparedClaims

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 60.0
"""How often one claim is looked up."""

GRACE_SECONDS: Final = 600.0
"""How long a claim must have been free, and how long until the same one is looked up again."""

ANSWER_SECONDS: Final = 10.0
"""How long the API server may take: a prepare may wait for the lock meanwhile."""


def next_look(uids: Iterable[str], looked_at: Mapping[str, float], now: float) -> str | None:
    """Return the claim that waits longest to be looked up; None if none has waited for `GRACE_SECONDS`.

    `looked_at` has the times of earlier looks in seconds.
    """
    due = [uid for uid in uids if uid not in looked_at or looked_at[uid] + GRACE_SECONDS <= now]
    return min(due, key=lambda uid: looked_at.get(uid, float("-inf")), default=None)


class Sweeper:
    """The sweeper of one driver; lives from `run` to its cancellation.

    `end` ends a use. `kubelet` tells one kubelet from the next; it returns None while none is there.
    """

    def __init__(
        self,
        driver: str,
        node_name: str,
        store: PreparedClaims,
        end: Callable[[ClaimUse], Awaitable[None]],
        reader: ClaimReader,
        kubelet: Callable[[], int | None],
    ) -> None:
        self._driver = driver
        self._node_name = node_name
        self._store = store
        self._end = end
        self._reader = reader
        self._kubelet = kubelet
        self._known_kubelet: int | None = None
        self._looked_at: dict[str, float] = {}
        self._free: set[str] = set()
        """UIDs of claims that were free at their last look."""

    async def run(self) -> None:
        """Look up one claim after the other, and end the use of those that nobody else will."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if (kubelet := self._kubelet()) != self._known_kubelet:
                self._known_kubelet = kubelet
                self._looked_at, self._free = {}, set()
                continue  # it has a minute to say which claims it knows
            uids = self._store.claims.keys() - self._store.asked_for
            self._looked_at = {uid: at for uid, at in self._looked_at.items() if uid in uids}
            now = asyncio.get_running_loop().time()
            if kubelet is not None and (uid := next_look(sorted(uids), self._looked_at, now)):
                self._looked_at[uid] = now
                await self._look(uid)

    async def _look(self, uid: str) -> None:
        """Look up a claim; raises nothing, as it is looked up again."""
        try:
            if uid not in self._free:
                if await self._is_free(self._store.claims[uid]):
                    self._free.add(uid)
                return
            self._free.discard(uid)
            async with self._store.alone(uid), self._store.locked():
                use = self._store.claims.get(uid)
                # Asked under the lock: a pod's claim is reserved before it is prepared.
                if use is None or uid in self._store.asked_for or self._store.is_listed(use):
                    return
                if await self._is_free(use) and self._kubelet() == self._known_kubelet:
                    logger.warning(
                        "a claim is free by the API server, and no kubelet remembers it; its use is ended",
                        extra={"claim": str(use), "claim_uid": uid},
                    )
                    await self._end(use)
        except (DevplugError, TimeoutError) as error:
            logger.info(
                "a claim that no kubelet has asked for could not be looked up, or not released; tried again",
                extra={"claim_uid": uid, "reason": str(error)},
            )

    async def _is_free(self, use: ClaimUse) -> bool:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await self._reader.get_claim(use.namespace, use.name)
        except NotThereError:
            return True
        names = {device.name for device in use.devices}
        return is_free(found, use.uid, self._driver, self._node_name, names)
