"""The DRA driver of this node with all of its parts: slices, claims and the resources that it serves.

Resources come and go while it runs. What they offer is published together, as the node has one pool.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from devplug.cdi.files import CDI_FOLDER
from devplug.dra.taints import NO_EXECUTE, NO_SCHEDULE
from devplug.driver.api_versions import served_version
from devplug.driver.kubelet_sockets import KubeletSockets
from devplug.driver.offer import ResourceLists
from devplug.driver.publisher import PUBLISHER_RIGHTS, Publisher
from devplug.driver.shares import offered_devices
from devplug.driver.status import device_claims, driver_status
from devplug.driver.turns import Turns
from devplug.k8s.account import ACCOUNT_FOLDER, mounted_account
from devplug.k8s.client import CLAIMS, connected
from devplug.k8s.errors import ClusterError, NotThereError
from devplug.linux.memory import keep_large_blocks_apart
from devplug.linux.notifier import Notifier, within

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from devplug.devices import Device
    from devplug.driver.counters import ClaimCounters
    from devplug.driver.offer import DriverResource
    from devplug.driver.parameters import ParameterDecoder
    from devplug.driver.prepared_claims import PreparedClaims
    from devplug.driver.status import PublisherStatus
    from devplug.holds.hardware import Use
    from devplug.k8s.account import Account
    from devplug.k8s.client import ApiServer, Kind
    from devplug.k8s.objects import Object
    from devplug.status import DeviceClaim, DriverStatus
    from devplug.wire.values import PodResources

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

    `on_change` is called whenever `fault` or `published` may have changed. Raises `PluginError` for a name
    that makes the sockets' paths too long. `account_of` returns the account of the API server, by default the
    mounted one. `owner` is recorded with each claim. `pods` returns what the kubelet's
    PodResources listed last, nothing where that is not known. `why_withheld` returns why a device, by its
    name in slices, is not offered; empty where that is not known.
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
        why_withheld: Callable[[str], str] = lambda _: "",
    ) -> None:
        self.name = name
        self.changed = Notifier()
        """Notified whenever `status` may have changed, or the claims that use devices."""
        self._resources: dict[str, DriverResource] = {}
        self._lists = ResourceLists()
        self._evicting: set[str] = set()
        self._offers = Notifier()
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
            why_withheld=why_withheld,
        )

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet has accepted the registration."""
        return self._sockets.is_registered

    @property
    def published(self) -> PublisherStatus:
        """What is published."""
        return self._publisher.status

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

    @property
    def counters(self) -> ClaimCounters:
        """What the kubelet asked since the process began."""
        return self._sockets.counters

    def status(self) -> DriverStatus:
        """Return the status of the driver at this moment."""
        return driver_status(
            self.name,
            self._publisher.status,
            self._sockets.counters,
            is_registered=self.is_registered,
            fault=self.fault,
            claims=len(self.store.claims),
        )

    @property
    def store(self) -> PreparedClaims:
        """The claims that use devices."""
        return self._sockets.store

    def refresh(self) -> bool:
        """Learn which claims another instance has prepared or released since; return whether it has."""
        return self._sockets.refresh()

    async def adopt(self, resource_name: str, uses: Mapping[str, Use]) -> None:
        """Record devices to clean up, by ID, whose uses are not recorded. Raises `KubeletError`."""
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
        devices = (device for claim in self.store.claims.values() for device in claim.devices)
        return frozenset(
            one.name for one in devices if one.resource_name == resource_name and not one.has_admin_access
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
                group.create_task(self._pass_on_changes(self._sockets.changed, self._publisher.wake))
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
                self._publisher.offer(dict(self._lists.devices))
                self._has_offered = True
            again_at = self._lists.again_at
            await within(None if again_at is None else again_at - clock(), change.wait())

    async def _pass_on_uses(self) -> None:
        offer = self._sockets.offer
        while True:
            change = offer.changed.next
            if any(one.share_ids for one in offer.devices.values()):
                self._publisher.note_shares(self._sockets.shares_in_use())
            await change.wait()

    async def _pass_on_changes(self, notifier: Notifier, besides: Callable[[], None] = lambda: None) -> None:
        while True:
            change = notifier.next
            besides()
            self.changed.notify()
            await change.wait()
