"""The one door to the three forms of a patch, chosen by its media type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.jsonpatch import json_patched
from devplug.sandbox.api.mergepatch import merge_patched
from devplug.sandbox.api.statuses import bad_request, patch_rejected, unsupported_media_type
from devplug.sandbox.api.strategicpatch import strategic_patched

if TYPE_CHECKING:
    from devplug.sandbox.api.objects import Object

__all__ = ["JSON_PATCH", "MERGE_PATCH", "STRATEGIC_PATCH", "patched"]

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"


def patched(original: Object, media_type: str, patch: object, kind: str) -> Object:
    """Return an object of `kind` with a decoded patch applied; changes neither, and raises `StatusError`.

    The media type may have parameters. Server-side apply is not among the forms.
    """
    form = media_type.partition(";")[0].strip()
    if form not in {JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH}:
        raise unsupported_media_type((JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH))
    if form == JSON_PATCH:
        result = json_patched(original, patch)
        if not isinstance(result, dict):
            raise patch_rejected("the patch leaves no object")
        return result
    if not isinstance(patch, dict):
        words = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}
        told = words.get(type(patch), "null")
        fault = f"json: cannot unmarshal {told} into Go value of type map[string]interface {{}}"
        raise bad_request(f"error decoding patch: {fault}" if form == MERGE_PATCH else fault)
    if form == MERGE_PATCH:
        return merge_patched(original, patch)
    return strategic_patched(original, patch, kind)
