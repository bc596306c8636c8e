"""Which changes may help a pod that was refused: the scheduler's queueing hints (EventsToRegister). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from devplug.sandbox.scheduling.filtering import Plugin, resources_refusal
from devplug.sandbox.scheduling.matching import matches_affinity, tolerates_taints
from devplug.sandbox.scheduling.values import PODS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.sandbox.scheduling.values import Node, Shape

__all__ = ["Change", "NodeChange", "PodGone", "may_help"]


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node came, or is another than before."""

    before: Node | None
    after: Node


@dataclass(frozen=True, slots=True)
class PodGone:
    """A pod that was on a node was deleted, or has ended."""


Change: TypeAlias = NodeChange | PodGone


def may_help(shape: Shape, plugins: Iterable[Plugin], change: Change) -> bool:
    """Whether one of the plugins that refused a pod might decide otherwise after a change."""
    if isinstance(change, PodGone):
        return Plugin.NODE_RESOURCES_FIT in plugins
    return any(_helps(plugin, shape, change.before, change.after) for plugin in plugins)


def _helps(plugin: Plugin, shape: Shape, before: Node | None, after: Node) -> bool:
    match plugin:
        case Plugin.NODE_RESOURCES_FIT:
            is_large_enough = resources_refusal(shape, after.allocatable, {}, 0) is None
            return is_large_enough and (before is None or _has_grown(shape, before, after))
        case Plugin.NODE_AFFINITY:
            return matches_affinity(shape, after) and (before is None or not matches_affinity(shape, before))
        case Plugin.TAINT_TOLERATION:
            was_kept_off = before is None or not tolerates_taints(shape, before.taints)
            return was_kept_off and tolerates_taints(shape, after.taints)
        case Plugin.NODE_UNSCHEDULABLE:
            return not after.unschedulable and (before is None or before.unschedulable)
        case Plugin.NODE_NAME:
            return before is None


def _has_grown(shape: Shape, before: Node, after: Node) -> bool:
    """Whether a node has more of something that the pod needs (haveAnyRequestedResourcesIncreased)."""
    return any(
        after.allocatable.get(name, 0) > before.allocatable.get(name, 0)
        for name in (PODS, *(name for name, _ in shape.requests))
    )
