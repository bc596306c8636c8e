"""What a deletion asks for, in its body or in its query, and what becomes of those that an object owns. Pure.

The rules are apimachinery's (apis/meta/v1/validation ValidateDeleteOptions, endpoints/handlers/delete.go).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.faults import unsupported
from devplug.sandbox.api.lifecycle import Preconditions
from devplug.sandbox.api.objects import entries, part, text, with_part
from devplug.sandbox.api.protobuf import PROTOBUF_MEDIA_TYPE, object_of_protobuf
from devplug.sandbox.api.statuses import bad_request, unsupported_media_type
from devplug.sandbox.requests.bodies import decoded_json, media_type_of
from devplug.sandbox.requests.options import dry_run_faults, number_of, refuse_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.sandbox.api.objects import Object

__all__ = ["DeleteOptions", "delete_options", "without_owner"]

_POLICIES: Final = ("Background", "Foreground", "Orphan")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """What a deletion asks for."""

    grace_seconds: int | None = None
    """How long a pod may take to end; None for what it says itself."""
    preconditions: Preconditions | None = None
    orphans: bool = False
    """Whether what the object owns is to stay."""
    dry_run: bool = False


def delete_options(body: bytes, content_type: str, query: Mapping[str, Sequence[str]]) -> DeleteOptions:
    """Return what is asked for; a body counts before the query. Raises `StatusError`."""
    asked: object
    if body:
        asked = _read(body, content_type)
    else:
        asked = {
            "gracePeriodSeconds": number_of(query, "gracePeriodSeconds"),
            "propagationPolicy": (query.get("propagationPolicy") or [""])[0],
            "dryRun": list(query.get("dryRun", ())),
        }
    grace, policy = part(asked, "gracePeriodSeconds"), text(asked, "propagationPolicy")
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        raise bad_request("gracePeriodSeconds must be a whole number of seconds")
    dry_runs = entries(asked, "dryRun")
    faults = list(dry_run_faults(dry_runs))
    if policy and policy not in _POLICIES:
        faults.append(unsupported("propagationPolicy", policy, ["Foreground", "Background", "Orphan", "nil"]))
    refuse_options("DeleteOptions", faults)
    uid = text(asked, "preconditions", "uid")
    version = text(asked, "preconditions", "resourceVersion")
    return DeleteOptions(
        grace,
        Preconditions(uid, version) if uid or version else None,
        orphans=policy == "Orphan" or part(asked, "orphanDependents") is True,
        dry_run=bool(dry_runs),
    )


def without_owner(one: Object, uid: str) -> Object:
    """Return an object that is no longer owned by the object with this UID."""
    owners = entries(one, "metadata", "ownerReferences")
    kept = [owner for owner in owners if text(owner, "uid") != uid]
    return one if kept == owners else with_part(one, kept or None, "metadata", "ownerReferences")


def _read(body: bytes, content_type: str) -> object:
    form = media_type_of(content_type)
    if form not in {"application/json", PROTOBUF_MEDIA_TYPE}:
        raise unsupported_media_type(["application/json", PROTOBUF_MEDIA_TYPE])
    asked = object_of_protobuf(body) if form == PROTOBUF_MEDIA_TYPE else decoded_json(body).value
    kind = text(asked, "kind")
    if asked is not None and (not isinstance(asked, dict) or kind not in {"", "DeleteOptions"}):
        raise bad_request("decoded object cannot be converted to DeleteOptions")
    return asked
