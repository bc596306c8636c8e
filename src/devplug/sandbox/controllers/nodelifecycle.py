"""The node controller: it tells that nodes come and go, and keeps pods off nodes that are not ready.

Nothing is evicted, and no heartbeat is watched: the nodes of a sandbox are in the same process.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.changes import ChangeType
from devplug.sandbox.api.objects import entries, same, text, with_part
from devplug.sandbox.controllers.loops import Worklist, keep
from devplug.sandbox.controllers.rules.nodetaints import tainted
from devplug.sandbox.recording import Recorder, Source
from devplug.sandbox.registry import NODES

if TYPE_CHECKING:
    from collections.abc import Callable

    from devplug.sandbox.api.changes import WatchEvent
    from devplug.sandbox.registry import Registry

__all__ = ["NodeLifecycle"]

_TOLD: Final = {
    ChangeType.ADDED: ("RegisteredNode", "Registered Node {name} in Controller"),
    ChangeType.DELETED: ("RemovingNode", "Removing Node {name} from Controller"),
}
"""Reasons and messages (nodelifecycle/node_lifecycle_controller.go monitorNodeHealth)."""


class NodeLifecycle:
    """The node controller of one sandbox; lives as long as `run`."""

    def __init__(self, registry: Registry, *, seconds: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._recorder = Recorder(registry, Source("node-controller"))
        self._work = Worklist(seconds)

    async def run(self) -> None:
        """Watch over nodes until cancelled; those that are there at first are told of as new ones."""
        await keep(self._registry, {NODES: self._note}, self._work, self._look)

    def _note(self, event: WatchEvent) -> None:
        node = event.object
        name = text(node, "metadata", "name")
        self._work.add(name)
        if event.type in _TOLD:
            reason, happened = _TOLD[event.type]
            about: dict[str, object] = {"kind": "Node", "name": name}
            about |= {"uid": text(node, "metadata", "uid"), "apiVersion": "v1"}
            message = f"Node {name} event: {happened.format(name=name)}"
            self._recorder.tell(about, "Normal", reason, message)

    def _look(self, name: str) -> None:
        node = self._registry.find(NODES, "", name)
        if node is None:
            return
        taints = tainted(node, self._registry.now)
        if not same(taints, entries(node, "spec", "taints")):
            self._registry.update(
                NODES, "", name, lambda old: with_part(old, taints or None, "spec", "taints")
            )
