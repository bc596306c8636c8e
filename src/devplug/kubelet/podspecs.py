"""A pod's manifest as maps and lists: read, and checked as the API server does where devices are concerned.

Of its checks there are those that extended resources meet (kubelet.md 8.6), in its words; images, volumes and
the like are not looked at. How a text becomes maps and lists is `manifests`'. Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.devices import resource_name_fault
from devplug.errors import Problem, quoted
from devplug.kubelet.pods import Container, Pod
from devplug.kubelet.quantities import Quantity, QuantityError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

__all__ = ["Place", "PodReader"]

Place: TypeAlias = tuple[str | int, ...]
"""The way to a value: fields of maps, and positions in lists."""

_OF_A_POD: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_OF_RESOURCES: Final = ("claims", "limits", "requests")
_TEMPLATES: Final = {
    **dict.fromkeys(
        ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"),
        "spec.template",
    ),
    "CronJob": "spec.jobTemplate.spec.template",
    "PodTemplate": "template",
}
"""Kinds that make pods, and where in them the pod stands."""

_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*",
)
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_NATIVE: Final = re.compile(r"cpu|memory|ephemeral-storage|hugepages-.+")
"""What containers may ask for under a name without a domain (helpers.go IsStandardContainerResourceName)."""


@dataclass(slots=True)
class PodReader:
    """Reads one manifest and notes what is wrong with it. Every method goes on after a problem."""

    content: object
    position: Callable[[Place], tuple[int, int]] = lambda _: (0, 0)
    """Returns line and column of a value, or of the nearest thing around it; zeros without a text."""
    problems: list[Problem] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)

    def pod(self, uid: str | None) -> Pod:
        """Return the pod, of use only if there are no problems."""
        manifest = self._map(self.content, ())
        if not isinstance(self.content, Mapping) or not self._is_pod(manifest):
            return Pod("", "")
        self._refuse_unknown(manifest, (), _OF_A_POD)
        metadata = self._map(manifest.get("metadata"), ("metadata",))
        name = self._name(metadata, ("metadata",), _SUBDOMAIN)
        if "generateName" in metadata and not name:
            self._report(("metadata", "generateName"), "no name is made of it here; write name")
        namespace = self._text(metadata.get("namespace"), ("metadata", "namespace")) or "default"
        own_uid = self._text(metadata.get("uid"), ("metadata", "uid"))
        spec = self._map(manifest.get("spec"), ("spec",))
        self._refuse_devices_of_pods(spec)
        initial = self._containers(spec, "initContainers")
        containers = self._containers(spec, "containers")
        if not containers:
            self._report(("spec", "containers"), "Required value")
        return Pod(
            own_uid or uid or f"{namespace}/{name}",
            name,
            namespace,
            initial,
            containers,
            frozenset(self._dra_limits(self._map(manifest.get("status"), ("status",)))),
        )

    def _is_pod(self, manifest: Mapping[str, object]) -> bool:
        """Whether this is a pod, as far as it says; a manifest without a kind is one."""
        kind = self._text(manifest.get("kind"), ("kind",)) or "Pod"
        version = self._text(manifest.get("apiVersion"), ("apiVersion",)) or "v1"
        if kind in _TEMPLATES:
            self._report(
                ("kind",),
                f"a {kind} makes pods and is none; write kind: Pod with what it has under {_TEMPLATES[kind]}",
            )
        elif kind.endswith("List"):
            self._report(("kind",), "a manifest is one pod; give each of the items by itself")
        elif kind != "Pod":
            self._report(("kind",), f"{quoted(kind)} is no pod; write kind: Pod")
        elif version != "v1":
            self._report(("apiVersion",), f"{quoted(version)} has no pods; write apiVersion: v1")
        else:
            return True
        return False

    def _containers(self, spec: Mapping[str, object], key: str) -> tuple[Container, ...]:
        place: Place = ("spec", key)
        return tuple(
            self._container(self._map(one, (*place, number)), (*place, number))
            for number, one in enumerate(self._list(spec.get(key), place))
        )

    def _container(self, container: Mapping[str, object], place: Place) -> Container:
        name = self._name(container, place, _LABEL)
        if name and name in self._names:
            self._report((*place, "name"), f"Duplicate value: {quoted(name)}")
        self._names.add(name)
        return Container(
            name,
            self._limits(self._map(container.get("resources"), (*place, "resources")), (*place, "resources")),
            self._text(container.get("restartPolicy"), (*place, "restartPolicy")) or None,
            tuple(self._envs(container, (*place, "env"))),
        )

    def _envs(self, container: Mapping[str, object], place: Place) -> Iterator[tuple[str, str]]:
        """Yield the variables with a text of their own; `valueFrom` has its value elsewhere."""
        for number, entry in enumerate(self._list(container.get("env"), place)):
            variable = self._map(entry, (*place, number))
            name = self._text(variable.get("name"), (*place, number, "name"))
            value = self._text(variable.get("value"), (*place, number, "value"))
            if not name:
                self._report((*place, number, "name"), "Required value")
            elif "valueFrom" not in variable:
                yield name, value

    def _dra_limits(self, status: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        place: Place = ("status", "extendedResourceClaimStatus")
        claims = self._map(status.get("extendedResourceClaimStatus"), place)
        for number, entry in enumerate(
            self._list(claims.get("requestMappings"), (*place, "requestMappings"))
        ):
            here: Place = (*place, "requestMappings", number)
            mapping = self._map(entry, here)
            yield (
                self._text(mapping.get("containerName"), (*here, "containerName")),
                self._text(mapping.get("resourceName"), (*here, "resourceName")),
            )

    # ── resources (validation.go ValidateResourceRequirements) ──

    def _limits(self, resources: Mapping[str, object], place: Place) -> dict[str, int]:
        self._refuse_unknown(resources, place, _OF_RESOURCES)
        limits = self._quantities(resources, (*place, "limits"))
        requests = self._quantities(resources, (*place, "requests"))
        for name, requested in requests.items():
            if not _is_extended(name) or requested is None:
                continue
            if name not in limits:
                text = f"Required value: Limit must be set for non overcommitable resources; add {name}"
                self._report((*place, "limits"), text)
            elif (limit := limits[name]) is not None and limit.number != requested.number:
                self._report(
                    (*place, "requests"),
                    f'Invalid value: "{requested.text}": must be equal to {name} limit of {limit.text}',
                )
        return {name: quantity.value for name, quantity in limits.items() if quantity is not None}

    def _quantities(self, resources: Mapping[str, object], place: Place) -> dict[str, Quantity | None]:
        """Return quantities by resource name; None where it was already reported."""
        given = self._map(resources.get(str(place[-1])), place)
        return {name: self._quantity(name, value, (*place, name)) for name, value in given.items()}

    def _quantity(self, name: str, value: object, place: Place) -> Quantity | None:
        if fault := _resource_fault(name):
            self._report(place, f"Invalid value: {quoted(name)}: {fault}")
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int | float)):
            self._report(place, f"must be a quantity, as in {name}: 1, and not {_kind(value)}")
            return None
        text = "0" if value is None else str(value)
        try:
            quantity = Quantity.parse(text)
        except QuantityError as error:
            self._report(place, str(error))
            return None
        if quantity.number < 0:
            self._report(place, f'Invalid value: "{text}": must be greater than or equal to 0')
        elif _is_extended(name) and not quantity.is_whole:
            self._report(place, f'Invalid value: "{text}": must be an integer')
        return quantity

    def _refuse_devices_of_pods(self, spec: Mapping[str, object]) -> None:
        resources = self._map(spec.get("resources"), ("spec", "resources"))
        for key in ("limits", "requests"):
            place: Place = ("spec", "resources", key)
            for name in self._map(resources.get(key), place):
                if _is_extended(name):
                    text = f"Unsupported value: {quoted(name)}: a pod as a whole cannot ask for devices; "
                    self._report((*place, name), f"{text}write it in a container")

    # ── values ──

    def _map(self, value: object, place: Place) -> Mapping[str, object]:
        """Return a map with keys of text; an empty one for null, and for what was reported."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._report(place, f"must be a map, and not {_kind(value)}")
            return {}
        texts = {key: inner for key, inner in value.items() if isinstance(key, str)}
        for key in value:
            if key not in texts:
                self._report(place, f"has the key {key!r}, which is not a text; write quotes around it")
        return texts

    def _list(self, value: object, place: Place) -> Collection[object]:
        if value is None or isinstance(value, list | tuple):
            return value or ()
        self._report(place, f"must be a list, and not {_kind(value)}")
        return ()

    def _text(self, value: object, place: Place) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        self._report(place, f"must be a text, and not {_kind(value)}; write quotes around it")
        return ""

    def _name(self, owner: Mapping[str, object], place: Place, form: re.Pattern[str]) -> str:
        here: Place = (*place, "name")
        name = self._text(owner.get("name"), here)
        if not name and owner.get("name") in (None, ""):
            self._report(here, "Required value")
        elif name and not form.fullmatch(name):
            kind = "label" if form is _LABEL else "subdomain"
            self._report(
                here,
                f"Invalid value: {quoted(name)}: a lowercase RFC 1123 {kind} must consist of lower case "
                "alphanumeric characters, and '-'"
                f"{'' if form is _LABEL else ' or .'} between them",
            )
        return name

    def _refuse_unknown(self, owner: Mapping[str, object], place: Place, known: Collection[str]) -> None:
        for key in owner:
            if key not in known:
                alike = difflib.get_close_matches(key, known, 1)
                self._report((*place, key), f"unknown field{f'; did you mean {alike[0]}?' if alike else ''}")

    def _report(self, place: Place, message: str) -> None:
        self.problems.append(Problem(*self.position(place), _path_text(place), message))


def _path_text(place: Place) -> str:
    """Return a place as the API server writes it: `spec.containers[0].resources.limits[example.com/fpga]`."""
    text = ""
    for before, step in zip(("", *place), place, strict=False):
        if isinstance(step, int) or before in {"limits", "requests"} or not _PLAIN.fullmatch(step):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def _kind(value: object) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list"}
    return "a map" if isinstance(value, Mapping) else names.get(type(value), f"a {type(value).__name__}")


def _is_extended(name: str) -> bool:
    return resource_name_fault(name) is None


def _resource_fault(name: str) -> str | None:
    """Return what is wrong with a resource's name (validation.go validateContainerResourceName), or None."""
    if "/" not in name:
        if _NATIVE.fullmatch(name):
            return None
        return "must be a standard resource type or fully qualified, as in example.com/fpga"
    fault = resource_name_fault(name)
    if fault is None or "kubernetes.io/" in name:
        return None
    return f"doesn't follow extended resource name standard: it {fault}"
