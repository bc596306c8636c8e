"""The status of a DaemonSet, from which `kubectl rollout status` reads how far it is. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.sandbox.api.objects import fields, whole
from devplug.sandbox.controllers.daemons.placing import Wish
from devplug.sandbox.controllers.daemons.plan import pods_by_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from devplug.sandbox.api.objects import Object
    from devplug.sandbox.controllers.daemons.plan import Rollout
    from devplug.sandbox.controllers.daemons.pods import DaemonPod

__all__ = ["daemon_status", "seconds_until_available"]


def daemon_status(
    daemons: Object,
    wishes: Mapping[str, Wish],
    pods: Iterable[DaemonPod],
    rollout: Rollout,
    now: datetime,
) -> Object:
    """Return the status (daemon_controller.go updateDaemonSetStatus); of a node's pods, the first counts."""
    held = pods_by_node(pods)
    wanted = [name for name, wish in wishes.items() if wish is Wish.RUN]
    first = [held[name][0] for name in wanted if name in held]
    available = sum(pod.is_available(rollout.min_ready_seconds, now) for pod in first)
    updated = sum(pod.revision == rollout.revision for pod in first)
    status: Object = {
        **fields(daemons, "status"),
        "currentNumberScheduled": len(first),
        "numberMisscheduled": sum(name in held for name, wish in wishes.items() if wish is not Wish.RUN),
        "desiredNumberScheduled": len(wanted),
        "numberReady": sum(pod.ready_since is not None for pod in first),
        "observedGeneration": whole(daemons, "metadata", "generation"),
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": len(wanted) - available,
    }
    for left_out_at_zero in ("updatedNumberScheduled", "numberAvailable", "numberUnavailable"):
        if not status[left_out_at_zero]:
            del status[left_out_at_zero]
    return status


def seconds_until_available(pods: Iterable[DaemonPod], min_ready_seconds: int, now: datetime) -> float | None:
    """Return after how long the next pod is ready for long enough; None if none is about to be."""
    times = [since for pod in pods if (since := pod.available_from(min_ready_seconds)) and since > now]
    return (min(times) - now).total_seconds() if times else None
