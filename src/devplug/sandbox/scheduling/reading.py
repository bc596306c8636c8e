"""Nodes and pods as the API has them, to what the scheduler knows of them. Pure.

The objects are ones that the API server has taken: what is missing has its default, and nothing is checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from devplug.kubelet.pods import ALWAYS
from devplug.kubelet.quantities import Quantity
from devplug.sandbox.scheduling.values import (
    CPU,
    MEMORY,
    UNSET_CPU,
    UNSET_MEMORY,
    Node,
    PendingPod,
    Preference,
    Requirement,
    Shape,
    Taint,
    Term,
    Toleration,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["amounts", "node", "pod", "shape"]

_Object: TypeAlias = "Mapping[str, Any]"

_DEFAULTS = {CPU: UNSET_CPU, MEMORY: UNSET_MEMORY}


def amounts(quantities: Mapping[str, object] | None) -> dict[str, int]:
    """Return quantities by resource name as whole numbers, cpu in thousandths. Raises `QuantityError`."""
    found = {}
    for name, text in (quantities or {}).items():
        number = Quantity.parse(str(text)).number * (1000 if name == CPU else 1)
        found[name] = int(-(-number // 1))
    return found


def node(found: _Object) -> Node:
    """Return a Node object as the scheduler sees it. Raises `QuantityError`."""
    metadata, spec, status = (found.get(key) or {} for key in ("metadata", "spec", "status"))
    return Node(
        metadata.get("name", ""),
        dict(metadata.get("labels") or {}),
        tuple(
            Taint(one.get("key", ""), one.get("value") or "", one.get("effect", ""))
            for one in spec.get("taints") or ()
        ),
        bool(spec.get("unschedulable")),
        amounts(status.get("allocatable") or status.get("capacity")),
    )


def pod(found: _Object) -> PendingPod:
    """Return a Pod object as the scheduler sees it. Raises `QuantityError`."""
    metadata, spec = found.get("metadata") or {}, found.get("spec") or {}
    name, namespace = metadata.get("name", ""), metadata.get("namespace") or "default"
    return PendingPod(
        metadata.get("uid") or f"{namespace}/{name}",
        name,
        namespace,
        shape(spec),
        spec.get("priority") or 0,
        spec.get("preemptionPolicy") != "Never",
    )


def shape(spec: _Object) -> Shape:
    """Return what decides where a pod of this spec may go. Raises `QuantityError`."""
    requests = _requests(spec, {})
    pod_level = amounts((spec.get("resources") or {}).get("requests"))
    scored = _requests(spec, {key: value for key, value in _DEFAULTS.items() if key not in pod_level})
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return Shape(
        tuple(sorted((name, amount) for name, amount in requests.items() if amount)),
        scored.get(CPU, 0),
        scored.get(MEMORY, 0),
        tuple(sorted((spec.get("nodeSelector") or {}).items())),
        None if required is None else tuple(_term(one) for one in required.get("nodeSelectorTerms") or ()),
        tuple(
            Preference(one.get("weight", 0), _term(one.get("preference") or {}))
            for one in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        ),
        tuple(
            Toleration(
                one.get("key") or "",
                one.get("operator") or "Equal",
                one.get("value") or "",
                one.get("effect") or "",
            )
            for one in spec.get("tolerations") or ()
        ),
        spec.get("nodeName") or "",
    )


def _requests(spec: _Object, defaults: Mapping[str, int]) -> dict[str, int]:
    """Return what a pod requests at once, each container at least the defaults (PodRequests).

    All app containers and sidecars together, or an init container with the sidecars before it if that is
    more; what the pod as a whole requests stands before that; overhead comes on top.
    """
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        _add(total, _of_container(container, defaults))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        needed = _of_container(container, defaults)
        _add(needed, sidecars)
        if container.get("restartPolicy") == ALWAYS:
            _add(total, _of_container(container, defaults))
            sidecars = needed
        for name, amount in needed.items():
            peak[name] = max(peak.get(name, 0), amount)
    for name, amount in peak.items():
        total[name] = max(total.get(name, 0), amount)
    total.update(amounts((spec.get("resources") or {}).get("requests")))
    _add(total, amounts(spec.get("overhead")))
    return total


def _of_container(container: _Object, defaults: Mapping[str, int]) -> dict[str, int]:
    """Return what a container requests; what it only limits, it requests too (SetDefaults_Pod)."""
    resources = container.get("resources") or {}
    return {**defaults, **amounts(resources.get("limits")), **amounts(resources.get("requests"))}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _term(found: _Object) -> Term:
    return Term(_requirements(found.get("matchExpressions")), _requirements(found.get("matchFields")))


def _requirements(found: Iterable[_Object] | None) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(one.get("key", ""), one.get("operator", ""), tuple(one.get("values") or ()))
        for one in found or ()
    )
