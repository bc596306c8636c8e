"""The registry of all objects, which every read and change goes through, over HTTP or in this process.

It is a store with the rules of admission, which gives out UIDs and times, and wakes those who follow changes.
Nothing in it waits but `follow` and `watch`, so no two changes can be in each other's way.
"""

from __future__ import annotations

import asyncio
import random
import string
import uuid
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, text, whole, with_part
from devplug.k8s.times import stamp
from devplug.sandbox.admission import changed, named, prepared, refuse_over_quota, refuse_without_namespace
from devplug.sandbox.api.errors import StatusError, conflict
from devplug.sandbox.api.kinds import known
from devplug.sandbox.api.patch import patched
from devplug.sandbox.api.store import LOG_LENGTH, Store
from devplug.sandbox.api.watchlog import EVERYTHING, Selection, differences, namespaced_name, note

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.watchlog import WatchEvent

_LETTERS: Final = "".join(sorted(set(string.ascii_lowercase + string.digits) - set("aeiouy013")))
"""The letters of random name suffixes: no vowels and no y, none that look alike (apimachinery util/rand)."""

_GONE: Final = 410

_BINDING: Final = "binding"
"""The subresource by which a pod gets its node, which no other change of a pod may give it."""


CLAIM_TEMPLATES: Final = known("resource.k8s.io/v1", "ResourceClaimTemplate")
DAEMON_SETS: Final = known("apps/v1", "DaemonSet")
DEVICE_CLASSES: Final = known("resource.k8s.io/v1", "DeviceClass")
DEVICE_TAINT_RULES: Final = known("resource.k8s.io/v1beta2", "DeviceTaintRule")
EVENTS: Final = known("v1", "Event")
LEASES: Final = known("coordination.k8s.io/v1", "Lease")
NAMESPACES: Final = known("v1", "Namespace")
NODES: Final = known("v1", "Node")
PODS: Final = known("v1", "Pod")
QUOTAS: Final = known("v1", "ResourceQuota")
RESOURCE_CLAIMS: Final = known("resource.k8s.io/v1", "ResourceClaim")
RESOURCE_SLICES: Final = known("resource.k8s.io/v1", "ResourceSlice")
SERVICE_ACCOUNTS: Final = known("v1", "ServiceAccount")


