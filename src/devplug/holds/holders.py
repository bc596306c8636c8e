"""The holders of devices: the only client of PodResources in a process, and when it asks."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from devplug.errors import AllocationError, quoted
from devplug.holds.client import Trouble, UnansweredError, ask, ask_pods, read_checkpoint, retry_wait_seconds
from devplug.holds.held_device import Allocated, Remembered, Rules
from devplug.holds.ledger import ID_LIMIT_BYTES, KEPT_LIMIT, NO_USES, Ledger, are_listed_without, ids_of
from devplug.holds.ledger_store import LedgerFolder
from devplug.linux.inotify import shared_watcher
from devplug.linux.notifier import Notifier, within
from devplug.logs import AUDIT
from devplug.status import PodResourcesStatus
from devplug.wire.sockets import socket_identity
from devplug.wire.values import PodName

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from pathlib import Path

    from devplug.holds.client import Answer
    from devplug.holds.hardware import Use
    from devplug.holds.held_device import Difference, Released
    from devplug.holds.ledger_store import OtherFiles
    from devplug.wire.values import AllocatableResources, PodResources, SocketIdentity


logger = logging.getLogger(__name__)
audit = logging.getLogger(AUDIT)

Result = TypeVar("Result")

ASK_TIMEOUT_SECONDS: Final = 10.0

ANSWER_LIMIT_BYTES: Final = 8 * 1024 * 1024
"""The size of an answer: 100,000 devices that pods hold. The last one is kept, and takes twice its size;
the container of the daemon has 192 MiB."""

LISTED_AFTER_SECONDS: Final = 1.0
"""When to ask for devices that were just allocated: the kubelet lists them once it has our answer. A holder
must be listed once before its end is known, so a pod that lives shorter than the period is asked for
early."""

ANSWER_SECONDS: Final = 5.0
"""How long an Allocate waits for a kubelet that has answered before, and does not now."""

DOUBT_SECONDS: Final = 0.5
"""The time for a List that the answer to GetPreferredAllocation waits for."""

AGAIN_SECONDS: Final = 0.5
"""The wait between two such questions."""

QUICK_PERIOD_SECONDS: Final = 1.0
"""The least time between such a question and the one before."""

OTHERS_SECONDS: Final = 0.25
"""The least time between two looks at what other processes have recorded."""

OTHERS_AGAIN_SECONDS: Final = 10.0
"""The wait for an event of them: a process that is killed makes none, nor a line that is added to a file."""

REWRITE_SECONDS: Final = 30.0
"""How often at most the kubelet is made to write its checkpoint while the pods stay the same: an ID that only
an init container has is in the file and in no answer for as long as its pod lives."""


class Holders:
    """The holders of this node's devices; lives as long as the process, on the loop of `run`.

    The kubelet is asked only inside `run`, and only while a caller is inside `needed` or `releases`. The last
    answer stays when questions fail.

    `ledger_folder` keeps what is held of owned resources over a restart. `checkpoint` is the kubelet's file:
    without it, an ID that the kubelet has not listed since its start is held until it is allocated again.
    `rewrite_checkpoint` has the kubelet write that file, by a list of devices. `on_change` is called when
    holders change, when the kubelet begins or ceases to answer, and after each question without answer.
    `is_served` returns whether a process serves a resource; the holds of others are judged here.
    `other_claims` has what claims of other processes use. `owner` stands in our files.
    """

    def __init__(
        self,
        socket: Path,
        ledger_folder: Path | None = None,
        *,
        checkpoint: Path | None = None,
        rewrite_checkpoint: Callable[[], Awaitable[None]] | None = None,
        rules: Rules | None = None,
        with_allocatable: bool = False,
        timeout_seconds: float = ASK_TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[], None] = lambda: None,
        is_served: Callable[[str], bool] = lambda _: True,
        other_claims: OtherFiles[Any] | None = None,
        owner: str = "",
    ) -> None:
        self._other_claims = other_claims
        self._socket = socket
        self._is_served = is_served
        self.left: frozenset[str] = frozenset()
        """The resources that no process serves now, and of which a file of holds is left."""
        self._checkpoint_path = checkpoint
        self._rewrite_checkpoint = rewrite_checkpoint
        self._rewritten: tuple[Sequence[PodResources], float] | None = None
        """The answer and the time at which the kubelet was last made to write its checkpoint."""
        self._rules = replace(rules or Rules(), trusts_empty=checkpoint is None)
        self._with_allocatable = with_allocatable
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self.ledger = Ledger(self._rules)
        self._folder = LedgerFolder(ledger_folder, self.ledger, self._note_faults, owner)
        self._on_change = on_change
        self._wake = asyncio.Event()
        self._has_moved = False
        self._looked = Notifier()
        self._needs = 0
        self.audited: Callable[[], Collection[str]] = tuple
        """Return the resources whose holders are logged."""
        self._doubts: tuple[float, Sequence[PodResources]] | None = None
        """The last answer to `doubtful`, and its time."""
        self._allocating = 0
        """How many Allocates are answered at this moment."""
        self._serves_get = True
        self._refused: set[tuple[str, str, SocketIdentity | None]] = set()
        """Resource, ID and kubelet of the doubts for which an Allocate was refused."""
        self._asked_of: SocketIdentity | None = None
        self._asked_at: float | None = None
        self._answered_at: float | None = None
        self.answered_at: float | None = None
        """When the last good answer was asked for, as a Unix time in seconds; None if there was none."""
        self._allocated_at: float | None = None
        self._wait_seconds = 0.0
        self._failures = 0
        self._trouble: Trouble | None = None
        self._was_over = False
        self._doubly_held: frozenset[tuple[str, str]] = frozenset()
        self.last_error: str | None = None
        """Why the last question had no answer, for people; None after a good one."""
        self.errors: Counter[Trouble] = Counter()
        """How many questions had no answer, by reason."""
        self.pods: Sequence[PodResources] = ()
        """The last good answer, all resources of all pods, in the kubelet's order."""
        self.allocatable: AllocatableResources | None = None
        """What the node can give to pods; None if it was not asked for, or the kubelet does not tell."""

    # ── what is known ──

    @property
    def age_seconds(self) -> float | None:
        """How old the last good answer is; None if there was none."""
        return None if self._answered_at is None else self._clock() - self._answered_at

    def fresh_pods(self) -> Sequence[PodResources]:
        """Return `pods`; nothing if the last good answer is older than three periods."""
        age_seconds = self.age_seconds
        return self.pods if age_seconds is not None and age_seconds < 3 * self._rules.period_seconds else ()

    @property
    def is_asking(self) -> bool:
        """Whether a caller needs the holders, so that the last answer should never be old."""
        return self._needs > 0

    @property
    def trouble(self) -> Trouble | None:
        """Why the last question had no answer; None after a good one."""
        return self._trouble

    def held(self) -> Iterator[tuple[str, str, Remembered, bool]]:
        """Yield resource name, ID and hold of each held ID, and whether it is only to be cleaned."""
        others = {one.resource_name: one.memory for one in self._folder.others.contents.values()}
        served = others.keys() - self.left
        for one in self.ledger.held():
            if one[0] not in served:
                yield one
        for name in served:
            for device_id, remembered in others[name].items():
                yield name, device_id, remembered, False

    @property
    def revision(self) -> object:
        """A value that changes whenever `held` does."""
        return self.ledger.revisions, self._folder.others.revision, self.left

    # ── other processes ──

    def look_at_others(self) -> bool:
        """Read what other processes have recorded since; return whether anything has changed."""
        changed = [one.refresh() for one in self._others]
        return any(changed)

    @property
    def _others(self) -> list[OtherFiles[Any]]:
        return [self._folder.others, *([] if self._other_claims is None else [self._other_claims])]

    @asynccontextmanager
    async def alone(self, resource_name: str) -> AsyncIterator[None]:
        """Be the only process that allocates hardware in this block, and know what others have recorded.

        What is given in it is recorded at its end. Raises `AllocationError` if another process keeps the
        lock.
        """
        try:
            async with self._folder.locked():
                if self.look_at_others():
                    self._looked.notify()
                    self._on_change()
                yield
                if self._folder.has_others():
                    self._folder.write_now(resource_name)
        except TimeoutError as error:
            raise AllocationError(str(error)) from error

    def _review_others(self) -> None:
        """Judge from now on what a process that has ended has left, as long as no process serves it."""
        is_changed = self.look_at_others()
        others = self._folder.others.contents.values()
        left = frozenset(one.resource_name for one in others if not self._is_served(one.resource_name))
        for one in others:
            if one.resource_name in left - self.left:
                self.ledger.judge_left(one.resource_name, one.memory, self._clock())
        for resource_name in self.left - left:
            if not self._folder.is_owned(resource_name):
                self.ledger.leave(resource_name)
        if is_changed or left != self.left:
            self.left = left
            self._looked.notify()
            self._on_change()

    async def _follow_others(self) -> None:
        """Follow what other processes record, until cancelled: the end of one may make no event."""
        if self._folder.path is None:
            return
        changed = asyncio.Event()
        async with shared_watcher() as watcher:
            with watcher.subscribe(changed.set) as subscription:
                while True:
                    changed.clear()
                    subscription.arm([one.watched for one in self._others])
                    self._review_others()
                    await asyncio.sleep(OTHERS_SECONDS)
                    is_any = any(one.contents for one in self._others)
                    await within(OTHERS_AGAIN_SECONDS if is_any else None, changed.wait())

    def complete(self, resource_name: str, device_id: str, use: Use) -> None:
        """Record what a container has of a device, where an older version has recorded the ID alone."""
        self.ledger.complete(resource_name, device_id, use)
        self._folder.note_changed()

    async def checkpoint(self) -> tuple[PodResources, ...] | None:
        """Return what the kubelet's checkpoint says now, as `checkpoint_pods`; None if it cannot be read."""
        if self._checkpoint_path is None:
            return None
        return await asyncio.to_thread(read_checkpoint, self._checkpoint_path)

    def own(self, resource_name: str, *, is_waiting: bool = False, was_killed: bool = False) -> None:
        """Read the ledger file of a resource that only we serve, and keep it up to date from now on.

        What was held then is held, until answers show that it is not. If the last process `was_killed`, or
        has left a damaged file, so is what the kubelet's checkpoint names: its last Allocates may be in no
        file. If it `is_waiting`, another process may still serve the resource, and write the file, until
        `begin`. Raises `ValueError` if it is owned.
        """
        self._folder.own(resource_name, self._clock(), is_waiting=is_waiting)
        file = self._folder.file(resource_name)
        if was_killed or (file is not None and file.is_lost):
            self.assume_held(resource_name, self._in_checkpoint(resource_name))
        self._looked.notify()
        self._on_change()

    def begin(self, resource_name: str) -> None:
        """Take over the ledger file of a resource that no other process serves any more."""
        self._folder.begin(resource_name, self._clock())
        self._looked.notify()
        self._on_change()

    def left_behind(self) -> list[str]:
        """Return the resources with holds of another daemon, by its files or the checkpoint."""
        pods = () if self._checkpoint_path is None else read_checkpoint(self._checkpoint_path) or ()
        return self._folder.left_behind(
            {devices.resource_name for pod in pods for one in pod.containers for devices in one.devices}
        )

    def disown(self, resource_name: str) -> None:
        """Leave the file of a resource to the next process, once nothing of it is allocated any more."""
        self._folder.disown(resource_name)

    # ── who wants to know ──

    def note_allocated(
        self, resource_name: str, ids: Iterable[str], uses: Mapping[str, Use] = NO_USES
    ) -> None:
        """Record that these IDs are allocated, before the kubelet has the answer."""
        before, self._allocated_at = self._allocated_at, self._clock()
        is_other = self.ledger.allocated(resource_name, ids, self._allocated_at, uses)
        self._folder.note_changed()
        # Further ones only put the next question off, which is seen when that is due.
        if before is None or self._asked_at is None or before <= self._asked_at:
            self._wake.set()
        if is_other:
            self._looked.notify()
        self._on_change()

    @contextmanager
    def allocating(self) -> Iterator[None]:
        """Ask no periodic question while an Allocate is answered.

        A `List` meanwhile makes the kubelet forget the device if another pod ends (kubernetes/kubernetes
        PR 137534; reference of the kubelet, L5).
        """
        self._allocating += 1
        try:
            yield
        finally:
            self._allocating -= 1
            self._wake.set()

    async def release_or_refuse(self, resource_name: str, device_ids: Iterable[str]) -> None:
        """Release these IDs, which the kubelet allocates now, if nobody holds them any more.

        The kubelet may allocate a device that another pod has, and its bookkeeping is no evidence of that. So
        it is asked about the last holders. Raises `AllocationError` if it names one.
        """
        is_over = self.ledger.is_over  # then the kubelet alone knows all that is held
        held = [one for one in sorted(device_ids) if is_over or self.ledger.is_held(resource_name, one)]
        pods: Sequence[PodResources] = ()
        # A named holder shows that the kubelet answered an earlier process.
        if self.ledger.is_known or any(self.ledger.last_holders(resource_name, one)[0] for one in held):
            pods = await self._answered(resource_name, held)
        elif held:
            # Of a kubelet that never answered, the Allocate is the only evidence there is.
            with suppress(UnansweredError, TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    pods = await self._pods_of(resource_name, held)
        for device_id in held:
            self._refuse_held(resource_name, device_id, pods)
        self._release(resource_name, held)

    async def _answered(self, resource_name: str, device_ids: Sequence[str]) -> Sequence[PodResources]:
        """Return `_pods_of`, with some patience; raises `AllocationError` without an answer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ANSWER_SECONDS
        while True:
            try:
                return await self._pods_of(resource_name, device_ids)
            except UnansweredError as error:
                if loop.time() + AGAIN_SECONDS > deadline:
                    raise AllocationError(
                        f"whether a pod still holds {quoted(device_ids[0])} is not known: {error}"
                    ) from error
            await asyncio.sleep(AGAIN_SECONDS)

    async def _pods_of(self, resource_name: str, device_ids: Sequence[str]) -> Sequence[PodResources]:
        """Return what the kubelet says now of the last holders of these IDs, or of all pods."""
        names: set[PodName] = set()
        for device_id in device_ids:
            holders, is_listed = self.ledger.last_holders(resource_name, device_id)
            names.update(PodName(holder.pod, holder.namespace) for holder in holders)
            if not holders or not is_listed or not self._serves_get:
                answer = await self._ask(self._timeout_seconds)
                return answer.pods
        pods = await ask_pods(self._socket, names, timeout_seconds=self._timeout_seconds)
        if pods is None:
            self._serves_get = False
            return await self._pods_of(resource_name, device_ids)
        return pods

    async def doubtful(self, resource_name: str, held_ids: Iterable[str]) -> frozenset[str]:
        """Return those of held IDs that the kubelet calls available although a pod may still have them.

        Others are about to be released: their pods have ended. The answer of the kubelet may be a second old,
        and without one none is doubtful: Allocate asks again.
        """
        if not self.ledger.is_known:
            return frozenset()
        if self._doubts is None or self._clock() - self._doubts[0] >= QUICK_PERIOD_SECONDS:
            # The kubelet answers 100 questions a second, and each Allocate needs one, too.
            try:
                answer = await self._ask(DOUBT_SECONDS)
            except UnansweredError:
                return frozenset()
            self._doubts = self._clock(), answer.pods
        pods = self._doubts[1]
        named = {device_id for pod in pods for device_id in ids_of(pod, resource_name)}
        return frozenset(
            one for one in held_ids if one in named or self._has_lost_books(resource_name, one, pods)
        )

    def _has_lost_books(self, resource_name: str, device_id: str, pods: Sequence[PodResources]) -> bool:
        """Whether the kubelet lists the last holders of an ID without it, and never had it in its books."""
        holders, is_booked = self.ledger.last_holders(resource_name, device_id)
        return (
            not is_booked
            and are_listed_without(holders, resource_name, pods)
            # A pod of the same name may be the one that is admitted now; lost books name no device.
            and device_id not in self._in_checkpoint(resource_name)
        )

    def _refuse_held(self, resource_name: str, device_id: str, pods: Sequence[PodResources]) -> None:
        """Raise `AllocationError` if the kubelet names a holder of an ID, or if there is a first doubt."""
        for pod in pods:
            if device_id in ids_of(pod, resource_name):
                raise AllocationError(
                    f"device {quoted(device_id)} is held by {pod.namespace}/{pod.name}; the kubelet has "
                    "allocated it twice; delete and recreate this pod"
                )
        doubt = resource_name, device_id, socket_identity(self._socket)
        if doubt not in self._refused and self._has_lost_books(resource_name, device_id, pods):
            holders, _ = self.ledger.last_holders(resource_name, device_id)
            self._refused.add(doubt)
            raise AllocationError(
                f"device {quoted(device_id)} was held by {holders[0].namespace}/{holders[0].pod}, which the "
                "kubelet lists without it after a restart; delete and recreate this pod"
            )

    def _release(self, resource_name: str, device_ids: Iterable[str]) -> None:
        """Record that these IDs are free."""
        for device_id in device_ids:
            self._log(self.ledger.released(resource_name, device_id))

    # ── what has to be cleaned ──

    def keep_file(self, resource_name: str) -> bool:
        """Keep a file also while nothing is held; return whether it was damaged or is missing."""
        if (file := self._folder.file(resource_name)) is None:
            return False
        is_first = not file.is_kept
        file.is_kept = True
        is_lost = file.is_lost or (file.is_missing and bool(self._in_checkpoint(resource_name)))
        if is_first and file.is_missing:
            file.note_written(-1)
            self._folder.write_now(resource_name)
        return is_first and is_lost

    def _in_checkpoint(self, resource_name: str) -> frozenset[str]:
        """Return the IDs of a resource that the kubelet's checkpoint names."""
        pods = () if self._checkpoint_path is None else read_checkpoint(self._checkpoint_path) or ()
        return frozenset(device_id for pod in pods for device_id in ids_of(pod, resource_name))

    def assume_held(self, resource_name: str, ids: Iterable[str]) -> None:
        """Count IDs of which records were lost as held, until the kubelet shows that they are not."""
        held = self.ledger.held_ids(resource_name)
        lost = {device_id: Remembered() for device_id in ids if device_id not in held}
        self.ledger.recall(resource_name, lost, self._clock())
        self._folder.note_changed()
        self._wake.set()

    def record_fault(self, resource_name: str) -> str:
        """Return why holds of a resource cannot be written; empty if they can."""
        return self._folder.faults().get(resource_name, "")

    def record(self, resource_name: str, ids: Iterable[str]) -> str:
        """Write the holds of a resource at once; take these IDs back if that fails, and return why."""
        fault = self._folder.write_now(resource_name)
        if fault:
            self.ledger.forget(resource_name, ids)
            self._note_faults()
        return fault

    def _note_faults(self) -> None:
        self._folder.note_changed()
        self._looked.notify()
        self._on_change()

    def suspect(self) -> None:
        """Ask the kubelet soon, if a caller needs it: it may have given out a device just now."""
        self._allocated_at = self._clock()
        self._wake.set()

    @contextmanager
    def needed(self) -> Iterator[None]:
        """Ask the kubelet, at once and every period, until the block is left."""
        self._needs += 1
        self._wake.set()
        try:
            yield
        finally:
            self._needs -= 1

    async def wait(self, condition: Callable[[], Result | None]) -> Result:
        """Return what `condition` returns once that is true. Be inside `needed`: this starts no questions."""
        while not (result := condition()):
            await self._looked.next.wait()
        return result

    @contextmanager
    def releases(self, resource_name: str) -> Iterator[None]:
        """Keep the releases of a resource in the ledger until they are taken, while the block lasts.

        `take` each once it was acted upon: until then its device counts as held, also for the next process.
        """
        self.ledger.keep_releases(resource_name)
        try:
            with self.needed():
                yield
        finally:
            self.ledger.stop_keeping(resource_name)

    def pending_left(self) -> list[Released]:
        """Return the releases of what processes that have ended had to clean."""
        return [one for name in sorted(self.left) for one in self.ledger.pending_releases(name)]

    def take(self, released: Iterable[Released]) -> None:
        """Record that these releases were acted upon: nobody holds those devices any more."""
        self.ledger.take(released)
        self._folder.note_changed()
        self._looked.notify()
        self._on_change()

    # ── asking ──

    async def run(self) -> None:
        """Ask whenever a question is due, until cancelled. A failed question does not end it."""
        try:
            async with asyncio.TaskGroup() as group, shared_watcher() as watcher:
                group.create_task(self._folder.run())
                group.create_task(self._follow_others())
                with watcher.subscribe(self._note_moved) as subscription:
                    self._note_moved()
                    while True:
                        self._wake.clear()
                        if self._has_moved:
                            self._has_moved = False
                            subscription.arm([str(self._socket.absolute())])
                        await self._wait_or_look()
        finally:
            self._folder.write()

    def _note_moved(self) -> None:
        """Record that the kubelet's socket, or a folder on the way to it, may be another one."""
        self._has_moved = True
        self._wake.set()

    async def _wait_or_look(self) -> None:
        due = self._due() if self._needs and not self._allocating else None
        if due is not None and self._clock() >= due:
            await self._look()
            return
        await within(None if due is None else due - self._clock(), self._wake.wait())

    def _due(self) -> float:
        """Return when to ask next: at once if there was no question yet, else a while after the last."""
        if self._asked_at is None:
            return self._clock()
        if (kubelet := socket_identity(self._socket)) is not None and kubelet != self._asked_of:
            self._failures = 0
            return self._clock()
        due = self._asked_at + self._wait_seconds
        if self._trouble is None and self.ledger.is_any_missing:
            due = min(due, self._asked_at + self._rules.absence_seconds)
        if self._trouble is None and self._allocated_at is not None:
            listed_at = self._allocated_at + LISTED_AFTER_SECONDS
            if self._asked_at < listed_at:
                due = min(due, max(listed_at, self._asked_at + QUICK_PERIOD_SECONDS))
        return due

    async def _look(self) -> None:
        """Ask once, and notify the readers concerned."""
        self._asked_of = socket_identity(self._socket)
        self._asked_at = asked_at = self._clock()
        before = self.ledger.is_known, self._trouble, self.pods, self.allocatable
        differences: tuple[Difference, ...] = ()
        is_unanswered = False
        try:
            answer = await self._ask(self._timeout_seconds, with_allocatable=self._with_allocatable)
        except UnansweredError as error:
            self._failures += 1
            self._wait_seconds = retry_wait_seconds(self._failures, random.random())  # noqa: S311 -- jitter
            is_unanswered = True
            self._note_failure(error)
        else:
            self._failures = 0
            self._wait_seconds = self._rules.period_seconds
            self._answered_at, self.answered_at = asked_at, time.time() - (self._clock() - asked_at)
            self.pods, self.allocatable = answer.pods, answer.allocatable
            differences = await self._taken(answer, asked_at)
            self._log(differences)
            self._note_answer()
            self._folder.note_changed()
        # A release is believed at an answer that says no more than the one before it.
        after = self.ledger.is_known, self._trouble, self.pods, self.allocatable
        if differences or is_unanswered or before != after:
            self._on_change()
        self._looked.notify()

    async def _ask(self, timeout_seconds: float, *, with_allocatable: bool = False) -> Answer:
        return await ask(
            self._socket,
            timeout_seconds=timeout_seconds,
            with_allocatable=with_allocatable,
            receive_limit_bytes=ANSWER_LIMIT_BYTES,
        )

    async def _taken(self, answer: Answer, asked_at: float) -> tuple[Difference, ...]:
        """Pass an answer to the ledger, with the checkpoint if that is needed."""
        checkpoint = None
        if self.ledger.needs_checkpoint(answer.pods, answer.kubelet):
            checkpoint = await self.checkpoint()
        differences = self.ledger.listed(
            answer.pods, asked_at, answer.kubelet, checkpoint, is_v1=answer.is_v1
        )
        if self.ledger.is_checkpoint_old and self._rewrite_checkpoint is not None:
            pods, at = self._rewritten or (None, asked_at)
            if pods != answer.pods or asked_at >= at + REWRITE_SECONDS:
                self._rewritten = answer.pods, asked_at
                await self._rewrite_checkpoint()
        return differences

    def _log(self, differences: Iterable[Difference]) -> None:
        names = self.audited()
        for one in differences:
            if one.resource_name in names:
                holder = one.holder
                facts = {
                    "resource_name": one.resource_name,
                    "device_id": one.device_id,
                    "pod": f"{holder.namespace}/{holder.pod}" if holder else "",
                    "container_name": holder.container if holder else "",
                }
                if isinstance(one, Allocated):
                    audit.info("device held", extra=facts)
                else:
                    audit.info("device released", extra={**facts, "is_free": one.is_free})

    def _note_failure(self, error: UnansweredError) -> None:
        """Record a failure, and log it if it is another one than before."""
        self.errors[error.trouble] += 1
        self.last_error = str(error)
        if error.trouble is not self._trouble:
            self._trouble = error.trouble
            logger.warning(
                "PodResources does not answer; devices that were held stay held until it does",
                extra={"trouble": error.trouble.value, "reason": self.last_error},
            )

    def _note_answer(self) -> None:
        if self._trouble is not None:
            logger.info("PodResources answers again")
        self._trouble = self.last_error = None
        if self.ledger.is_over and not self._was_over:
            logger.warning(
                "the kubelet lists held device IDs that devplug did not allocate and does not keep; they are "
                "not in the lists of devices, and each Allocate asks the kubelet about its devices",
                extra={"kept": KEPT_LIMIT, "longest": ID_LIMIT_BYTES},
            )
        self._was_over = self.ledger.is_over
        doubly = self.ledger.doubly_held()
        for resource_name, device_id in sorted(doubly - self._doubly_held):
            holders = self.ledger.holders_of(resource_name, device_id)
            logger.error(
                "the kubelet lists one device for several pods",
                extra={
                    "resource_name": resource_name,
                    "device": device_id,
                    "pods": ", ".join(sorted({f"{holder.namespace}/{holder.pod}" for holder in holders})),
                },
            )
        self._doubly_held = doubly


def pod_resources_status(holders: Holders) -> PodResourcesStatus:
    """Return the status of the questions to the kubelet's PodResources."""
    return PodResourcesStatus(
        answered_at=holders.answered_at,
        trouble=holders.last_error or "",
        errors={trouble.value: count for trouble, count in sorted(holders.errors.items())},
    )


async def audit_holders(holders: Holders, names: Callable[[], Collection[str]]) -> None:
    """Log which containers hold and release devices of the resources `names`, until cancelled.

    The kubelet is asked for that only while a device of these is held.
    """
    holders.audited = names

    def is_any_held() -> bool:
        return any(holders.ledger.held_ids(name) for name in (*names(), *holders.left))

    while True:
        await holders.wait(is_any_held)
        with holders.needed():
            await holders.wait(lambda: not is_any_held())
