"""Pods, nodes and events in the shapes that a cluster has them in, and what is made of them."""

from __future__ import annotations

from typing import Any

from devplug.monitor.why.diagnosis import explain
from devplug.monitor.why.evidence import Diagnosis, Evidence

RESOURCE = "example.com/resource"


def pod(name: str = "mine", count: int = 1, resource: str = RESOURCE, **spec: Any) -> dict[str, Any]:
    """A pod that nobody has looked at."""
    container = {"name": "c", "resources": {"limits": {resource: str(count)}}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [container], "schedulerName": "default-scheduler", **spec},
        "status": {"phase": "Pending"},
    }


def node(name: str = "worker-0", capacity: int = 2, allocatable: int = 2, **spec: Any) -> dict[str, Any]:
    counts = {
        word: {RESOURCE: str(number)}
        for word, number in (("capacity", capacity), ("allocatable", allocatable))
    }
    return {"metadata": {"name": name}, "spec": spec, "status": counts}


def running(name: str, count: int = 1, **metadata: str) -> dict[str, Any]:
    made = pod(name, count, nodeName="worker-0")
    made["metadata"] |= metadata
    made["status"] = {"phase": "Running"}
    return made


def event(
    reason: str, message: str, *, kind: str = "Warning", at: str = "2026-11-21T00:00:00Z"
) -> dict[str, Any]:
    return {"reason": reason, "message": message, "type": kind, "lastTimestamp": at}


def unschedulable(message: str, **given: Any) -> dict[str, Any]:
    made = pod(**given)
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    made["status"]["conditions"] = [told]
    return made


def short(number: int = 1) -> str:
    return (
        f"0/{number} nodes are available: {number} Insufficient {RESOURCE}. no new claims to deallocate, "
        f"preemption: 0/{number} nodes are available: {number} No preemption victims found for incoming pod."
    )


def judged(
    the_pod: dict[str, Any] | None,
    *,
    nodes: tuple[dict[str, Any], ...] | None = None,
    others: tuple[dict[str, Any], ...] = (),
    events: tuple[dict[str, Any], ...] = (),
    **more: Any,
) -> Diagnosis:
    name = "mine" if the_pod is None else str(the_pod["metadata"]["name"])
    return explain(
        Evidence(
            namespace="default",
            name=name,
            pod=the_pod,
            nodes=nodes if nodes is not None else (node(),),
            pods=(*others, *([the_pod] if the_pod else [])),
            events=events,
            **more,
        )
    )
