"""Events in their two forms: `v1`, in which they are kept, and `events.k8s.io/v1`, which some clients speak.

Each form has the other's fields under other names (pkg/apis/events/v1/conversion.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from devplug.sandbox.api.objects import Object

__all__ = ["core_event", "grouped_event"]

_NAMES: Final = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
)
"""The fields that differ: as `v1` calls them, and as `events.k8s.io/v1` does."""


def core_event(event: Object) -> Object:
    """Return an event of `events.k8s.io/v1` as one of `v1`."""
    return {**_renamed(event, {new: old for old, new in _NAMES}), "apiVersion": "v1"}


def grouped_event(event: Object) -> Object:
    """Return an event of `v1` as one of `events.k8s.io/v1`."""
    return {**_renamed(event, dict(_NAMES)), "apiVersion": "events.k8s.io/v1"}


def _renamed(event: Object, names: dict[str, str]) -> Object:
    return {names.get(key, key): value for key, value in event.items()}
