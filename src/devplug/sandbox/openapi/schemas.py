"""Types as OpenAPI schemas, in the two dialects, 2.0 (`/openapi/v2`) and 3.0, with their descriptions.

The extensions are Kubernetes' own (`x-kubernetes-…`): kubectl finds a kind's schema by one of them, and
merges lists by others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.kinds import REFUSED, SERVED
from devplug.sandbox.openapi.descriptions import FIELD_DESCRIPTIONS, PLAIN_DESCRIPTIONS, TYPE_DESCRIPTIONS
from devplug.sandbox.openapi.types import TYPES, WORDS, Form, patch_rule, reachable, type_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.k8s.objects import Object
    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.openapi.types import Field, Type

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_IN_3: Final[Mapping[str, Object]] = {
    "IntOrString": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    "Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
}
"""Parts of schemas that only the dialect 3.0 has."""

GROUPS: Final[Mapping[str, str]] = {"Binding": "", "TokenRequest": "authentication.k8s.io"}
"""The groups of kinds that are posted to resources of other groups."""

_EVERYWHERE: Final = ("DeleteOptions", "Patch", "Status")
"""The types that every version's document has."""


# ── Schemas ──


_NAMED: Final[Mapping[str, str]] = {
    "FieldsV1": f"{_META}.FieldsV1",
    "IntOrString": "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    "MicroTime": f"{_META}.MicroTime",
    "Quantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "RawExtension": "io.k8s.apimachinery.pkg.runtime.RawExtension",
    "Time": f"{_META}.Time",
}
"""The plain types that have a schema of their own."""

_PLAIN: Final[Mapping[str, Object]] = {
    "FieldsV1": {"type": "object"},
    "IntOrString": {"format": "int-or-string", "type": "string"},
    "MicroTime": {"format": "date-time", "type": "string"},
    "Quantity": {"type": "string"},
    "RawExtension": {"type": "object"},
    "Time": {"format": "date-time", "type": "string"},
    "UID": {"type": "string"},
    "bool": {"type": "boolean"},
    "bytes": {"format": "byte", "type": "string"},
    "int32": {"format": "int32", "type": "integer"},
    "int64": {"format": "int64", "type": "integer"},
    "string": {"type": "string"},
}


def reference(qualified: str, *, dialect: int) -> Object:
    """Return the reference to a schema of this name."""
    return {"$ref": f"#/{'definitions' if dialect == 2 else 'components/schemas'}/{qualified}"}


def qualified_kind(resource: Resource, kind: str = "") -> str:
    """Return the schema's name of a resource's objects, or of another kind that it takes."""
    kind = kind or resource.kind
    if kind in _EVERYWHERE:
        return f"{_META}.{kind}"
    group = GROUPS.get(kind, resource.group).partition(".")[0] or "core"
    return f"io.k8s.api.{group}.{resource.version}.{kind}"


def list_name(resource: Resource) -> str:
    """Return the schema's name of a list of a resource's objects."""
    return qualified_kind(resource, f"{resource.kind}List")


def schemas(resources: Iterable[Resource], *, dialect: int) -> dict[str, Object]:
    """Return the schemas of these resources' objects and of all types inside of them, by name."""
    listed = list(resources)
    types = [type_ for one in listed if (type_ := type_of(one))]
    found: dict[str, Object] = {}
    posted = [part.kind for one in listed for part in one.subresources if part.group]
    names = [*(one.name for one in types), *posted, "ListMeta", "ObjectMeta", *_EVERYWHERE]
    for inner in reachable(names).values():
        found[inner.qualified] = _schema(inner, dialect)
    for plain, name in _NAMED.items():
        found[name] = _plain(plain, dialect)
    for one in listed:
        if one.refusal:
            found[qualified_kind(one)] = _refused(one, dialect)
        if "list" in one.verbs or one.refusal:
            found[list_name(one)] = _list(one, dialect)
    return dict(sorted(found.items()))


