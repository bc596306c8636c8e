"""The types of all fields: those with fields of their own, and the plain ones that they end in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.patchrules import RULES
from devplug.sandbox.openapi.fields.containers import CONTAINERS
from devplug.sandbox.openapi.fields.meta import META
from devplug.sandbox.openapi.fields.nodes import NODES
from devplug.sandbox.openapi.fields.objects import APPS, COORDINATION, CORE, EVENTS
from devplug.sandbox.openapi.fields.pods import PODS
from devplug.sandbox.openapi.fields.podstatuses import POD_STATUSES
from devplug.sandbox.openapi.fields.reviews import AUTHENTICATION, AUTHORIZATION
from devplug.sandbox.openapi.fields.volumes import VOLUMES
from devplug.sandbox.openapi.fields.words import WORDS
from devplug.sandbox.openapi.notation import Field, read_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.patchrules import FieldRule

__all__ = ["PLAIN", "TYPES", "Type", "patch_rule", "reachable", "type_of"]

PLAIN: Final = frozenset(
    {
        "FieldsV1",
        "IntOrString",
        "MicroTime",
        "Quantity",
        "ResourceList",
        "Time",
        "UID",
        "bool",
        "bytes",
        "int32",
        "int64",
        "string",
        *WORDS,
    }
)
"""The types without fields. `ResourceList` is a map of resource names to quantities."""

_PACKAGES: Final[Mapping[str, Mapping[str, str]]] = {
    "io.k8s.api.apps.v1": APPS,
    "io.k8s.api.authentication.v1": AUTHENTICATION,
    "io.k8s.api.authorization.v1": AUTHORIZATION,
    "io.k8s.api.coordination.v1": COORDINATION,
    "io.k8s.api.core.v1": {**CONTAINERS, **CORE, **NODES, **POD_STATUSES, **PODS, **VOLUMES},
    "io.k8s.api.events.v1": EVENTS,
    "io.k8s.apimachinery.pkg.apis.meta.v1": META,
}

_PATCHED_AS: Final = {
    "DaemonSetStatus": "WithConditions",
    "EphemeralContainer": "Container",
    "NamespaceStatus": "WithConditions",
}
"""The types for which `patchrules` has another name."""


@dataclass(frozen=True, slots=True)
class Type:
    """A type with fields, for as long as the program runs."""

    name: str
    """Its name in the tables: Kubernetes' own, with the group in front where two groups have one of it."""
    package: str
    fields: Mapping[str, Field]

    @property
    def go_name(self) -> str:
        """The name of the Go struct, without its package."""
        return self.name.rpartition(".")[2]

    @property
    def qualified(self) -> str:
        """The name in OpenAPI documents."""
        return f"{self.package}.{self.go_name}"


def _types() -> Iterator[Type]:
    tables = {name: fields for table in _PACKAGES.values() for name, fields in table.items()}
    for package, table in _PACKAGES.items():
        for name, notation in table.items():
            yield Type(name, package, {field.name: field for field in read_fields(notation, tables)})


TYPES: Final[Mapping[str, Type]] = {one.name: one for one in _types()}
"""The types with fields, by name."""


def type_of(resource: Resource) -> Type | None:
    """Return the type of a resource's objects; None for what the sandbox only refuses."""
    if resource.refusal:
        return None
    group = resource.group.partition(".")[0]
    return TYPES.get(f"{group}.{resource.kind}") or TYPES[resource.kind]


def patch_rule(one: Type, field: str) -> FieldRule | None:
    """Return how a strategic merge patch treats a field; None for the common way."""
    return RULES.get(_PATCHED_AS.get(one.name, one.name), {}).get(field)


def reachable(names: Iterable[str]) -> dict[str, Type]:
    """Return these types and all that stand inside of them, by name."""
    found: dict[str, Type] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in TYPES and name not in found:
            found[name] = TYPES[name]
            waiting.extend(field.type for field in TYPES[name].fields.values())
    return found
