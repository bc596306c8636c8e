"""The namespace controller: it makes those that every cluster has, and empties those that are deleted.

After pkg/controller/namespace/deletion. That nothing new is made in an ending namespace is admission's.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import entries, fields, text, with_part
from devplug.sandbox.api.kinds import SERVED
from devplug.sandbox.api.watchlog import ChangeType, Selection
from devplug.sandbox.controllers.workqueue import WorkQueue, run_loop
from devplug.sandbox.registry import NAMESPACES

if TYPE_CHECKING:
    from collections.abc import Callable

    from devplug.sandbox.api.watchlog import WatchEvent
    from devplug.sandbox.registry import Registry

_FIRST: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
"""What the API server makes at its start (controlplane/controller/systemnamespaces)."""

_CONTAINED: Final = tuple(
    {one.storage: one for one in SERVED if one.namespaced and "list" in one.verbs}.values()
)

_MOST_AT_ONCE: Final = 250
"""The most objects that one sync deletes, so that other tasks get their turn."""

_FINALIZER: Final = "kubernetes"


def make_first_namespaces(registry: Registry) -> None:
    """Make the namespaces that every cluster has, unless they are there; before anything else is made."""
    for name in _FIRST:
        if registry.find(NAMESPACES, "", name) is None:
            registry.create(NAMESPACES, "", {"metadata": {"name": name}})


class NamespaceController:
    """The namespace controller of one sandbox; lives as long as `run`."""

    def __init__(self, registry: Registry, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._work = WorkQueue(seconds)

    async def run(self) -> None:
        """Make the first namespaces, and end those that are deleted, until cancelled."""
        make_first_namespaces(self._registry)
        notes = {NAMESPACES: self._note, **dict.fromkeys(_CONTAINED, self._note_inside)}
        await run_loop(self._registry, notes, self._work, self._look)

    def _note(self, event: WatchEvent) -> None:
        if text(event.object, "metadata", "deletionTimestamp"):
            self._work.add(text(event.object, "metadata", "name"))

    def _note_inside(self, event: WatchEvent) -> None:
        if event.type is ChangeType.DELETED:
            self._work.add(text(event.object, "metadata", "namespace"))

    def _look(self, name: str) -> None:
        one = self._registry.find(NAMESPACES, "", name)
        if one is None or not text(one, "metadata", "deletionTimestamp"):
            return
        self._registry.set_status(NAMESPACES, "", name, {**fields(one, "status"), "phase": "Terminating"})
        if not self._empty(name):
            return
        others = [finalizer for finalizer in entries(one, "spec", "finalizers") if finalizer != _FINALIZER]
        self._registry.update(
            NAMESPACES,
            "",
            name,
            lambda old: with_part(old, others or None, "spec", "finalizers"),
            part_name="finalize",
        )

    def _empty(self, namespace: str) -> bool:
        """Delete what is in a namespace; return whether there is nothing left that takes its time."""
        deleted = 0
        is_empty = True
        for resource in _CONTAINED:
            for one in self._registry.all(resource, Selection(namespace)):
                if text(one, "metadata", "deletionTimestamp"):
                    is_empty = False
                    continue
                if deleted == _MOST_AT_ONCE:
                    self._work.add(namespace)
                    return False
                deleted += 1
                is_empty &= self._registry.delete(resource, namespace, text(one, "metadata", "name")).is_gone
        return is_empty
