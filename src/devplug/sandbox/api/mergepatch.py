"""JSON Merge Patch (RFC 7386): a map of what is to be, in which null takes a field away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.sandbox.api.objects import without_nulls

if TYPE_CHECKING:
    from devplug.sandbox.api.objects import Object

__all__ = ["merge_patched"]


def merge_patched(original: Object, patch: Object) -> Object:
    """Return `original` with `patch` merged into it; changes neither. Lists are replaced as a whole.

    Nulls inside new lists are dropped from the maps there, which the RFC leaves and the API server does not
    (evanphx/json-patch v4 merge.go).
    """
    merged = dict(original)
    for key, value in patch.items():
        before = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(before, dict):
            merged[key] = merge_patched(before, value)
        else:
            merged[key] = without_nulls(value)
    return merged
