"""Strategic merge patch: a merge patch that also merges lists, and the table of the fields that have a rule.

What `$patch`, `$retainKeys`, `$setElementOrder/…` and `$deleteFromPrimitiveList/…` do, and the words for a
patch that is wrong, are apimachinery's (util/strategicpatch/patch.go, util/mergepatch/errors.go).

The rules are the `patchStrategy` and `patchMergeKey` of Kubernetes' types (api/core/v1/types.go,
api/apps/v1, api/resource/v1, apimachinery meta/v1), which its OpenAPI publishes as
`x-kubernetes-patch-strategy` and `x-kubernetes-patch-merge-key`. What is not in the table is the common
case: maps are merged, lists replaced.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, without_nulls
from devplug.sandbox.api.errors import bad_request, patch_rejected, unclassified

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.sandbox.api.errors import StatusError

_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE: Final = "$deleteFromPrimitiveList"
_ORDER: Final = "$setElementOrder"
_BAD_DELETE: Final = "invalid patch format of primitive list"
_BAD_RETAIN: Final = "invalid patch format of retainKeys"
_BAD_ORDER: Final = "invalid patch format of setElementOrder list"


# ── The rules of fields ──


@dataclass(frozen=True, slots=True)
class FieldRule:
    """The patch rule of one field."""

    type: str = ""
    """The type of the map, or of the list's elements, under which the fields inside have their rules."""
    merged: bool = False
    """Whether a list is merged element by element."""
    key: str = ""
    """By which field elements are the same element; empty for a list of plain values."""
    retains_keys: bool = False
    """Whether clients tell with `$retainKeys` which fields of an element stay."""


_PLAIN: Final = FieldRule()


def _by(key: str, type_: str = "", *, retains_keys: bool = False) -> FieldRule:
    return FieldRule(type_, merged=True, key=key, retains_keys=retains_keys)


_CONTAINERS: Final = _by("name", "Container")
_CONDITIONS: Final = _by("type")
_META: Final = FieldRule("ObjectMeta")

RULES: Final[Mapping[str, Mapping[str, FieldRule]]] = {
    "ObjectMeta": {"finalizers": FieldRule(merged=True), "ownerReferences": _by("uid")},
    "Pod": {"metadata": _META, "spec": FieldRule("PodSpec"), "status": FieldRule("PodStatus")},
    "PodTemplateSpec": {"metadata": _META, "spec": FieldRule("PodSpec")},
    "PodSpec": {
        "containers": _CONTAINERS,
        "ephemeralContainers": _CONTAINERS,
        "hostAliases": _by("ip"),
        "imagePullSecrets": _by("name"),
        "initContainers": _CONTAINERS,
        "resourceClaims": _by("name", retains_keys=True),
        "schedulingGates": _by("name"),
        "topologySpreadConstraints": _by("topologyKey"),
        "volumes": _by("name", retains_keys=True),
    },
    "Container": {
        "env": _by("name"),
        "ports": _by("containerPort"),
        "volumeDevices": _by("devicePath"),
        "volumeMounts": _by("mountPath"),
    },
    "PodStatus": {
        "conditions": _CONDITIONS,
        "hostIPs": _by("ip"),
        "podIPs": _by("ip"),
        "resourceClaimStatuses": _by("name", retains_keys=True),
    },
    "DaemonSet": {
        "metadata": _META,
        "spec": FieldRule("DaemonSetSpec"),
        "status": FieldRule("WithConditions"),
    },
    "DaemonSetSpec": {"template": FieldRule("PodTemplateSpec")},
    "Node": {"metadata": _META, "spec": FieldRule("NodeSpec"), "status": FieldRule("NodeStatus")},
    "NodeSpec": {"podCIDRs": FieldRule(merged=True)},
    "NodeStatus": {"addresses": _by("type"), "conditions": _CONDITIONS},
    "Namespace": {"metadata": _META, "status": FieldRule("WithConditions")},
    "resource.ResourceClaim": {"metadata": _META, "status": FieldRule("ResourceClaimStatus")},
    "ResourceClaimStatus": {"reservedFor": _by("uid")},
    "ResourceClaimTemplate": {"metadata": _META, "spec": FieldRule("ResourceClaimTemplateSpec")},
    "ResourceClaimTemplateSpec": {"metadata": _META},
    "WithConditions": {"conditions": _CONDITIONS},
}
"""The rules by type, then by field. A kind's own type is its kind; `WithConditions` is a name of ours."""

_ROOTS: Final = {"ResourceClaim": "resource.ResourceClaim"}
"""The type of a kind whose name is another type's too: containers have entries of the type ResourceClaim."""


def rule_of(type_: str, field: str) -> FieldRule:
    """Return how a field of a type is patched; each object has metadata."""
    rules = RULES.get(type_, {})
    return rules.get(field, _META if type_ and not rules and field == "metadata" else _PLAIN)


