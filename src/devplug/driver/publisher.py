"""The publisher of a node's ResourceSlices: it watches them, and keeps them equal to what is offered.

It runs for as long as the driver does, and leaves the slices where they are when it ends: the driver's
successor goes on with them. While the API server is away nothing happens but that the slices become stale.

During an update of a DaemonSet two instances of a driver run on a node, maybe with different configurations.
If both wrote slices, each would undo the other's writes; `Turns` decides which of them publishes.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import operator
import os
import struct
import time
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.devices import HealthState
from devplug.dra.versions import API_VERSIONS
from devplug.driver.device_entries import (
    PART,
    QUESTIONS,
    SHARED,
    UNHEALTHY_TAINT,
    consumption,
    counter_sets,
    device_entry,
    slice_name,
)
from devplug.driver.offer import SharesInUse
from devplug.driver.slices import (
    Pool,
    StoredSlice,
    StoredSlices,
    Write,
    content_of,
    is_urgent,
    lost_fields,
    stages,
    writes,
)
from devplug.driver.status import PublisherStatus
from devplug.k8s.client import NODES, Retries, connected, resource_slices, until_next_try
from devplug.k8s.errors import ClusterError, ExistsError, ExpiredError, InvalidError, NotThereError
from devplug.k8s.objects import maps, text
from devplug.k8s.times import stamp_at
from devplug.linux.notifier import Notifier, within
from devplug.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from devplug.attributes import Partition
    from devplug.devices import Device
    from devplug.k8s.account import Account
    from devplug.k8s.client import ApiServer
    from devplug.k8s.objects import Object

logger = logging.getLogger(__name__)

PUBLISHER_RIGHTS: Final = "get nodes, and get, list, watch, create, update and delete resourceslices"

WATCH_SECONDS: Final = 300.0
"""How long one watch lasts. After it all is looked at again, with the token of then."""

WELL_SECONDS: Final = 1.0
"""How long a watch without changes must have lasted to say that the API server was well, once it is over."""

STEADY_SECONDS: Final = 10.0
"""How long it must have lasted to say that it works, while it goes on."""

URGENT_PER_SECOND: Final = 15.0
"""How often slices are written when pods may suffer until they are; else as `Pace` has it."""

WRITES_AT_ONCE: Final = 8
"""How many writes the API server is asked for at a time: thousands of nodes may ask when it comes back."""

TURN_SECONDS: Final = 1.0
"""How often an instance looks whether it is its turn again: nothing tells when another one has died."""

KUBELET_SECONDS: Final = 30.0
"""How long the first slices wait for a kubelet. A pod that gets devices before its kubelet knows the driver
waits for a minute, and without slices no user sees the devices."""

ROLLOUT_SECONDS: Final = 300.0
"""How long another instance may publish before it counts as another installation: a DaemonSet ends the old
pod as soon as the new one is ready."""


# ── the pace of sessions ──

RECOVERIES_PER_SECOND: Final = 0.1
RECOVERIES_AT_ONCE: Final = 5
"""How often the API server may have been well before waits double nevertheless: it may end every session."""

LOOKS_PER_SECOND: Final = 1 / 30
LOOKS_AT_ONCE: Final = 5
"""How often a session that met something newer is followed at once by another."""


class SessionPace(Struct):
    """How soon sessions follow each other. Times are seconds.

    The waits after failures double. An API server that was well in between makes the next failure the first
    one again, and a session that met something newer than it knew is no failure: each of them so often only,
    as thousands of nodes would ask a server that is always like that.
    """

    retries: Retries
    _failures: int = 0
    _was_well: bool = False
    _recoveries: Pace = field(default_factory=lambda: Pace(RECOVERIES_PER_SECOND, RECOVERIES_AT_ONCE))
    _looks: Pace = field(default_factory=lambda: Pace(LOOKS_PER_SECOND, LOOKS_AT_ONCE))

    def note_well(self) -> None:
        """Note that the API server was well in this session."""
        self._was_well = True

    def wait_seconds(self, now: float, error: ClusterError) -> float:
        """Return how long the next session waits after one that `error` ends at `now`; 0.0 if it need not."""
        was_well, self._was_well = self._was_well, False
        if was_well and _is_granted(self._recoveries, now):
            self._failures = 0
        asked_seconds = min(error.retry_after_seconds, self.retries.most_seconds)
        if isinstance(error, ExistsError | ExpiredError) and _is_granted(self._looks, now):
            return asked_seconds  # a new look at all slices is what is missing
        self._failures += 1
        return asked_seconds + self.retries.wait_seconds(self._failures)


def _is_granted(pace: Pace, now: float) -> bool:
    if pace.wait_seconds(now):
        return False
    pace.spend(now)
    return True


# ── what the API server keeps ──

NEVER_STORED: Final = 0xFFFF
"""The number of the slice by which the API server is asked what it knows: more than any pool has."""


class KeptFields:
    """The fields that were asked for since the connection, by slices that are checked and not stored."""

    def __init__(self, log_once: Callable[..., None]) -> None:
        self._log_once = log_once
        self._are_kept: dict[str, bool] = {}

    def are_known_to_have(self, field: str) -> bool:
        """Whether the API server was asked for a field, and keeps it."""
        return self._are_kept.get(field, False)

    def forget(self) -> None:
        """Forget the answers: the connection is another one."""
        self._are_kept.clear()

    async def have(self, server: ApiServer, version: str, pool: Pool, field: str) -> bool:
        """Ask for a field, once a connection. Raises `ClusterError`.

        Stored without the field, a device with shares would be one that the first claim has alone.
        """
        if field not in self._are_kept:
            example, feature, consequence = QUESTIONS[field]
            name = slice_name(pool.driver, pool.node_name, NEVER_STORED)
            content = content_of(Write("create", name, 1, 1, (example,)), pool, version)
            try:
                made = await server.create_dry_run(resource_slices(version), content, rights=PUBLISHER_RIGHTS)
                self._are_kept[field] = not lost_fields([example], StoredSlice.of(made, version).devices)
            except InvalidError:  # before 1.35 counter sets were in the slice of their devices
                self._are_kept[field] = False
            if not self._are_kept[field]:
                message = "the API server does not keep a field of devices; " + consequence
                self._log_once(message, field=field, feature_gate=feature)
        return self._are_kept[field]


# ── the publisher ──


class Publisher:
    """The slices of one driver on one node; lives as long as the driver. One loop, one `run`.

    Nothing is written before the first `offer`. Where there are no slices, the first ones wait until
    `may_begin` is true, at most `KUBELET_SECONDS`. Nothing is written while `is_our_turn` is false: another
    instance of the driver publishes then.
    `account_of` returns the account of the API server, and is called for each connection; it may raise
    `ClusterError`. For resources in `evicting`, the taint of an unhealthy device ends the pods that have it.
    `status` is always the latest, and `changed` wakes whoever follows it.
    """

    def __init__(
        self,
        driver: str,
        node_name: str,
        account_of: Callable[[], Account],
        *,
        evicting: Container[str] = (),
        may_begin: Callable[[], bool] = lambda: True,
        is_our_turn: Callable[[], bool] = lambda: True,
        retries: Retries | None = None,
        watch_seconds: float = WATCH_SECONDS,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.status = PublisherStatus()
        self.changed = Notifier()
        self._pool = Pool(driver, node_name, "")
        self._account_of = account_of
        self._may_begin = may_begin
        self._is_our_turn = is_our_turn
        self._was_our_turn = True
        self._yielded_at: float | None = None
        """Since when another instance publishes, by the loop's clock; None if it is our turn."""
        self._session_pace = SessionPace(retries or Retries())
        self._watch_seconds = watch_seconds
        self._wall_clock = wall_clock
        self._offered: Mapping[str, Collection[Device]] | None = None
        self._first_offer_at = 0.0
        """When there was something to publish first, by the loop's clock."""
        self._entries = PoolEntries(driver, evicting, wall_clock, self._log_once)
        self._stored = StoredSlices()
        self.takes_taints = True
        """Whether the API server keeps taints of devices; where not, unhealthy ones are in no slice."""
        self._fields = KeptFields(self._log_once)
        self._in_use = SharesInUse()
        self.look_again = Notifier()
        """To be notified when `may_begin` may have changed."""
        self._pace = Pace()
        self._urgent_pace = Pace(per_second=URGENT_PER_SECOND)
        self._watch_fails = False
        """Whether the last watch ended before anything showed that it works: then slices may become stale."""
        self._logged: set[tuple[str, ...]] = set()
        self._reasons: set[str] = set()
        """Why slices could not be published since they were last."""

    def offer(self, devices: Mapping[str, Collection[Device]]) -> None:
        """Take what there is from now on: all devices of all resources, by resource name."""
        if self._offered is None:
            self._first_offer_at = asyncio.get_running_loop().time()
        self._offered = devices
        self._note_stale()
        self.look_again.notify()

    def note_shares(self, in_use: SharesInUse) -> None:
        """Take which shares of devices claims use, of which some may have to be left out of slices."""
        before, self._in_use = self._in_use, in_use
        # Of devices that are shared out, the server itself knows who has them.
        is_known = self._fields.are_known_to_have(SHARED) and before.alone == in_use.alone
        if not is_known and before != in_use:
            self._note_stale()
            self.look_again.notify()

    def may_offer(self, resource_name: str, used: Collection[str]) -> bool:
        """Whether the slices have devices of a resource besides those `used`, by what was heard last.

        So they may as long as nothing was heard. `used` are names in slices.
        """
        return not self.status.version or not self._stored.names_of(resource_name).issubset(used)

    async def run(self) -> None:
        """Keep the slices as they should be, until cancelled.

        Raises nothing: an error is logged once, and retried.
        """
        clock = asyncio.get_running_loop().time
        while True:
            try:
                async with connected(self._account_of) as server:
                    await self._session(server)
            except ClusterError as error:
                if wait_seconds := self._session_pace.wait_seconds(clock(), error):
                    self._note_failure(error)
                await until_next_try(wait_seconds, error)

    # ── one connection ──

    async def _session(self, server: ApiServer) -> None:
        """Publish over one connection for the time of a watch; raises `ClusterError`."""
        version = await served_version(server, rights=PUBLISHER_RIGHTS)
        await self._find_owner(server)
        slices, mine = resource_slices(version), self._mine
        found, since = await server.list_to_watch(slices, fields=mine, rights=PUBLISHER_RIGHTS)
        slices_now = [StoredSlice.of(one, version) for one in found]
        self._stored.take_list(slices_now)
        self._learn_taints(slices_now)
        self._fields.forget()
        if version != self.status.version:
            self._set_status(replace(self.status, version=version))
        ends: list[ClusterError | None] = []
        clock = asyncio.get_running_loop().time
        begun, was_done = clock(), False
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._follow(server, version, since, ends))
            try:
                while not ends:
                    change = self.look_again.next
                    wait_seconds = await self._publish(server, version)
                    was_done |= wait_seconds is None or not self._was_our_turn
                    if not ends:
                        await within(wait_seconds, change.wait())
            except ClusterError as error:
                ends.insert(0, error)
            following.cancel()
        if was_done and (not self._watch_fails or clock() - begun >= WELL_SECONDS):
            self._session_pace.note_well()
        if ends[0] is not None:
            raise ends[0]

    @property
    def _mine(self) -> Mapping[str, str]:
        return {"spec.nodeName": self._pool.node_name, "spec.driver": self._pool.driver}

    async def _find_owner(self, server: ApiServer) -> None:
        name = self._pool.node_name
        absent = f"there is no Node {name}; set NODE_NAME from the pod's spec.nodeName"
        node = await server.get(NODES, name, rights=PUBLISHER_RIGHTS, when_absent=absent)
        self._pool = replace(self._pool, node_uid=text(node, "metadata", "uid"))

    async def _follow(
        self, server: ApiServer, version: str, since: str, ends: list[ClusterError | None]
    ) -> None:
        """Take in what becomes of our slices, for the time of a watch; then say in `ends` why it is over."""
        is_proven = False

        def prove() -> None:
            nonlocal is_proven
            is_proven = True
            if self._watch_fails:
                self._watch_fails = False
                self.look_again.notify()

        steady = asyncio.get_running_loop().call_later(STEADY_SECONDS, prove)
        try:
            changes = server.watch(
                resource_slices(version),
                seconds=self._watch_seconds,
                fields=self._mine,
                since=since,
                rights=PUBLISHER_RIGHTS,
            )
            async with aclosing(changes):
                async for change, found in changes:
                    prove()
                    one = StoredSlice.of(found, version)
                    if not self._stored.take_change(one, is_deleted=change == "DELETED"):
                        continue
                    if change == "DELETED":  # with its Node, maybe, of which the next one has another UID
                        self._pool = replace(self._pool, node_uid="")
                    self._note_stale()
                    self.look_again.notify()
        except ClusterError as error:
            self._watch_fails = not is_proven
            ends.append(error)
        else:
            ends.append(None)
        finally:
            steady.cancel()
        self.look_again.notify()

    # ── writing ──

    async def _publish(self, server: ApiServer, version: str) -> float | None:
        """Write what has to be written, if it may be now; return the seconds after which to try again."""
        if self._offered is None:
            return None
        if not (self._stored or self._may_begin()):
            wait_seconds = self._first_offer_at + KUBELET_SECONDS - asyncio.get_running_loop().time()
            if wait_seconds > 0:
                return wait_seconds
            self._log_once("no kubelet has registered the driver; its slices are published without one")
        if not self._look_whose_turn():
            return TURN_SECONDS
        if not self._pool.node_uid:
            await self._find_owner(server)
        pool, offered = self._pool, self._offered
        devices = [one for some in offered.values() for one in some]
        asked = partial(self._fields.have, server, version, pool)
        with_shares = any(one.share_of for one in devices) and await asked(SHARED)
        with_counters = any(one.partition for one in devices) and await asked(PART)
        wanted, counter_sets = await self._entries.of(
            offered,
            self._in_use,
            with_shares=with_shares,
            with_counters=with_counters,
            with_tainted=self.takes_taints,
        )
        planned = writes(pool, wanted, self._stored.all(), counter_sets)
        if planned:
            now = asyncio.get_running_loop().time()
            urgent = is_urgent(wanted, self._stored.all())
            pace = self._urgent_pace if urgent else self._pace
            if wait_seconds := pace.wait_seconds(now):
                return wait_seconds
            self._pace.spend(now)
            self._urgent_pace.spend(now)
            for stage in stages(planned):
                await self._write_all(server, version, pool, stage)
        elif offered is self._offered:
            self._note_current()
            return None
        return 0.0  # it may have changed meanwhile

    def _look_whose_turn(self) -> bool:
        """Return whether it is ours to write, and note what that changes."""
        was_ours, self._was_our_turn = self._was_our_turn, self._is_our_turn()
        if not self._was_our_turn:
            now = asyncio.get_running_loop().time()
            self._yielded_at = now if self._yielded_at is None else self._yielded_at
            if now - self._yielded_at >= ROLLOUT_SECONDS:
                self._note_conflict()
            self._note_current()  # as far as it is ours to say
        elif not was_ours:
            self._yielded_at = None
            self._set_status(replace(self.status, conflict=""))
            self._note_stale()
            self._learn_taints(self._stored.all())
        return self._was_our_turn

    def _learn_taints(self, slices: Collection[StoredSlice]) -> None:
        for one in slices:
            self._entries.learn_taints(one.devices)

    async def _write_all(self, server: ApiServer, version: str, pool: Pool, stage: Sequence[Write]) -> None:
        """Make writes side by side, none after one that fails; raises `ClusterError` when all have ended."""
        left = iter(stage)
        failures: list[ClusterError] = []

        async def work() -> None:
            for write in left:
                try:
                    await self._write(server, version, pool, write)
                except ClusterError as error:
                    failures.append(error)
                if failures or not self._look_whose_turn():
                    return

        async with asyncio.TaskGroup() as tasks:
            for _ in stage[:WRITES_AT_ONCE]:
                tasks.create_task(work())
        if failures:
            raise failures[0]

    async def _write(self, server: ApiServer, version: str, pool: Pool, write: Write) -> None:
        kind = resource_slices(version)
        content = content_of(write, pool, version)
        try:
            if write.verb == "create":
                made = await server.create(kind, content, rights=PUBLISHER_RIGHTS)
            elif write.verb == "replace":
                made = await server.replace(kind, content, rights=PUBLISHER_RIGHTS, when_absent="gone")
            else:
                await server.delete(kind, write.name, rights=PUBLISHER_RIGHTS, when_absent="gone")
                self._stored.take_absence(write.name)
                return
        except NotThereError:
            self._stored.take_absence(write.name)
            return
        stored = StoredSlice.of(made, version)
        self._note_lost(lost_fields(write.devices, stored.devices))
        self._stored.take_written(replace(stored, devices=write.devices, counter_sets=write.counter_sets))

    # ── what people see ──

    def _note_lost(self, lost: Collection[str]) -> None:
        if "taints" in lost and self.takes_taints:
            self.takes_taints = False
            self._log_once(
                "the API server does not keep taints of devices (feature gate DRADeviceTaints); unhealthy "
                "devices are left out of slices"
            )
        for name in lost:
            if name != "taints":
                self._log_once("the API server does not keep a field of devices", field=name)

    def _note_stale(self) -> None:
        if self.status.stale_since is None:
            self._set_status(replace(self.status, stale_since=self._wall_clock()))

    def _note_conflict(self) -> None:
        if not self.status.conflict:
            conflict = (
                f"another instance on this node has published the slices of driver {self._pool.driver} for "
                f"more than {ROLLOUT_SECONDS / 60:g} minutes; if no rollout is stuck, two installations have "
                "one driver name: uninstall one of them, or give it another driver"
            )
            logger.error("another instance of the driver goes on publishing", extra={"reason": conflict})
            self._set_status(replace(self.status, conflict=conflict))

    def _note_current(self) -> None:
        stored = self._stored.all()
        if self._reasons and not self._watch_fails:
            logger.info("slices are published again")
            self._reasons.clear()
        status = PublisherStatus(
            max((one.generation for one in stored), default=None),
            len(stored),
            sum(len(one.devices) for one in stored),
            error=self.status.error if self._watch_fails else "",
            version=self.status.version,
            conflict=self.status.conflict,
        )
        self._set_status(status)

    def _note_failure(self, error: ClusterError) -> None:
        self.takes_taints = True  # it may be another version of the API server next time
        self._note_stale()
        reason = str(error)
        if reason not in self._reasons:
            self._reasons.add(reason)
            logger.error("cannot publish slices; those of before stay as they are", extra={"reason": reason})
        self._set_status(replace(self.status, error=reason))

    def _set_status(self, status: PublisherStatus) -> None:
        if status != self.status:
            self.status = status
            self.changed.notify()

    def _log_once(self, message: str, /, **facts: str) -> None:
        key = (message, *(value for name, value in facts.items() if name != "reason"))
        if key not in self._logged:
            self._logged.add(key)
            logger.warning(message, extra=facts)


