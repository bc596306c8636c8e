"""Owner references, and the finalizers by which a deletion reaches the dependents of an object. Pure.

After metav1.GetControllerOf, pkg/controller/garbagecollector and registry/generic/registry/store.go
deletionFinalizersForGarbageCollection; who acts on the finalizers is the garbage collector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, part, text, with_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.sandbox.api.kinds import Resource

ORPHAN: Final = "orphan"
"""The finalizer of an owner that is to leave what it owns alone."""

FOREGROUND: Final = "foregroundDeletion"
"""The finalizer of an owner that is to end after what it owns."""

POLICIES: Final[Mapping[str, str]] = {"Background": "", "Foreground": FOREGROUND, "Orphan": ORPHAN}
"""What a deletion may ask for (propagationPolicy), with the finalizer of each."""


def propagating(resource: Resource, one: Object, policy: str) -> Object:
    """Return an object with the finalizers of a policy; without a policy it keeps those that it has.

    Events have none of ours: they own nothing, and the garbage collector does not look at them.
    """
    if not policy or resource.kind == "Event":
        return one
    before = entries(one, "metadata", "finalizers")
    after = [name for name in before if name not in {ORPHAN, FOREGROUND}]
    after += [finalizer for finalizer in (POLICIES[policy],) if finalizer]
    if sorted(map(str, before)) == sorted(map(str, after)):
        return one
    return with_part(one, after or None, "metadata", "finalizers")


def controller_of(one: Object) -> Object | None:
    """Return the reference to the owner that controls an object, if there is one."""
    for reference in entries(one, "metadata", "ownerReferences"):
        if part(reference, "controller") is True:
            return fields(reference)
    return None


def owner_uids(one: Object) -> list[str]:
    """Return the UIDs of all owners of an object."""
    return [text(reference, "uid") for reference in entries(one, "metadata", "ownerReferences")]


def owner_reference(resource: Resource, owner: Object, *, blocks_deletion: bool = True) -> Object:
    """Return the reference by which an object belongs to the one that controls it.

    With `blocks_deletion`, an owner that is deleted in the foreground waits for the object.
    """
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": text(owner, "metadata", "name"),
        "uid": text(owner, "metadata", "uid"),
        "controller": True,
        **({"blockOwnerDeletion": True} if blocks_deletion else {}),
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
