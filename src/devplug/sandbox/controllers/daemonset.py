"""The DaemonSet controller: a pod for each node that wants one. What to do is decided in `daemonsetplan`."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.backoff import backoff_seconds
from devplug.k8s.objects import Object, entries, fields, part, text, with_part
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.labelselectors import SelectorError, selector_of_object
from devplug.sandbox.api.ownerreferences import controller_of, owner_reference, without_owner
from devplug.sandbox.api.watchlog import ChangeType, Selection
from devplug.sandbox.controllers.daemonsetplan import (
    Placement,
    daemon_pod,
    daemon_status,
    new_pod,
    placements,
    plan,
    revision_of,
    rollout_of,
    seconds_until_available,
)
from devplug.sandbox.controllers.workqueue import WorkQueue, key_of, run_loop, split_key
from devplug.sandbox.events import EventRecorder, EventSource, reference
from devplug.sandbox.registry import DAEMON_SETS, NAMESPACES, NODES, PODS
from devplug.sandbox.scheduler import node_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from devplug.sandbox.api.labelselectors import LabelSelector
    from devplug.sandbox.api.watchlog import WatchEvent
    from devplug.sandbox.controllers.daemonsetplan import DaemonPod, Plan
    from devplug.sandbox.registry import Registry
    from devplug.sandbox.scheduler import Node

_MOST_AT_ONCE: Final = 250
"""The most pods that one sync creates, and the most that it deletes (BurstReplicas)."""

_NODES_PER_SECOND: Final = 5000.0
"""How long changes are gathered before a look: a second for so many nodes, nearly nothing for a few."""

_FIRST_BACKOFF_SECONDS: Final = 1.0
_LAST_BACKOFF_SECONDS: Final = 900.0


@dataclass(frozen=True, slots=True)
class _Backoff:
    """How long a pod that fails on a node is left there before there is another (failedPodsBackoff)."""

    since_seconds: float
    failures: int = 1

    @property
    def ends_seconds(self) -> float:
        return self.since_seconds + backoff_seconds(
            self.failures, _FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS
        )

    @classmethod
    def after(cls, before: _Backoff | None, now_seconds: float) -> _Backoff:
        """Return the wait after one more failure; long after the last one it starts anew."""
        if before is None or now_seconds - before.since_seconds > 2 * _LAST_BACKOFF_SECONDS:
            return cls(now_seconds)
        return cls(now_seconds, before.failures + 1)


class DaemonSetController:
    """The DaemonSet controller of one sandbox; lives as long as `run`."""

    def __init__(self, registry: Registry, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._seconds = seconds
        self._recorder = EventRecorder(registry, EventSource("daemonset-controller"))
        self._work = WorkQueue(seconds)
        self._nodes: dict[str, Node] = {}
        self._selectors: dict[str, LabelSelector | None] = {}
        """Of each set, by key: who an ownerless pod may belong to; None if nobody can say."""
        self._backoffs: dict[tuple[str, str], _Backoff] = {}
        """By the set's UID and the node."""

    async def run(self) -> None:
        """Keep the pods of all sets until cancelled. `garbagecollector` deletes them with their set."""
        notes = {NODES: self._note_node, DAEMON_SETS: self._note_set, PODS: self._note_pod}
        await run_loop(self._registry, notes, self._work, self._look)

    # ── what happens ──

    def _note_node(self, event: WatchEvent) -> None:
        after = node_of(event.object)
        if event.type is ChangeType.DELETED:
            self._nodes.pop(after.name, None)
        elif after == self._nodes.get(after.name):
            return
        else:
            self._nodes[after.name] = after
        for key in self._selectors:
            self._add(key)

    def _note_set(self, event: WatchEvent) -> None:
        key = key_of(event.object)
        if event.type is ChangeType.DELETED:
            self._selectors.pop(key, None)
            uid = text(event.object, "metadata", "uid")
            for place in [place for place in self._backoffs if place[0] == uid]:
                del self._backoffs[place]
        else:
            self._selectors[key] = _selector(event.object)
            self._add(key)

    def _note_pod(self, event: WatchEvent) -> None:
        namespace = text(event.object, "metadata", "namespace")
        owner = controller_of(event.object)
        if owner is not None:
            if text(owner, "kind") == DAEMON_SETS.kind:
                self._add(f"{namespace}/{text(owner, 'name')}")
            return
        labels = fields(event.object, "metadata", "labels")
        for key, selector in self._selectors.items():
            if selector and split_key(key)[0] == namespace and selector.matches(labels):
                self._add(key)

    def _add(self, key: str) -> None:
        self._work.add(key, len(self._nodes) / _NODES_PER_SECOND)

    # ── one set ──

    def _look(self, key: str) -> None:
        daemons = self._registry.find(DAEMON_SETS, *split_key(key))
        if daemons is None or text(daemons, "metadata", "deletionTimestamp"):
            return
        if (selector := _selector(daemons)) is None:
            return
        now = self._registry.now
        wanted = placements(daemons, self._nodes.values())
        desired = sum(wish is Placement.RUN for wish in wanted.values())
        rollout = rollout_of(daemons, revision_of(daemons), desired)
        todo = plan(wanted, self._pods_of(daemons, selector), rollout, now, self._backing_off(daemons))
        refusal = self._do(key, daemons, todo)
        pods = self._pods_of(daemons, selector)
        self._write_status(daemons, daemon_status(daemons, wanted, pods, rollout, now))
        if (wait := seconds_until_available(pods, rollout.min_ready_seconds, now)) is not None:
            self._work.add(key, wait)
        if refusal:
            raise refusal

    def _pods_of(self, daemons: Object, selector: LabelSelector) -> list[DaemonPod]:
        """Return the pods of a set; one without an owner is taken in, one with other labels is let go."""
        namespace, uid = text(daemons, "metadata", "namespace"), text(daemons, "metadata", "uid")
        found = []
        for pod in self._registry.all(PODS, Selection(namespace)):
            owner = controller_of(pod)
            fits = selector.matches(fields(pod, "metadata", "labels"))
            is_ending = bool(text(pod, "metadata", "deletionTimestamp"))
            if owner is not None and text(owner, "uid") == uid:
                if fits or is_ending:
                    found.append(daemon_pod(pod))
                else:
                    self._change(pod, lambda old: without_owner(old, uid))
            elif owner is None and fits and not is_ending:
                found.append(daemon_pod(self._change(pod, lambda old: _owned(old, daemons))))
        return found

    def _change(self, pod: Object, change: Callable[[Object], Object]) -> Object:
        return self._registry.update(PODS, *split_key(key_of(pod)), change)

    def _backing_off(self, daemons: Object) -> set[str]:
        uid, now = text(daemons, "metadata", "uid"), self._seconds()
        return {
            node_name
            for (owner, node_name), backoff in self._backoffs.items()
            if owner == uid and now < backoff.ends_seconds
        }

    def _do(self, key: str, daemons: Object, todo: Plan) -> StatusError | None:
        """Make and delete pods; return what was refused, so that it is tried again."""
        self._record_ended(daemons, todo.ended)
        refusal = self._make(daemons, todo.make[:_MOST_AT_ONCE])
        about = reference(daemons)
        namespace = text(daemons, "metadata", "namespace")
        for name in todo.delete[:_MOST_AT_ONCE]:
            self._registry.delete(PODS, namespace, name)
            self._recorder.event(about, "Normal", "SuccessfulDelete", f"Deleted pod: {name}")
        if len(todo.make) > _MOST_AT_ONCE or len(todo.delete) > _MOST_AT_ONCE:
            self._work.add(key)
        if todo.is_held_back:
            uid, now = text(daemons, "metadata", "uid"), self._seconds()
            waits = [one.ends_seconds - now for place, one in self._backoffs.items() if place[0] == uid]
            self._work.add(key, min((wait for wait in waits if wait > 0), default=0))
        return refusal

    def _make(self, daemons: Object, node_names: Iterable[str]) -> StatusError | None:
        namespace = text(daemons, "metadata", "namespace")
        about = reference(daemons)
        for node_name in node_names:
            try:
                pod = self._registry.create(PODS, namespace, new_pod(daemons, DAEMON_SETS, node_name))
            except StatusError as error:
                ending = self._registry.find(NAMESPACES, "", namespace)
                if not text(ending, "metadata", "deletionTimestamp"):
                    self._recorder.event(about, "Warning", "FailedCreate", f"Error creating: {error}")
                return error
            message = f"Created pod: {text(pod, 'metadata', 'name')}"
            self._recorder.event(about, "Normal", "SuccessfulCreate", message)
        return None

    def _record_ended(self, daemons: Object, ended: Iterable[DaemonPod]) -> None:
        about = reference(daemons)
        namespace, uid = text(daemons, "metadata", "namespace"), text(daemons, "metadata", "uid")
        for pod in ended:
            where = f"daemon pod {namespace}/{pod.name} on node {pod.node_name}"
            if pod.phase == "Failed":
                place = uid, pod.node_name
                self._backoffs[place] = _Backoff.after(self._backoffs.get(place), self._seconds())
                message = f"Found failed {where}, will try to kill it"
                self._recorder.event(about, "Warning", "FailedDaemonPod", message)
            else:
                message = f"Found succeeded {where}, will try to delete it"
                self._recorder.event(about, "Normal", "SucceededDaemonPod", message)

    def _write_status(self, daemons: Object, status: Object) -> None:
        namespace, name = split_key(key_of(daemons))
        self._registry.set_status(DAEMON_SETS, namespace, name, status)


def _selector(daemons: Object) -> LabelSelector | None:
    """Return what a set asks of its pods' labels; None where the API should not have taken it."""
    with suppress(SelectorError):
        return selector_of_object(part(daemons, "spec", "selector"))
    return None


def _owned(pod: Object, daemons: Object) -> Object:
    references = entries(pod, "metadata", "ownerReferences")
    mine = owner_reference(DAEMON_SETS, daemons)
    return with_part(pod, [*references, mine], "metadata", "ownerReferences")