def _schema(one: Type, dialect: int) -> Object:
    properties = {name: _property(one, field, dialect) for name, field in one.fields.items()}
    schema: Object = {"type": "object"}
    if description := TYPE_DESCRIPTIONS.get(one.name):
        schema["description"] = description
    if properties:
        schema["properties"] = properties
    if required := [name for name, field in one.fields.items() if field.required]:
        schema["required"] = required
    if kinds := _kinds_of(one):
        schema["x-kubernetes-group-version-kind"] = kinds
    return schema


def _property(owner: Type, field: Field, dialect: int) -> Object:
    description = FIELD_DESCRIPTIONS.get(f"{owner.name}.{field.name}") or FIELD_DESCRIPTIONS.get(
        f"*.{field.name}", ""
    )
    schema: Object = {"description": description} if description else {}
    match field.form:
        case Form.ONE:
            schema |= _value(field.type, dialect, aside=True)
        case Form.LIST:
            schema |= {"type": "array", "items": _value(field.type, dialect)}
        case Form.MAP:
            schema |= {"type": "object", "additionalProperties": _value(field.type, dialect)}
    rule = patch_rule(owner, field.name)
    if rule is not None and rule.merged:
        strategy = "merge,retainKeys" if rule.retains_keys else "merge"
        schema["x-kubernetes-patch-strategy"] = strategy
        if rule.key:
            schema["x-kubernetes-patch-merge-key"] = rule.key
    return schema


def _value(type_: str, dialect: int, *, aside: bool = False) -> Object:
    """Return the schema of one value; `aside` if keys stand beside it, which 3.0 forbids for references."""
    if type_ == "ResourceList":
        return {"type": "object", "additionalProperties": _value("Quantity", dialect)}
    name = TYPES[type_].qualified if type_ in TYPES else _NAMED.get(type_)
    if name is None:
        return _plain(type_, dialect)
    found = reference(name, dialect=dialect)
    return {"allOf": [found]} if aside and dialect == 3 else found


def _plain(type_: str, dialect: int) -> Object:
    if type_ in WORDS:
        values = WORDS[type_]
        return {"type": "string", **({"enum": list(values)} if values else {})}
    schema = _IN_3.get(type_, _PLAIN[type_]) if dialect == 3 else _PLAIN[type_]
    return {**schema, **({"description": PLAIN_DESCRIPTIONS[type_]} if type_ in PLAIN_DESCRIPTIONS else {})}


def _kinds_of(one: Type) -> list[Object]:
    """Return the kinds of objects of this type, as group, version and kind."""
    if one.name in {"DeleteOptions", "Status"}:
        versions = dict.fromkeys((served.group, served.version) for served in (*SERVED, *REFUSED))
        asked = versions if one.name == "DeleteOptions" else [("", "v1")]
        return [{"group": group, "version": version, "kind": one.name} for group, version in asked]
    return [_kind(served) for served in SERVED if type_of(served) == one]


def _kind(resource: Resource, kind: str = "") -> Object:
    return {"group": resource.group, "version": resource.version, "kind": kind or resource.kind}


def _list(resource: Resource, dialect: int) -> Object:
    item = reference(qualified_kind(resource), dialect=dialect)
    return {
        "type": "object",
        "description": f"A list of objects of the kind {resource.kind}.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": _value("ListMeta", dialect, aside=True),
            "items": {"type": "array", "items": item},
        },
        "required": ["items"],
        "x-kubernetes-group-version-kind": [_kind(resource, f"{resource.kind}List")],
    }


def _refused(resource: Resource, dialect: int) -> Object:
    return {
        "type": "object",
        "description": f"Not made here: {resource.refusal}.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": _value("ObjectMeta", dialect, aside=True),
        },
        "x-kubernetes-preserve-unknown-fields": True,
        "x-kubernetes-group-version-kind": [_kind(resource)],
    }
