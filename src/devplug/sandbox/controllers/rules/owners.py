"""Who owns an object, and what becomes of what is owned when an owner ends. Pure.

After pkg/controller/garbagecollector and metav1.GetControllerOf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.sandbox.api.objects import entries, fields, part, text, with_part

if TYPE_CHECKING:
    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.objects import Object

__all__ = [
    "controller_of",
    "owner_reference",
    "owner_uids",
    "without_finalizer",
    "without_owner",
]


def controller_of(one: Object) -> Object | None:
    """Return the reference to the owner that controls an object, if there is one."""
    for reference in entries(one, "metadata", "ownerReferences"):
        if part(reference, "controller") is True:
            return fields(reference)
    return None


def owner_uids(one: Object) -> list[str]:
    """Return the UIDs of all owners of an object."""
    return [text(reference, "uid") for reference in entries(one, "metadata", "ownerReferences")]


def owner_reference(resource: Resource, owner: Object) -> Object:
    """Return the reference by which an object belongs to the one that controls it."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": text(owner, "metadata", "name"),
        "uid": text(owner, "metadata", "uid"),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def without_owner(one: Object, uid: str) -> Object:
    """Return an object that the owner of this UID owns no more."""
    references = entries(one, "metadata", "ownerReferences")
    others = [reference for reference in references if text(reference, "uid") != uid]
    return with_part(one, others or None, "metadata", "ownerReferences")


def without_finalizer(one: Object, finalizer: str) -> Object:
    """Return an object whose end this finalizer does not hold up any more."""
    others = [name for name in entries(one, "metadata", "finalizers") if name != finalizer]
    return with_part(one, others or None, "metadata", "finalizers")
