"""Why a node cannot take a pod: the scheduler's plugins, in its order and in its words. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.sandbox.scheduling.matching import matches_affinity, tolerates_cordon, tolerates_taints
from devplug.sandbox.scheduling.values import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devplug.sandbox.scheduling.values import Node, Shape

__all__ = ["Plugin", "Refusal", "resources_refusal", "static_refusal"]


class Plugin(enum.Enum):
    """A part of the scheduler that can refuse a node; its name stands in messages."""

    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    NODE_NAME = "NodeName"
    TAINT_TOLERATION = "TaintToleration"
    NODE_AFFINITY = "NodeAffinity"
    NODE_RESOURCES_FIT = "NodeResourcesFit"


@dataclass(frozen=True, slots=True)
class Refusal:
    """That a node cannot take a pod: the first plugin that refuses it, with all of that plugin's reasons."""

    plugin: Plugin
    reasons: tuple[str, ...]
    is_resolvable: bool = False
    """Whether the pod would fit if others left: what preemption looks at (UnschedulableAndUnresolvable)."""


_CORDONED: Final = Refusal(Plugin.NODE_UNSCHEDULABLE, ("node(s) were unschedulable",))
_OTHER_NAME: Final = Refusal(Plugin.NODE_NAME, ("node(s) didn't match the requested node name",))
_TAINTED: Final = Refusal(Plugin.TAINT_TOLERATION, ("node(s) had untolerated taint(s)",))
_NO_MATCH: Final = Refusal(Plugin.NODE_AFFINITY, ("node(s) didn't match Pod's node affinity/selector",))

_FIRST: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
"""What is looked at before all other resources (noderesources/fit.go fitsRequest)."""


def static_refusal(shape: Shape, node: Node) -> Refusal | None:
    """Return why a node cannot take a pod however empty it is, resources aside, or None."""
    if node.unschedulable and not tolerates_cordon(shape):
        return _CORDONED
    if shape.node_name and shape.node_name != node.name:
        return _OTHER_NAME
    if not tolerates_taints(shape, node.taints):
        return _TAINTED
    return None if matches_affinity(shape, node) else _NO_MATCH


def resources_refusal(
    shape: Shape,
    allocatable: Mapping[str, int],
    requested: Mapping[str, int],
    pods: int,
) -> Refusal | None:
    """Return why a node with so much requested by its pods has too little left for one more, or None."""
    reasons = []
    is_resolvable = True
    if pods + 1 > allocatable.get(PODS, 0):
        reasons.append("Too many pods")
    for name, amount in _in_order(shape):
        whole = allocatable.get(name, 0)
        if amount > whole - requested.get(name, 0):
            reasons.append(f"Insufficient {name}")
            is_resolvable = is_resolvable and amount <= whole
    return Refusal(Plugin.NODE_RESOURCES_FIT, tuple(reasons), is_resolvable) if reasons else None


def _in_order(shape: Shape) -> Iterator[tuple[str, int]]:
    native = {name: amount for name, amount in shape.requests if name in _FIRST}
    yield from ((name, native[name]) for name in _FIRST if name in native)
    yield from ((name, amount) for name, amount in shape.requests if name not in native)
