"""The defaults and the validation of roles and of what binds them (rbac.authorization.k8s.io/v1).

After pkg/apis/rbac/v1/defaults.go and pkg/apis/rbac/validation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, part, same, text
from devplug.sandbox.api.errors import Verbatim, go_json, invalid_field, required_field, unsupported_field
from devplug.sandbox.api.names import path_segment_errors, subdomain_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devplug.sandbox.api.errors import FieldError

GROUP: Final = "rbac.authorization.k8s.io"
_SUBJECTS: Final = ("ServiceAccount", "User", "Group")


def binding_defaulted(binding: Object) -> Object:
    """Return a binding with the API groups of its role and its subjects."""
    role = {**fields(binding, "roleRef")}
    role["apiGroup"] = text(role, "apiGroup") or GROUP
    subjects = [_subject(fields(one)) for one in entries(binding, "subjects")]
    return {**binding, "roleRef": role, **({"subjects": subjects} if subjects else {})}


def _subject(subject: Object) -> Object:
    if text(subject, "apiGroup") or text(subject, "kind") not in {"User", "Group"}:
        return subject
    return {**subject, "apiGroup": GROUP}


def rbac_errors(new: Object, old: Object | None) -> Iterator[FieldError]:
    """Yield what is wrong with an object of this group, and with its change from `old`."""
    if text(new, "kind") in {"ClusterRole", "Role"}:
        yield from _role_errors(new)
    else:
        yield from _binding_errors(new, old)


def _role_errors(role: Object) -> Iterator[FieldError]:
    is_namespaced = text(role, "kind") == "Role"
    for number, rule in enumerate(entries(role, "rules")):
        yield from _rule_errors(rule, f"rules[{number}]", is_namespaced=is_namespaced)


def _rule_errors(rule: object, place: str, *, is_namespaced: bool) -> Iterator[FieldError]:
    urls = entries(rule, "nonResourceURLs")
    if not entries(rule, "verbs"):
        yield required_field(f"{place}.verbs", "verbs must contain at least one value")
    if urls:
        field = f"{place}.nonResourceURLs"
        if is_namespaced:
            yield invalid_field(field, urls, "namespaced rules cannot apply to non-resource URLs")
        if any(entries(rule, word) for word in ("apiGroups", "resources", "resourceNames")):
            why = "rules cannot apply to both regular resources and non-resource URLs"
            yield invalid_field(field, urls, why)
        return
    if not entries(rule, "apiGroups"):
        yield required_field(f"{place}.apiGroups", "resource rules must supply at least one api group")
    if not entries(rule, "resources"):
        yield required_field(f"{place}.resources", "resource rules must supply at least one resource")


def _binding_errors(new: Object, old: Object | None) -> Iterator[FieldError]:
    is_namespaced = text(new, "kind") == "RoleBinding"
    role = fields(new, "roleRef")
    if text(role, "apiGroup") != GROUP:
        yield unsupported_field("roleRef.apiGroup", text(role, "apiGroup"), [GROUP])
    kinds = ["Role", "ClusterRole"] if is_namespaced else ["ClusterRole"]
    if text(role, "kind") not in kinds:
        yield unsupported_field("roleRef.kind", text(role, "kind"), kinds)
    if name := text(role, "name"):
        yield from (invalid_field("roleRef.name", name, fault) for fault in path_segment_errors(name))
    else:
        yield required_field("roleRef.name")
    for number, subject in enumerate(entries(new, "subjects")):
        yield from _subject_errors(subject, f"subjects[{number}]", is_namespaced=is_namespaced)
    if old is not None and not same(part(old, "roleRef"), role):
        told = {"APIGroup": role.get("apiGroup"), "Kind": role.get("kind"), "Name": role.get("name")}
        yield invalid_field("roleRef", Verbatim(go_json(told)), "cannot change roleRef")


def _subject_errors(subject: object, place: str, *, is_namespaced: bool) -> Iterator[FieldError]:
    name, group = text(subject, "name"), text(subject, "apiGroup")
    if not name:
        yield required_field(f"{place}.name")
    match text(subject, "kind"):
        case "ServiceAccount":
            if name:
                yield from (invalid_field(f"{place}.name", name, fault) for fault in subdomain_errors(name))
            if group:
                yield unsupported_field(f"{place}.apiGroup", group, [""])
            if not is_namespaced and not text(subject, "namespace"):
                yield required_field(f"{place}.namespace")
        case "User" | "Group":
            if group != GROUP:
                yield unsupported_field(f"{place}.apiGroup", group, [GROUP])
        case kind:
            yield unsupported_field(f"{place}.kind", kind, _SUBJECTS)
