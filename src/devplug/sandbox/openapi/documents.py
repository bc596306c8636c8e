"""The OpenAPI documents as they are answered: the index, one for each version, and the old one of all."""

from __future__ import annotations

import functools
import hashlib
import json
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.kinds import REFUSED, SERVED
from devplug.sandbox.openapi.operations import paths
from devplug.sandbox.openapi.protodocument import V2_MEDIA_TYPE, protobuf_of_v2
from devplug.sandbox.openapi.schemas import schemas

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.objects import Object

__all__ = ["openapi_v2", "openapi_v3", "openapi_v3_index", "served"]

_JSON: Final = "application/json"
_AS_JSON: Final = frozenset({_JSON, "application/*", "*/*"})
_PROTOBUF: Final = (V2_MEDIA_TYPE, V2_MEDIA_TYPE.replace("v2.", "v2@"))
_KNOWN: Final = (*SERVED, *REFUSED)
_VERSION: Final = "v1.36.2"
_INFO: Final = {
    "title": "Kubernetes, as the devplug sandbox serves it",
    "version": _VERSION,
    "description": "Nodes, pods and what else devices need; fields and types are those of Kubernetes 1.36.",
}
_SECURITY: Final = {
    "type": "apiKey",
    "in": "header",
    "name": "authorization",
    "description": "Bearer and the sandbox's token.",
}


def openapi_v3_index() -> Object:
    """Return what `/openapi/v3` answers: where the document of each version is, with its hash."""
    found: Object = {}
    for group, version in dict.fromkeys((one.group, one.version) for one in _KNOWN):
        place = f"apis/{group}/{version}" if group else f"api/{version}"
        digest = hashlib.sha256(_encoded(f"/openapi/v3/{place}") or b"").hexdigest()
        found[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={digest.upper()}"}
    return {"paths": found}


def openapi_v3(group: str, version: str) -> Object | None:
    """Return the document of one version of a group; None for what is not here."""
    ours = [one for one in _KNOWN if (one.group, one.version) == (group, version)]
    if not ours:
        return None
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": _paths(ours, dialect=3),
        "components": {
            "schemas": schemas(ours, dialect=3),
            "securitySchemes": {"BearerToken": _SECURITY},
        },
    }


def openapi_v2() -> Object:
    """Return what `/openapi/v2` answers: everything, in the older dialect."""
    return {
        "swagger": "2.0",
        "info": _INFO,
        "paths": _paths(_KNOWN, dialect=2),
        "definitions": schemas(_KNOWN, dialect=2),
        "securityDefinitions": {"BearerToken": _SECURITY},
        "security": [{"BearerToken": []}],
    }


def served(path: str, accept: str) -> tuple[bytes, str] | None:
    """Return what is answered under `path` (without a query), and its content type.

    That is JSON, but for `/openapi/v2` the protobuf form if it is asked for first. None for what is not here,
    and for a client that takes neither; `accept` is its header, and empty for one that takes anything.
    """
    forms = [one.partition(";")[0].strip().lower() for one in (accept or _JSON).split(",")]
    if path.rstrip("/") == "/openapi/v2" and forms[0] in _PROTOBUF:
        return _protobuf(), V2_MEDIA_TYPE
    if _AS_JSON.isdisjoint(forms):
        return None
    body = _encoded_index() if path.rstrip("/") == "/openapi/v3" else _encoded(path)
    return None if body is None else (body, _JSON)


@functools.cache
def _protobuf() -> bytes:
    return protobuf_of_v2(openapi_v2())


@functools.cache
def _encoded_index() -> bytes:
    return json.dumps(openapi_v3_index()).encode()


@functools.lru_cache(maxsize=32)
def _encoded(path: str) -> bytes | None:
    document: Object | None = None
    match path.strip("/").split("/"):
        case ["openapi", "v2"]:
            document = openapi_v2()
        case ["openapi", "v3", "api", version]:
            document = openapi_v3("", version)
        case ["openapi", "v3", "apis", group, version]:
            document = openapi_v3(group, version)
    return None if document is None else json.dumps(document, separators=(",", ":")).encode()


def _paths(resources: Iterable[Resource], *, dialect: int) -> Object:
    found: Object = {}
    for one in resources:
        found.update(paths(one, dialect=dialect))
    return dict(sorted(found.items()))
