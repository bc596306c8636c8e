"""The refresher of claims' CDI files: what they say of the host stays right while devices come and go.

The kubelet has a claim prepared before a pod's first container starts, and not again while its sandbox lives
(dra.md D14): a container that restarts has its CDI names looked up in the file as it is then. So a device
that was plugged in again gets the paths of its new nodes there. One that is gone gets a path that leads
nowhere: its old one may be another pod's device by now, and the container waits until its own is back. Of
one that is sick it is not known whether it still has its nodes: it keeps its paths until it is well.

A file that another program has removed or changed is restored at once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from devplug.driver.claim_spec import current_spec
from devplug.driver.claim_uses import by_request
from devplug.driver.claims import ClaimRefusedError
from devplug.errors import DevplugError
from devplug.linux.inotify import EventKind, shared_watcher
from devplug.linux.notifier import within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from devplug.devices import ContainerResponse
    from devplug.driver.claim_uses import ClaimUse, DeviceUse
    from devplug.driver.offer import DriverResource, Offer
    from devplug.driver.prepared_claims import PreparedClaims
    from devplug.linux.inotify import FileEvent

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 10.0
"""How long until a file that could not be written is tried again."""

LOOK_SECONDS: Final = 60.0
"""How often files are looked for, as inotify may be used up."""


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
        async with shared_watcher() as watcher:
            with watcher.subscribe(lambda: None, self._look_again) as subscription:
                while True:
                    subscription.arm([self._store.cdi_files], writes_in=str(self._store.cdi_folder))
                    change = self._offer.changed.next
                    is_current = await self._refresh_all()
                    await within(LOOK_SECONDS if is_current else RETRY_SECONDS, change.wait())

    def _look_again(self, event: FileEvent) -> None:
        # The files that we write appear, too.
        if event.kind is not EventKind.APPEARED or self._store.lost():
            self._offer.changed.notify()

    async def _refresh_all(self) -> bool:
        """Restore and refresh all files; return whether they are as they should be."""
        is_current = True
        for uid in self._store.lost():
            is_current &= await self._done(uid, self._store.restore)
        for use in list(self._store.claims.values()):
            now = self._offer.devices_of(one.name for one in use.devices)
            is_known = any(now) or any(one.resource_name in self._offer.listed for one in use.devices)
            is_changed = is_known and now != self._store.seen.get(use.uid)
            if is_changed and self._store.is_prepared(use):
                is_current &= await self._done(use.uid, self._refresh)
        return is_current

    async def _refresh(self, uid: str) -> None:
        use = self._store.claims.get(uid)
        if use is not None and self._store.is_prepared(use):
            now = self._offer.devices_of(one.name for one in use.devices)
            await self._refresh_use(use)
            self._store.seen[uid] = now

    async def _done(self, uid: str, work: Callable[[str], Awaitable[None]]) -> bool:
        """Work on one file; return whether it is as it should be."""
        try:
            async with self._store.alone(uid), self._store.locked():
                await work(uid)
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
        errors: list[DevplugError] = []
        now = current_spec(spec, await self._responses(use, errors))
        if now != spec:
            await self._store.publish(use, now)
            logger.info(
                "the CDI file of a claim was refreshed, as its devices have other nodes now",
                extra={"claim": str(use), "claim_uid": use.uid, "devices": [one.name for one in use.devices]},
            )
        if errors:
            raise errors[0]

    async def _responses(
        self, use: ClaimUse, errors: list[DevplugError]
    ) -> Mapping[DeviceUse, ContainerResponse | None]:
        """Return what containers get now of the devices of which that is known; note errors."""
        found: dict[DeviceUse, ContainerResponse | None] = {}
        for name, requests in by_request(use.devices).items():
            for request, ids in requests.items():
                devices = [one for one in use.devices if (one.resource_name, one.request) == (name, request)]
                if not any(one.name in self._offer.devices for one in devices):
                    if name in self._offer.listed:
                        found |= dict.fromkeys(devices)
                    continue  # else their resource has no list yet, or is served no more
                try:
                    answers = await self._current(name, ids, devices[0].first_index)
                except DevplugError as error:  # the other requests' devices are followed all the same
                    errors.append(error)
                else:
                    found |= {one: answers[one.device_id] for one in devices if one.device_id in answers}
        return found

    async def _current(
        self, name: str, device_ids: Sequence[str], first_index: int
    ) -> Mapping[str, ContainerResponse | None]:
        if name not in self._resources:
            raise ClaimRefusedError(f"{name} is not served by this driver any more")
        return await self._resources[name].current(device_ids, first_index)