# ── turns of several instances ──

_LOCK: Final = struct.Struct("hhqqi4x")
"""struct flock of fcntl(2), as Python is built: type, whence, start, length, process."""


class Turns:
    """The place of one instance in the file at `path`; kept until `close`, and free for another one after.

    An instance takes the place behind all others as soon as it is ready, and keeps it for its life; the last
    place publishes. An instance without a place publishes as long as no other has one.

    A place is one byte of the file, locked for as long as its owner lives: the kernel releases it however the
    process ends (fcntl(2), open file description locks). Older versions take no place.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._place = 0
        """The byte that is locked; 0 without one."""
        self._was_ours = True
        self._has_failed = False

    def is_ours(self, *, is_ready: bool) -> bool:
        """Whether this instance publishes; one that is ready takes a place if it has none.

        If the file cannot be locked, all of them do: as bad as without it.
        """
        try:
            is_ours = self._is_ours(is_ready=is_ready)
        except OSError as error:
            self.close()
            is_ours = True
            if not self._has_failed:
                self._has_failed = True
                logger.warning(
                    "cannot lock the file that says which instance of a driver publishes; two may write "
                    "slices against each other",
                    extra={"path": str(self._path), "reason": error.strerror or str(error)},
                )
        if is_ours != self._was_ours:
            self._was_ours = is_ours
            logger.info(
                "this instance of the driver publishes the slices now"
                if is_ours
                else "another instance of the driver publishes the slices now",
                extra={"path": str(self._path)},
            )
        return is_ours

    def close(self) -> None:
        """Give the place back. Safe to repeat."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._place = -1, 0

    def _is_ours(self, *, is_ready: bool) -> bool:
        if self._fd >= 0 and not self._is_found():
            self.close()
        if self._fd < 0:
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while is_ready and not self._place:
            last = 0
            while following := self._taken_after(last):
                last = following
            if self._try(last + 1):
                self._place = last + 1
        return not self._taken_after(self._place)

    def _is_found(self) -> bool:
        """Whether the path still leads to the open file, and was not removed or replaced."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self._fd))

    def _taken_after(self, place: int) -> int:
        """Return the next place that another instance has locked; 0 if no instance has."""
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place + 1, 0, 0)
        type_, _, start, _, _ = _LOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, asked))
        return 0 if type_ == fcntl.F_UNLCK else start

    def _try(self, place: int) -> bool:
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0))
        except BlockingIOError:
            return False
        return True


# ── what slices should have ──

DEVICES_AT_ONCE: Final = 500
"""How many devices are looked at between two turns of the loop."""


class _Known(Struct):
    """What is offered, and its entry."""

    devices: tuple[Device, ...]
    """One, or all shares of one."""
    content: Object


class PoolEntries:
    """The entries of a driver's devices on one node; lives as long as its publisher.

    The taint of an unhealthy device keeps the time at which it was added (D80); for resources in `evicting`
    it ends the pods that have the device.
    """

    def __init__(
        self,
        driver: str,
        evicting: Container[str],
        wall_clock: Callable[[], float],
        log_once: Callable[..., None],
    ) -> None:
        self._driver = driver
        self._evicting = evicting
        self._wall_clock = wall_clock
        self._log_once = log_once
        self._entries: dict[tuple[str, str, bool], _Known] = {}
        """By resource name, ID of the first device, and whether the entry is for all shares of a device."""
        self._tainted_at: dict[str, tuple[str, str]] = {}
        """By device name: the effect of its taint, and its time."""

    def learn_taints(self, devices: Iterable[Object]) -> None:
        """Take the times of taints from entries that are stored."""
        for device in devices:
            for taint in maps(device, "taints"):
                if text(taint, "key") == UNHEALTHY_TAINT:
                    since = text(taint, "effect"), text(taint, "timeAdded")
                    self._tainted_at.setdefault(text(device, "name"), since)

    async def of(
        self,
        offered: Mapping[str, Collection[Device]],
        in_use: SharesInUse,
        *,
        with_shares: bool,
        with_counters: bool,
        with_tainted: bool,
    ) -> tuple[list[Object], list[Object]]:
        """Return the entries of all devices that are offered, by resource, and the counter sets they take of.

        Where the API server knows shares, all shares of a device are one entry. Where it does not know
        counters, no counter set is made. Tainted devices have entries only on request. With many devices,
        other tasks run in between.
        """
        before, self._entries = self._entries, {}
        wanted: dict[object, Object] = {}
        for resource_name, devices in offered.items():
            for one, is_shared in _entered(resource_name, devices, in_use, with_shares=with_shares):
                if len(self._entries) % DEVICES_AT_ONCE == DEVICES_AT_ONCE - 1:
                    await asyncio.sleep(0)
                key = resource_name, one[0].id, is_shared
                known = before.get(key)
                if known is None or not _are_same(known.devices, one):
                    known = _Known(one, self._entry(resource_name, one, is_shared=is_shared))
                self._entries[key] = known
                name = known.content["name"]
                if "taints" in known.content and not with_tainted:
                    continue
                if wanted.setdefault(name, known.content) is not known.content:
                    self._log_once(
                        "a device is not published, because another one has its name in slices; give it "
                        "another ID",
                        resource_name=resource_name,
                        device=one[0].id,
                    )
        if self._tainted_at:
            names = {text(one.content, "name") for one in self._entries.values()}
            self._tainted_at = {name: since for name, since in self._tainted_at.items() if name in names}
        return self._with_counters(wanted) if with_counters else ([*wanted.values()], [])

    def _with_counters(self, wanted: dict[object, Object]) -> tuple[list[Object], list[Object]]:
        """Return these entries with what they take of counter sets, and those sets."""
        parts: dict[object, Partition] = {}
        for known in self._entries.values():
            name, part = known.content["name"], known.devices[0].partition
            # Of counters, a device takes the same with each share of it.
            if part is not None and not known.devices[0].share_of and wanted.get(name) is known.content:
                parts[name] = part
        sets = counter_sets(parts.values())
        for name, part in parts.items():
            if part.of in sets:
                wanted[name] = {**wanted[name], "consumesCounters": [consumption(part)]}
        return [*wanted.values()], [*sets.values()]

    def _entry(self, resource_name: str, devices: Sequence[Device], *, is_shared: bool) -> Object:
        ill = next((one for one in devices if one.health.state is HealthState.UNHEALTHY), devices[0])
        entry = device_entry(
            self._driver,
            resource_name,
            ill,
            shares=len(devices) if is_shared else 0,
            evicts=resource_name in self._evicting,
        )
        for name, why in entry.dropped.items():
            message = "an attribute or a capacity is left out of slices"
            self._log_once(message, resource_name=resource_name, attribute=name, reason=f"it {why}")
        name = text(entry.content, "name")
        taints = maps(entry.content, "taints")
        if not taints:
            self._tainted_at.pop(name, None)
            return entry.content
        effect = text(taints[0], "effect")
        before, at = self._tainted_at.get(name, ("", ""))
        if before != effect or not at:
            at = stamp_at(self._wall_clock())
        self._tainted_at[name] = effect, at
        return {**entry.content, "taints": [{**taints[0], "timeAdded": at}]}


def _entered(
    resource_name: str, devices: Iterable[Device], in_use: SharesInUse, *, with_shares: bool
) -> Iterator[tuple[tuple[Device, ...], bool]]:
    """Yield the devices of each entry: one device with False, or all shares of a device with True.

    No share is given out twice, whatever was published before: while a claim has a share as a device of its
    own, the other free shares stay devices of their own, too.
    """
    shares: dict[str, list[Device]] = {}
    for device in devices:
        if device.share_of:
            shares.setdefault(device.share_of, []).append(device)
        else:
            yield (device,), False
    for of_one in shares.values():
        if with_shares and not any((resource_name, one.id) in in_use.alone for one in of_one):
            yield tuple(of_one), True
        else:
            yield from (((one,), False) for one in of_one if (resource_name, one.id) not in in_use.shared)


def _are_same(before: Sequence[Device], now: Sequence[Device]) -> bool:
    return len(before) == len(now) and all(map(operator.is_, before, now))


# ── the version ──

_NO_SLICE: Final = {"metadata.name": "none"}
"""So that the answer is short: whether there is one of that name does not matter."""


async def served_version(server: ApiServer, *, rights: str) -> str:
    """Return the newest version that the server has; raises `NotThereError` if it has none of them."""
    for version in API_VERSIONS:
        try:
            await server.list(
                resource_slices(version),
                fields=_NO_SLICE,
                rights=rights,
                when_absent=f"the API server has no resource.k8s.io/{version}",
            )
        except NotThereError:
            continue
        return version
    raise NotThereError(
        f"the API server has no resource.k8s.io in {', '.join(API_VERSIONS)}: DRA needs Kubernetes 1.32 or "
        "later, with the API turned on"
    )
