"""The node lifecycle controller: it keeps pods off nodes that are not ready or cordoned, by taints.

After pkg/controller/nodelifecycle doNoScheduleTaintingPass. Nothing is evicted, so only `NoSchedule`, and no
heartbeat is watched: the nodes of a sandbox are in the same process.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, part, same, text, with_part
from devplug.k8s.times import stamp
from devplug.sandbox.api.watchlog import ChangeType
from devplug.sandbox.controllers.workqueue import WorkQueue, run_loop
from devplug.sandbox.events import EventRecorder, EventSource
from devplug.sandbox.registry import NODES

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from devplug.sandbox.api.watchlog import WatchEvent
    from devplug.sandbox.registry import Registry

_DOMAIN: Final = "node.kubernetes.io/"
_BY_CONDITION: Final = {
    ("DiskPressure", "True"): "disk-pressure",
    ("MemoryPressure", "True"): "memory-pressure",
    ("NetworkUnavailable", "True"): "network-unavailable",
    ("PIDPressure", "True"): "pid-pressure",
    ("Ready", "False"): "not-ready",
    ("Ready", "Unknown"): "unreachable",
}
_CORDONED: Final = "unschedulable"
_OURS: Final = frozenset(_DOMAIN + word for word in (*_BY_CONDITION.values(), _CORDONED))


def tainted(node: Object, now: datetime) -> list[object]:
    """Return the taints that a node shall have: those of others, and ours as its conditions ask for them."""
    wanted = {
        _DOMAIN + word
        for one in entries(node, "status", "conditions")
        if (word := _BY_CONDITION.get((text(one, "type"), text(one, "status"))))
    }
    if part(node, "spec", "unschedulable") is True:
        wanted.add(_DOMAIN + _CORDONED)
    taints = entries(node, "spec", "taints")
    kept = [one for one in taints if not _is_ours(one) or text(one, "key") in wanted]
    held = {text(one, "key") for one in kept if _is_ours(one)}
    return [
        *kept,
        *({"key": key, "effect": "NoSchedule", "timeAdded": stamp(now)} for key in sorted(wanted - held)),
    ]


def _is_ours(taint: object) -> bool:
    return text(taint, "effect") == "NoSchedule" and text(taint, "key") in _OURS


_EVENTS: Final = {
    ChangeType.ADDED: ("RegisteredNode", "Registered Node {name} in Controller"),
    ChangeType.DELETED: ("RemovingNode", "Removing Node {name} from Controller"),
}
"""Reasons and messages (nodelifecycle/node_lifecycle_controller.go monitorNodeHealth)."""


class NodeLifecycleController:
    """The node controller of one sandbox; lives as long as `run`."""

    def __init__(self, registry: Registry, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._recorder = EventRecorder(registry, EventSource("node-controller"))
        self._work = WorkQueue(seconds)

    async def run(self) -> None:
        """Watch over nodes until cancelled; those that exist at the start count as new ones."""
        await run_loop(self._registry, {NODES: self._note}, self._work, self._look)

    def _note(self, event: WatchEvent) -> None:
        node = event.object
        name = text(node, "metadata", "name")
        self._work.add(name)
        if event.type in _EVENTS:
            reason, happened = _EVENTS[event.type]
            about: dict[str, object] = {"kind": "Node", "name": name}
            about |= {"uid": text(node, "metadata", "uid"), "apiVersion": "v1"}
            message = f"Node {name} event: {happened.format(name=name)}"
            self._recorder.event(about, "Normal", reason, message)

    def _look(self, name: str) -> None:
        node = self._registry.find(NODES, "", name)
        if node is None:
            return
        taints = tainted(node, self._registry.now)
        if not same(taints, entries(node, "spec", "taints")):
            self._registry.update(
                NODES, "", name, lambda old: with_part(old, taints or None, "spec", "taints")
            )
