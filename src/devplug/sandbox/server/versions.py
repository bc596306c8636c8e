"""The version in which objects are kept, and the others in which clients may ask for them. Pure.

Events have two forms, of which `v1` is kept; in `events.k8s.io/v1` the same fields have other names
(pkg/apis/events/v1/conversion.go). The kinds of DRA are kept in `resource.k8s.io/v1`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.dra.versions import from_v1, to_v1
from devplug.sandbox.api.kinds import SERVED
from devplug.sandbox.openapi.decoder import with_zeros

if TYPE_CHECKING:
    from devplug.k8s.objects import Object
    from devplug.sandbox.api.kinds import Resource

_KEPT: Final = {one.storage: one for one in reversed(SERVED)}
"""The first of those that are kept in one place."""

_NAMES: Final = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
"""The fields of events that differ: as `v1` calls them, and as `events.k8s.io/v1` does."""


def kept_resource(resource: Resource) -> Resource:
    """Return the resource under which the objects of another are kept."""
    return _KEPT.get(resource.storage, resource)


def kept_form(resource: Resource, one: Object) -> Object:
    """Return an object of a resource, as a client sent it, as it is kept, without null."""
    read = with_zeros(resource, one)
    kept = kept_resource(resource)
    if resource == kept:
        return read
    if kept.kind == "Event":
        return {**_renamed(read, {new: old for old, new in _NAMES}), "apiVersion": kept.api_version}
    return to_v1(resource.kind, read, resource.version)


def asked_form(resource: Resource, one: Object) -> Object:
    """Return an object, as it is kept, as the resource that is asked for has it."""
    kept = kept_resource(resource)
    if resource == kept:
        return one
    if kept.kind == "Event":
        return {**_renamed(one, dict(_NAMES)), "apiVersion": resource.api_version}
    return from_v1(resource.kind, one, resource.version)


def _renamed(event: Object, names: dict[str, str]) -> Object:
    return {names.get(key, key): value for key, value in event.items()}
