"""Which rule a pod is judged by. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.monitor.why.missing import missing
from devplug.monitor.why.placed import placed
from devplug.monitor.why.refused import failed
from devplug.monitor.why.unscheduled import unscheduled
from devplug.monitor.why.values import State, Verdict, Who
from devplug.objects import text

if TYPE_CHECKING:
    from devplug.monitor.why.values import Evidence

__all__ = ["explain"]


def explain(evidence: Evidence) -> Verdict:
    """Say why a pod is as it is, who said no, and what to do."""
    pod = evidence.pod
    if pod is None:
        return missing(evidence)
    phase = text(pod, "status", "phase")
    if phase == "Failed":
        return failed(evidence, pod)
    if phase == "Succeeded":
        return Verdict(
            namespace=evidence.namespace,
            pod=evidence.name,
            state=State.SUCCEEDED,
            who_said_no=Who.NOBODY,
            because="its containers have ended well, and it holds no devices any more",
            unread=evidence.unread,
        )
    if not text(pod, "spec", "nodeName"):
        return unscheduled(evidence, pod)
    return placed(evidence, pod)
