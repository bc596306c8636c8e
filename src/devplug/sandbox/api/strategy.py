"""The create, update and delete strategies of the kinds: metadata, and who may set what.

The rules are the API server's (registry/rest/create.go, update.go, delete.go, and the strategies of the
kinds). Where the object is kept is `store`'s; what a spec may contain is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, part, same, text, whole, with_part
from devplug.k8s.pod_requests import has_ended
from devplug.k8s.times import later, moment, stamp
from devplug.sandbox.api.defaults import qos_class
from devplug.sandbox.api.errors import (
    bad_request,
    conflict,
    forbidden,
    forbidden_field,
    invalid,
    invalid_field,
    required_field,
    unclassified,
)
from devplug.sandbox.api.names import (
    label_errors,
    label_key_errors,
    label_value_errors,
    long_name_errors,
    path_segment_errors,
    subdomain_errors,
)
from devplug.sandbox.api.ownerreferences import propagating
from devplug.sandbox.api.roles import GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from devplug.sandbox.api.errors import FieldError
    from devplug.sandbox.api.kinds import Resource

_NAME_LIMIT: Final = 63
_SUFFIX_LENGTH: Final = 5

_FIRST_STATUS: Final[Mapping[str, Object]] = {
    "DaemonSet": {},
    "Namespace": {"phase": "Active"},
    "Pod": {"phase": "Pending"},
    "ResourceClaim": {},
    "ResourceQuota": {},
}
"""The status at first, whatever a client sends; other kinds keep what it sends."""

_IMMORTAL: Final = frozenset({"default", "kube-public", "kube-system"})
"""Namespaces that stay (plugin/pkg/admission/namespace/lifecycle)."""

_FINALIZERS: Final = frozenset({"foregroundDeletion", "kubernetes", "orphan"})
"""The finalizers without a domain (core/helper IsStandardFinalizerName)."""

_IMMUTABLE: Final = "field is immutable"


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The conditions of a client on the object that it deletes; empty texts are none."""

    uid: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Deletion:
    """The outcome of a deletion."""

    object: Object
    """The object after it: as it was, or marked."""
    is_gone: bool
    """Whether it is to be taken away; otherwise somebody must act first."""


def generated_name(prefix: str, suffix: str) -> str:
    """Return a name for `metadata.generateName`; the suffix is five random letters (names/generate.go)."""
    return f"{prefix[: _NAME_LIMIT - _SUFFIX_LENGTH]}{suffix}"


