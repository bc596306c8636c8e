"""The requests of a pod: what its containers need at once, and overhead (component-helpers resource). Pure.

The scheduler counts all resources, of objects that the API server has taken; the monitor counts devices
alone, of any server's, where what is no quantity counts as none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from devplug.k8s.objects import Object, fields, maps, text, texts
from devplug.k8s.quantity import Quantity, QuantityError
from devplug.k8s.resource_names import is_extended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from fractions import Fraction

    Reader: TypeAlias = Callable[[Object], Mapping[str, int]]
    """Reads a map of quantities by resource name."""

ALWAYS: Final = "Always"
"""The restart policy that makes an init container a sidecar."""

_Amount = TypeVar("_Amount", int, "Fraction")


def needed_at_once(
    initial: Iterable[tuple[Mapping[str, _Amount], bool]], apps: Iterable[Mapping[str, _Amount]]
) -> dict[str, _Amount]:
    """Return what a pod's containers need at once, by resource name.

    All app containers and sidecars together, or an init container with the sidecars before it if that is
    more. `initial` has the init containers in start order, each with whether it is a sidecar.
    """
    lasting: dict[str, _Amount] = {}
    peak: dict[str, _Amount] = {}
    for needed, is_sidecar in initial:
        if is_sidecar:
            _add(lasting, needed)
        else:
            for name, amount in needed.items():
                beside = lasting[name] + amount if name in lasting else amount
                peak[name] = max(peak.get(name, beside), beside)
    for needed in apps:
        _add(lasting, needed)
    return {name: max(amount, peak.get(name, amount)) for name, amount in {**peak, **lasting}.items()}


def pod_requests(spec: object, read: Reader, defaults: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return what a pod of this spec requests (PodRequests); `defaults` is for containers that do not say.

    What the pod as a whole requests stands before what its containers need; overhead comes on top.
    """
    unsaid = defaults or {}
    total = needed_at_once(
        (
            ({**unsaid, **container_requests(one, read)}, text(one, "restartPolicy") == ALWAYS)
            for one in maps(spec, "initContainers")
        ),
        ({**unsaid, **container_requests(one, read)} for one in maps(spec, "containers")),
    )
    total.update(read(fields(spec, "resources", "requests")))
    _add(total, read(fields(spec, "overhead")))
    return total


def container_requests(container: Object, read: Reader) -> dict[str, int]:
    """Return what a container requests; what it only limits, it requests too (SetDefaults_Pod)."""
    return {
        **read(fields(container, "resources", "limits")),
        **read(fields(container, "resources", "requests")),
    }


def has_ended(pod: Object) -> bool:
    """Whether a pod uses nothing of its node any more; one that is being deleted still does."""
    return text(pod, "status", "phase") in {"Succeeded", "Failed"}


def device_counts(value: object, *path: str) -> dict[str, int]:
    """Return the extended resources in the map of quantities at `path`, as the kubelet counts devices."""
    found = {}
    for name, written in texts(value, *path).items():
        if is_extended(name):
            try:
                found[name] = Quantity.parse(written).value
            except QuantityError:
                continue
    return found


def device_requests(pod: Object) -> dict[str, int]:
    """Return the extended resources that a pod asks for at once, sorted by name; nothing with 0."""
    found = pod_requests(fields(pod, "spec"), device_counts)
    return {name: number for name, number in sorted(found.items()) if number}


def devices_by_container(pod: Object) -> Iterator[tuple[Object, dict[str, int]]]:
    """Yield init containers and sidecars, then app containers, each with the devices that it asks for."""
    for word in ("initContainers", "containers"):
        for container in maps(pod, "spec", word):
            yield container, container_requests(container, device_counts)


def _add(total: dict[str, _Amount], more: Mapping[str, _Amount]) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount
