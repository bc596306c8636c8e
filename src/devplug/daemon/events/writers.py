"""Writers of Events and of the Node's condition: the option `--kube-events`.

Each keeps what it could not write yet. The account is read again for each write, because a pod's token lives
for an hour.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from devplug.daemon.events.objects import (
    EVENT_NAMESPACE,
    condition_patch,
    event_name,
    event_object,
    event_patch,
    inherited,
)
from devplug.daemon.events.policy import ReportedState, next_report
from devplug.errors import one_line, quoted
from devplug.k8s.account import ACCOUNT_FOLDER, mounted_account
from devplug.k8s.client import EVENTS, NODES, Retries, connected, until_next_try
from devplug.k8s.errors import ClusterError, ExistsError, NotThereError
from devplug.linux.notifier import within

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devplug.daemon.events.objects import Condition, Event
    from devplug.k8s.client import ApiServer
    from devplug.linux.notifier import Notifier
    from devplug.status import ProcessStatus

logger = logging.getLogger(__name__)

EVENTS_LIMIT: Final = 64
"""Most events that wait for the API server; the oldest of more are dropped."""

EVENT_LIFE_SECONDS: Final = 3600.0
"""How long an API server keeps an Event (--event-ttl); one that has waited for longer is dropped."""

_EVENT_RIGHTS: Final = "create and patch events"
_NODE_RIGHTS: Final = "get nodes and patch nodes/status"

LOOK_PAUSE_SECONDS: Final = 1.0
"""Shortest time between two reports: changes that end within it are not reported."""

LONGEST_RETRY_SECONDS: Final = 300.0


# ── the writers ───────────────────────────────────────────────────────────────────────────────────


class Writer(Protocol):
    """A queue of writes to the API server."""

    what: str
    rights: str
    changed: asyncio.Event
    """Set when there is more to write."""

    @property
    def is_done(self) -> bool:
        """Whether all is written."""

    async def write(self, server: ApiServer) -> None:
        """Write all that waits; raises `ClusterError` if that fails, and keeps the rest for the next time."""


class EventWriter:
    """The Events to write, in their order; lives as long as `report_to_cluster`."""

    what = "Events"
    rights = _EVENT_RIGHTS

    def __init__(self, node_name: str, clock: Callable[[], float]) -> None:
        self.changed = asyncio.Event()
        self._node_name = node_name
        self._clock = clock
        self._waiting: dict[str, Event] = {}

    @property
    def is_done(self) -> bool:
        """Whether all is written."""
        return not self._waiting

    def put(self, event: Event) -> None:
        """Queue an event; it replaces an earlier state of the same one."""
        if (earlier := self._waiting.get(event.suffix)) is not None:
            event = replace(event, is_new=earlier.is_new)
        self._waiting[event.suffix] = event
        while len(self._waiting) > EVENTS_LIMIT:
            del self._waiting[next(iter(self._waiting))]
        self.changed.set()

    async def write(self, server: ApiServer) -> None:
        """Write all that waits; raises `ClusterError` if that fails, and keeps the rest for the next time."""
        while self._waiting:
            suffix, event = next(iter(self._waiting.items()))
            if self._clock() - event.last_at > EVENT_LIFE_SECONDS:
                del self._waiting[suffix]
                continue
            try:
                await self._write(server, event)
            except ClusterError:
                # Behind the others: one that the server does not take must not keep them.
                self._waiting[suffix] = self._waiting.pop(suffix)
                raise
            latest = self._waiting.pop(suffix, event)
            if latest is not event:
                self._waiting[suffix] = replace(latest, is_new=False)

    async def _write(self, server: ApiServer, event: Event) -> None:
        name, content = event_name(self._node_name, event), event_object(self._node_name, event)
        place = {"namespace": EVENT_NAMESPACE, "rights": _EVENT_RIGHTS}
        if event.is_new:
            try:
                await server.create(EVENTS, content, **place)
            except ExistsError:  # the answer to an earlier attempt was lost
                await server.patch(EVENTS, name, event_patch(event), **place)
            return
        try:
            await server.patch(EVENTS, name, event_patch(event), **place, when_absent="gone")
        except NotThereError:  # it has expired, or somebody has deleted it
            await server.create(EVENTS, content, **place)


class ConditionWriter:
    """The condition to write, the latest only; lives as long as an `EventWriter`."""

    what = "the Node's condition"
    rights = _NODE_RIGHTS

    def __init__(self, node_name: str) -> None:
        self.changed = asyncio.Event()
        self._node_name = node_name
        self._wanted: Condition | None = None
        self._inherited: dict[float, float] = {}
        """The `since` of this process's first condition, and the one that the Node had before."""

    @property
    def is_done(self) -> bool:
        """Whether all is written."""
        return self._wanted is None

    def put(self, condition: Condition) -> None:
        """Queue a condition, in place of one that still waits."""
        self._wanted = condition
        self.changed.set()

    async def write(self, server: ApiServer) -> None:
        """Write the condition; raises `ClusterError` if that fails, and keeps it for the next time."""
        absent = (
            f"the cluster has no Node {quoted(self._node_name)}; set NODE_NAME from the pod's spec.nodeName"
        )
        while (wanted := self._wanted) is not None:
            if not self._inherited:
                node = await server.get(NODES, self._node_name, rights=_NODE_RIGHTS, when_absent=absent)
                self._inherited[wanted.since] = inherited(wanted, node).since
            since = self._inherited.get(wanted.since, wanted.since)
            patch = condition_patch(replace(wanted, since=since))
            await server.patch_status(NODES, self._node_name, patch, rights=_NODE_RIGHTS, when_absent=absent)
            if self._wanted is wanted:
                self._wanted = None


