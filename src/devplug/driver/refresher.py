"""The refresher of claims' CDI files: what they say of the host stays right while devices come and go.

The kubelet has a claim prepared before a pod's first container starts, and not again while its sandbox lives
(dra.md D14): a container that restarts has its CDI names looked up in the file as it is then. So a device
that was plugged in again gets the paths of its new nodes there. One that is gone gets a path that leads
nowhere: its old one may be another pod's device by now, and the container waits until its own is back.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from devplug.driver.claim_spec import current_spec
from devplug.driver.claim_uses import asked
from devplug.driver.claims import ClaimRefusedError
from devplug.errors import DevplugError, NotReadyError
from devplug.linux.notifier import within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.devices import ContainerResponse
    from devplug.driver.claim_uses import ClaimUse
    from devplug.driver.offer import DriverResource, Offer
    from devplug.driver.prepared_claims import PreparedClaims

__all__ = ["Refresher"]

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 10.0
"""How long until a file that could not be written is tried again."""


class Refresher:
    """The refresher of one driver; lives from `run` to its cancellation."""

    def __init__(self, store: PreparedClaims, resources: Mapping[str, DriverResource], offer: Offer) -> None:
        self._store = store
        self._resources = resources
        self._offer = offer
        self._logged: dict[str, str] = {}
        """Why the file of a claim could not be refreshed, by UID."""

    async def run(self) -> None:
        """Refresh the file of each claim whose devices have changed, and of all once after a start."""
        while True:
            change = self._offer.changed.next
            is_current = True
            for use in list(self._store.claims.values()):
                now = self._offer.devices_of(one.name for one in use.devices)
                is_changed = now is not None and now != self._store.seen.get(use.uid)
                if is_changed and self._store.is_prepared(use):
                    is_current &= await self._refresh(use.uid)
            await within(None if is_current else RETRY_SECONDS, change.wait())

    async def _refresh(self, uid: str) -> bool:
        """Refresh one file; return whether it is as it should be."""
        try:
            async with self._store.alone(uid), self._store.locked():
                use = self._store.claims.get(uid)
                if use is not None and self._store.is_prepared(use):
                    now = self._offer.devices_of(one.name for one in use.devices)
                    with suppress(NotReadyError):  # it is sick, and may have its nodes: the next change says
                        await self._refresh_use(use)
                    self._store.seen[uid] = now
        except (DevplugError, TimeoutError) as error:
            if self._logged.get(uid) != str(error):
                self._logged[uid] = str(error)
                logger.warning(
                    "the CDI file of a claim cannot be refreshed; a container that restarts may not start",
                    extra={"claim_uid": uid, "reason": str(error)},
                )
            return False
        self._logged.pop(uid, None)
        return True

    async def _refresh_use(self, use: ClaimUse) -> None:
        spec = self._store.spec_of(use.uid)
        if spec is None:  # containers get nothing of it, or only what others wrote
            return
        now = current_spec(spec, use, await asked(use, self._current))
        if now == spec:
            return
        await self._store.publish(use, now)
        logger.info(
            "the CDI file of a claim was refreshed, as its devices have other nodes now",
            extra={"claim": str(use), "claim_uid": use.uid, "devices": [one.name for one in use.devices]},
        )

    async def _current(
        self, name: str, requests: Mapping[str, Sequence[str]]
    ) -> Sequence[Sequence[ContainerResponse | None]]:
        if name not in self._resources:
            raise ClaimRefusedError(f"{name} is not served by this driver any more")
        return await self._resources[name].current([*requests.values()])
