"""The DRA manager of one kubelet process: it has drivers prepare and unprepare the claims of pods.

It owns the claim cache, the health of devices, and the files of both (cm/dra/manager.go). When it is asked to
prepare or unprepare is for whoever runs the pods to say, and so is when to try again:
`PREPARE_AGAIN_SECONDS`, `UNPREPARE_AGAIN_SECONDS`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from devplug.errors import KubeletError, RemoteError
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.dra import claim_cache, health
from devplug.kubelet.dra.claim_cache import ClaimCache, unprepare_fault
from devplug.kubelet.dra.claim_objects import ClaimError, claim_names, read_claim, used_claim
from devplug.kubelet.dra.drivers import Drivers
from devplug.kubelet.dra.health import HealthCache
from devplug.kubelet.pluginfolder import replace_file
from devplug.kubelet_dir import DRA_HEALTH_NAME, DRA_STATE_NAME
from devplug.linux.supervision import kept_running
from devplug.wire.values import ClaimResource, DynamicResource

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from devplug.kubelet.changes import Changes
    from devplug.kubelet.claim_references import ResourceHealth
    from devplug.kubelet.dra.claim_cache import ClaimInfo, ClaimKey
    from devplug.kubelet.dra.claim_objects import Claim
    from devplug.kubelet.dra.drivers import DriverEndpoint
    from devplug.kubelet.metrics import KubeletMetrics
    from devplug.kubelet.pods import Container, Pod
    from devplug.kubelet.podtable import PodTable
    from devplug.kubelet.settings import KubeletSettings
    from devplug.wire.dra import DeviceHealthReport

logger = logging.getLogger(__name__)

PREPARE_AGAIN_SECONDS: Final = 60.0
"""When the real kubelet looks again at a pod whose claims could not be prepared: with its periodic sync,
after 60 to 90 s (kuberuntime_manager.go). Only another reason to sync the pod is faster."""

UNPREPARE_AGAIN_SECONDS: Final = 10.0
"""When it tries again to end a pod whose claims could not be unprepared, after 10 to 15 s."""

PREPARE_FAILED: Final = "FailedPrepareDynamicResources"
"""The reason of the event on a pod whose claims could not be prepared (events/event.go)."""

RECONCILE_SECONDS: Final = 60.0
_SYNC_SECONDS: Final = 0.1
"""How long it takes until a pod's status is written again after a change of health."""

_STOP_TIMEOUT_SECONDS: Final = 5.0


