"""What the cluster is told after each look at the daemon: which Events, and when the condition. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from devplug.daemon.kubeevents.noticing import config_notices, device_notices, notice
from devplug.daemon.kubeevents.readiness import verdict
from devplug.daemon.kubeevents.series import Ledger, next_event
from devplug.daemon.kubeevents.values import Condition, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devplug.daemon.kubeevents.values import Event, Notice
    from devplug.status.values import ProcessStatus

__all__ = ["FAULT_SECONDS", "HEARTBEAT_SECONDS", "PAUSE_SECONDS", "Fault", "Telling", "Told", "next_telling"]

FAULT_SECONDS: Final = 60.0
"""How long a resource is not ready before the cluster is told: a restart of a kubelet is no news."""

HEARTBEAT_SECONDS: Final = 300.0
"""How often a condition that stays as it is is written (a kubelet's nodeStatusReportFrequency)."""

PAUSE_SECONDS: Final = 10.0
"""Shortest time between two writings of the condition (a kubelet's nodeStatusUpdateFrequency)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """That a resource is not ready."""

    since: float
    is_told: bool = False


_NONE: Mapping[str, Fault] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Told:
    """What the cluster was told, and what it has to be told once it has lasted."""

    registered: frozenset[str] = frozenset()
    """The resources that a kubelet has had."""
    faults: Mapping[str, Fault] = field(default_factory=lambda: _NONE)
    """By resource name."""
    ledger: Ledger = field(default_factory=Ledger)
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Telling:
    """What is to be told now."""

    told: Told
    """What was told then."""
    events: tuple[Event, ...]
    condition: Condition | None
    """None if the one in the cluster may stay as it is for now."""
    again_seconds: float
    """When to look again at the latest, even if nothing changes."""


def next_telling(told: Told, before: ProcessStatus | None, after: ProcessStatus, now: float) -> Telling:
    """Return what to tell of `after`; `before` is the look at which `told` was told, None at the first.

    What is wrong at the first look is no event, because each start of the daemon would tell it again; it
    stands in the condition.
    """
    notices: list[Notice] = []
    if before is not None:
        notices += device_notices(before, after, told.registered)
        notices += config_notices(before.config, after.config)
    notices += _readiness_notices(told, after, now)
    faults = _next_faults(told.faults, after, now)
    ledger = told.ledger
    events = []
    for one in notices:
        ledger, event = next_event(ledger, one, now)
        if event is not None:
            events.append(event)
    condition, is_pending = _next_condition(told.condition, after, faults, now)
    last = condition or told.condition
    served = {one.name for one in after.resources}
    registered = frozenset(one.name for one in after.resources if one.is_registered)
    return Telling(
        Told((told.registered | registered) & served, faults, ledger, last),
        tuple(events),
        condition,
        _again_seconds(faults, last, now, is_pending=is_pending),
    )


def _next_faults(faults: Mapping[str, Fault], after: ProcessStatus, now: float) -> Mapping[str, Fault]:
    fresh = {}
    for one in after.resources:
        if one.fault and not one.is_retired:
            fault = faults.get(one.name, Fault(now))
            # A clock that was set back would have it wait for hours.
            fault = replace(fault, since=min(fault.since, now))
            fresh[one.name] = replace(fault, is_told=fault.is_told or now - fault.since >= FAULT_SECONDS)
    return MappingProxyType(fresh)


def _readiness_notices(told: Told, after: ProcessStatus, now: float) -> Iterator[Notice]:
    faults = _next_faults(told.faults, after, now)
    for one in after.resources:
        before, fault = told.faults.get(one.name), faults.get(one.name)
        was_told = before is not None and before.is_told
        if fault is not None and fault.is_told and not was_told:
            seconds = round(now - fault.since)
            message = f"not ready for {seconds} s: {one.fault}"
            yield notice(Reason.RESOURCE_NOT_READY, one.name, message, is_warning=True)
        if fault is None and one.is_registered and (was_told or one.name not in told.registered):
            message = f"registered with the kubelet, {one.allocatable} of {one.capacity} devices Healthy"
            yield notice(Reason.RESOURCE_READY, one.name, message)


def _next_condition(
    last: Condition | None, after: ProcessStatus, faults: Mapping[str, Fault], now: float
) -> tuple[Condition | None, bool]:
    """Return the condition to write, if any; and whether there is one that has to wait."""
    said = verdict(after, {name for name, fault in faults.items() if fault.is_told})
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
    faults: Mapping[str, Fault], last: Condition | None, now: float, *, is_pending: bool
) -> float:
    dues = [fault.since + FAULT_SECONDS for fault in faults.values() if not fault.is_told]
    if last is not None:
        dues.append(last.at + (PAUSE_SECONDS if is_pending else HEARTBEAT_SECONDS))
    return max(0.0, min(dues, default=now + HEARTBEAT_SECONDS) - now)
