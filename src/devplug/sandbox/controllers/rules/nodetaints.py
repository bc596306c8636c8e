"""The taints that a node has for its conditions and for being cordoned. Pure.

After pkg/controller/nodelifecycle doNoScheduleTaintingPass; nothing is evicted, so only `NoSchedule`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.objects import entries, part, text
from devplug.sandbox.api.times import stamp

if TYPE_CHECKING:
    from datetime import datetime

    from devplug.sandbox.api.objects import Object

__all__ = ["tainted"]

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
