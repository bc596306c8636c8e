"""What the API server does to an object before it is stored: defaults, checks, and who may make it at all.

Pure: what it must know of other objects is given in. The order is the real server's: the namespace first,
then defaults and admission plugins, then the rules of the kind, then quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.sandbox.api.defaults import defaulted, knows_priority_class
from devplug.sandbox.api.lifecycle import generated_name
from devplug.sandbox.api.objects import entries, fields, text, with_part
from devplug.sandbox.api.statuses import forbidden, invalid, not_found
from devplug.sandbox.api.validation import change_faults, object_faults
from devplug.sandbox.scheduling.quota import Quota, QuotaExceededError, admit
from devplug.sandbox.scheduling.reading import amounts, shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.objects import Object

__all__ = ["changed", "has_ended", "named", "prepared", "refuse_over_quota", "refuse_without_namespace"]


def refuse_without_namespace(
    resource: Resource, name: str, namespace: str, namespace_object: Object | None
) -> None:
    """Refuse what is made in a namespace that is not there (404) or is ending (403); NamespaceLifecycle."""
    if namespace_object is None:
        raise not_found("namespaces", namespace)
    if text(namespace_object, "metadata", "deletionTimestamp"):
        raise forbidden(
            resource.qualified,
            name,
            f"unable to create new content in namespace {namespace} because it is being terminated",
        )


def named(new: Object, suffix: str) -> Object:
    """Return a new object with a name: its own, or one made of `generateName` and five letters."""
    prefix = text(new, "metadata", "generateName")
    if text(new, "metadata", "name") or not prefix:
        return new
    return with_part(new, generated_name(prefix, suffix), "metadata", "name")


def prepared(resource: Resource, new: Object) -> Object:
    """Return a new object with its defaults. Raises `StatusError` for one that breaks its kind's rules."""
    name = text(new, "metadata", "name")
    if resource.refusal:
        raise forbidden(resource.qualified, name, resource.refusal)
    class_name = text(new, "spec", "priorityClassName")
    if resource.kind == "Pod" and not knows_priority_class(class_name):
        raise forbidden("pods", name, f"no PriorityClass with name {class_name} was found")
    one = defaulted(resource, new)
    if faults := object_faults(resource, one):
        raise invalid(resource.qualified_kind, name, faults)
    return one


def changed(resource: Resource, new: Object, old: Object) -> Object:
    """Return a changed object with its defaults. Raises `StatusError` for what may not be or become so."""
    one = defaulted(resource, new)
    if faults := [*object_faults(resource, one), *change_faults(resource, one, old)]:
        raise invalid(resource.qualified_kind, text(old, "metadata", "name"), faults)
    return one


def has_ended(pod: Object) -> bool:
    """Whether a pod has ended, so that nothing of what it asks for is in use."""
    return text(pod, "status", "phase") in {"Succeeded", "Failed"}


def refuse_over_quota(pod: Object, quotas: Iterable[Object], others: Iterable[Object]) -> None:
    """Refuse a pod for which its namespace's quotas leave no room beside `others`, with a 403."""
    limits = [
        Quota(text(one, "metadata", "name"), amounts(fields(one, "spec", "hard")))
        for one in quotas
        if not entries(one, "spec", "scopes")
    ]
    if not limits:
        return
    name = text(pod, "metadata", "name")
    existing = [shape(fields(one, "spec")) for one in others if not has_ended(one)]
    try:
        admit(name, shape(fields(pod, "spec")), limits, existing)
    except QuotaExceededError as error:
        raise forbidden("pods", name, error.why) from error