async def _keep_writing(writer: Writer, account: Path, retries: Retries) -> None:
    """Write what is queued, until cancelled; an error is logged once, and retried."""
    failures, logged_error = 0, ""
    while True:
        await writer.changed.wait()
        writer.changed.clear()
        while not writer.is_done:
            try:
                async with connected(lambda: mounted_account(account, writer.rights)) as server:
                    await writer.write(server)
            except Exception as error:  # noqa: BLE001 -- the devices are served whatever becomes of this
                failures += 1
                logged_error = _log_error(writer, error, logged_error)
                await until_next_try(retries.wait_seconds(failures), error)
            else:
                if logged_error:
                    logger.info("writing to the API server works again", extra={"what": writer.what})
                failures, logged_error = 0, ""


def _log_error(writer: Writer, error: Exception, logged_error: str) -> str:
    """Log an error, unless it was logged last; return its text."""
    reason = one_line(str(error) or type(error).__name__)
    if reason != logged_error:
        is_ours = not isinstance(error, ClusterError)
        logger.warning(
            "cannot write to the API server",
            extra={"what": writer.what, "reason": reason},
            exc_info=error if is_ours else None,
        )
    return reason


# ── following the daemon ──────────────────────────────────────────────────────────────────────────


async def report_to_cluster(
    status: Callable[[], ProcessStatus],
    notifier: Notifier,
    node_name: str,
    *,
    account: Path = ACCOUNT_FOLDER,
    retries: Retries | None = None,
    look_pause_seconds: float = LOOK_PAUSE_SECONDS,
    clock: Callable[[], float] = time.time,
) -> None:
    """Write Events and the condition of this machine's Node, for as long as it is not cancelled.

    `status` says how the daemon is, `notifier` tells when it may have changed. Raises nothing, and only this
    task waits for the API server: an error is logged once, and retried.
    """
    events, condition = EventWriter(node_name, clock), ConditionWriter(node_name)
    retries = retries or Retries(most_seconds=LONGEST_RETRY_SECONDS)
    async with asyncio.TaskGroup() as group:
        group.create_task(_keep_writing(events, account, retries))
        group.create_task(_keep_writing(condition, account, retries))
        group.create_task(_follow(status, notifier, events, condition, look_pause_seconds, clock))


async def _follow(
    status: Callable[[], ProcessStatus],
    notifier: Notifier,
    events: EventWriter,
    condition: ConditionWriter,
    look_pause_seconds: float,
    clock: Callable[[], float],
) -> None:
    reported, before = ReportedState(), None
    while True:
        await asyncio.sleep(look_pause_seconds)
        changed = notifier.next
        try:
            after = status()
            report = next_report(reported, before, after, clock())
        except Exception:
            logger.exception(
                "cannot compute what to write to the API server; it is tried again at the next change"
            )
            await changed.wait()
            continue
        reported, before = report.reported, after
        for event in report.events:
            events.put(event)
        if report.condition is not None:
            condition.put(report.condition)
        await within(report.again_seconds, changed.wait())
