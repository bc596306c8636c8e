"""The policy of Events: which are written after each look at the daemon, and when the condition is. Pure.

Worth an Event are changes of devices, of their health, and edits of the file. What repeats itself is counted,
and a flood is cut, as client-go does it (tools/record/events_cache.go: EventAggregator,
EventSourceObjectSpamFilter). The condition `DevicesReady` says in a few words which devices are lost.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.daemon.events.objects import MESSAGE_LIMIT_BYTES, Condition, Event, Notice, Reason, Status
from devplug.errors import one_line
from devplug.status import faults_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from devplug.status import ConfigStatus, DeviceStatus, ProcessStatus, ResourceStatus

NAMED_LIMIT: Final = 5
"""Most devices that one message names; the others are counted."""

SAME_SECONDS: Final = 600.0
"""How long after the last one a notice counts as the same event (defaultAggregateIntervalInSeconds)."""

BURST: Final = 25
"""Events at once (defaultSpamBurst)."""

REFILL_SECONDS: Final = 300.0
"""How long until one more may be written (defaultSpamQPS)."""

_Key: TypeAlias = tuple[str, str]
_NO_EVENTS: Mapping[_Key, Event] = MappingProxyType({})

FAULT_SECONDS: Final = 60.0
"""How long a resource is not ready before it is reported: a restart of a kubelet is no news."""

HEARTBEAT_SECONDS: Final = 300.0
"""How often a condition that stays as it is is written (a kubelet's nodeStatusReportFrequency)."""

PAUSE_SECONDS: Final = 10.0
"""Shortest time between two writings of the condition (a kubelet's nodeStatusUpdateFrequency)."""

_NO_FAULTS: Mapping[str, ResourceFault] = MappingProxyType({})


# ── what is worth an Event ────────────────────────────────────────────────────────────────────────


def _notice(reason: Reason, subject: str, message: str, *, is_warning: bool = False) -> Notice:
    """Return a notice whose message begins with its subject, cut to the length of an Event's."""
    return Notice(reason, subject, one_line(f"{subject}: {message}", MESSAGE_LIMIT_BYTES), is_warning)


def _named_devices(devices: Sequence[DeviceStatus]) -> str:
    """Return the names of a few devices, with what is wrong with each and who holds it."""
    names = [_named(device) for device in devices[:NAMED_LIMIT]]
    more = len(devices) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _named(device: DeviceStatus) -> str:
    pods = sorted({f"{holder.namespace}/{holder.pod}" for holder in device.holders})
    facts = [device.reason] * bool(device.reason) + [f"held by {', '.join(pods)}"] * bool(pods)
    return f"{device.id} ({'; '.join(facts)})" if facts else device.id


def _device_notices(before: ProcessStatus, after: ProcessStatus, known: Collection[str]) -> Iterator[Notice]:
    """Yield the changes of the devices of the resources `known`: those that were registered.

    Others are still being found, and retired ones are Unhealthy because they were removed from the file.
    """
    olds = {one.name: one for one in before.resources}
    for resource in after.resources:
        old = olds.get(resource.name)
        if old is not None and resource.name in known and not resource.is_retired:
            yield from _resource_notices(old, resource)


def _resource_notices(old: ResourceStatus, new: ResourceStatus) -> Iterator[Notice]:
    if old.devices == new.devices:
        return
    before = {device.id: device for device in old.devices}
    added = [device for device in new.devices if device.id not in before]
    worse = [
        device
        for device in new.devices
        if not device.is_healthy and (device.id not in before or before[device.id].is_healthy)
    ]
    better = [
        device
        for device in new.devices
        if device.is_healthy and device.id in before and not before[device.id].is_healthy
    ]
    removed = sorted(before.keys() - {device.id for device in new.devices})
    if added:
        yield _notice(Reason.DEVICE_ADDED, new.name, f"{_counted(len(added))} added: {_named_devices(added)}")
    if worse:
        text = f"{_counted(len(worse))} Unhealthy: {_named_devices(worse)}"
        yield _notice(Reason.DEVICE_UNHEALTHY, new.name, text, is_warning=True)
    if better:
        text = f"{_counted(len(better))} Healthy again: {_named_devices(better)}"
        yield _notice(Reason.DEVICE_HEALTHY, new.name, text)
    if removed:
        gone = [before[id_] for id_ in removed]
        names = ", ".join(removed[:NAMED_LIMIT])
        more = f" and {len(gone) - NAMED_LIMIT} more" if len(gone) > NAMED_LIMIT else ""
        yield _notice(Reason.DEVICE_REMOVED, new.name, f"{_counted(len(gone))} removed: {names}{more}")


def _counted(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"


def _config_notices(before: ConfigStatus | None, after: ConfigStatus | None) -> Iterator[Notice]:
    """Yield the result of an edit of the file."""
    if before is None or after is None:
        return
    if after.problems and after.problems != before.problems:
        text = "not applied; the previous configuration stays in effect: " + "; ".join(after.problems)
        yield _notice(Reason.CONFIG_REFUSED, after.file, text, is_warning=True)
    elif after.applied_at != before.applied_at and not after.problems:
        yield _notice(Reason.CONFIG_APPLIED, after.file, "applied")


# ── what the condition says ───────────────────────────────────────────────────────────────────────


class _Readiness(Struct, frozen=True):
    """The content of a condition, without its times."""

    status: Status
    reason: str
    message: str


def _readiness_of(status: ProcessStatus, faulty: Collection[str]) -> _Readiness | None:
    """Return the readiness of a status; None while it is not clear yet and the condition stays.

    `faulty` are the resources whose fault was reported.
    """
    resources = [one for one in status.resources if not one.is_retired]
    lasting = [one for one in resources if one.fault and one.name in faulty]
    if unserved := [one for one in lasting if not one.is_registered or _is_lost(one)]:
        return _readiness_with(Status.FALSE, "ResourcesNotReady", faults_of(unserved))
    if ill := [one for one in resources if one.allocatable < one.capacity]:
        return _readiness_with(Status.FALSE, "DevicesUnhealthy", map(_ill, ill))
    if lasting:
        # It is registered, but what its list says may be over.
        return _readiness_with(Status.UNKNOWN, "DiscoveryFailing", faults_of(lasting))
    if any(one.fault for one in resources):
        return None
    if not resources:
        return _Readiness(Status.TRUE, "NoResources", "no resource of the configuration is for this machine")
    return _readiness_with(
        Status.TRUE, "DevicesHealthy", (f"{one.name}: {one.capacity}" for one in resources)
    )


def _readiness_with(status: Status, reason: str, parts: Iterable[str]) -> _Readiness:
    return _Readiness(status, reason, one_line("; ".join(parts), MESSAGE_LIMIT_BYTES))


def _is_lost(resource: ResourceStatus) -> bool:
    """Whether another plugin has its name, though a kubelet still reads our list."""
    return resource.takeover is not None and resource.takeover.is_lost


def _ill(resource: ResourceStatus) -> str:
    devices = [device for device in resource.devices if not device.is_healthy]
    return f"{resource.name}: {len(devices)} of {resource.capacity} Unhealthy: {_named_devices(devices)}"


# ── repetitions and floods ────────────────────────────────────────────────────────────────────────


class EventSeries(Struct, frozen=True):
    """The events of late, by reason and subject; `is_new` of one says that it was never written."""

    events: Mapping[_Key, Event] = field(default_factory=lambda: _NO_EVENTS)
    left: float = float(BURST)
    """How many more may be written at once, as of `left_at`."""
    left_at: float = 0.0
    serial: int = 0


def _next_event(ledger: EventSeries, notice: Notice, now: float) -> tuple[EventSeries, Event | None]:
    """Count a notice; return the event to write for it, or None if there were too many.

    What is not written is counted, and reported with the next one of its kind that is.
    """
    key = (notice.reason, notice.subject)
    events = {one: event for one, event in ledger.events.items() if _is_recent(event, now)}
    old = events.get(key)
    serial = ledger.serial
    if old is None:
        serial += 1
        # As kubelets name theirs, but for the serial: two may come at the same time.
        event = Event(f"{int(now * 1e9) + serial:x}", notice, 1, now, now, is_new=True)
    else:
        event = replace(old, notice=notice, count=old.count + 1, last_at=now)
    passed = max(0.0, now - ledger.left_at)
    left = min(float(BURST), ledger.left + passed / REFILL_SECONDS)
    is_written = left >= 1
    events[key] = replace(event, is_new=event.is_new and not is_written)
    after = EventSeries(MappingProxyType(events), left - is_written, now, serial)
    return after, event if is_written else None


def _is_recent(event: Event, now: float) -> bool:
    return abs(now - event.last_at) < SAME_SECONDS


# ── after each look ───────────────────────────────────────────────────────────────────────────────


class ResourceFault(Struct, frozen=True):
    """The fault of a resource that is not ready."""

    since: float
    is_reported: bool = False


class ReportedState(Struct, frozen=True):
    """What was reported to the cluster, and faults that are reported once they have lasted."""

    registered: frozenset[str] = frozenset()
    """The resources that were registered with a kubelet."""
    faults: Mapping[str, ResourceFault] = field(default_factory=lambda: _NO_FAULTS)
    """By resource name."""
    ledger: EventSeries = field(default_factory=EventSeries)
    condition: Condition | None = None


class Report(Struct, frozen=True):
    """What to write to the cluster now."""

    reported: ReportedState
    """The state once this is written."""
    events: tuple[Event, ...]
    condition: Condition | None
    """None if the one in the cluster may stay as it is for now."""
    again_seconds: float
    """When to look again at the latest, even if nothing changes."""


def next_report(
    reported: ReportedState, before: ProcessStatus | None, after: ProcessStatus, now: float
) -> Report:
    """Return what to write about `after`; `before` is the status of `reported`, None at the first.

    A fault at the first call makes no event, because each start of the daemon would repeat it; it is in
    the condition.
    """
    notices: list[Notice] = []
    if before is not None:
        notices += _device_notices(before, after, reported.registered)
        notices += _config_notices(before.config, after.config)
    notices += _readiness_notices(reported, after, now)
    faults = _next_faults(reported.faults, after, now)
    ledger = reported.ledger
    events = []
    for one in notices:
        ledger, event = _next_event(ledger, one, now)
        if event is not None:
            events.append(event)
    condition, is_pending = _next_condition(reported.condition, after, faults, now)
    last = condition or reported.condition
    served = {one.name for one in after.resources}
    registered = frozenset(one.name for one in after.resources if one.is_registered)
    return Report(
        ReportedState((reported.registered | registered) & served, faults, ledger, last),
        tuple(events),
        condition,
        _again_seconds(faults, last, now, is_pending=is_pending),
    )


def _next_faults(
    faults: Mapping[str, ResourceFault], after: ProcessStatus, now: float
) -> Mapping[str, ResourceFault]:
    fresh = {}
    for one in after.resources:
        if one.fault and not one.is_retired:
            fault = faults.get(one.name, ResourceFault(now))
            # A clock that was set back would have it wait for hours.
            fault = replace(fault, since=min(fault.since, now))
            fresh[one.name] = replace(
                fault, is_reported=fault.is_reported or now - fault.since >= FAULT_SECONDS
            )
    return MappingProxyType(fresh)


def _readiness_notices(reported: ReportedState, after: ProcessStatus, now: float) -> Iterator[Notice]:
    faults = _next_faults(reported.faults, after, now)
    for one in after.resources:
        before, fault = reported.faults.get(one.name), faults.get(one.name)
        was_reported = before is not None and before.is_reported
        if fault is not None and fault.is_reported and not was_reported:
            seconds = round(now - fault.since)
            message = f"not ready for {seconds} s: {one.fault}"
            yield _notice(Reason.RESOURCE_NOT_READY, one.name, message, is_warning=True)
        if fault is None and one.is_registered and (was_reported or one.name not in reported.registered):
            message = f"registered with the kubelet, {one.allocatable} of {one.capacity} devices Healthy"
            yield _notice(Reason.RESOURCE_READY, one.name, message)


def _next_condition(
    last: Condition | None, after: ProcessStatus, faults: Mapping[str, ResourceFault], now: float
) -> tuple[Condition | None, bool]:
    """Return the condition to write, if any; and whether there is one that has to wait."""
    said = _readiness_of(after, {name for name, fault in faults.items() if fault.is_reported})
    if last is None:
        if said is None:
            return None, False
        return Condition(said.status, said.reason, said.message, now, now), False
    status, reason, message = (
        (said.status, said.reason, said.message) if said else (last.status, last.reason, last.message)
    )
    is_other = (status, reason, message) != (last.status, last.reason, last.message)
    pause_seconds = PAUSE_SECONDS if is_other else HEARTBEAT_SECONDS
    if 0 <= now - last.at < pause_seconds:
        return None, is_other
    return Condition(status, reason, message, last.since if status == last.status else now, now), False


def _again_seconds(
    faults: Mapping[str, ResourceFault], last: Condition | None, now: float, *, is_pending: bool
) -> float:
    dues = [fault.since + FAULT_SECONDS for fault in faults.values() if not fault.is_reported]
    if last is not None:
        dues.append(last.at + (PAUSE_SECONDS if is_pending else HEARTBEAT_SECONDS))
    return max(0.0, min(dues, default=now + HEARTBEAT_SECONDS) - now)
