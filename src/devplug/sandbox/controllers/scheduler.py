"""The scheduler's loop: it follows nodes and pods, asks the pure scheduler, binds and tells.

Which node is the best, who is next and what a pod is told is `devplug.sandbox.scheduling`'s.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from devplug.sandbox.api.changes import ChangeType
from devplug.sandbox.api.objects import fields, text
from devplug.sandbox.api.statuses import StatusError
from devplug.sandbox.controllers.loops import follow
from devplug.sandbox.controllers.rules.unscheduled import (
    GATED,
    SCHEDULER_NAME,
    UNSCHEDULABLE,
    Standing,
    standing,
    status_of_waiting,
)
from devplug.sandbox.recording import Recorder, Source, reference
from devplug.sandbox.registry import NODES, PODS
from devplug.sandbox.scheduling import reading
from devplug.sandbox.scheduling.cluster import Cluster
from devplug.sandbox.scheduling.hinting import NodeChange, PodGone
from devplug.sandbox.scheduling.queue import Queue
from devplug.sandbox.scheduling.scoring import ScoringSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from devplug.sandbox.api.changes import WatchEvent
    from devplug.sandbox.api.objects import Object
    from devplug.sandbox.registry import Registry
    from devplug.sandbox.scheduling.values import Node, PendingPod

__all__ = ["Scheduler"]


class Scheduler:
    """The default scheduler of one sandbox; lives as long as `run`, and holds nothing that is not told anew.

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
        source = Source(SCHEDULER_NAME, f"{SCHEDULER_NAME}-{host}", writes_series=True)
        self._recorder = Recorder(registry, source)
        self._cluster = Cluster(settings or ScoringSettings(), seed)
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
        with suppress(TimeoutError):
            async with asyncio.timeout(None if ends is None else max(ends - self._seconds(), 0)):
                await self._woken.wait()
        self._woken.clear()

    # ── what happens ──

    def _note_node(self, event: WatchEvent) -> None:
        after = reading.node(event.object)
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
        what = Standing.ENDED if event.type is ChangeType.DELETED else standing(pod)
        if what is Standing.WAITING:
            self._take_in(reading.pod(pod))
            return
        self._let_go(uid)
        if what is Standing.ENDED and self._cluster.node_of(uid) is not None:
            self._cluster.forget(uid)
            self._queue.change(PodGone(), self._seconds())
            self._woken.set()
        elif what is Standing.PLACED and self._cluster.node_of(uid) is None:
            spec = fields(pod, "spec")
            self._cluster.assume(uid, reading.shape(spec), text(spec, "nodeName"))
        elif what is Standing.GATED:
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
        if found is None or text(found, "metadata", "uid") != pod.uid or standing(found) != Standing.WAITING:
            self._let_go(pod.uid)
        elif node_name := self._cluster.choose(pod.shape):
            self._bind(pod, node_name)
        else:
            self._refuse(pod, found)

    def _bind(self, pod: PendingPod, node_name: str) -> None:
        bound = self._registry.bind(pod.namespace, pod.name, node_name)
        self._cluster.assume(pod.uid, pod.shape, node_name)
        self._let_go(pod.uid)
        told = f"Successfully assigned {pod.namespace}/{pod.name} to {node_name}"
        self._recorder.tell(reference(bound), "Normal", "Scheduled", told)

    def _refuse(self, pod: PendingPod, found: Object) -> None:
        """Say why there is no node for a pod: an event for each try, a condition if the reason is new."""
        diagnosis = self._cluster.diagnose(pod.shape)
        self._queue.refuse(pod, diagnosis.plugins, self._seconds())
        message = diagnosis.message(may_preempt=pod.may_preempt)
        self._recorder.tell(reference(found), "Warning", "FailedScheduling", message)
        self._explain(found, UNSCHEDULABLE, message)

    def _explain(self, pod: Object, reason: str, message: str) -> None:
        namespace, name = text(pod, "metadata", "namespace"), text(pod, "metadata", "name")
        status = status_of_waiting(pod, reason, message, self._registry.now)
        with suppress(StatusError):
            self._registry.set_status(PODS, namespace, name, status)
