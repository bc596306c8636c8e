"""Pod manifests, as people give them to kubectl → pods, as the kubelet gets them. Does no I/O.

What the API server would refuse is refused here, in its words where devices are concerned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import yaml

from devplug.devices import resource_name_fault
from devplug.errors import ConfigError, Problem
from devplug.kubelet.pods import ALWAYS, Container, Pod
from devplug.kubelet.quantities import Quantity, QuantityError

__all__ = ["pod_of"]

_FILE: Final = "pod manifest"


def pod_of(manifest: str | Mapping[str, object]) -> Pod:
    """Return the pod of a manifest: YAML or JSON text, or what such text says.

    A pod without a UID gets one made of its namespace and name: the same manifest, admitted again, is the
    same pod. Raises `ConfigError` with every problem.
    """
    reader = _Reader()
    pod = reader.pod(_document(manifest) if isinstance(manifest, str) else manifest)
    if reader.problems:
        raise ConfigError(_FILE, reader.problems)
    return pod


def _document(text: str) -> object:
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        what = getattr(error, "problem", None) or str(error)
        raise ConfigError(_FILE, [Problem(line, column, "", f"not YAML: {what}")]) from error
    if len(documents) != 1:
        message = f"has {len(documents)} documents; give one pod at a time"
        raise ConfigError(_FILE, [Problem(0, 0, "", message)])
    return documents[0]


@dataclass(slots=True)
class _Reader:
    """Reads one manifest and collects what is wrong with it."""

    problems: list[Problem] = field(default_factory=list)

    def pod(self, manifest: object) -> Pod:
        document = self._mapping(manifest, "")
        kind = document.get("kind", "Pod")
        if kind != "Pod":
            self._refuse("kind", f"is {kind!r}; write a Pod, since nothing here makes pods of other kinds")
        metadata = self._mapping(document.get("metadata", {}), "metadata")
        spec = self._mapping(document.get("spec"), "spec")
        name = self._text(metadata.get("name"), "metadata.name")
        namespace = self._text(metadata.get("namespace", "default"), "metadata.namespace")
        uid = self._text(metadata.get("uid", f"{namespace}-{name}"), "metadata.uid")
        containers = tuple(self._containers(spec, "containers"))
        if "containers" in spec and not containers:
            self._refuse("spec.containers", "is empty; a pod has at least one container")
        return Pod(
            uid,
            name,
            namespace,
            tuple(self._containers(spec, "initContainers")),
            containers,
            frozenset(self._dra_limits(document)),
        )

    def _containers(self, spec: Mapping[str, object], key: str) -> Iterator[Container]:
        names: set[str] = set()
        default: object = () if key == "initContainers" else None
        for at, entry in enumerate(self._sequence(spec.get(key, default), f"spec.{key}")):
            path = f"spec.{key}[{at}]"
            if not isinstance(entry, Mapping):
                self._refuse(path, f"must be a mapping, not {entry!r}")
                continue
            container = self._mapping(entry, path)
            name = self._text(container.get("name"), f"{path}.name")
            if name in names:
                self._refuse(f"{path}.name", f"Duplicate value: {name!r}")
            names.add(name)
            restart_policy = container.get("restartPolicy")
            if restart_policy not in (None, ALWAYS) or (restart_policy and key == "containers"):
                self._refuse(
                    f"{path}.restartPolicy",
                    f"is {restart_policy!r}; only init containers have one, and it is {ALWAYS!r}",
                )
            yield Container(
                name,
                self._limits(container, path),
                ALWAYS if restart_policy == ALWAYS else None,
                tuple(self._envs(container, path)),
            )

    def _limits(self, container: Mapping[str, object], path: str) -> dict[str, int]:
        """Read the limits; extended resources obey validation.go, others are only counted."""
        resources = self._mapping(container.get("resources", {}), f"{path}.resources")
        limits = self._quantities(resources, "limits", path)
        requests = self._quantities(resources, "requests", path)
        for name, requested in requests.items():
            if resource_name_fault(name) is not None:
                continue
            where = f"{path}.resources.requests[{name}]"
            if name not in limits:
                self._refuse(
                    where,
                    f"Required value: Limit must be set for non overcommitable resources: {name}",
                )
            elif limits[name] != requested:
                self._refuse(
                    where,
                    f'Invalid value: "{requested}": must be equal to {name} limit of {limits[name]}',
                )
        return limits

    def _quantities(self, resources: Mapping[str, object], key: str, path: str) -> dict[str, int]:
        counts: dict[str, int] = {}
        for name, value in self._mapping(resources.get(key, {}), f"{path}.resources.{key}").items():
            where = f"{path}.resources.{key}[{name}]"
            try:
                quantity = Quantity.parse("true" if isinstance(value, bool) else str(value))
            except QuantityError as error:
                self._refuse(where, f"{value!r} is not a quantity, as 1, 500m and 1Gi are: {error.fault}")
                continue
            if quantity.value < 0:
                self._refuse(where, f'Invalid value: "{value}": must be greater than or equal to 0')
            elif resource_name_fault(name) is None and not quantity.is_whole:
                self._refuse(where, f'Invalid value: "{value}": must be an integer')
            else:
                counts[name] = quantity.value
        return counts

    def _envs(self, container: Mapping[str, object], path: str) -> Iterator[tuple[str, str]]:
        for at, entry in enumerate(self._sequence(container.get("env", ()), f"{path}.env")):
            variable = self._mapping(entry, f"{path}.env[{at}]")
            if "valueFrom" not in variable:
                yield (
                    self._text(variable.get("name"), f"{path}.env[{at}].name"),
                    str(variable.get("value", "")),
                )

    def _dra_limits(self, document: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        status = self._mapping(document.get("status", {}), "status")
        claim = self._mapping(
            status.get("extendedResourceClaimStatus", {}),
            "status.extendedResourceClaimStatus",
        )
        path = "status.extendedResourceClaimStatus.requestMappings"
        for at, entry in enumerate(self._sequence(claim.get("requestMappings", ()), path)):
            mapping = self._mapping(entry, f"{path}[{at}]")
            yield (
                self._text(mapping.get("containerName"), f"{path}[{at}].containerName"),
                self._text(mapping.get("resourceName"), f"{path}[{at}].resourceName"),
            )

    # ── shapes ──

    def _refuse(self, path: str, message: str) -> None:
        self.problems.append(Problem(0, 0, path, message))

    def _mapping(self, value: object, path: str) -> Mapping[str, object]:
        if isinstance(value, Mapping):
            return {str(key): content for key, content in value.items()}
        what = "is missing" if value is None else f"must be a mapping, not {value!r}"
        self._refuse(path, what if path else f"a manifest {what}")
        return {}

    def _sequence(self, value: object, path: str) -> Sequence[object]:
        if isinstance(value, Sequence) and not isinstance(value, str):
            return value
        self._refuse(path, "is missing" if value is None else f"must be a list, not {value!r}")
        return ()

    def _text(self, value: object, path: str) -> str:
        if isinstance(value, str) and value:
            return value
        self._refuse(path, "is missing" if value in (None, "") else f"must be text, not {value!r}; quote it")
        return "?"
