"""The garbage collector: what belongs to an owner that is gone is deleted, or left alone on demand.

How a deletion asks for it is the finalizers of `api.dependents`. Owners of kinds that are not served are not
looked for: what belongs to them stays.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.changes import ChangeType
from devplug.sandbox.api.dependents import FOREGROUND, ORPHAN
from devplug.sandbox.api.kinds import SERVED, resource_of_kind
from devplug.sandbox.api.lifecycle import Preconditions
from devplug.sandbox.api.objects import entries, part, text
from devplug.sandbox.controllers.loops import Worklist, keep
from devplug.sandbox.controllers.rules.owners import owner_uids, without_finalizer, without_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devplug.sandbox.api.changes import WatchEvent
    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.objects import Object
    from devplug.sandbox.registry import Registry

__all__ = ["GarbageCollector"]

_COLLECTED: Final = tuple(one for one in SERVED if "list" in one.verbs and one.kind != "Event")
"""What may own, or belong to something. Events belong to nobody."""


class GarbageCollector:
    """The garbage collector of one sandbox; lives as long as `run`."""

    def __init__(self, registry: Registry, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._work = Worklist(seconds)
        self._places: dict[str, tuple[Resource, str, str]] = {}
        """Where an object is, by UID."""
        self._owned: dict[str, set[str]] = {}
        """UIDs of what belongs to an owner, by the owner's UID."""

    async def run(self) -> None:
        """Collect until cancelled."""
        notes = {one: partial(self._note, one) for one in _COLLECTED}
        await keep(self._registry, notes, self._work, self._look)

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
