"""Which of a device's nodes a container gets, and under which paths. Pure.

`discover` has found the nodes; here `expose` chooses among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.daemon.grammar.globs import covers
from devplug.daemon.grammar.templates import Missing, Writing, render_one

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from devplug.daemon.grammar.config import ChildNodes, Expose
    from devplug.daemon.grammar.templates import Template
    from devplug.daemon.sources.found import Found, FoundNode

__all__ = ["ChosenNode", "Gap", "chosen_nodes", "paths_of"]

FALLBACK_SUBSYSTEMS: Final = frozenset({"usb", "vfio", "vfio-dev"})
"""The raw ways to a device: the bus node of a gadget, the group of a function. They are for containers that
bring a driver of their own, so they are given only if there is nothing else, or by name."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Why a device cannot be given to anybody, in one line for its health."""

    reason: str


@dataclass(frozen=True, slots=True)
class ChosenNode:
    """One node that a container gets, and what the file says of it; its own path is rendered later."""

    node: FoundNode
    name: str
    """What `{containerPath.NAME}` calls it."""
    container_path: Template | None
    permissions: str


def chosen_nodes(found: Found, expose: Expose) -> list[ChosenNode] | Gap:
    """Return the nodes of a device that `expose` chooses, or what the device lacks.

    Nodes that belong to its driver come last, so that the first one is always the device's own.
    """
    chosen = (
        _all_of(found, expose)
        if expose.device_nodes is None
        else _asked_for(found, expose.device_nodes, expose)
    )
    if isinstance(chosen, Gap):
        return chosen
    once: dict[FoundNode, ChosenNode] = {}
    for one in chosen:
        once.setdefault(one.node, one)
    return sorted(once.values(), key=lambda one: one.node.is_shared)


def _all_of(found: Found, expose: Expose) -> list[ChosenNode]:
    own = [node for node in found.nodes if not node.is_shared]
    children = [node for node in own if node.subsystem not in FALLBACK_SUBSYSTEMS]
    return [
        ChosenNode(node, node.name or node.subsystem, expose.container_path, expose.permissions)
        for node in found.nodes
        if not (children and node.subsystem in FALLBACK_SUBSYSTEMS)
    ]


def _asked_for(found: Found, asked: Sequence[ChildNodes], expose: Expose) -> list[ChosenNode] | Gap:
    chosen = []
    for one in asked:
        matching = [node for node in found.nodes if _matches(node, one)]
        if not any(not node.is_shared for node in matching) and not one.optional:
            return Gap(f"it has no {_wording(one)} node")
        chosen += [
            ChosenNode(
                node,
                one.name or node.name or node.subsystem,
                one.container_path or expose.container_path,
                one.permissions or expose.permissions,
            )
            for node in matching
        ]
    return chosen


def _matches(node: FoundNode, asked: ChildNodes) -> bool:
    return (asked.subsystem is None or node.subsystem == asked.subsystem) and (
        asked.file is None or covers(asked.file, node.file_name)
    )


def _wording(asked: ChildNodes) -> str:
    return " ".join(word for word in (asked.subsystem, asked.file) if word)


def paths_of(
    chosen: Sequence[ChosenNode],
    facts: Mapping[str, str | int],
) -> Iterator[str] | Gap:
    """Return the path in the container of each chosen node, or why there is none.

    Without a template it is the kernel's own path, which programs look for, also where the host's path is a
    stable link. A node that its driver shares out always keeps it.
    """
    paths: list[str] = []
    for one in chosen:
        path = one.node.real_path or one.node.host_path
        if one.container_path is not None and not one.node.is_shared:
            text = render_one(one.container_path, facts, Writing.PATH)
            if isinstance(text, Missing):
                return Gap(text.reason)
            path = text + one.node.file_name if text.endswith("/") else text
        if path in paths:
            return Gap(
                f"two of its nodes would be {path} in the container; let containerPath end in /, "
                "or give each of expose.deviceNodes one of its own",
            )
        paths.append(path)
    return iter(paths)