# ── The patch ──


def strategic_patched(original: Object, patch: Object, kind: str) -> Object:
    """Return an object of `kind` with `patch` merged into it; raises `StatusError`, and changes neither."""
    return _merged(original, patch, _ROOTS.get(kind, kind))


def _merged(original: Object, patch: Object, type_: str) -> Object:
    if _DIRECTIVE in patch:
        return _by_directive(patch)
    result, changes = _retained(dict(original), dict(patch))
    for key in [key for key in changes if key.startswith(_ORDER)]:
        order = changes.pop(key)
        field = _field_of(key, _ORDER, _BAD_ORDER)
        if not isinstance(order, list):
            raise unclassified(f"expected a []interface {{}}, but received a {_go_type(order)}")
        ordered = _ordered(result, changes, field, order, rule_of(type_, field))
        changes.pop(field, None)
        if ordered is not None:
            result[field] = ordered
    for key, value in sorted(changes.items()):
        if key.startswith(_DELETE):
            field = _field_of(key, _DELETE, _BAD_DELETE)
            if value is None:
                result.pop(field, None)
            elif isinstance(before := result.get(field), list) and isinstance(value, list):
                result[field] = _merged_lists(before, value, rule_of(type_, field), deletes=True)
        else:
            _merge_field(result, key, value, rule_of(type_, key))
    return result


def _merge_field(result: Object, key: str, value: object, rule: FieldRule) -> None:
    before = result.get(key)
    if value is None:
        result.pop(key, None)
    elif isinstance(before, dict) and isinstance(value, dict):
        result[key] = _merged(before, value, rule.type)
    elif isinstance(before, list) and isinstance(value, list):
        result[key] = _merged_lists(before, value, rule) if rule.merged else value
    elif isinstance(value, dict) and _DIRECTIVE in value:
        result.pop(key, None)
    else:
        result[key] = _as_new(value)


def _by_directive(patch: Object) -> Object:
    directive = patch[_DIRECTIVE]
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    raise _unknown_directive(patch)


def _unknown_directive(patch: Object) -> StatusError:
    return unclassified(f"unknown patch type: {_go_value(patch[_DIRECTIVE])} in map: {_go_value(patch)}")


def _as_new(value: object) -> object:
    """Return what stands in a patch for something that is not there yet, without directives and nulls."""
    return without_nulls(_without_directives(value))


def _without_directives(value: object) -> object:
    if isinstance(value, dict):
        return {
            key: _without_directives(inner)
            for key, inner in value.items()
            if not (isinstance(inner, dict) and _DIRECTIVE in inner)
        }
    if isinstance(value, list):
        return [
            _without_directives(inner)
            for inner in value
            if not (isinstance(inner, dict) and _DIRECTIVE in inner)
        ]
    return value


def _retained(original: Object, patch: Object) -> tuple[Object, Object]:
    """Return both with `$retainKeys` done: what it does not name is gone from the original."""
    if _RETAIN not in patch:
        return original, patch
    retained = patch.pop(_RETAIN)
    if not isinstance(retained, list):
        raise bad_request(_BAD_RETAIN)
    for key, value in patch.items():
        if value is not None and not key.startswith((_DELETE, _ORDER)) and key not in retained:
            raise bad_request(_BAD_RETAIN)
    return {key: value for key, value in original.items() if key in retained}, patch


def _field_of(key: str, directive: str, fault: str) -> str:
    """Return the field that a directive is about."""
    before, slash, field = key.partition("/")
    if not slash or before != directive:
        raise bad_request(fault)
    return field


# ── lists ──


def _ordered(
    result: Object, changes: Object, field: str, order: list[object], rule: FieldRule
) -> list[object] | None:
    """Return a list merged with its change and brought into an order; None if there is neither."""
    before, change = (_list_or_none(owner.get(field)) for owner in (result, changes))
    _check_order(change or [], order, rule.key)
    if before is None and change is None:
        return None
    if change is None:
        merged = before or []
    elif before is None:
        merged = [_as_new(one) for one in change if not (isinstance(one, dict) and _DIRECTIVE in one)]
    else:
        merged = _merged_lists(before, change, rule) if rule.merged else change
    return _arranged(merged, order, before or [], rule.key)


def _list_or_none(value: object) -> list[object] | None:
    if value is None or isinstance(value, list):
        return value
    raise unclassified(f"expected a []interface {{}}, but received a {_go_type(value)}")


def _check_order(change: list[object], order: list[object], key: str) -> None:
    """Refuse an order that does not name all that the change has, in its order."""
    if not change or not order:
        return
    wanted = iter([_identity(one, key) for one in order])
    named = [one for one in change if not (isinstance(one, dict) and _DIRECTIVE in one)]
    if not all(any(_equal(_identity(one, key), other) for other in wanted) for one in named):
        listed, wished = _go_value(change), _go_value(order)
        raise unclassified(f"The order in patch list:\n{listed}\n doesn't match {_ORDER} list:\n{wished}\n")


