"""The scheduling queue: which pod is next, which waits for a change of the cluster, which backs off. Pure.

After scheduler/backend/queue. Queueing hints (EventsToRegister) say which changes may help a pod that was
refused. Times are given by the caller, in seconds of any clock that only goes forward.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.backoff import backoff_seconds
from devplug.sandbox.scheduler.filters import Plugin, matches_affinity, resources_refusal, tolerates_taints
from devplug.sandbox.scheduler.types import PODS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.sandbox.scheduler.types import Node, PendingPod, Shape

_FIRST_BACKOFF_SECONDS: Final = 1.0
_LONGEST_BACKOFF_SECONDS: Final = 10.0
_FORGOTTEN_SECONDS: Final = 300.0
"""A refused pod is tried again after this time, even without a change that could help it."""


# ── Queueing hints ──


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node was added or changed."""

    before: Node | None
    after: Node


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod that was on a node was deleted, or has ended."""


@dataclass(frozen=True, slots=True)
class DevicesChange:
    """What devices are allocated by was changed: slices, classes or claims (D92)."""

    claim: tuple[str, str] | None = None
    """Namespace and name of a claim that only its own pods care about, as nothing was released."""


Change: TypeAlias = NodeChange | PodGone | DevicesChange


def may_help(shape: Shape, plugins: Iterable[Plugin], change: Change) -> bool:
    """Whether one of the plugins that refused a pod might decide otherwise after a change."""
    if isinstance(change, PodGone):
        return Plugin.NODE_RESOURCES_FIT in plugins
    if isinstance(change, DevicesChange):
        return Plugin.DYNAMIC_RESOURCES in plugins
    return any(_helps(plugin, shape, change.before, change.after) for plugin in plugins)


def _is_concerned(pod: PendingPod, change: Change) -> bool:
    if not isinstance(change, DevicesChange) or change.claim is None:
        return True
    return change.claim[0] == pod.namespace and change.claim[1] in pod.claims


def _helps(plugin: Plugin, shape: Shape, before: Node | None, after: Node) -> bool:
    match plugin:
        case Plugin.DYNAMIC_RESOURCES:
            return before is None or before.labels != after.labels or before.allocatable != after.allocatable
        case Plugin.NODE_RESOURCES_FIT:
            is_large_enough = resources_refusal(shape, after.allocatable, {}, 0) is None
            return is_large_enough and (before is None or _has_grown(shape, before, after))
        case Plugin.NODE_AFFINITY:
            return matches_affinity(shape, after) and (before is None or not matches_affinity(shape, before))
        case Plugin.TAINT_TOLERATION:
            was_kept_off = before is None or not tolerates_taints(shape, before.taints)
            return was_kept_off and tolerates_taints(shape, after.taints)
        case Plugin.NODE_UNSCHEDULABLE:
            return not after.unschedulable and (before is None or before.unschedulable)
        case Plugin.NODE_NAME:
            return before is None


def _has_grown(shape: Shape, before: Node, after: Node) -> bool:
    """Whether a node has more of something that the pod needs (haveAnyRequestedResourcesIncreased)."""
    return any(
        after.allocatable.get(name, 0) > before.allocatable.get(name, 0)
        for name in (PODS, *(name for name, _ in shape.requests))
    )


# ── The queue ──

_Entry: TypeAlias = tuple[float, tuple[int, float, int], str]
"""When something is due for a pod (0 for one that is ready), its order, and its UID."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A pod in the queue, in one of three places: ready, backing off, or refused until something changes."""

    pod: PendingPod
    since_seconds: float
    number: int
    """A number that orders entries of the same time, and identifies the latest entry of a pod."""
    refusals: int = 0
    plugins: frozenset[Plugin] = frozenset()
    """The plugins that refused it; empty while it is ready or backing off."""
    ready_seconds: float = 0.0

    @property
    def order(self) -> tuple[int, float, int]:
        """The higher priority first, then who has waited longest (PrioritySort)."""
        return -self.pod.priority, self.since_seconds, self.number


