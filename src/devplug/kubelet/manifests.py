"""Pod manifests: YAML or JSON, read into a pod as the API server passes it to a kubelet. Pure.

A manifest is read as maps and lists, and checked as the API server does where devices are concerned: of its
checks there are those that extended resources meet (kubelet.md 8.6), in its words; images, volumes and the
like are not looked at.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import yaml
from yaml.constructor import SafeConstructor

from devplug.errors import ConfigError, Problem, end_of, one_line, quoted
from devplug.k8s.quantity import Quantity, QuantityError
from devplug.k8s.resource_names import is_extended, resource_name_fault
from devplug.kubelet.claim_references import read_container_claims, read_extended_claim, read_pod_claims
from devplug.kubelet.pods import Container, Pod

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

FieldPath: TypeAlias = tuple[str | int, ...]
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
    r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
)
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_NATIVE: Final = re.compile(r"cpu|memory|ephemeral-storage|hugepages-.+")
"""What containers may ask for under a name without a domain (helpers.go IsStandardContainerResourceName)."""

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_DEPTH_LIMIT: Final = 100
"""Pods are a dozen levels deep; the parser's C code ends the whole process at some ten thousands."""


@dataclass(slots=True)
class PodReader:
    """A reader of one manifest that collects its problems. Every method goes on after a problem."""

    content: object
    position: Callable[[FieldPath], tuple[int, int]] = lambda _: (0, 0)
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
            self._report(("metadata", "generateName"), "generateName is not supported here; write name")
        namespace = self._text(metadata.get("namespace"), ("metadata", "namespace")) or "default"
        own_uid = self._text(metadata.get("uid"), ("metadata", "uid"))
        spec = self._map(manifest.get("spec"), ("spec",))
        self._refuse_devices_of_pods(spec)
        initial = self._containers(spec, "initContainers")
        containers = self._containers(spec, "containers")
        if not containers:
            self._report(("spec", "containers"), "Required value")
        status = self._map(manifest.get("status"), ("status",))
        return Pod(
            own_uid or uid or f"{namespace}/{name}",
            name,
            namespace,
            initial,
            containers,
            read_extended_claim(status),
            read_pod_claims(spec, status),
        )

    def _is_pod(self, manifest: Mapping[str, object]) -> bool:
        """Whether this is a pod, as far as it says; a manifest without a kind is one."""
        kind = self._text(manifest.get("kind"), ("kind",)) or "Pod"
        version = self._text(manifest.get("apiVersion"), ("apiVersion",)) or "v1"
        if kind in _TEMPLATES:
            self._report(
                ("kind",),
                f"a {kind} is not a pod but makes pods; "
                f"write kind: Pod with what it has under {_TEMPLATES[kind]}",
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
        place: FieldPath = ("spec", key)
        return tuple(
            self._container(self._map(one, (*place, number)), (*place, number))
            for number, one in enumerate(self._list(spec.get(key), place))
        )

    def _container(self, container: Mapping[str, object], place: FieldPath) -> Container:
        name = self._name(container, place, _LABEL)
        if name and name in self._names:
            self._report((*place, "name"), f"Duplicate value: {quoted(name)}")
        self._names.add(name)
        resources = self._map(container.get("resources"), (*place, "resources"))
        return Container(
            name,
            self._limits(resources, (*place, "resources")),
            self._text(container.get("restartPolicy"), (*place, "restartPolicy")) or None,
            tuple(self._envs(container, (*place, "env"))),
            read_container_claims(resources),
        )

    def _envs(self, container: Mapping[str, object], place: FieldPath) -> Iterator[tuple[str, str]]:
        """Yield the variables with a text of their own; `valueFrom` has its value elsewhere."""
        for number, entry in enumerate(self._list(container.get("env"), place)):
            variable = self._map(entry, (*place, number))
            name = self._text(variable.get("name"), (*place, number, "name"))
            value = self._text(variable.get("value"), (*place, number, "value"))
            if not name:
                self._report((*place, number, "name"), "Required value")
            elif "valueFrom" not in variable:
                yield name, value

    # ── resources (validation.go ValidateResourceRequirements) ──

    def _limits(self, resources: Mapping[str, object], place: FieldPath) -> dict[str, int]:
        self._refuse_unknown(resources, place, _OF_RESOURCES)
        limits = self._quantities(resources, (*place, "limits"))
        requests = self._quantities(resources, (*place, "requests"))
        for name, requested in requests.items():
            if not is_extended(name) or requested is None:
                continue
            if name not in limits:
                text = f"Required value: Limit must be set for non overcommitable resources; add {name}"
                self._report((*place, "limits"), text)
            elif (limit := limits[name]) is not None and limit.number != requested.number:
                text = f'Invalid value: "{requested.text}": must be equal to {name} limit of {limit.text}'
                self._report((*place, "requests"), text)
        return {name: quantity.value for name, quantity in limits.items() if quantity is not None}

    def _quantities(self, resources: Mapping[str, object], place: FieldPath) -> dict[str, Quantity | None]:
        """Return quantities by resource name; None where it was already reported."""
        given = self._map(resources.get(str(place[-1])), place)
        return {name: self._quantity(name, value, (*place, name)) for name, value in given.items()}

    def _quantity(self, name: str, value: object, place: FieldPath) -> Quantity | None:
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
        elif is_extended(name) and not quantity.is_whole:
            self._report(place, f'Invalid value: "{text}": must be an integer')
        return quantity

    def _refuse_devices_of_pods(self, spec: Mapping[str, object]) -> None:
        resources = self._map(spec.get("resources"), ("spec", "resources"))
        for key in ("limits", "requests"):
            place: FieldPath = ("spec", "resources", key)
            for name in self._map(resources.get(key), place):
                if is_extended(name):
                    text = f"Unsupported value: {quoted(name)}: a pod as a whole cannot ask for devices; "
                    self._report((*place, name), f"{text}write it in a container")

    # ── values ──

    def _map(self, value: object, place: FieldPath) -> Mapping[str, object]:
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

    def _list(self, value: object, place: FieldPath) -> Collection[object]:
        if value is None or isinstance(value, list | tuple):
            return value or ()
        self._report(place, f"must be a list, and not {_kind(value)}")
        return ()

    def _text(self, value: object, place: FieldPath) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        self._report(place, f"must be a text, and not {_kind(value)}; write quotes around it")
        return ""

    def _name(self, owner: Mapping[str, object], place: FieldPath, form: re.Pattern[str]) -> str:
        here: FieldPath = (*place, "name")
        name = self._text(owner.get("name"), here)
        if not name and owner.get("name") in (None, ""):
            self._report(here, "Required value")
        elif name and not form.fullmatch(name):
            kind, dot = ("label", "") if form is _LABEL else ("subdomain", " or .")
            text = f"a lowercase RFC 1123 {kind} must consist of lower case alphanumeric characters, and '-'"
            self._report(here, f"Invalid value: {quoted(name)}: {text}{dot} between them")
        return name

    def _refuse_unknown(self, owner: Mapping[str, object], place: FieldPath, known: Collection[str]) -> None:
        for key in owner:
            if key not in known:
                alike = difflib.get_close_matches(key, known, 1)
                self._report((*place, key), f"unknown field{f'; did you mean {alike[0]}?' if alike else ''}")

    def _report(self, place: FieldPath, message: str) -> None:
        self.problems.append(Problem(*self.position(place), _path_text(place), message))


def _path_text(place: FieldPath) -> str:
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


# ── texts, and where in them something stands ─────────────────────────────────────────────────────


def read_pod(source: str | Mapping[str, object], *, uid: str | None = None, file: str = "pod") -> Pod:
    """Return the pod that a manifest describes: a text, or the maps and lists that a text stands for.

    A manifest without `metadata.uid` gets `uid`, else one made from namespace and name. Raises `ConfigError`
    with every problem, under the name `file`, and with the line of each in a text.
    """
    reader = _read_text(source, file) if isinstance(source, str) else PodReader(source)
    pod = reader.pod(uid)
    if reader.problems:
        raise ConfigError(file, reader.problems)
    return pod


def read_manifest(source: str, *, file: str = "pod") -> Mapping[str, object]:
    """Return the maps and lists of a text that describes a pod. Raises `ConfigError` as `read_pod` does."""
    reader = _read_text(source, file)
    reader.pod(None)
    if reader.problems or not isinstance(reader.content, Mapping):
        raise ConfigError(file, reader.problems)
    return reader.content


def read_object(source: str, *, file: str) -> Mapping[str, object]:
    """Return the one map of a YAML text, whatever it describes. Raises `ConfigError` where there is none."""
    reader = _read_text(source, file)
    if reader.problems or not isinstance(reader.content, Mapping):
        raise ConfigError(file, reader.problems)
    return reader.content


def _read_text(text: str, file: str) -> PodReader:
    """Read the one document of a text; raises `ConfigError` for what is not even that."""
    try:
        if mark := _too_deep(text):
            problem = Problem(*_line_and_column(mark), "", f"is more than {_DEPTH_LIMIT} levels deep")
            raise ConfigError(file, [problem])
        documents = [
            node
            for node in yaml.compose_all(text, Loader=_LOADER)
            if not (isinstance(node, yaml.ScalarNode) and not node.value)
        ]
        if len(documents) == 1:
            doubled = list(_doubled_keys(documents[0]))  # before the next step, which rewrites merged maps
            content = SafeConstructor().construct_document(documents[0])
            if content is not None:
                return PodReader(content, partial(_position, documents[0]), doubled)
            documents = []  # `null` says nothing, as no text does
    except yaml.MarkedYAMLError as error:
        # libyaml's end of a text may be a line that is not there.
        place = min(_line_and_column(error.problem_mark or error.context_mark), end_of(text))
        problem = Problem(*place, "", f"this is not YAML: {one_line(str(error.problem or error.context))}")
        raise ConfigError(file, [problem]) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # Characters that are none; dates and numbers that are none.
        problem = Problem(0, 0, "", f"this is not YAML: {one_line(str(error))}")
        raise ConfigError(file, [problem]) from error
    if not documents:
        raise ConfigError(file, [Problem(0, 0, "", "the manifest is empty; write a pod")])
    problem = Problem(
        *_line_and_column(documents[1].start_mark),
        "",
        f"this is the second of {len(documents)} documents, and a manifest is one pod; give each by itself",
    )
    raise ConfigError(file, [problem])


def _too_deep(text: str) -> Any:  # noqa: ANN401 -- PyYAML has two classes for a mark
    """Return the mark of the first list or map that is too deep, or None."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEPTH_LIMIT:
            return event.start_mark
    return None


def _line_and_column(mark: Any) -> tuple[int, int]:  # noqa: ANN401 -- as above
    return (mark.line + 1, mark.column + 1) if mark else (0, 0)


def _doubled_keys(root: yaml.Node) -> Iterator[Problem]:
    """Yield the keys that stand in a map again; YAML would read the last one and say nothing."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                waiting += (key, value)
                if isinstance(key, yaml.ScalarNode):
                    line, column = _line_and_column(key.start_mark)
                    if key.value in lines:
                        wrong = f"the key {quoted(key.value)} stands here again; the first is in line "
                        yield Problem(line, column, "", f"{wrong}{lines[key.value]}")
                    lines.setdefault(key.value, line)


def _position(root: yaml.Node, place: FieldPath) -> tuple[int, int]:
    """Return line and column of a value, or of the nearest thing around it."""
    node = root
    for step in place:
        inner = _inner(node, step)
        if inner is None:
            break
        node = inner
    return _line_and_column(node.start_mark)


def _inner(node: yaml.Node, step: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        found = [value for key, value in node.value if isinstance(key, yaml.ScalarNode) and key.value == step]
        return found[-1] if found else None
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        inner: yaml.Node = node.value[step]
        return inner
    return None
