"""What a pod is to the scheduler, and what its status says while it has no node. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from devplug.sandbox.admission import has_ended
from devplug.sandbox.api.objects import entries, fields, same, text, whole
from devplug.sandbox.api.times import stamp

if TYPE_CHECKING:
    from datetime import datetime

    from devplug.sandbox.api.objects import Object

__all__ = ["GATED", "SCHEDULER_NAME", "UNSCHEDULABLE", "Standing", "standing", "status_of_waiting"]

SCHEDULER_NAME: Final = "default-scheduler"

UNSCHEDULABLE: Final = "Unschedulable"
GATED: Final = ("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
"""Reason and message of a pod with gates (registry/core/pod/strategy.go applySchedulingGatedCondition)."""

_SCHEDULED: Final = "PodScheduled"


class Standing(enum.Enum):
    """What a pod is to the scheduler."""

    WAITING = "waiting"
    GATED = "gated"
    """It waits, and somebody must take its gates away first (KEP-3521)."""
    PLACED = "placed"
    ENDED = "ended"
    """It uses nothing of its node any more."""
    FOREIGN = "foreign"
    """It waits for another scheduler, or for its end."""


def standing(pod: Object) -> Standing:
    """Return what a pod is to the scheduler."""
    spec = fields(pod, "spec")
    if has_ended(pod):
        return Standing.ENDED
    if text(spec, "nodeName"):
        return Standing.PLACED
    if text(spec, "schedulerName") != SCHEDULER_NAME or text(pod, "metadata", "deletionTimestamp"):
        return Standing.FOREIGN
    return Standing.GATED if entries(spec, "schedulingGates") else Standing.WAITING


def status_of_waiting(pod: Object, reason: str, message: str, now: datetime) -> Object:
    """Return the status of a pod that has no node, for this reason; the same one if it says so already.

    The condition keeps its place and its time as long as it is False (podutil.UpdatePodCondition).
    """
    status = fields(pod, "status")
    conditions = entries(status, "conditions")
    place = next((at for at, one in enumerate(conditions) if text(one, "type") == _SCHEDULED), None)
    since = stamp(now)
    if place is not None and text(conditions[place], "status") == "False":
        since = text(conditions[place], "lastTransitionTime") or since
    condition: Object = {
        "type": _SCHEDULED,
        "observedGeneration": whole(pod, "metadata", "generation"),
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    }
    if place is None:
        return {**status, "conditions": [*conditions, condition]}
    if same(conditions[place], condition):
        return status
    return {**status, "conditions": [*conditions[:place], condition, *conditions[place + 1 :]]}