@dataclass(slots=True)
class Queue:
    """All pods without a node; it lives as long as the scheduler, which alone changes it."""

    _pods: dict[str, _Waiting] = field(default_factory=dict)
    """Each pod in the queue once, by its UID."""
    _taken: dict[str, int] = field(default_factory=dict)
    """Pods that the scheduler is at, with how often they were refused before."""
    _ready: list[_Entry] = field(default_factory=list)
    _backing_off: list[_Entry] = field(default_factory=list)
    _refused: list[_Entry] = field(default_factory=list)
    _failed: list[_Entry] = field(default_factory=list)
    """Heaps; an entry that `_pods` has no longer is skipped."""
    _number: int = 0

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, pod: PendingPod, now_seconds: float) -> None:
        """Take a pod in that is new, or was changed: it is tried at once."""
        self._taken.pop(pod.uid, None)
        self._number += 1
        self._make_ready(_Waiting(pod, now_seconds, self._number))

    def remove(self, pod_uid: str) -> None:
        """Let a pod go that was deleted, or has a node; an unknown one is none."""
        self._pods.pop(pod_uid, None)
        self._taken.pop(pod_uid, None)

    def pop(self, now_seconds: float) -> PendingPod | None:
        """Take the next pod out, or None if none is ready.

        Where nothing else is ready, pods that back off are taken early (SchedulerPopFromBackoffQ).
        """
        self._end_waits(now_seconds)
        waiting = self._next(self._ready) or self._next(self._backing_off)
        if waiting is None:
            return None
        del self._pods[waiting.pod.uid]
        self._taken[waiting.pod.uid] = waiting.refusals
        return waiting.pod

    def refuse(self, pod: PendingPod, plugins: frozenset[Plugin], now_seconds: float) -> None:
        """Put a pod back that no node can take; it waits for a change that one of these plugins cares about.

        Without any, because there are no nodes, it waits for what any plugin cares about. One that was
        removed since it was taken out stays out.
        """
        if pod.uid not in self._taken:
            return
        refusals = self._taken.pop(pod.uid) + 1
        self._number += 1
        ready = now_seconds + backoff_seconds(refusals, _FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)
        waiting = _Waiting(pod, now_seconds, self._number, refusals, plugins or frozenset(Plugin), ready)
        self._pods[pod.uid] = waiting
        heappush(self._refused, (now_seconds + _FORGOTTEN_SECONDS, waiting.order, pod.uid))

    def fail(self, pod: PendingPod, now_seconds: float) -> None:
        """Put a pod back whose attempt ended with an error: it is tried again when its backoff ends."""
        if pod.uid not in self._taken:
            return
        refusals = self._taken.pop(pod.uid) + 1
        self._number += 1
        ready = now_seconds + backoff_seconds(refusals, _FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)
        waiting = _Waiting(pod, now_seconds, self._number, refusals, ready_seconds=ready)
        self._pods[pod.uid] = waiting
        heappush(self._failed, (ready, waiting.order, pod.uid))

    def change(self, change: Change, now_seconds: float) -> list[str]:
        """Look at all refused pods again; return the UIDs of those that a change may help, by their order."""
        if not self._refused:
            return []
        helped = [
            waiting
            for waiting in self._pods.values()
            if waiting.plugins
            and _is_concerned(waiting.pod, change)
            and may_help(waiting.pod.shape, waiting.plugins, change)
        ]
        helped.sort(key=lambda one: one.order)
        for waiting in helped:
            self._wake(waiting, now_seconds)
        return [waiting.pod.uid for waiting in helped]

    def next_seconds(self) -> float | None:
        """Return when to ask again if nothing else happens: a backoff or a long wait ends; None if never."""
        firsts = [self._first(heap) for heap in (self._ready, self._backing_off, self._failed, self._refused)]
        return min((first[0] for first in firsts if first), default=None)

    def _first(self, heap: list[_Entry]) -> _Entry | None:
        """Return the first entry of a heap that still holds; those before it are thrown away."""
        while heap:
            _, order, uid = heap[0]
            waiting = self._pods.get(uid)
            if waiting and waiting.order == order and bool(waiting.plugins) == (heap is self._refused):
                return heap[0]
            heappop(heap)
        return None

    def _wake(self, waiting: _Waiting, now_seconds: float) -> None:
        if waiting.ready_seconds <= now_seconds:
            self._make_ready(replace(waiting, plugins=frozenset()))
            return
        self._pods[waiting.pod.uid] = waiting = replace(waiting, plugins=frozenset())
        heappush(self._backing_off, (waiting.ready_seconds, waiting.order, waiting.pod.uid))

    def _make_ready(self, waiting: _Waiting) -> None:
        self._pods[waiting.pod.uid] = waiting = replace(waiting, ready_seconds=0.0)
        heappush(self._ready, (0.0, waiting.order, waiting.pod.uid))

    def _end_waits(self, now_seconds: float) -> None:
        """Make pods ready whose backoff has ended, or which were refused long ago."""
        while (first := self._first(self._refused)) and first[0] <= now_seconds:
            self._wake(self._pods[first[2]], now_seconds)
        for heap in (self._backing_off, self._failed):
            while (first := self._first(heap)) and first[0] <= now_seconds:
                heappop(heap)
                self._make_ready(self._pods[first[2]])

    def _next(self, heap: list[_Entry]) -> _Waiting | None:
        entry = self._first(heap)
        return self._pods[heappop(heap)[2]] if entry else None
