"""The store of all objects and their versions, in memory.

It refuses updates of an old version (409), unknown objects (404) and forgotten versions (410). The rules of a
change are in `strategy`; the owner keeps the store over a restart, by `contents` and `version`. The
registry is a store with rules of admission, a clock and UIDs, that can be waited for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, same, text, with_part
from devplug.sandbox.api.errors import (
    already_exists,
    bad_request,
    conflict,
    go_json,
    invalid,
    invalid_field,
    not_found,
    too_large_resource_version,
)
from devplug.sandbox.api.strategy import created, deleted, is_over, updated
from devplug.sandbox.api.watchlog import (
    EVERYTHING,
    Change,
    ChangeLog,
    ChangeType,
    WatchEvent,
    bookmark,
    namespaced_name,
    seen,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.strategy import Deletion, Preconditions
    from devplug.sandbox.api.watchlog import Selection

LOG_LENGTH: Final = 1000
"""How many changes of a kind are remembered; a watcher that is further behind lists again."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects that a client asked for, in the order of namespace and name, at one version."""

    version: int
    items: tuple[Object, ...]

    def document(self, resource: Resource) -> Object:
        """Return the list object; the list's kind stands for that of its items."""
        items = [
            {key: value for key, value in one.items() if key not in {"kind", "apiVersion"}}
            for one in self.items
        ]
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": {"resourceVersion": str(self.version)},
            "items": items,
        }


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of one watcher; each reading returns a new one."""

    resource: Resource
    selection: Selection
    version: int


_VERSION_DIGITS: Final = 20
"""Most digits of a number of 64 bits; Python reads none of more than 4,300 digits."""


def version_of(written: str) -> int:
    """Return a resource version that a client sent, 0 for none; raises `StatusError`."""
    if not written:
        return 0
    if not (written.isascii() and written.isdigit()):
        why = f"strconv.ParseUint: parsing {go_json(written)}: invalid syntax"
        raise bad_request(f"invalid resource version: {invalid_field('resourceVersion', written, why)}")
    number = int(written) if len(written) <= _VERSION_DIGITS else 1 << 64
    if number >= 1 << 64:
        why = f"strconv.ParseUint: parsing {go_json(written)}: value out of range"
        raise bad_request(f"invalid resource version: {invalid_field('resourceVersion', written, why)}")
    return number


class Store:
    """All objects with their versions and last changes. One owner, no waiting, nothing else inside.

    `now` and `new_uid` are asked for what objects are stamped with. `admit` returns what may be stored of a
    changed object, from its kind, the new and the old one and the name of the subresource, or raises
    `StatusError`. `on_change` is called with the kind of each change.
    """

    def __init__(
        self,
        contents: Iterable[tuple[Resource, Object]] = (),
        version: int = 1,
        log_length: int = LOG_LENGTH,
        *,
        now: Callable[[], datetime],
        new_uid: Callable[[], str],
        admit: Callable[[Resource, Object, Object, str], Object] = lambda _kind, new, _old, _part: new,
        on_change: Callable[[Resource], None] = lambda _: None,
    ) -> None:
        self._now = now
        self._new_uid = new_uid
        self._admit = admit
        self._on_change = on_change
        self._version = version
        self._start_version = version
        self._log_length = log_length
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._logs: dict[str, ChangeLog] = {}
        for resource, one in contents:
            self._of(resource)[namespaced_name(one)] = one

    @property
    def now(self) -> datetime:
        """The time that objects are stamped with."""
        return self._now()

    @property
    def version(self) -> int:
        """The resource version of the last change."""
        return self._version

    def contents(self, resource: Resource) -> list[Object]:
        """Return all objects of a kind, in no order."""
        return list(self._of(resource).values())

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """Return one object; raises `StatusError`."""
        one = self._of(resource).get((namespace, name))
        if one is None:
            raise not_found(resource.qualified, name)
        return one

    def listing(self, resource: Resource, selection: Selection = EVERYTHING, version: str = "") -> Listing:
        """Return the objects asked for as they are now, if `version` is reached; raises `StatusError`."""
        self._await(version_of(version))
        kept = self._of(resource)
        return Listing(
            self._version,
            tuple(kept[place] for place in sorted(kept) if selection.covers(kept[place])),
        )

    def create(
        self,
        resource: Resource,
        namespace: str,
        new: Object,
        *,
        dry_run: bool = False,
    ) -> Object:
        """Store a new object, which has its name; return it as stored. Raises `StatusError`."""
        place = namespace if resource.namespaced else ""
        one = created(resource, new, place, self._new_uid(), self._now())
        if namespaced_name(one) in self._of(resource):
            raise already_exists(resource.qualified, text(one, "metadata", "name"))
        return one if dry_run else self._store(resource, ChangeType.ADDED, one, None)

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[Object], Object],
        *,
        part_name: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Store what `change` makes of an object, through a subresource or without; return it as stored.

        A version that the changed object carries must be the one that is stored. What changes nothing makes
        no version. An object that was only waiting for its last finalizer is gone after it. Raises
        `StatusError`, and what `change` raises.
        """
        old = self.get(resource, namespace, name)
        new = self._admit(resource, change(old), old, part_name)
        given = version_of(text(new, "metadata", "resourceVersion"))
        if not given and resource.needs_version:
            fault = invalid_field("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(resource.qualified, name, [fault])
        if given and given != version_of(text(old, "metadata", "resourceVersion")):
            raise conflict(resource.qualified, name)
        one = updated(resource, new, old, part_name)
        one = with_part(one, text(old, "metadata", "resourceVersion"), "metadata", "resourceVersion")
        if dry_run or same(one, old):
            return one
        if is_over(one):
            return self._take(resource, one, old)
        return self._store(resource, ChangeType.MODIFIED, one, old)

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        grace_seconds: int | None = None,
        preconditions: Preconditions | None = None,
        policy: str = "",
        dry_run: bool = False,
    ) -> Deletion:
        """Delete an object or mark it so; return it, and whether it is gone. Raises `StatusError`.

        `policy` says what becomes of what it owns: `Background`, `Foreground` or `Orphan`.
        """
        old = self.get(resource, namespace, name)
        deletion = deleted(resource, old, self._now(), grace_seconds, preconditions, policy)
        if dry_run:
            return deletion
        if deletion.is_gone:
            return replace(deletion, object=self._take(resource, deletion.object, old))
        if same(deletion.object, old):
            return deletion
        return replace(deletion, object=self._store(resource, ChangeType.MODIFIED, deletion.object, old))

    def start_watch(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        version: str = "",
        *,
        sends_list: bool | None = None,
    ) -> tuple[list[WatchEvent], Cursor]:
        """Begin a watch; return what is sent at once, and from where to read on. Raises `StatusError`.

        Without a version, and from version 0, the objects that are there are sent as added. `sends_list` is
        the request's `sendInitialEvents`: true has them sent, with a bookmark after them; false has not.
        """
        start = version_of(version)
        listed = start == 0 if sends_list is None else sends_list
        events: list[WatchEvent] = []
        if listed:
            listing = self.listing(resource, selection, version)
            events = [WatchEvent(ChangeType.ADDED, one) for one in listing.items]
            if sends_list:
                events.append(bookmark(resource, listing.version, ends_list=True))
        elif start:
            cursor = Cursor(resource, selection, start)
            return self.read(cursor)
        return events, Cursor(resource, selection, self._version)

    def read(self, cursor: Cursor) -> tuple[list[WatchEvent], Cursor]:
        """Return what a watcher has not seen, and its cursor after it; raises `StatusError` (410)."""
        changes = self._log(cursor.resource).since(cursor.version)
        events = list(seen(changes, cursor.selection))
        return events, replace(cursor, version=max(cursor.version, self._version))

    def _await(self, version: int) -> None:
        if version > self._version:
            raise too_large_resource_version(version, self._version)

    def _store(self, resource: Resource, type_: ChangeType, one: Object, old: Object | None) -> Object:
        stored = self._counted(resource, type_, one, old)
        self._of(resource)[namespaced_name(stored)] = stored
        return stored

    def _take(self, resource: Resource, one: Object, old: Object) -> Object:
        gone = self._counted(resource, ChangeType.DELETED, one, old)
        del self._of(resource)[namespaced_name(old)]
        return gone

    def _counted(self, resource: Resource, type_: ChangeType, one: Object, old: Object | None) -> Object:
        """Return the object with the next version, which is written down with the change."""
        self._version += 1
        counted = with_part(one, str(self._version), "metadata", "resourceVersion")
        self._log(resource).add(Change(self._version, type_, counted, old))
        self._on_change(resource)
        return counted

    def _of(self, resource: Resource) -> dict[tuple[str, str], Object]:
        return self._objects.setdefault(resource.storage, {})

    def _log(self, resource: Resource) -> ChangeLog:
        log = self._logs.get(resource.storage)
        if log is None:
            log = self._logs[resource.storage] = ChangeLog(self._start_version, self._log_length)
        return log
