"""The loop of the scheduler: it follows nodes, pods and claims, asks the pure scheduler, and binds pods.

Which node is best, which pod is next and what its message says is decided in `devplug.sandbox.scheduler`.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from devplug.dra.scheduling import scheduler_error
from devplug.dra.search import AttemptError
from devplug.dra.selectors import MissingCelError
from devplug.errors import one_line
from devplug.k8s.objects import Object, entries, fields, same, text, whole
from devplug.k8s.pod_requests import has_ended
from devplug.k8s.times import stamp
from devplug.linux.notifier import within
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.watchlog import ChangeType
from devplug.sandbox.controllers.claim_binding import (
    POLL_SECONDS,
    ClaimBinder,
    WaitingPod,
    extended_resources_of,
)
from devplug.sandbox.controllers.workqueue import follow
from devplug.sandbox.events import EventRecorder, EventSource, reference
from devplug.sandbox.registry import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from devplug.sandbox.scheduler import (
    ClaimSnapshot,
    ClusterSnapshot,
    DevicesChange,
    NodeChange,
    NoPlacement,
    PodGone,
    Queue,
    ScoringSettings,
    node_of,
    pod_of,
    shape,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from devplug.sandbox.api.watchlog import WatchEvent
    from devplug.sandbox.registry import Registry
    from devplug.sandbox.scheduler import Diagnosis, Node, PendingPod, Placement

logger = logging.getLogger(__name__)

SCHEDULER_NAME: Final = "default-scheduler"
UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
GATED: Final = ("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
"""Reason and message of a pod with gates (registry/core/pod/strategy.go applySchedulingGatedCondition)."""

_SCHEDULED: Final = "PodScheduled"
_PRE_BIND: Final = 'running PreBind plugin "DynamicResources": {}'
_LIKE_1_36: Final = (
    "the devices were chosen as Kubernetes 1.36 chooses them, which looks like a mistake of that release "
    "({}); a later one may choose others"
)
_REFUSED_LIKE_1_36: Final = (
    "a node was refused as Kubernetes 1.36 refuses it, which looks like a mistake of that release ({}); "
    "a later one may find devices there"
)


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
        self._claims = ClaimSnapshot()
        self._binder = ClaimBinder(registry, self._claims, self._note_devices)
        self._held: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """By claim, the UIDs of pods that are held back before the queue, or were (D62)."""
        self._unready: dict[str, WaitingPod] = {}
        """Pods that wait for binding conditions, by UID (D90)."""
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Schedule until cancelled. Between two pods, everybody else has a turn."""
        async with asyncio.TaskGroup() as tasks:
            # In this order: a pod is not tried before the nodes are known that were there first.
            for resource, note in (
                (NODES, self._note_node),
                (DEVICE_CLASSES, self._note_class),
                (DEVICE_TAINT_RULES, self._note_taint_rule),
                (RESOURCE_SLICES, self._note_slice),
                (RESOURCE_CLAIMS, self._note_claim),
                (PODS, self._note_pod),
            ):
                tasks.create_task(follow(self._registry, resource, note))
            while True:
                await self._wait()
                self._look_at_unready()
                while pod := self._queue.pop(self._seconds()):
                    try:
                        self._schedule(pod)
                    except Exception as error:
                        facts = {"pod": f"{pod.namespace}/{pod.name}"}
                        logger.exception("a pod could not be scheduled because of a bug", extra=facts)
                        if found := self._registry.find(PODS, pod.namespace, pod.name):
                            self._fail(pod, found, f"{type(error).__name__}: {one_line(str(error))}")
                    await asyncio.sleep(0)

    async def _wait(self) -> None:
        """Wait for a change, or until a pod has waited long enough."""
        due = (one.due_seconds for one in self._unready.values())
        ends = min((one for one in (self._queue.next_seconds(), *due) if one is not None), default=None)
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

    def _note_class(self, event: WatchEvent) -> None:
        if event.type is ChangeType.DELETED:
            self._claims.remove_class(text(event.object, "metadata", "name"))
        else:
            self._claims.put_class(dict(event.object))
            self._note_devices(DevicesChange())

    def _note_slice(self, event: WatchEvent) -> None:
        if event.type is ChangeType.DELETED:
            self._claims.remove_slice(text(event.object, "metadata", "name"))
        else:
            self._claims.put_slice(dict(event.object))
            self._note_devices(DevicesChange())

    def _note_taint_rule(self, event: WatchEvent) -> None:
        if event.type is ChangeType.DELETED:
            self._claims.remove_taint_rule(text(event.object, "metadata", "name"))
        else:
            self._claims.put_taint_rule(dict(event.object))
        self._note_devices(DevicesChange())

    def _note_claim(self, event: WatchEvent) -> None:
        found = dict(event.object)
        namespace = text(found, "metadata", "namespace")
        if event.type is ChangeType.DELETED:
            # No pod is tried again (dynamicresources.go EventsToRegister): an allocation is cleared before.
            self._claims.remove_claim(found)
        else:
            self._note_devices(self._claims.put_claim(found))
        for uid in self._held.pop((namespace, text(found, "metadata", "name")), ()):
            if pod := self._waiting.get(uid):
                self._enter(pod, self._registry.find(PODS, namespace, pod.name))

    def _note_devices(self, change: DevicesChange | None) -> None:
        if change is not None:
            self._queue.change(change, self._seconds())
            self._woken.set()

    def _note_pod(self, event: WatchEvent) -> None:
        pod = event.object
        uid = text(pod, "metadata", "uid")
        what = SchedulingState.ENDED if event.type is ChangeType.DELETED else scheduling_state(pod)
        if what is SchedulingState.WAITING:
            self._take_in(pod_of(dict(pod)), pod)
            return
        self._let_go(uid)
        if what is SchedulingState.ENDED and self._cluster.node_of(uid) is not None:
            self._cluster.forget(uid)
            self._queue.change(PodGone(), self._seconds())
            self._woken.set()
        elif what is SchedulingState.PLACED and self._cluster.node_of(uid) is None:
            needed = shape(fields(pod, "spec")).without(extended_resources_of(pod))
            self._cluster.assume(uid, needed, text(pod, "spec", "nodeName"))
        elif what is SchedulingState.GATED:
            self._explain(pod, *GATED)

    def _take_in(self, pod: PendingPod, found: Object) -> None:
        if self._waiting.get(pod.uid) != pod:
            self._waiting[pod.uid] = pod
            if pod.uid not in self._unready:
                self._enter(pod, found)

    def _enter(self, pod: PendingPod, found: Object | None) -> None:
        """Put a pod into the queue, or hold it back until one of its claims changes, without a word (D62)."""
        if found is not None and self._claims.held_back(pod, dict(found)):
            self._queue.remove(pod.uid)
            for name in pod.claims:
                self._held[pod.namespace, name].add(pod.uid)
            return
        self._queue.add(pod, self._seconds())
        self._woken.set()

    def _let_go(self, uid: str) -> None:
        self._waiting.pop(uid, None)
        self._queue.remove(uid)
        self._unready.pop(uid, None)

    # ── one pod ──

    def _schedule(self, pod: PendingPod) -> None:
        found = self._registry.find(PODS, pod.namespace, pod.name)
        if (
            found is None
            or text(found, "metadata", "uid") != pod.uid
            or scheduling_state(found) != SchedulingState.WAITING
        ):
            self._let_go(pod.uid)
        elif self._claims.concerns(pod):
            self._schedule_with_claims(pod, found)
        elif node_name := self._cluster.choose(pod.shape):
            self._cluster.assume(pod.uid, pod.shape, node_name)
            self._bind(pod, node_name)
        else:
            self._refuse(pod, found, self._cluster.diagnose(pod.shape))

    def _bind(self, pod: PendingPod, node_name: str) -> None:
        bound = self._registry.bind(pod.namespace, pod.name, node_name)
        self._let_go(pod.uid)
        message = f"Successfully assigned {pod.namespace}/{pod.name} to {node_name}"
        self._recorder.event(reference(bound), "Normal", "Scheduled", message)

    def _refuse(self, pod: PendingPod, found: Object, diagnosis: Diagnosis) -> None:
        """Say why there is no node for a pod: an event for each try, a condition if the reason is new."""
        self._queue.refuse(pod, diagnosis.plugins, self._seconds())
        message = diagnosis.message(may_preempt=pod.may_preempt)
        self._recorder.event(reference(found), "Warning", "FailedScheduling", message)
        self._explain(found, UNSCHEDULABLE, message)

    # ── one pod with claims ──

    def _schedule_with_claims(self, pod: PendingPod, found: Object) -> None:
        try:
            answer = self._claims.place(pod, dict(found), self._cluster, self._registry.now)
        except (AttemptError, MissingCelError) as error:
            self._fail(pod, found, scheduler_error(error))
            return
        if isinstance(answer, NoPlacement):
            self._refuse(pod, found, answer.diagnosis)
            self._report_bugs(found, "RefusedLikeKubernetes136", _REFUSED_LIKE_1_36, answer.bugs)
            if answer.cleared is not None:
                self._binder.clear(answer.cleared)
        else:
            self._allocate(pod, found, answer)

    def _allocate(self, pod: PendingPod, found: Object, placement: Placement) -> None:
        try:
            claims = self._binder.allocate(dict(found), placement)
        except StatusError as error:
            self._fail(pod, found, _PRE_BIND.format(error))
            return
        self._report_bugs(found, "AllocatedLikeKubernetes136", _LIKE_1_36, placement.fit.bugs)
        self._cluster.assume(pod.uid, placement.shape, placement.node)
        now = self._seconds()
        waiting = WaitingPod(pod, placement.node, claims, now, now + POLL_SECONDS)
        if self._binder.problem(waiting, now) is None:
            self._bind(pod, placement.node)
            return
        self._unready[pod.uid] = waiting
        message = f"waiting for binding conditions for device on node {placement.node}"
        self._recorder.event(reference(found), "Normal", "BindingConditionsPending", message)

    def _report_bugs(self, found: Object, reason: str, text: str, bugs: Sequence[str]) -> None:
        if bugs:
            self._recorder.event(reference(found), "Normal", reason, text.format(", ".join(bugs)))

    def _look_at_unready(self) -> None:
        """Bind the pods whose claims have become ready, and try those again whose claims never will be."""
        now = self._seconds()
        for uid, waiting in list(self._unready.items()):
            if waiting.due_seconds > now:
                continue
            problem = self._binder.problem(waiting, now)
            if problem == "":
                self._unready[uid] = replace(waiting, due_seconds=now + POLL_SECONDS)
                continue
            del self._unready[uid]
            if problem is None:
                self._bind(waiting.pod, waiting.node)
                continue
            self._cluster.forget(uid)
            self._binder.release(waiting.pod.namespace, uid, waiting.pod.claims, waiting.made)
            if found := self._registry.find(PODS, waiting.pod.namespace, waiting.pod.name):
                self._fail(self._waiting.get(uid, waiting.pod), found, _PRE_BIND.format(problem))

    def _fail(self, pod: PendingPod, found: Object, message: str) -> None:
        """Say that an attempt ended with an error; there is another one when the pod's backoff ends."""
        self._queue.fail(pod, self._seconds())
        self._recorder.event(reference(found), "Warning", "FailedScheduling", message)
        self._explain(found, SCHEDULER_ERROR, message)

    def _explain(self, pod: Object, reason: str, message: str) -> None:
        namespace, name = text(pod, "metadata", "namespace"), text(pod, "metadata", "name")
        status = status_of_waiting(pod, reason, message, self._registry.now)
        with suppress(StatusError):
            self._registry.set_status(PODS, namespace, name, status)
