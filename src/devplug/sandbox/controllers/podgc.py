"""The end of pods whose node is not there, and so no kubelet to end them (pkg/controller/podgc)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.changes import ChangeType
from devplug.sandbox.api.objects import text
from devplug.sandbox.controllers.loops import Worklist, keep, key_of, place_of
from devplug.sandbox.registry import NODES, PODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from devplug.sandbox.api.changes import WatchEvent
    from devplug.sandbox.api.objects import Object
    from devplug.sandbox.registry import Registry

__all__ = ["PodCollector"]

_QUARANTINE_SECONDS: Final = 40.0
"""For so long a node may be away (podgc/gc_controller.go quarantineTime)."""


class PodCollector:
    """What deletes pods of nodes that are not there; lives as long as `run`."""

    def __init__(
        self,
        registry: Registry,
        *,
        quarantine_seconds: float = _QUARANTINE_SECONDS,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._quarantine_seconds = quarantine_seconds
        self._work = Worklist(seconds)

    async def run(self) -> None:
        """Watch over pods and nodes until cancelled."""
        notes = {NODES: self._note_node, PODS: self._note_pod}
        await keep(self._registry, notes, self._work, self._look)

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
        pod = self._registry.find(PODS, *place_of(key))
        if pod is not None and self._is_lost(pod):
            self._registry.delete(PODS, *place_of(key), grace_seconds=0)

    def _is_lost(self, pod: Object) -> bool:
        node_name = text(pod, "spec", "nodeName")
        return bool(node_name) and self._registry.find(NODES, "", node_name) is None
