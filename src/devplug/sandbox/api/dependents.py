"""What is to become of those that an object owns, when it is deleted: its finalizers say so. Pure.

After registry/generic/registry/store.go deletionFinalizersForGarbageCollection; who acts on the finalizers is
the garbage collector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.objects import entries, with_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.objects import Object

__all__ = ["FOREGROUND", "ORPHAN", "POLICIES", "propagating"]

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
