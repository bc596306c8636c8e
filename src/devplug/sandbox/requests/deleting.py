"""What a deletion asks for, in its body or in its query. Pure.

The rules are apimachinery's (apis/meta/v1/validation ValidateDeleteOptions, endpoints/handlers/delete.go).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.dependents import POLICIES
from devplug.sandbox.api.faults import invalid, unsupported
from devplug.sandbox.api.lifecycle import Preconditions
from devplug.sandbox.api.objects import entries, part, text
from devplug.sandbox.api.protobuf import PROTOBUF_MEDIA_TYPE, object_of_protobuf
from devplug.sandbox.api.statuses import bad_request, unsupported_media_type
from devplug.sandbox.requests.bodies import decoded_json, media_type_of
from devplug.sandbox.requests.options import dry_run_faults, number_of, refuse_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DeleteOptions", "delete_options"]

_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """What a deletion asks for."""

    grace_seconds: int | None = None
    """How long a pod may take to end; None for what it says itself."""
    preconditions: Preconditions | None = None
    policy: str = ""
    """What is to become of what the object owns: one of `dependents.POLICIES`, or empty."""
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
            "orphanDependents": _BOOLEANS.get((query.get("orphanDependents") or [""])[0]),
            "dryRun": list(query.get("dryRun", ())),
        }
    grace, policy = part(asked, "gracePeriodSeconds"), text(asked, "propagationPolicy")
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        raise bad_request("gracePeriodSeconds must be a whole number of seconds")
    dry_runs = entries(asked, "dryRun")
    faults = list(dry_run_faults(dry_runs))
    if policy and policy not in POLICIES:
        faults.append(unsupported("propagationPolicy", policy, ["Foreground", "Background", "Orphan", "nil"]))
    orphans = part(asked, "orphanDependents")
    if policy and orphans is not None:
        told = "orphanDependents and deletionPropagation cannot be both set"
        faults.append(invalid("propagationPolicy", policy, told))
    refuse_options("DeleteOptions", faults)
    if isinstance(orphans, bool):
        policy = "Orphan" if orphans else "Background"
    uid = text(asked, "preconditions", "uid")
    version = text(asked, "preconditions", "resourceVersion")
    return DeleteOptions(
        grace,
        Preconditions(uid, version) if uid or version else None,
        policy=policy,
        dry_run=bool(dry_runs),
    )


def _read(body: bytes, content_type: str) -> object:
    form = media_type_of(content_type)
    if form not in {"application/json", PROTOBUF_MEDIA_TYPE}:
        raise unsupported_media_type(["application/json", PROTOBUF_MEDIA_TYPE])
    asked = object_of_protobuf(body) if form == PROTOBUF_MEDIA_TYPE else decoded_json(body).value
    kind = text(asked, "kind")
    if asked is not None and (not isinstance(asked, dict) or kind not in {"", "DeleteOptions"}):
        raise bad_request("decoded object cannot be converted to DeleteOptions")
    return asked
