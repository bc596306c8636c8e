"""The garbage collectors: of the dependents of deleted owners, of pods without a node, and of old events.

How a deletion asks for the dependents is said by the finalizers of `api.ownerreferences`. Owners of kinds
that are not served are not looked for: what belongs to them stays. Pods whose node is gone have no kubelet
to end them (pkg/controller/podgc). Events are deleted an hour after they were last seen (kube-apiserver
--event-ttl).
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, part, text
from devplug.k8s.times import moment
from devplug.sandbox.api.kinds import SERVED, resource_of_kind
from devplug.sandbox.api.ownerreferences import (
    FOREGROUND,
    ORPHAN,
    owner_uids,
    without_finalizer,
    without_owner,
)
from devplug.sandbox.api.strategy import Preconditions
from devplug.sandbox.api.watchlog import ChangeType
from devplug.sandbox.controllers.workqueue import WorkQueue, key_of, run_loop, split_key
from devplug.sandbox.registry import EVENTS, NODES, PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.watchlog import WatchEvent
    from devplug.sandbox.registry import Registry

_COLLECTED: Final = tuple(one for one in SERVED if "list" in one.verbs and one.kind != "Event")
"""What may own, or belong to something. Events belong to nobody."""

_QUARANTINE_SECONDS: Final = 40.0
"""How long a node may be missing (podgc/gc_controller.go quarantineTime)."""

EVENT_LIFE: Final = timedelta(hours=1)
_EVENT_TIMES: Final = (
    ("lastTimestamp",),
    ("eventTime",),
    ("series", "lastObservedTime"),
    ("metadata", "creationTimestamp"),
)


# ── Dependents ──


class GarbageCollector:
    """The garbage collector of one sandbox; lives as long as `run`."""

    def __init__(self, registry: Registry, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._work = WorkQueue(seconds)
        self._places: dict[str, tuple[Resource, str, str]] = {}
        """Where an object is, by UID."""
        self._owned: dict[str, set[str]] = {}
        """UIDs of what belongs to an owner, by the owner's UID."""

    async def run(self) -> None:
        """Collect until cancelled."""
        notes = {one: partial(self._note, one) for one in _COLLECTED}
        await run_loop(self._registry, notes, self._work, self._look)

    def _note(self, resource: Resource, event: WatchEvent) -> None:
        one = event.object
        uid = text(one, "metadata", "uid")
        if event.type is ChangeType.DELETED:
            self._places.pop(uid, None)
            for owner in owner_uids(one):
                owned = self._owned.get(owner, set())
                owned.discard(uid)
                if not owned:
                    self._owned.pop(owner, None)
                if owner in self._places:
                    self._work.add(owner)
            for owned_uid in self._owned.pop(uid, ()):
                self._work.add(owned_uid)
            return
        self._places[uid] = resource, text(one, "metadata", "namespace"), text(one, "metadata", "name")
        for owner in owner_uids(one):
            self._owned.setdefault(owner, set()).add(uid)
        if owner_uids(one) or entries(one, "metadata", "finalizers"):
            self._work.add(uid)

    def _look(self, uid: str) -> None:
        one = self._find(uid)
        if one is None:
            return
        references = entries(one, "metadata", "ownerReferences")
        if references and all(self._is_absent(one, reference) for reference in references):
            self._delete(uid)
        if text(one, "metadata", "deletionTimestamp"):
            finalizers = entries(one, "metadata", "finalizers")
            if ORPHAN in finalizers:
                self._orphan(uid)
            elif FOREGROUND in finalizers:
                self._end_after_owned(uid)

    def _orphan(self, uid: str) -> None:
        for owned_uid, _ in list(self._owned_by(uid)):
            self._registry.update(*self._places[owned_uid], lambda old: without_owner(old, uid))
        self._registry.update(*self._places[uid], lambda old: without_finalizer(old, ORPHAN))

    def _end_after_owned(self, uid: str) -> None:
        waits = False
        for owned_uid, one in list(self._owned_by(uid)):
            if owned_uid == uid:
                continue  # it would wait for itself
            references = entries(one, "metadata", "ownerReferences")
            self._delete(owned_uid)
            waits |= self._find(owned_uid) is not None and any(
                text(reference, "uid") == uid and part(reference, "blockOwnerDeletion") is True
                for reference in references
            )
        if not waits:
            self._registry.update(*self._places[uid], lambda old: without_finalizer(old, FOREGROUND))

    def _delete(self, uid: str) -> None:
        """Delete an object, unless that is under way."""
        one = self._find(uid)
        if one is not None and not text(one, "metadata", "deletionTimestamp"):
            self._registry.delete(*self._places[uid], preconditions=Preconditions(uid=uid))

    def _owned_by(self, uid: str) -> Iterator[tuple[str, Object]]:
        for owned_uid in sorted(self._owned.get(uid, ())):
            one = self._find(owned_uid)
            if one is not None and uid in owner_uids(one):
                yield owned_uid, one

    def _find(self, uid: str) -> Object | None:
        """Return the object of a UID as it is now; None if it is gone, and perhaps another in its place."""
        place = self._places.get(uid)
        one = self._registry.find(*place) if place else None
        return one if one is not None and text(one, "metadata", "uid") == uid else None

    def _is_absent(self, one: Object, reference: object) -> bool:
        resource = resource_of_kind(text(reference, "apiVersion"), text(reference, "kind"))
        if resource not in SERVED:
            return False
        namespace = text(one, "metadata", "namespace") if resource.namespaced else ""
        owner = self._registry.find(resource, namespace, text(reference, "name"))
        return owner is None or text(owner, "metadata", "uid") != text(reference, "uid")


