"""The requests of a pod for extended resources. Pure.

The sum is the scheduler's (component-helpers resource.PodRequests): all that runs at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, maps, text, texts
from devplug.k8s.resource_names import is_extended
from devplug.kubelet.quantity import Quantity, QuantityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["containers", "count", "counts", "has_ended", "holder_name", "requests"]

_SIDECAR: Final = "Always"


def count(quantity: str) -> int:
    """Return a quantity as the number of devices that the kubelet makes of it; 0 if it is none."""
    try:
        return Quantity.parse(quantity).value
    except QuantityError:
        return 0


def counts(value: object, *path: str) -> dict[str, int]:
    """Return the counts of extended resources in a map of quantities."""
    return {name: count(one) for name, one in texts(value, *path).items() if is_extended(name)}


def containers(pod: Object) -> Iterator[tuple[Object, dict[str, int]]]:
    """Yield init containers, sidecars and app containers in start order, each with what it asks for."""
    for word in ("initContainers", "containers"):
        for container in maps(pod, "spec", word):
            yield container, _of_container(container)


def requests(pod: Object) -> dict[str, int]:
    """Return what a pod asks for at once, by resource name; nothing with 0.

    That is all app containers and sidecars together, or one init container with the sidecars before it if
    that is more. What the pod as a whole requests stands before both, and overhead comes on top.
    """
    total: dict[str, int] = {}
    for container in maps(pod, "spec", "containers"):
        _add(total, _of_container(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in maps(pod, "spec", "initContainers"):
        needed = _of_container(container)
        if text(container, "restartPolicy") == _SIDECAR:
            _add(total, needed)
            _add(sidecars, needed)
            needed = dict(sidecars)
        else:
            _add(needed, sidecars)
        for name, number in needed.items():
            peak[name] = max(peak.get(name, 0), number)
    for name, number in peak.items():
        total[name] = max(total.get(name, 0), number)
    total.update(counts(pod, "spec", "resources", "requests"))
    _add(total, counts(pod, "spec", "overhead"))
    return {name: number for name, number in sorted(total.items()) if number}


def has_ended(pod: Object) -> bool:
    """Whether a pod uses nothing of its node any more; one that is being deleted still does."""
    return text(pod, "status", "phase") in {"Succeeded", "Failed"}


def holder_name(pod: Object) -> str:
    """Return `NAMESPACE/NAME` of a pod."""
    return f"{text(pod, 'metadata', 'namespace')}/{text(pod, 'metadata', 'name')}"


def _of_container(container: Object) -> dict[str, int]:
    """Return what one container asks for: the API makes requests of limits where there are none."""
    limits = counts(container, "resources", "limits")
    return {**limits, **counts(container, "resources", "requests")}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, number in more.items():
        total[name] = total.get(name, 0) + number