class Registry(Store):
    """The owner of all objects; lives as long as the sandbox. Its methods raise `StatusError`.

    Objects that it returns are shared and never changed in place.
    """

    def __init__(
        self,
        contents: Iterable[tuple[Resource, Object]] = (),
        version: int = 1,
        log_length: int = LOG_LENGTH,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        seed: int | None = None,
    ) -> None:
        self._random = random.Random(seed)  # noqa: S311 -- names, no secrets
        self._waiting: dict[str, set[asyncio.Event]] = {}
        super().__init__(
            contents,
            version,
            log_length,
            now=now,
            new_uid=self._uid,
            admit=self._admitted,
            on_change=self._wake,
        )

    # ── reading ──

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """Return one object, or None."""
        try:
            return self.get(resource, namespace, name)
        except StatusError:
            return None

    def all(self, resource: Resource, selection: Selection = EVERYTHING) -> tuple[Object, ...]:
        """Return the objects asked for, in the order of namespace and name."""
        return self.listing(resource, selection).items

    # ── changing ──

    def create(self, resource: Resource, namespace: str, new: Object, *, dry_run: bool = False) -> Object:
        """Store a new object and return it as stored; its name may be made here, of `generateName`."""
        new = named(new, self.random_suffix())
        found = self.find(NAMESPACES, "", namespace) if resource.namespaced else None
        if resource.namespaced:
            refuse_without_namespace(resource, text(new, "metadata", "name"), namespace, found)
        one = prepared(resource, new, found, self.now)
        there = Selection(namespace)
        if resource in {PODS, RESOURCE_CLAIMS} and (quotas := self.all(QUOTAS, there)):
            others = self.all(PODS, there), self.all(RESOURCE_CLAIMS, there)
            refuse_over_quota(resource, one, quotas, *others, self.all(DEVICE_CLASSES))
        return super().create(resource, namespace, one, dry_run=dry_run)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        media_type: str,
        patch: object,
        *,
        part_name: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Store an object with a decoded patch of that media type applied; return it."""

        def apply(old: Object) -> Object:
            return patched(old, media_type, patch, resource.kind)

        return self.update(resource, namespace, name, apply, part_name=part_name, dry_run=dry_run)

    def set_status(self, resource: Resource, namespace: str, name: str, status: Object) -> Object | None:
        """Replace the status of an object; None if the object has gone meanwhile."""
        if self.find(resource, namespace, name) is None:
            return None
        return self.update(
            resource, namespace, name, lambda old: {**old, "status": status}, part_name="status"
        )

    def bind(self, namespace: str, name: str, node_name: str, *, dry_run: bool = False) -> Object:
        """Give a pod to a node, for good (registry/core/pod BindingREST); return it."""

        def bound(pod: Object) -> Object:
            given = text(pod, "spec", "nodeName")
            if given or text(pod, "metadata", "deletionTimestamp"):
                why = (
                    f'is already assigned to node "{given}"'
                    if given
                    else "is being deleted, cannot be assigned"
                )
                raise conflict("pods/binding", name, f"pod {name} {why}" + ("" if given else " to a host"))
            met = {
                "type": "PodScheduled",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": stamp(self.now),
                "observedGeneration": whole(pod, "metadata", "generation"),
            }
            others = [one for one in entries(pod, "status", "conditions") if text(one, "type") != met["type"]]
            pod = with_part(pod, node_name, "spec", "nodeName")
            return with_part(pod, [*others, met], "status", "conditions")

        return self.update(PODS, namespace, name, bound, part_name=_BINDING, dry_run=dry_run)

    # ── following ──

    async def watch(
        self,
        resource: Resource,
        selection: Selection = EVERYTHING,
        version: str = "",
        *,
        sends_list: bool | None = None,
    ) -> AsyncGenerator[list[WatchEvent], None]:
        """Yield what is sent at once, perhaps nothing, and then what changes, for ever; see `start_watch`.

        Raises 410 when the watcher is too far behind.
        """
        events, cursor = self.start_watch(resource, selection, version, sends_list=sends_list)
        woken = asyncio.Event()
        self._waiting.setdefault(resource.storage, set()).add(woken)
        try:
            yield events
            while True:
                await woken.wait()
                woken.clear()
                events, cursor = self.read(cursor)
                if events:
                    yield events
        finally:
            self._waiting[resource.storage].discard(woken)

    async def follow(
        self, resource: Resource, selection: Selection = EVERYTHING
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield every object as added, and then every change, for ever.

        A follower that is too far behind misses steps, but always gets the last state, as with an informer.
        """
        known: dict[tuple[str, str], Object] = {}
        while True:
            listing = self.listing(resource, selection)
            for event in differences(known, listing.items):
                yield event
            known = {namespaced_name(one): one for one in listing.items}
            try:
                watch = self.watch(resource, selection, str(listing.version), sends_list=False)
                async with aclosing(watch) as lines:
                    async for events in lines:
                        for event in events:
                            note(known, event)
                            yield event
            except StatusError as error:
                if error.code != _GONE:
                    raise

    # ── inside ──

    def _admitted(self, resource: Resource, new: Object, old: Object, part_name: str) -> Object:
        if part_name == _BINDING:
            return new
        namespace = text(old, "metadata", "namespace")
        found = self.find(NAMESPACES, "", namespace) if namespace else None
        return changed(resource, new, old, part_name, found, self.now)

    def random_suffix(self) -> str:
        """Return five letters for the end of a name."""
        return "".join(self._random.choices(_LETTERS, k=5))

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _wake(self, resource: Resource) -> None:
        for woken in self._waiting.get(resource.storage, ()):
            woken.set()
