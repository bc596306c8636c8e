"""The loop of the scheduler: it follows nodes and pods, asks the pure scheduler, and binds pods.

Which node is best, which pod is next and what its message says is decided in `devplug.sandbox.scheduler`.
"""

from __future__ import annotations

import asyncio
import enum
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, same, text, whole
from devplug.k8s.pod_requests import has_ended
from devplug.k8s.times import stamp
from devplug.linux.notifier import within
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.watchlog import ChangeType
from devplug.sandbox.controllers.workqueue import follow
from devplug.sandbox.events import EventRecorder, EventSource, reference
from devplug.sandbox.registry import NODES, PODS
from devplug.sandbox.scheduler import (
    ClusterSnapshot,
    NodeChange,
    PodGone,
    Queue,
    ScoringSettings,
    node_of,
    pod_of,
    shape,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from devplug.sandbox.api.watchlog import WatchEvent
    from devplug.sandbox.registry import Registry
    from devplug.sandbox.scheduler import Node, PendingPod

__all__ = ["Scheduler", "SchedulingState", "scheduling_state", "status_of_waiting"]

SCHEDULER_NAME: Final = "default-scheduler"
UNSCHEDULABLE: Final = "Unschedulable"
GATED: Final = ("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
"""Reason and message of a pod with gates (registry/core/pod/strategy.go applySchedulingGatedCondition)."""

_SCHEDULED: Final = "PodScheduled"


# ── Pods without a node ──


class SchedulingState(enum.Enum):
    """The state of a pod for the scheduler."""

    WAITING = "waiting"
    GATED = "gated"
    """It waits, and somebody must take its gates away first (KEP-3521)."""
    PLACED = "placed"
    ENDED = "ended"
    """It uses nothing of its node any more."""
    FOREIGN = "foreign"
    """It waits for another scheduler, or for its end."""


def scheduling_state(pod: Object) -> SchedulingState:
    """Return what a pod is to the scheduler."""
    spec = fields(pod, "spec")
    if has_ended(pod):
        return SchedulingState.ENDED
    if text(spec, "nodeName"):
        return SchedulingState.PLACED
    if text(spec, "schedulerName") != SCHEDULER_NAME or text(pod, "metadata", "deletionTimestamp"):
        return SchedulingState.FOREIGN
    return SchedulingState.GATED if entries(spec, "schedulingGates") else SchedulingState.WAITING


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


# ── The loop ──


class Scheduler:
    """The default scheduler of one sandbox; lives as long as `run`, and rebuilds its state at each start.

    `host` is the machine in its events, `seed` decides among nodes that are equally good, and `seconds` is a
    clock that only goes forward.
    """

    def __init__(
        self,
        registry: Registry,
        settings: ScoringSettings | None = None,
        *,
        host: str = "sandbox",
        seed: int = 0,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._seconds = seconds
        source = EventSource(SCHEDULER_NAME, f"{SCHEDULER_NAME}-{host}", writes_series=True)
        self._recorder = EventRecorder(registry, source)
        self._cluster = ClusterSnapshot(settings or ScoringSettings(), seed)
        self._queue = Queue()
        self._waiting: dict[str, PendingPod] = {}
        """Pods that were put into the queue, by UID: a change of anything else is no reason to try again."""
        self._nodes: dict[str, Node] = {}
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Schedule until cancelled. Between two pods, everybody else has a turn."""
        async with asyncio.TaskGroup() as tasks:
            # In this order: a pod is not tried before the nodes are known that were there first.
            tasks.create_task(follow(self._registry, NODES, self._note_node))
            tasks.create_task(follow(self._registry, PODS, self._note_pod))
            while True:
                await self._wait()
                while pod := self._queue.pop(self._seconds()):
                    self._schedule(pod)
                    await asyncio.sleep(0)

    async def _wait(self) -> None:
        """Wait for a change, or until a pod has waited long enough."""
        ends = self._queue.next_seconds()
        await within(None if ends is None else max(ends - self._seconds(), 0), self._woken.wait())
        self._woken.clear()

    # ── what happens ──

    def _note_node(self, event: WatchEvent) -> None:
        after = node_of(event.object)
        before = self._nodes.get(after.name)
        if event.type is ChangeType.DELETED:
            self._nodes.pop(after.name, None)
            self._cluster.remove_node(after.name)
        elif after != before:
            self._nodes[after.name] = after
            self._cluster.put_node(after)
            self._queue.change(NodeChange(before, after), self._seconds())
            self._woken.set()

    def _note_pod(self, event: WatchEvent) -> None:
        pod = event.object
        uid = text(pod, "metadata", "uid")
        what = SchedulingState.ENDED if event.type is ChangeType.DELETED else scheduling_state(pod)
        if what is SchedulingState.WAITING:
            self._take_in(pod_of(pod))
            return
        self._let_go(uid)
        if what is SchedulingState.ENDED and self._cluster.node_of(uid) is not None:
            self._cluster.forget(uid)
            self._queue.change(PodGone(), self._seconds())
            self._woken.set()
        elif what is SchedulingState.PLACED and self._cluster.node_of(uid) is None:
            spec = fields(pod, "spec")
            self._cluster.assume(uid, shape(spec), text(spec, "nodeName"))
        elif what is SchedulingState.GATED:
            self._explain(pod, *GATED)

    def _take_in(self, pod: PendingPod) -> None:
        if self._waiting.get(pod.uid) != pod:
            self._waiting[pod.uid] = pod
            self._queue.add(pod, self._seconds())
            self._woken.set()

    def _let_go(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self._queue.remove(uid)

    # ── one pod ──

    def _schedule(self, pod: PendingPod) -> None:
        found = self._registry.find(PODS, pod.namespace, pod.name)
        if (
            found is None
            or text(found, "metadata", "uid") != pod.uid
            or scheduling_state(found) != SchedulingState.WAITING
        ):
            self._let_go(pod.uid)
        elif node_name := self._cluster.choose(pod.shape):
            self._bind(pod, node_name)
        else:
            self._refuse(pod, found)

    def _bind(self, pod: PendingPod, node_name: str) -> None:
        bound = self._registry.bind(pod.namespace, pod.name, node_name)
        self._cluster.assume(pod.uid, pod.shape, node_name)
        self._let_go(pod.uid)
        message = f"Successfully assigned {pod.namespace}/{pod.name} to {node_name}"
        self._recorder.event(reference(bound), "Normal", "Scheduled", message)

    def _refuse(self, pod: PendingPod, found: Object) -> None:
        """Say why there is no node for a pod: an event for each try, a condition if the reason is new."""
        diagnosis = self._cluster.diagnose(pod.shape)
        self._queue.refuse(pod, diagnosis.plugins, self._seconds())
        message = diagnosis.message(may_preempt=pod.may_preempt)
        self._recorder.event(reference(found), "Warning", "FailedScheduling", message)
        self._explain(found, UNSCHEDULABLE, message)

    def _explain(self, pod: Object, reason: str, message: str) -> None:
        namespace, name = text(pod, "metadata", "namespace"), text(pod, "metadata", "name")
        status = status_of_waiting(pod, reason, message, self._registry.now)
        with suppress(StatusError):
            self._registry.set_status(PODS, namespace, name, status)