class DraManager:
    """The DRA manager. Lives from `start` to `stop`; can be read later.

    Its files are in the kubelet's root, the folder around `plugins_registry`; without that there are no
    drivers, and no files. As long as `sources_ready` returns false, nothing is reconciled.
    """

    def __init__(
        self,
        pods: PodTable,
        sources_ready: Callable[[], bool],
        changes: Changes,
        metrics: KubeletMetrics,
        settings: KubeletSettings,
    ) -> None:
        registry = settings.plugins_registry
        self.claims = ClaimCache()
        self.health = HealthCache()
        self.drivers: Drivers | None = None
        self._folder: Path | None = None if registry is None else registry.parent
        self._sources_ready = sources_ready
        self._pods = pods
        self._changes = changes
        self._metrics = metrics
        self._settings = settings
        self._epoch_seconds = time.time() - settings.clock()
        self._shown: dict[str, Mapping[str, Mapping[str, Sequence[ResourceHealth]]]] = {}
        self._to_sync: set[str] = set()
        self._is_due = asyncio.Event()
        self._written: dict[str, bytes] = {}
        self._running: list[asyncio.Task[None]] = []

    # ── start and stop ──

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Read both files, remove the node's slices, and reconcile from now on.

        Raises `KubeletError` for a file of claims that it cannot use.
        """
        if self._folder is None:
            return
        self._read(self._folder)
        self.drivers = Drivers(
            tasks,
            self,
            self._settings.slices,
            self._metrics,
            lambda: self._changes.announce(ChangeKind.DRIVER),
        )
        self.drivers.open()
        self._running = [
            tasks.create_task(kept_running(self._reconcile_for_ever, _report), name="DRA reconciler"),
            tasks.create_task(kept_running(self._sync_for_ever, _report), name="DRA health"),
        ]

    async def stop(self) -> None:
        """Close the connections to drivers; the files stay as they are. Safe to repeat."""
        running, self._running = self._running, []
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_STOP_TIMEOUT_SECONDS)
        drivers, self.drivers = self.drivers, None
        if drivers is not None:
            await drivers.close()

    def has_driver(self, name: str) -> bool:
        """Whether a driver is registered and connected."""
        return self.drivers is not None and self.drivers.is_usable(name)

    # ── prepare ──

    async def prepare(self, pod: Pod) -> None:
        """Have the drivers prepare all claims of a pod, as it is now, that are not prepared.

        Raises `ClaimError` with the event's message; then some may be prepared, and the pod may not start.
        """
        self._pods.renew(pod)
        with self._metrics.measure_dra("PrepareResources"):
            try:
                await self._prepare(pod)
            except (ClaimError, RemoteError) as error:
                text = f"Failed to prepare dynamic resources: prepare dynamic resources: {error}"
                raise ClaimError(text) from error
        self.sync(pod)

    async def try_prepare(self, pod: Pod) -> bool:
        """Prepare, and say whether the pod may start; where not, an event on the pod says why."""
        try:
            await self.prepare(pod)
        except ClaimError as error:
            self._pods.warn(pod.uid, PREPARE_FAILED, str(error))
            return False
        return True

    async def _prepare(self, pod: Pod) -> None:
        # All is checked before anything is kept: a pod that fails here leaves no trace, and can be deleted.
        used: dict[ClaimKey, Claim] = {}
        endpoints: dict[str, DriverEndpoint] = {}
        for pod_claim, name in claim_names(pod):
            claim = used_claim(pod, pod_claim, await self._fetched(pod.namespace, name))
            used[claim.key] = claim
            for driver in claim.drivers or ():
                endpoints[driver] = self._endpoint(driver)
        if not used:
            return
        for claim in used.values():
            self._keep(self.claims.referenced(claim, pod.uid), "checkpoint ResourceClaim cache")
        keys = [key for key in used if not self.claims.claims[key].is_prepared]
        for driver, asked in self.claims.batches(keys).items():
            # One that the claim had when it was cached, and has no more, was not looked at above.
            endpoint = endpoints.get(driver) or self._endpoint(driver)
            try:
                answers = await endpoint.prepare(asked)
            except RemoteError as error:
                raise ClaimError(f"NodePrepareResources: {error}") from error
            self.claims, fault = self.claims.answered(driver, asked, answers, compat=self._settings.compat)
            if fault:
                raise ClaimError(fault)
        self._keep(self.claims.prepared(keys), "checkpoint ResourceClaim state")

    async def _fetched(self, namespace: str, name: str) -> Claim:
        try:
            if self._settings.claims is None:
                raise KubeletError(f'resourceclaims.resource.k8s.io "{name}" not found')
            return read_claim(await self._settings.claims.get_claim(namespace, name))
        except KubeletError as error:
            raise ClaimError(f"fetch ResourceClaim {name}: {error}") from error

    def _endpoint(self, driver: str) -> DriverEndpoint:
        if self.drivers is None:
            raise ClaimError("the kubelet is not running")
        return self.drivers.endpoint(driver)

    # ── unprepare ──

    async def unprepare(self, pod: Pod) -> None:
        """Have the drivers unprepare the claims that no other pod of this node uses.

        Raises `ClaimError`; then the pod is not to end yet.
        """
        with self._metrics.measure_dra("UnprepareResources"):
            try:
                names = self.claims.names_of(pod.uid) or [name for _, name in claim_names(pod)]
                await self._unprepare(pod.uid, pod.namespace, names)
            except (ClaimError, RemoteError) as error:
                raise ClaimError(f"unprepare dynamic resources: {error}") from error

    async def _unprepare(self, pod_uid: str, namespace: str, names: Iterable[str]) -> None:
        release = self.claims.release(pod_uid, namespace, names)
        self.claims = release.cache
        for driver, asked in release.batches.items():
            try:
                answers = await self._endpoint(driver).unprepare(asked)
            except RemoteError as error:
                raise ClaimError(f"NodeUnprepareResources: {error}") from error
            if fault := unprepare_fault(asked, answers):
                raise ClaimError(fault)
        self._keep(self.claims.without(release.keys), "checkpoint ResourceClaim state")

    async def reconcile(self) -> None:
        """Unprepare what pods hold that are not active any more; does nothing until all pods are known."""
        if not self._sources_ready():
            return
        for pod_uid, namespace, names in tuple(self.claims.inactive(self._pods.active_uids())):
            try:
                await self._unprepare(pod_uid, namespace, names)
            except ClaimError as error:
                logger.info(
                    "cannot unprepare the claims of a pod that is gone; tried again",
                    extra={"pod_uid": pod_uid, "reason": str(error)},
                )

    async def _reconcile_for_ever(self) -> None:
        while True:
            await self.reconcile()
            self._sync_soon(self._pods.active_uids())
            await asyncio.sleep(RECONCILE_SECONDS)

    # ── what a container gets, and what monitors see ──

    def cdi_devices(self, pod: Pod, container: Container) -> tuple[str, ...]:
        """Return the CDI names of the devices that a container uses, by claim and request; some may repeat.

        A claim that was never prepared has none.
        """
        return tuple(
            name
            for claim, requests in self._used_by(pod, container)
            for request in requests
            for _, device in (claim.serving(request) if claim else ())
            for name in device.cdi_device_ids
        )

    def dynamic_resources(self, pod: Pod, container: Container) -> tuple[DynamicResource, ...]:
        """Return the claims of a container with all their devices, whatever requests it uses.

        Empty if one of them is unknown (container_manager_linux.go GetDynamicResources).
        """
        used = tuple(claim for claim, _ in self._used_by(pod, container))
        return tuple(
            DynamicResource(
                claim.name,
                claim.namespace,
                tuple(
                    ClaimResource(
                        driver, device.pool_name, device.device_name, device.cdi_device_ids, device.share_id
                    )
                    for driver, device in claim.serving("")
                ),
            )
            for claim in used
            if claim is not None and None not in used
        )

    def _used_by(self, pod: Pod, container: Container) -> Iterator[tuple[ClaimInfo | None, list[str]]]:
        """Yield the claims that a container uses, as the pod orders them, with the requests of each.

        None stands for one that is not in the cache.
        """
        for one in pod.resource_claims:
            requests = [used.request for used in container.claims if used.name == one.name]
            if requests and one.claim_name is not None:
                yield self.claims.claims.get((pod.namespace, one.claim_name)), requests
        extended = pod.extended_claim
        if extended is not None:
            mappings = [one for one in extended.mappings if one.container_name == container.name]
            if mappings:
                claim = self.claims.claims.get((pod.namespace, extended.claim_name))
                yield claim, [one.request_name for one in mappings]

    # ── health (HealthSink) ──

    def health_reported(self, driver: str, reports: Sequence[DeviceHealthReport]) -> None:
        """Keep a driver's message, and have the status of those pods written again that it concerns."""
        self.health, changed = self.health.reported(driver, reports, self._settings.clock())
        if changed:
            self._write_health()
            self._sync_soon(self.claims.users_of(driver, changed))

    def health_ended(self, driver: str) -> None:
        """Forget all that a driver has told; pods show it when their status is written the next time."""
        self.health = self.health.without(driver)
        self._write_health()

    def health_of(self, pod_uid: str) -> Mapping[str, Mapping[str, Sequence[ResourceHealth]]]:
        """Return container → name in `allocatedResourcesStatus` → devices, as of the last sync of a pod."""
        return self._shown.get(pod_uid, {})

    def forget(self, pod_uid: str) -> None:
        """Forget what the status of a pod showed, as it is gone; its claims are for `reconcile`."""
        self._shown.pop(pod_uid, None)

    def sync(self, pod: Pod) -> None:
        """Take the health of a pod's devices into its status, as each sync does of a pod that is here."""
        if not self._pods.is_known(pod.uid):
            return
        shown = health.claims_health(pod, self.claims, self.health, self._settings.clock())
        if shown != self._shown.get(pod.uid, {}):
            self._shown[pod.uid] = shown
            self._changes.announce(ChangeKind.HEALTH, pod_uid=pod.uid)

    def _sync_soon(self, pod_uids: Collection[str]) -> None:
        self._to_sync.update(pod_uids)
        self._is_due.set()

    async def _sync_for_ever(self) -> None:
        while True:
            await self._is_due.wait()
            await asyncio.sleep(_SYNC_SECONDS)
            self._is_due.clear()
            due, self._to_sync = self._to_sync, set()
            for pod in self._pods.active():
                if pod.uid in due and pod.resource_claims:
                    self.sync(pod)

    # ── files ──

    def _keep(self, claims: ClaimCache, what: str) -> None:
        """Replace the cache, and then the file; raises `ClaimError` if the latter fails."""
        self.claims = claims
        self._metrics.show_claims(claims.in_use())
        try:
            self._write(DRA_STATE_NAME, claim_cache.encode(claims))
        except OSError as error:
            raise ClaimError(f"{what}: {error}") from error

    def _write_health(self) -> None:
        try:
            self._write(DRA_HEALTH_NAME, health.encode(self.health, self._epoch_seconds))
        except OSError as error:
            logger.warning("cannot write the health of devices", exc_info=error)

    def _write(self, name: str, content: bytes) -> None:
        """Replace a file unless it has that content already. Raises `OSError`."""
        if self._folder is not None and self._written.get(name) != content:
            replace_file(self._folder / name, content)
            self._written[name] = content

    def _read(self, folder: Path) -> None:
        state = folder / DRA_STATE_NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if state.exists():
                self.claims = claim_cache.decode(state.read_bytes())
            else:
                self._write(DRA_STATE_NAME, claim_cache.encode(None))
        except OSError as error:
            raise claim_cache.DraStateError(str(error)) from error
        self._metrics.show_claims(self.claims.in_use())
        try:
            self.health = health.decode((folder / DRA_HEALTH_NAME).read_bytes(), self._epoch_seconds)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            logger.warning("cannot read the health of devices; it is forgotten", exc_info=error)


def _report(error: Exception) -> None:
    logger.error("a part of the DRA manager failed because of a bug; started again", exc_info=error)
