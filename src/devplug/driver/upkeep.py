"""The upkeep of claims in use: their CDI files stay right, and forgotten claims end.

The kubelet has a claim prepared before a pod's first container starts, and not again while its sandbox lives
(dra.md D14): for a container that restarts the runtime reads the CDI file as it is then. So a device that was
plugged in again gets the paths of its new nodes there. A device that is gone gets a path that leads nowhere:
its old one may be another pod's device by now, and the container waits until its own is back. An unhealthy
device may still have its nodes: it keeps its paths until it is well. A file that another program has removed
or changed is restored at once.

A kubelet whose state was wiped does not unprepare what it prepared before, and its claims may be deleted
while it is away. So a claim ends that is free by the API server in two looks, with one kubelet connected from
the first look on: that kubelet unprepares what it knows within a minute, and tries again every ten seconds
(dra.md D26 to D28). A claim that it lists, or has had prepared itself, does not end.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from devplug.driver.claim_spec import current_spec
from devplug.driver.claims import ClaimRefusedError, by_request, is_free
from devplug.errors import DevplugError
from devplug.k8s.errors import NotThereError
from devplug.linux.inotify import EventKind, shared_watcher
from devplug.linux.notifier import within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from devplug.cdi.spec import CdiSpec
    from devplug.devices import ContainerResponse
    from devplug.driver.claims import ClaimUse, DeviceUse
    from devplug.driver.offer import ClaimReader, DriverResource, Offer
    from devplug.driver.prepared_claims import PreparedClaims
    from devplug.linux.inotify import FileEvent

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 10.0
"""How long until a file that could not be written is tried again."""

LOOK_SECONDS: Final = 60.0
"""How often files are checked, as inotify may be used up, and how often one claim is looked up."""


# ── the CDI files ──


class Refresher:
    """The refresher of one driver; lives from `run` to its cancellation."""

    def __init__(self, store: PreparedClaims, resources: Mapping[str, DriverResource], offer: Offer) -> None:
        self._store = store
        self._resources = resources
        self._offer = offer
        self._logged: dict[str, str] = {}
        """Why the file of a claim could not be refreshed, by UID."""

    async def run(self) -> None:
        """Refresh the CDI files of all claims at the start, and later of claims with changed devices."""
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
            now = self._offer.devices_of(use.devices)
            is_known = any(now) or any(one.resource_name in self._offer.listed for one in use.devices)
            is_changed = is_known and now != self._store.seen.get(use.uid)
            if is_changed and self._store.is_prepared(use):
                is_current &= await self._done(use.uid, self._refresh)
        return is_current

    async def _refresh(self, uid: str) -> None:
        use = self._store.claims.get(uid)
        if use is not None and self._store.is_prepared(use):
            devices = self._offer.devices_of(use.devices)
            if (spec := self._store.spec_of(uid)) is not None:  # else containers get nothing of ours
                await self._rewrite(use, spec)
            self._store.seen[uid] = devices

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

    async def _rewrite(self, use: ClaimUse, spec: CdiSpec) -> None:
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
        """Return what containers get now of each device, as far as it is known; append errors to `errors`."""
        found: dict[DeviceUse, ContainerResponse | None] = {}
        for name, requests in by_request(use.devices).items():
            for request, ids in requests.items():
                devices = [one for one in use.devices if (one.resource_name, one.request) == (name, request)]
                if not any(self._offer.devices_of(devices)):
                    if name in self._offer.listed:
                        found |= dict.fromkeys(devices)
                    continue  # else their resource has no list yet, or is served no more
                try:
                    if name not in self._resources:
                        raise ClaimRefusedError(f"{name} is not served by this driver any more")
                    answers = await self._resources[name].current(ids, devices[0].first_index)
                except DevplugError as error:  # the other requests' devices are followed all the same
                    errors.append(error)
                else:
                    found |= {one: answers[one.device_id] for one in devices if one.device_id in answers}
        return found


# ── forgotten claims ──

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

    `kubelet` returns a number that differs between two kubelets, and None without a kubelet.
    """

    def __init__(
        self,
        driver: str,
        node_name: str,
        store: PreparedClaims,
        reader: ClaimReader,
        kubelet: Callable[[], int | None],
    ) -> None:
        self._driver = driver
        self._node_name = node_name
        self._store = store
        self._reader = reader
        self._kubelet = kubelet
        self._known_kubelet: int | None = None
        self._looked_at: dict[str, float] = {}
        self._free: set[str] = set()
        """UIDs of claims that were free at their last look."""

    async def run(self, end: Callable[[ClaimUse], Awaitable[None]]) -> None:
        """Look up one claim after the other; `end` is called for each use that no kubelet will end."""
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
                await self._look(uid, end)

    async def _look(self, uid: str, end: Callable[[ClaimUse], Awaitable[None]]) -> None:
        """Look up a claim. A failure is ignored, because the next look comes soon."""
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
                    await end(use)
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
