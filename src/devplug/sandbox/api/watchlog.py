"""The bounded log of changes of one kind of object, and what a watcher sees of it.

Versions grow over all kinds together. Who waits for changes, and how they travel, is not known here.
"""

from __future__ import annotations

import bisect
import enum
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from devplug.k8s.objects import Object, fields, text
from devplug.sandbox.api.errors import expired
from devplug.sandbox.api.fieldselectors import FieldSelector
from devplug.sandbox.api.labelselectors import LabelSelector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from devplug.sandbox.api.kinds import Resource


class ChangeType(enum.Enum):
    """The type of a change of an object, as watch events have it."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    """Nothing; the watcher learns how far it has seen."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one object. A deleted object has the version of its deletion."""

    version: int
    type: ChangeType
    object: Object
    previous: Object | None = None
    """The object before; None when it was added."""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch."""

    type: ChangeType
    object: Object

    @property
    def line(self) -> Object:
        """What is sent."""
        return {"type": self.type.value, "object": self.object}


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects of a kind that a client asks for."""

    namespace: str = ""
    """Empty for all namespaces, and for what has none."""
    labels: LabelSelector = field(default_factory=LabelSelector)
    fields: FieldSelector = field(default_factory=FieldSelector)

    def covers(self, one: Object) -> bool:
        """Whether the object is asked for."""
        return (
            self.namespace in {"", text(one, "metadata", "namespace")}
            and self.labels.matches(fields(one, "metadata", "labels"))
            and self.fields.matches(one)
        )


EVERYTHING = Selection()


class ChangeLog:
    """The last changes of one kind of object; lives as long as the store, which alone adds to it."""

    def __init__(self, start_version: int, length: int) -> None:
        self._changes: deque[Change] = deque(maxlen=length)
        self._known_since = start_version

    def add(self, change: Change) -> None:
        """Remember a change; the oldest one is forgotten when there are too many."""
        forgets = len(self._changes) == self._changes.maxlen
        self._changes.append(change)
        if forgets:
            self._known_since = self._changes[0].version - 1

    def since(self, version: int) -> list[Change]:
        """Return what happened after `version`; raises `StatusError` (410) if that is forgotten."""
        if version < self._known_since:
            raise expired(version, self._known_since)
        first = bisect.bisect_right(self._changes, version, key=lambda change: change.version)
        return [self._changes[place] for place in range(first, len(self._changes))]


def seen(changes: list[Change], selection: Selection) -> Iterator[WatchEvent]:
    """Yield what a watcher of a selection sees of changes (apiserver storage/cacher/cache_watcher.go).

    An object that comes to be covered is added for it, and one that is covered no more is deleted.
    """
    for change in changes:
        before = change.previous is not None and selection.covers(change.previous)
        after = change.type is not ChangeType.DELETED and selection.covers(change.object)
        if after:
            yield WatchEvent(ChangeType.MODIFIED if before else ChangeType.ADDED, change.object)
        elif before:
            gone = change.object if change.type is ChangeType.DELETED else change.previous
            assert gone is not None
            meta = {**fields(gone, "metadata"), "resourceVersion": str(change.version)}
            yield WatchEvent(ChangeType.DELETED, {**gone, "metadata": meta})


def bookmark(resource: Resource, version: int, *, ends_list: bool = False) -> WatchEvent:
    """Return what tells a watcher that it has seen all up to `version`.

    `ends_list` says that the objects which were there at first have all been sent (KEP-3157).
    """
    meta: Object = {"resourceVersion": str(version), "creationTimestamp": None}
    if ends_list:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    one: Object = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
    return WatchEvent(ChangeType.BOOKMARK, one)


def namespaced_name(one: Object) -> tuple[str, str]:
    """Return namespace and name of an object."""
    return text(one, "metadata", "namespace"), text(one, "metadata", "name")


def note(known: dict[tuple[str, str], Object], event: WatchEvent) -> None:
    """Take a change into what a follower knows."""
    if event.type is ChangeType.DELETED:
        known.pop(namespaced_name(event.object), None)
    else:
        known[namespaced_name(event.object)] = event.object


def differences(known: dict[tuple[str, str], Object], items: Iterable[Object]) -> Iterator[WatchEvent]:
    """Yield what has become of the objects that a follower knows; one in another's place is told as new."""
    gone = dict(known)
    for one in items:
        before = gone.pop(namespaced_name(one), None)
        if before is not None and text(before, "metadata", "uid") != text(one, "metadata", "uid"):
            yield WatchEvent(ChangeType.DELETED, before)
            before = None
        if before is None:
            yield WatchEvent(ChangeType.ADDED, one)
        elif text(before, "metadata", "resourceVersion") != text(one, "metadata", "resourceVersion"):
            yield WatchEvent(ChangeType.MODIFIED, one)
    for one in gone.values():
        yield WatchEvent(ChangeType.DELETED, one)