def _merged_lists(
    before: list[object], change: list[object], rule: FieldRule, *, deletes: bool = False
) -> list[object]:
    if not before and not change:
        return before
    if not _holds_maps([*before, *change]):
        if deletes:
            gone = _places(change)
            return [one for one in before if _hashable(one) not in gone]
        both: dict[object, object] = {}
        for one in (*before, *change):
            both.setdefault(_hashable(one), one)
        return _arranged(list(both.values()), change, before, "")
    if not rule.key:
        raise unclassified("cannot merge lists without merge key for it")
    before, change = _after_directives(before, change, rule.key)
    merged = list(before)
    places: dict[object, int] = {}
    for place, kept in enumerate(before):
        if isinstance(kept, dict) and rule.key in kept:
            places.setdefault(_hashable(kept[rule.key]), place)
    for one in change:
        assert isinstance(one, dict)
        found = places.setdefault(_hashable(_identity(one, rule.key)), len(merged))
        if found == len(merged):
            merged.append(_as_new(one))
        else:
            kept = merged[found]
            assert isinstance(kept, dict)
            merged[found] = _merged(kept, one, rule.type)
    return _arranged(merged, change, before, rule.key)


def _after_directives(
    before: list[object], change: list[object], key: str
) -> tuple[list[object], list[object]]:
    """Return both after what elements with `$patch` demand: one deleted, or the whole list replaced."""
    plain: list[object] = []
    gone: set[object] = set()
    replaces = False
    for one in change:
        assert isinstance(one, dict)
        directive = one.get(_DIRECTIVE)
        if _DIRECTIVE not in one:
            plain.append(one)
        elif directive == "delete":
            gone.add(_hashable(_identity(one, key)))
        elif directive == "replace":
            replaces = True
        elif directive == "merge":
            raise unclassified("merging lists cannot yet be specified in the patch")
        else:
            raise _unknown_directive(one)
    before = [other for other in before if _hashable(_key_or_none(other, key)) not in gone]
    return (plain, []) if replaces else (before, plain)


def _arranged(merged: list[object], order: list[object], before: list[object], key: str) -> list[object]:
    """Return the elements so that those of `order` are in its order, and the others in that of `before`.

    The two rows are laid into each other as far as `before` tells which of two comes first.
    """
    wanted = _places(_identity(one, key) for one in order)
    known = _places(_identity(one, key) for one in before)

    def rank(one: object, among: Mapping[object, int]) -> int:
        return among.get(_hashable(_identity(one, key)), -1)

    named = deque(
        sorted((one for one in merged if rank(one, wanted) >= 0), key=lambda one: rank(one, wanted))
    )
    others = deque(sorted((one for one in merged if rank(one, wanted) < 0), key=lambda one: rank(one, known)))
    arranged: list[object] = []
    while named and others:
        left, right = rank(others[0], known), rank(named[0], known)
        arranged.append(others.popleft() if 0 <= left < right else named.popleft())
    return [*arranged, *named, *others]


def _holds_maps(elements: list[object]) -> bool:
    """Whether the elements are maps; refuses lists in lists and a mixture."""
    types = {_go_type(one) for one in elements}
    if any(isinstance(one, list) for one in elements):
        raise patch_rejected("lists of lists are not supported")
    if len(types) > 1:
        raise unclassified(f"list element types are not identical: [{_go_value(elements)}]")
    return isinstance(elements[0], dict)


def _identity(one: object, key: str) -> object:
    """Return what makes an element the same element: its merge key, or all of it."""
    if not key:
        return one
    if not isinstance(one, dict):
        raise unclassified(f"expected a map[string]interface {{}}, but received a {_go_type(one)}")
    if key not in one:
        raise unclassified(f"map: {_go_value(one)} does not contain declared merge key: {key}")
    return one[key]


def _key_or_none(one: object, key: str) -> object:
    return one.get(key) if isinstance(one, dict) else None


def _places(identities: Iterable[object]) -> dict[object, int]:
    """Return the first place of each identity, by its hashable form."""
    places: dict[object, int] = {}
    for place, identity in enumerate(identities):
        places.setdefault(_hashable(identity), place)
    return places


def _hashable(value: object) -> object:
    """Return a key that two values share if they are equal and of one type."""
    return (type(value), json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value)


def _equal(left: object, right: object) -> bool:
    return type(left) is type(right) and left == right


# ── Go's words for values ──


def _go_type(value: object) -> str:
    names = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}"}
    return "map[string]interface {}" if isinstance(value, dict) else names.get(type(value), "%!s(<nil>)")


def _go_value(value: object) -> str:
    """Return a value as the verb `%v` of Go's fmt prints it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_go_value(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_go_value, value))}]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)
