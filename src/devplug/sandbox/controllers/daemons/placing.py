"""On which nodes a DaemonSet wants a pod, whatever room there is (NodeShouldRunDaemonPod). Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from devplug.sandbox.controllers.daemons.pods import pod_spec
from devplug.sandbox.scheduling.matching import matches_affinity, tolerates_taints
from devplug.sandbox.scheduling.reading import shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.sandbox.api.objects import Object
    from devplug.sandbox.scheduling.values import Node, Shape

__all__ = ["Wish", "wishes"]

_EVICTING: Final = "NoExecute"


class Wish(enum.Enum):
    """What a DaemonSet wants of a node."""

    RUN = "run"
    KEEP = "keep"
    """No new pod; one that is there may stay."""
    NONE = "none"


def wishes(daemons: Object, nodes: Iterable[Node]) -> dict[str, Wish]:
    """Return what a DaemonSet wants of each node, by its name."""
    asked = shape(pod_spec(daemons))
    return {node.name: _wish(asked, node) for node in nodes}


def _wish(asked: Shape, node: Node) -> Wish:
    if asked.node_name not in {"", node.name} or not matches_affinity(asked, node):
        return Wish.NONE
    if tolerates_taints(asked, node.taints):
        return Wish.RUN
    evicting = [taint for taint in node.taints if taint.effect == _EVICTING]
    return Wish.KEEP if tolerates_taints(asked, evicting) else Wish.NONE