# ── Pods without a node ──


class PodCollector:
    """The pod garbage collector, for pods of missing nodes; lives as long as `run`."""

    def __init__(
        self,
        registry: Registry,
        *,
        quarantine_seconds: float = _QUARANTINE_SECONDS,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._quarantine_seconds = quarantine_seconds
        self._work = WorkQueue(seconds)

    async def run(self) -> None:
        """Watch over pods and nodes until cancelled."""
        notes = {NODES: self._note_node, PODS: self._note_pod}
        await run_loop(self._registry, notes, self._work, self._look)

    def _note_node(self, event: WatchEvent) -> None:
        if event.type is ChangeType.DELETED:
            for pod in self._registry.all(PODS):
                self._suspect(pod)

    def _note_pod(self, event: WatchEvent) -> None:
        if event.type is not ChangeType.DELETED:
            self._suspect(event.object)

    def _suspect(self, pod: Object) -> None:
        if self._is_lost(pod):
            self._work.add(key_of(pod), self._quarantine_seconds)

    def _look(self, key: str) -> None:
        pod = self._registry.find(PODS, *split_key(key))
        if pod is not None and self._is_lost(pod):
            self._registry.delete(PODS, *split_key(key), grace_seconds=0)

    def _is_lost(self, pod: Object) -> bool:
        node_name = text(pod, "spec", "nodeName")
        return bool(node_name) and self._registry.find(NODES, "", node_name) is None


# ── Events ──


def is_expired(event: Object, now: datetime) -> bool:
    """Whether the last occurrence of an event is older than events live; one without a time is not."""
    times = [time for path in _EVENT_TIMES if (time := moment(text(event, *path)))]
    return bool(times) and now - max(times) > EVENT_LIFE


class EventCollector:
    """The collector of old events; lives as long as `run`."""

    def __init__(self, registry: Registry, *, every_seconds: float = 60.0) -> None:
        self._registry = registry
        self._every_seconds = every_seconds

    async def run(self) -> None:
        """Delete old events, now and every minute, until cancelled."""
        while True:
            now = self._registry.now
            for key in [key_of(one) for one in self._registry.all(EVENTS) if is_expired(one, now)]:
                place = split_key(key)
                # Others had a turn: it may be gone, or have been told again.
                if (one := self._registry.find(EVENTS, *place)) and is_expired(one, now):
                    self._registry.delete(EVENTS, *place)
                await asyncio.sleep(0)
            await asyncio.sleep(self._every_seconds)
