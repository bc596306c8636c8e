"""The DRA driver of this node with all of its parts: sockets, slices, claims and resources.

Resources come and go while it runs. What they offer is published together, as the node has one pool.

Two instances may serve side by side, as during an update of a DaemonSet: each has sockets of its own, named
by its pod's UID, and they share the claims. The kubelet calls the instance that registered last and is
connected (dra.md D09), so a successor takes over as soon as it is asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import secrets
import time
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from devplug.cdi.files import CDI_FOLDER
from devplug.dra.taints import NO_EXECUTE, NO_SCHEDULE
from devplug.driver.claims import ClaimUse, DeviceUse, used_devices
from devplug.driver.device_entries import device_name
from devplug.driver.offer import (
    Offer,
    ResourceLists,
    held_by_former_names,
    offered_devices,
    shares_in_use,
    with_holders,
)
from devplug.driver.prepared_claims import STATE_NAME, PreparedClaims
from devplug.driver.publisher import PUBLISHER_RIGHTS, Publisher, Turns, served_version
from devplug.driver.service import ClaimService
from devplug.driver.status import ClaimCounters, HealthService, device_claims
from devplug.driver.upkeep import Refresher, Sweeper
from devplug.errors import KubeletError, PluginError
from devplug.holds.ownership import Whereabouts
from devplug.k8s.account import ACCOUNT_FOLDER, mounted_account
from devplug.k8s.client import CLAIMS, connected
from devplug.k8s.errors import ClusterError, NotThereError
from devplug.kubelet_dir import KUBELET_ROOT, REGISTRY_NAME
from devplug.linux.boot import boot_id
from devplug.linux.inotify import shared_watcher
from devplug.linux.memory import keep_large_blocks_apart
from devplug.linux.notifier import Notifier, within
from devplug.linux.trust import check_trusted
from devplug.linux.unix_sockets import SOCKET_PATH_LIMIT_BYTES
from devplug.logs import AUDIT
from devplug.status import DriverStatus
from devplug.wire.dra import PREPARE
from devplug.wire.pluginregistration import GET_INFO, NOTIFY_REGISTRATION_STATUS
from devplug.wire.sockets import UNIX_SOCKETS, Listener, unary
from devplug.wire.values import PluginInfo, RegistrationStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from devplug.devices import Device
    from devplug.driver.offer import ClaimReader, DriverResource
    from devplug.driver.parameters import ParameterDecoder
    from devplug.holds.hardware import Use
    from devplug.k8s.account import Account
    from devplug.k8s.client import ApiServer, Kind
    from devplug.k8s.objects import Object
    from devplug.status import DeviceClaim
    from devplug.wire.values import PodResources

logger = logging.getLogger(__name__)
audit = logging.getLogger(AUDIT)

LOOK_AGAIN_SECONDS: Final = 1.0
"""How long until a socket that could not be made is tried again."""

REPLACED_SECONDS: Final = 5.0
"""How long until a socket of another process is tried again, which may be killed without an event."""

PATIENCE_SECONDS: Final = 60.0
"""How long a kubelet may take to ask at a new socket before it is made again: a watcher may miss one."""

PATIENCE_LIMIT_SECONDS: Final = 600.0
DRAIN_SECONDS: Final = 10.0
"""The time limit for work on claims after the driver was told to end; the next instance does the rest."""

_UID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8}"

READER_RIGHTS: Final = "get resourceclaims"

TURNS_NAME: Final = "publisher.lock"

CONNECTION_SECONDS: Final = 600.0
"""How long claims are read over one connection: the token of a pod is replaced within the hour."""


class ClusterClaims:
    """The claims of the cluster, over a connection of its own, made anew when it failed or is old.

    It lives as long as its driver, until `close`. `account_of` returns the account, and is called for each
    connection.
    """

    def __init__(self, account_of: Callable[[], Account]) -> None:
        self._account_of = account_of
        self._stack = AsyncExitStack()
        self._connection: tuple[ApiServer, Kind] | None = None
        """With it, the claims of the version that is served."""
        self._outdated_at = 0.0
        self._connecting = asyncio.Lock()

    async def get_claim(self, namespace: str, name: str) -> Object:
        """Return a claim's object, of the version that is served.

        Raises `NotThereError` if there is none, and else `ClusterError`.
        """
        async with self._connecting:
            server, claims = connection = await self._connected()
        try:
            return await server.get(claims, name, namespace=namespace, rights=READER_RIGHTS)
        except NotThereError:
            raise
        except ClusterError:
            if self._connection is connection:
                self._outdated_at = 0.0
            raise

    async def _connected(self) -> tuple[ApiServer, Kind]:
        now = asyncio.get_running_loop().time()
        if self._connection is None or now >= self._outdated_at:
            await self.close()
            server = await self._stack.enter_async_context(connected(self._account_of))
            version = await served_version(server, rights=READER_RIGHTS)
            self._connection = server, replace(CLAIMS, version=version)
            self._outdated_at = now + CONNECTION_SECONDS
        return self._connection

    async def close(self) -> None:
        """Close the connection."""
        self._connection = None
        await self._stack.aclose()


class NodeDriver:
    """The driver of one name on this node; lives from `run` to its cancellation.

    Raises `PluginError` for a name that makes the sockets' paths too long. `account_of` returns the account
    of the API server, by default the mounted one. `owner` is recorded with each claim. `pods` returns what
    the kubelet's PodResources listed last, nothing where that is not known. `whereabouts` returns what
    is known of a device that is not offered by a name in slices.
    """

    def __init__(
        self,
        name: str,
        node_name: str,
        decode: ParameterDecoder,
        *,
        kubelet_root: Path,
        cdi_folder: Path | None = None,
        pod_uid: str = "",
        account_folder: Path = ACCOUNT_FOLDER,
        account_of: Callable[[], Account] | None = None,
        owner: str = "",
        pods: Callable[[], Sequence[PodResources]] = tuple,
        whereabouts: Callable[[str], Whereabouts] = lambda _: Whereabouts(),
    ) -> None:
        self.name = name
        self.changed = Notifier()
        """Notified whenever `status` may have changed, or the claims that use devices."""
        self._resources: dict[str, DriverResource] = {}
        self._lists = ResourceLists()
        self._evicting: set[str] = set()
        self._offers = Notifier()
        self._held_by_former_names: Mapping[tuple[str, str], str] = {}
        self._has_offered = False
        """Whether the publisher was told what there is."""

        def account() -> Account:
            return mounted_account(account_folder, PUBLISHER_RIGHTS)

        account_of = account_of or account
        self._reader = ClusterClaims(account_of)
        self._turns = Turns(kubelet_root / "plugins" / name / TURNS_NAME)
        # A pod that comes before the kubelet knows the driver waits for a minute (dra.md D18).
        self._publisher = Publisher(
            name,
            node_name,
            account_of,
            evicting=self._evicting,
            may_begin=lambda: self._sockets.is_registered,
            is_our_turn=lambda: self._turns.is_ours(is_ready=self._sockets.is_registered),
        )
        self._sockets = KubeletSockets(
            name,
            node_name,
            self._resources,
            self._reader,
            decode,
            kubelet_root=kubelet_root,
            cdi_folder=cdi_folder or CDI_FOLDER,
            pod_uid=pod_uid,
            owner=owner,
            pods=pods,
            whereabouts=whereabouts,
        )
        self.store = self._sockets.store
        """The claims that use devices."""
        self.counters = self._sockets.counters
        """What the kubelet asked since the process began."""

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet has accepted the registration."""
        return self._sockets.is_registered

    @property
    def fault(self) -> str:
        """What keeps the driver from being ready; empty if nothing does."""
        return self._sockets.fault or self._slices_fault()

    def _slices_fault(self) -> str:
        status = self._publisher.status
        if status.conflict:
            return status.conflict
        if status.error:
            return f"ResourceSlices are not published: {status.error}"
        is_current = self._has_offered and status.stale_since is None
        return "" if is_current or status.slices else "ResourceSlices are not published yet"

    def status(self) -> DriverStatus:
        """Return the status of the driver at this moment."""
        published = self._publisher.status
        return DriverStatus(
            name=self.name,
            is_registered=self.is_registered,
            fault=self.fault,
            kubelet_api=self.counters.kubelet_api,
            resource_api=published.version,
            slices=published.slices,
            devices=published.devices,
            generation=published.generation,
            stale_since=published.stale_since,
            claims=len(self.store.claims),
        )

    def refresh(self) -> bool:
        """Learn which claims another instance has prepared or released since; return whether it has."""
        return self._sockets.refresh()

    async def adopt(self, resource_name: str, uses: Mapping[str, Use]) -> None:
        """Record uses that have no record, by device ID, for clean-up. Raises `KubeletError`."""
        await self._sockets.adopt(resource_name, uses)

    def claims_of(self, resource_name: str) -> Mapping[str, tuple[DeviceClaim, ...]]:
        """Return the claims that use each of a resource's devices, by device ID."""
        return device_claims(self.store.claims.values(), resource_name)

    def taint_of(self, resource_name: str) -> str:
        """Return the effect of the taint of a resource's unhealthy devices; empty if they have none."""
        effect = NO_EXECUTE if resource_name in self._evicting else NO_SCHEDULE
        return effect if self._publisher.takes_taints else ""

    # ── resources ──

    def note_undecided(self, resource_names: Collection[str]) -> None:
        """Publish nothing at first while it is not known whether this node serves these resources."""
        self._lists.undecided = resource_names
        self._offers.notify()

    def add(self, resource: DriverResource, *, evicts: bool = False) -> None:
        """Serve one more resource. `evicts`: a device that is Unhealthy ends the pods that use it."""
        name = resource.resource_name
        self._resources[name] = resource
        self.set_evicts(name, evicts=evicts)
        self._lists.expect(name, asyncio.get_running_loop().time())
        self._offers.notify()

    def set_evicts(self, resource_name: str, *, evicts: bool) -> None:
        """Note whether an Unhealthy device of a resource ends the pods that use it."""
        if evicts and resource_name in self._resources:
            self._evicting.add(resource_name)
        else:
            self._evicting.discard(resource_name)
        self._offers.notify()

    def remove(self, resource_name: str) -> None:
        """Offer and prepare no devices of a resource any more; an unknown one is ignored."""
        self._resources.pop(resource_name, None)
        self._evicting.discard(resource_name)
        self._lists.drop(resource_name)
        self._offers.notify()

    def offer(self, resource_name: str, devices: Collection[Device]) -> None:
        """Take the devices that a resource has from now on, whatever their health."""
        if resource_name in self._resources:  # else it was removed, and ends in a moment
            self._lists.take(resource_name, devices)
            self._offers.notify()

    async def until_unpublished(self, resource_name: str) -> None:
        """Wait until the slices have no devices of a resource but those that claims use.

        What slices have is what the API server has said last.
        """
        while self._publisher.may_offer(resource_name, self._used_names(resource_name)):
            await self.changed.next.wait()

    def _used_names(self, resource_name: str) -> frozenset[str]:
        """Return the names in slices of the devices that claims use, former names included."""
        used = list(used_devices(self.store.claims.values(), resource_name))
        return frozenset(
            name for one in used for name in (one.name, device_name(resource_name, one.device_id))
        )

    # ── life ──

    async def run(self) -> None:
        """Serve until cancelled; then finish work on claims. The slices stay for whoever comes next."""
        keep_large_blocks_apart()  # the API server is read by asyncio, as long as this runs
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._sockets.run())
                group.create_task(self._publish())
                group.create_task(self._pass_on_offers())
                group.create_task(self._pass_on_uses())
                group.create_task(self._pass_on_changes(self._publisher.changed))
                group.create_task(
                    self._pass_on_changes(self._sockets.changed, self._publisher.look_again.notify)
                )
                group.create_task(self._pass_on_changes(self._sockets.offer.changed))
        finally:
            await self._reader.close()

    async def _publish(self) -> None:
        try:
            await self._publisher.run()
        finally:
            self._turns.close()  # another instance may go on, while this one still works on claims

    async def _pass_on_offers(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            change = self._offers.next
            is_due = self._lists.advance(clock())
            self._sockets.offer.replace(offered_devices(self._lists.devices), self._lists.devices.keys())
            if is_due:
                self._publisher.offer(with_holders(self._lists.devices, self._held_by_former_names))
                self._has_offered = True
            again_at = self._lists.again_at
            await within(None if again_at is None else again_at - clock(), change.wait())

    async def _pass_on_uses(self) -> None:
        offer = self._sockets.offer
        while True:
            change = offer.changed.next
            if (held := held_by_former_names(self.store.claims.values())) != self._held_by_former_names:
                self._held_by_former_names = held
                self._offers.notify()
            if any(one.share_ids for one in offer.devices.values()):
                self._publisher.note_shares(shares_in_use(self.store.claims.values(), offer.devices))
            await change.wait()

    async def _pass_on_changes(self, notifier: Notifier, besides: Callable[[], None] = lambda: None) -> None:
        while True:
            change = notifier.next
            besides()
            self.changed.notify()
            await change.wait()


# ── the sockets for the kubelet ──


class KubeletSockets:
    """The sockets of one driver; they live from `run` to its cancellation.

    `offer` has the devices that there are, for who finds them. `host_root` is the kubelet's folder as the
    kubelet sees it, where that is not `kubelet_root`; both have the same content. `owner` is recorded with
    each claim; `pods` and `whereabouts` are as for `NodeDriver`. Raises `PluginError` for a name
    that makes the sockets' paths too long, and `KubeletError` for a folder that others could change.
    """

    def __init__(
        self,
        name: str,
        node_name: str,
        resources: Mapping[str, DriverResource],
        reader: ClaimReader,
        decode: ParameterDecoder,
        *,
        kubelet_root: Path = Path(KUBELET_ROOT),
        host_root: Path | None = None,
        cdi_folder: Path = CDI_FOLDER,
        pod_uid: str = "",
        boot: str = "",
        owner: str = "",
        pods: Callable[[], Sequence[PodResources]] = tuple,
        whereabouts: Callable[[str], Whereabouts] = lambda _: Whereabouts(),
    ) -> None:
        self.name = name
        self.offer = Offer()
        self.changed = Notifier()
        """Notified whenever `fault` or `is_registered` may have changed."""
        self._is_accepted = False
        """Whether a kubelet has accepted the registration at the socket that there is now."""
        self._was_connected = False
        """Whether it has listened since."""
        folder = kubelet_root / "plugins" / name
        registry = kubelet_root / REGISTRY_NAME
        self._socket = _fitting(folder, "dra{}.sock", pod_uid)
        self._registration_socket = _fitting(registry, f"{name}{{}}-reg.sock", pod_uid)
        self._endpoint = str((host_root or kubelet_root) / self._socket.relative_to(kubelet_root))
        _check(folder)
        self.store = PreparedClaims(name, folder, cdi_folder, boot or boot_id())
        """The claims in use."""
        self.store.pods = pods
        self.store.recall()  # a device that was pulled out meanwhile stays listed while a claim uses it
        self.counters = ClaimCounters()
        self._service_in = partial(
            ClaimService,
            name,
            node_name,
            self.store,
            resources,
            self.offer,
            reader,
            decode,
            counters=self.counters,
            owner=owner,
            whereabouts=whereabouts,
        )
        self._refresher = Refresher(self.store, resources, self.offer)
        self._sweeper = Sweeper(name, node_name, self.store, reader, self._kubelet)
        self._health = HealthService(node_name, self.store, self.offer, self._note_stream)
        self._registration = Listener(
            self._registration_socket,
            (unary(GET_INFO, self._get_info), unary(NOTIFY_REGISTRATION_STATUS, self._take_status)),
        )
        self._obstacle = ""
        self._refusal = ""
        self._is_asked = False
        self._kubelets = 0
        """Grows whenever a kubelet comes or goes."""
        self._made_at = 0.0
        self._patience_seconds = PATIENCE_SECONDS

    @property
    def fault(self) -> str:
        """What keeps the driver from being ready; empty if nothing does."""
        if self._obstacle or self._refusal:
            return self._obstacle or self._refusal
        return "" if self.is_registered else f"no kubelet has registered {self._registration_socket} yet"

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet has accepted the registration, and is there: one that restarts asks again."""
        return self._is_accepted and (self.is_connected or not self._was_connected)

    @property
    def is_connected(self) -> bool:
        """Whether a kubelet listens to the health of devices, as each one does that is there (dra.md D32)."""
        return self._health.open_streams > 0

    def _kubelet(self) -> int | None:
        """Return a number that is another one for each kubelet; None while the driver is not registered."""
        return self._kubelets if self.is_registered else None

    def _look_at_state(self) -> None:
        self.refresh()

    def refresh(self) -> bool:
        """Learn which claims another instance has prepared or released since; return whether it has."""
        if is_changed := self.store.refresh():
            self.offer.changed.notify()
        return is_changed

    async def adopt(self, resource_name: str, uses: Mapping[str, Use]) -> None:
        """Record uses that have no record, by device ID, for clean-up. Raises `KubeletError`."""
        devices = tuple(
            DeviceUse("", device_name(resource_name, device_id), resource_name, device_id, use=use)
            for device_id, use in sorted(uses.items())
        )
        uid = f"to-clean-{secrets.token_hex(6)}"
        async with self.store.locked():
            await self.store.leave(ClaimUse("devplug", uid, uid, devices, int(time.time())))
        self.offer.changed.notify()

    async def run(self) -> None:
        """Serve until cancelled; then finish work on claims, within bounds, and remove the sockets."""
        async with shared_watcher() as watcher, asyncio.TaskGroup() as tasks:
            service = self._service_in(tasks=tasks)
            tasks.create_task(self._refresher.run(), name="devplug claims' files")
            tasks.create_task(service.clean_up_released(), name="devplug clean-up of ended claims")
            tasks.create_task(self._sweeper.run(service.end), name="devplug forgotten claims")
            listener = Listener(self._socket, (*service.bindings(), self._health.binding()))
            wake = asyncio.Event()
            try:
                with (
                    watcher.subscribe(wake.set) as subscription,
                    watcher.subscribe(self._look_at_state) as state,
                ):
                    while True:
                        wake.clear()
                        folder = self._socket.parent
                        state.arm([str(folder / STATE_NAME)], writes_in=str(folder))
                        subscription.arm([str(self._socket), str(self._registration_socket)])
                        wait_seconds = await self._make_missing(listener)
                        await within(wait_seconds, wake.wait())
            finally:
                # First this: the kubelet calls another instance then, if there is one.
                await self._registration.close()
                await within(DRAIN_SECONDS, service.until_idle())
                await listener.close()

    # ── sockets ──

    async def _make_missing(self, listener: Listener) -> float:
        """Make the sockets that are not there; return after how many seconds to look again.

        Where a later process with the same driver name has replaced one and lives, it keeps the sockets: two
        that replace each other's would register several times a second.
        """
        for one in (listener, self._registration):
            if one.is_replaced() and one.path not in UNIX_SOCKETS.refusing(one.path.parent, one.path.name):
                self._is_accepted = False
                self._obstruct(
                    f"another process that serves the driver {self.name} has replaced {one.path}: stop one "
                    "of the two, or give each a driver name of its own"
                )
                return REPLACED_SECONDS
        now = asyncio.get_running_loop().time()
        is_overdue = not self._is_asked and now >= self._made_at + self._patience_seconds
        try:
            if not listener.is_bound():
                self._prepare_folder()
                async with self.store.locked():  # reads the claims of whoever was here before
                    self.offer.changed.notify()
                await listener.bind()
            if is_bound := self._registration.is_bound():
                if not is_overdue:
                    self._obstacle = ""
                    return self._patience_seconds
                self._patience_seconds = min(2 * self._patience_seconds, PATIENCE_LIMIT_SECONDS)
            self._is_accepted = self._is_asked = False
            self._made_at = now
            await self._registration.bind()
        except KubeletError as error:
            self._obstruct(str(error))
            return LOOK_AGAIN_SECONDS
        logger.info(
            "the registration socket of the DRA driver was made",
            extra={"driver": self.name, "path": str(self._registration_socket), "again": is_bound},
        )
        self._obstacle = ""
        self.changed.notify()
        return self._patience_seconds

    def _prepare_folder(self) -> None:
        """Make the driver's folder, and remove the sockets of instances that are dead."""
        folder, registry = self._socket.parent, self._registration_socket.parent
        try:
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise KubeletError(f"cannot make {folder}: {error.strerror}") from error
        _check(folder, registry)
        for where, begin, end in (
            (folder, "dra", ".sock"),
            (registry, self.name, "-reg.sock"),
        ):
            ours = re.compile(f"{re.escape(begin)}(-({_UID}))?{re.escape(end)}")
            for path in UNIX_SOCKETS.refusing(where, "*.sock"):
                if ours.fullmatch(path.name):
                    with suppress(OSError):
                        UNIX_SOCKETS.remove(path)

    def _obstruct(self, obstacle: str) -> None:
        if obstacle != self._obstacle:
            self._obstacle = obstacle
            self.changed.notify()
            logger.warning(
                "the DRA driver cannot serve; tried again", extra={"driver": self.name, "reason": obstacle}
            )

    # ── registration ──

    def _note_stream(self) -> None:
        if not self.is_connected:
            self._kubelets += 1
        self._was_connected |= self.is_connected
        self.changed.notify()

    async def _get_info(self, _: None) -> PluginInfo:
        self._is_asked = True
        self._patience_seconds = PATIENCE_SECONDS
        return PluginInfo("DRAPlugin", self.name, self._endpoint, tuple(PREPARE))

    async def _take_status(self, status: RegistrationStatus) -> None:
        self._kubelets += 1
        self._is_accepted, self._was_connected = status.plugin_registered, self.is_connected
        refusal = "" if status.plugin_registered else f"the kubelet refused the registration: {status.error}"
        if self._is_accepted:
            self.store.asked_for.clear()  # by the kubelet before
            audit.info("registered with the kubelet", extra={"driver": self.name, "endpoint": self._endpoint})
        elif refusal != self._refusal:
            audit.warning(
                "the kubelet refused the registration", extra={"driver": self.name, "reason": status.error}
            )
        self._refusal = refusal
        self.changed.notify()


def _check(*folders: Path) -> None:
    """Raise `KubeletError` for a folder that other users could change: they could add claims and drivers."""
    for folder in folders:
        check_trusted(folder, f"let only root and the user of this process write there: chmod go-w {folder}")


def _fitting(folder: Path, form: str, pod_uid: str) -> Path:
    """Return the path of a socket of one instance; a UID that makes it too long is hashed.

    Raises `PluginError`.
    """
    path = folder / form.format(f"-{pod_uid}" if pod_uid else "")
    if len(os.fsencode(path)) <= SOCKET_PATH_LIMIT_BYTES:
        return path
    short = folder / form.format(f"-{hashlib.sha256(pod_uid.encode()).hexdigest()[:8]}" if pod_uid else "")
    if len(os.fsencode(short)) > SOCKET_PATH_LIMIT_BYTES:
        raise PluginError(
            f"socket path {short} is longer than the {SOCKET_PATH_LIMIT_BYTES} bytes of a Unix socket; "
            "take a shorter driver name"
        )
    return short