def created(resource: Resource, new: Object, namespace: str, uid: str, now: datetime) -> Object:
    """Return what is stored of `new`, which has its name; raises `StatusError`."""
    if text(new, "metadata", "resourceVersion"):
        raise unclassified("resourceVersion should not be set on objects to be created")
    meta = {
        **_placed(resource, fields(new, "metadata"), namespace),
        "uid": uid,
        "creationTimestamp": stamp(now),
    }
    for own in (
        "resourceVersion",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ):
        meta.pop(own, None)
    if resource.counts_generations:
        meta["generation"] = 1
    one = {**new, "kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
    if resource.kind in _FIRST_STATUS:
        one["status"] = _FIRST_STATUS[resource.kind]
    if resource.kind == "Pod":
        one = with_part(one, qos_class(one), "status", "qosClass")
    if resource.kind == "Namespace":
        one = with_part(one, text(meta, "name"), "metadata", "labels", "kubernetes.io/metadata.name")
        one = with_part(one, ["kubernetes"], "spec", "finalizers")
    _refuse(resource, one, meta_errors(resource, meta))
    return one


def updated(resource: Resource, new: Object, old: Object, part_name: str = "") -> Object:
    """Return what `new` makes of `old`, through the subresource `part_name` or without; raises `StatusError`.

    The caller has seen that the versions fit.
    """
    name, uid = text(old, "metadata", "name"), text(old, "metadata", "uid")
    meta = _placed(resource, fields(new, "metadata"), text(old, "metadata", "namespace"))
    given = text(meta, "uid")
    if given and given != uid:
        key = f"/registry/{resource.plural}/{_key(old)}"
        why = f"Precondition failed: UID in precondition: {given}, UID in object meta: {uid}"
        detail = f"Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
        raise conflict(resource.qualified, name, f"StorageError: invalid object, {detail}")
    errors = list(meta_errors(resource, meta))
    if text(meta, "name") != name:
        errors.append(invalid_field("metadata.name", text(meta, "name"), _IMMUTABLE))
    errors += _finalizer_errors(meta, fields(old, "metadata"))
    for kept in ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if (value := part(old, "metadata", kept)) is None:
            meta.pop(kept, None)
        else:
            meta[kept] = value
    one: Object = {**new, "kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
    if part_name == "status":
        one = _with_of(old, one, "spec")
    elif resource.has_status and not part_name:
        one = _with_of(old, one, "status")
    if resource.kind == "Namespace" and part_name != "finalize":
        one = _with_of(old, one, "spec")
    is_counted = resource.counts_generations and part_name != "binding"  # a node is no change of mind
    if is_counted and not same(part(one, "spec"), part(old, "spec")):
        one = with_part(one, whole(old, "metadata", "generation") + 1, "metadata", "generation")
    _refuse(resource, one, errors)
    return one


def is_over(one: Object) -> bool:
    """Whether nothing keeps an object that is being deleted: no finalizer, and no wait for the kubelet."""
    meta = fields(one, "metadata")
    return bool(
        text(meta, "deletionTimestamp")
        and not _finalizers(one)
        and not whole(meta, "deletionGracePeriodSeconds"),
    )


def _finalizers(one: Object) -> list[object]:
    """Return who has to agree to the end of an object; a namespace names some in its spec."""
    return [*entries(one, "metadata", "finalizers"), *entries(one, "spec", "finalizers")]


def deleted(
    resource: Resource,
    old: Object,
    now: datetime,
    grace_seconds: int | None = None,
    preconditions: Preconditions | None = None,
    policy: str = "",
) -> Deletion:
    """Return what a deletion makes of `old`; raises `StatusError`.

    `grace_seconds` is what the client asks for: None for what the pod has, 0 for at once. `policy` is one of
    `dependents.POLICIES`, or empty; it cannot change any more while a pod ends.
    """
    if resource.kind == "Namespace" and text(old, "metadata", "name") in _IMMORTAL:
        raise forbidden("namespaces", text(old, "metadata", "name"), "this namespace may not be deleted")
    if preconditions is not None:
        _check_preconditions(resource, old, preconditions)
    if grace_seconds is not None and grace_seconds < 0:
        grace_seconds = 1
    meta = fields(old, "metadata")
    if not resource.ends_gracefully or (
        text(meta, "deletionTimestamp") and not whole(meta, "deletionGracePeriodSeconds")
    ):
        one = propagating(resource, old, policy)
        if not _finalizers(one):
            return Deletion(old, is_gone=True)
        return Deletion(one if text(meta, "deletionTimestamp") else _marked(one, now, 0), is_gone=False)
    if text(meta, "deletionTimestamp"):
        return _shortened(old, now, grace_seconds)
    grace = _grace_of_pod(old) if grace_seconds is None else grace_seconds
    if not text(old, "spec", "nodeName") or has_ended(old):
        grace = 0
    marked = _marked(propagating(resource, old, policy), now, grace)
    return Deletion(marked, is_gone=is_over(marked))


def _grace_of_pod(pod: Object) -> int:
    seconds = whole(pod, "spec", "terminationGracePeriodSeconds")
    return 1 if seconds < 0 else seconds


def _marked(one: Object, now: datetime, grace_seconds: int) -> Object:
    ends = stamp(later(now, grace_seconds))
    marked = with_part(one, ends, "metadata", "deletionTimestamp")
    if one.get("kind") == "Namespace":
        return with_part(marked, "Terminating", "status", "phase")
    marked = with_part(marked, grace_seconds, "metadata", "deletionGracePeriodSeconds")
    generation = whole(one, "metadata", "generation")
    return with_part(marked, generation + 1, "metadata", "generation") if generation else marked


def _shortened(pod: Object, now: datetime, grace_seconds: int | None) -> Deletion:
    """Return what a second deletion makes of a pod: it may only bring the end nearer."""
    before = whole(pod, "metadata", "deletionGracePeriodSeconds")
    ends = moment(text(pod, "metadata", "deletionTimestamp"))
    if grace_seconds is None or grace_seconds >= before or ends is None:
        return Deletion(pod, is_gone=False)
    nearer = later(ends, grace_seconds - before)
    if nearer < now:
        nearer = now
        grace_seconds = min(grace_seconds, 1)
    marked = with_part(pod, stamp(nearer), "metadata", "deletionTimestamp")
    marked = with_part(marked, grace_seconds, "metadata", "deletionGracePeriodSeconds")
    return Deletion(marked, is_gone=is_over(marked))


def _check_preconditions(resource: Resource, old: Object, preconditions: Preconditions) -> None:
    for word, demanded, field, happened in (
        ("UID", preconditions.uid, "uid", "deleted and then recreated"),
        ("ResourceVersion", preconditions.version, "resourceVersion", "modified"),
    ):
        found = text(old, "metadata", field)
        if demanded and demanded != found:
            raise conflict(
                resource.qualified_kind,
                text(old, "metadata", "name"),
                f"the {word} in the precondition ({demanded}) does not match the {word} in record ({found}). "
                f"The object might have been {happened}",
            )


def _key(one: Object) -> str:
    namespace, name = text(one, "metadata", "namespace"), text(one, "metadata", "name")
    return f"{namespace}/{name}" if namespace else name


def _placed(resource: Resource, meta: Object, namespace: str) -> Object:
    """Return metadata with the namespace of the request."""
    given = text(meta, "namespace")
    if not resource.namespaced:
        return {key: value for key, value in meta.items() if key != "namespace"}
    if given and given != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return {**meta, "namespace": namespace}


def _with_of(old: Object, new: Object, field: str) -> Object:
    return with_part(new, old.get(field), field)


def _refuse(resource: Resource, one: Object, errors: Iterator[FieldError] | list[FieldError]) -> None:
    listed = list(errors)
    if listed:
        raise invalid(resource.qualified_kind, text(one, "metadata", "name"), listed)


def meta_errors(resource: Resource, meta: Object) -> Iterator[FieldError]:
    """Yield what is wrong with an object's metadata (apimachinery api/validation/objectmeta.go)."""
    name, prefix = text(meta, "name"), text(meta, "generateName")
    rule = _name_rule(resource)
    for fault in rule(_completed(prefix)) if prefix else ():
        yield invalid_field("metadata.generateName", prefix, fault)
    if not name:
        yield required_field("metadata.name", "name or generateName is required")
    else:
        yield from (invalid_field("metadata.name", name, fault) for fault in rule(name))
    for key, value in fields(meta, "labels").items():
        yield from (invalid_field("metadata.labels", key, fault) for fault in label_key_errors(key))
        if isinstance(value, str):
            yield from (invalid_field("metadata.labels", value, fault) for fault in label_value_errors(value))
    for key in fields(meta, "annotations"):
        yield from (
            invalid_field("metadata.annotations", key, fault) for fault in label_key_errors(key.lower())
        )

    finalizers = [str(one) for one in entries(meta, "finalizers")]
    for name in finalizers:
        yield from (invalid_field("metadata.finalizers", name, fault) for fault in label_key_errors(name))
    for number, name in enumerate(finalizers):
        if "/" not in name and name not in _FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid_field(f"metadata.finalizers[{number}]", name, why)


def _name_rule(resource: Resource) -> Callable[[str], list[str]]:
    if resource.kind == "DeviceClass":
        return long_name_errors
    if resource.group == GROUP:
        return path_segment_errors
    return label_errors if resource.named_as_label else subdomain_errors


def _completed(prefix: str) -> str:
    """Return a prefix of names as it is judged: a dash at its end may stay (generic.go maskTrailingDash)."""
    return f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def _finalizer_errors(new: Object, old: Object) -> Iterator[FieldError]:
    before = entries(old, "finalizers")
    added = sorted({str(one) for one in entries(new, "finalizers") if one not in before})
    if added and text(old, "deletionTimestamp"):
        listed = ", ".join(f'"{one}"' for one in added)
        yield forbidden_field(
            "metadata.finalizers",
            "no new finalizers can be added if the object is being deleted, found new finalizers "
            f"[]string{{{listed}}}",
        )
