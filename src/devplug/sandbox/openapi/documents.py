"""The OpenAPI documents as they are served: the index, one for each version, and the 2.0 document of all.

kubectl reads in their paths whether the server understands `fieldValidation` and `dryRun`, and finds a
resource's kind (kubectl pkg/explain, cli-runtime resource.QueryParamVerifierV3).
"""

from __future__ import annotations

import functools
import hashlib
import json
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.kinds import REFUSED, SERVED
from devplug.sandbox.openapi.gnostic import V2_MEDIA_TYPE, protobuf_of_v2
from devplug.sandbox.openapi.schemas import GROUPS, list_name, qualified_kind, reference, schemas

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from devplug.k8s.objects import Object
    from devplug.sandbox.api.kinds import Resource

_JSON: Final = "application/json"
_PATCHES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)

_OF_COLLECTION: Final = ("list", "create", "deletecollection")
_OF_ONE: Final = ("get", "update", "patch", "delete")
_CHANGING: Final = ("dryRun", "fieldManager", "fieldValidation")
_DELETING: Final = ("dryRun", "gracePeriodSeconds", "propagationPolicy")
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


# ── Paths: the operations of each resource ──


_METHODS: Final[Mapping[str, tuple[str, str]]] = {
    "create": ("post", "post"),
    "delete": ("delete", "delete"),
    "deletecollection": ("delete", "deletecollection"),
    "get": ("get", "get"),
    "list": ("get", "list"),
    "patch": ("patch", "patch"),
    "update": ("put", "put"),
}
"""The HTTP method of each verb, and the verb in the documents (`x-kubernetes-action`)."""


_QUERIES: Final[Mapping[str, tuple[str, str]]] = {
    "allowWatchBookmarks": ("boolean", "Whether a watch sends bookmarks with the latest resource version."),
    "continue": ("string", "The token of the previous part of a list, to get the next one."),
    "dryRun": ("string", "With `All`, everything is done but storing."),
    "fieldManager": ("string", "Who makes the change."),
    "fieldSelector": ("string", "Only objects with such fields, as in `status.phase=Running`."),
    "fieldValidation": (
        "string",
        "What becomes of unknown fields: `Ignore`, `Warn` (the default) or `Strict`, which refuses.",
    ),
    "gracePeriodSeconds": (
        "integer",
        "How long a pod has to end, in seconds; 0 does not wait for the kubelet.",
    ),
    "labelSelector": ("string", "Only objects with such labels."),
    "limit": ("integer", "How many objects an answer has at most."),
    "pretty": ("string", "Whether the answer is laid out for people."),
    "propagationPolicy": ("string", "What is done with the objects that it owns."),
    "resourceVersion": ("string", "The version that the answer is of, or that a watch begins after."),
    "resourceVersionMatch": ("string", "How `resourceVersion` is meant for a list."),
    "sendInitialEvents": ("boolean", "Whether a watch begins with the objects that there are."),
    "timeoutSeconds": ("integer", "How long a list or a watch takes at most, in seconds."),
    "watch": ("boolean", "Whether to send changes as they happen."),
}

_LISTING: Final = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
)

_ASKED: Final[Mapping[str, tuple[str, ...]]] = {
    "create": _CHANGING,
    "delete": _DELETING,
    "deletecollection": (*_DELETING, *_LISTING[1:-1]),
    "get": (),
    "list": _LISTING,
    "patch": _CHANGING,
    "update": _CHANGING,
}


def _path_items(resource: Resource, *, dialect: int) -> Iterator[tuple[str, Object]]:
    """Yield each path of a resource with its operations.

    Operations that the sandbox refuses are listed as if they were served, so that kubectl sends them and
    prints the reason. kubectl looks for `fieldValidation` only at the patch of a kind, and without one asks
    for custom resources. So bindings have a patch here, too, which the server answers with 405.
    """
    verbs = (*_OF_COLLECTION, *_OF_ONE) if resource.refusal else (*resource.verbs, "patch")
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    inside = f"{root}/namespaces/{{namespace}}" if resource.namespaced else root
    every = {verb: _operation(resource, verb, dialect) for verb in verbs if verb in _METHODS}
    if resource.namespaced and "list" in every:
        listing = _operation(resource, "list", dialect, everywhere=True)
        yield f"{root}/{resource.plural}", {"get": listing, **_parameters((), dialect)}
    for path, names, ours in (
        (f"{inside}/{resource.plural}", (), _OF_COLLECTION),
        (f"{inside}/{resource.plural}/{{name}}", ("name",), _OF_ONE),
    ):
        operations = {_METHODS[verb][0]: every[verb] for verb in ours if verb in every}
        if operations:
            yield path, {**operations, **_parameters(_places(resource, *names), dialect)}
    for part in resource.subresources:
        yield (
            f"{inside}/{resource.plural}/{{name}}/{part.name}",
            {
                **{
                    _METHODS[verb][0]: _operation(resource, verb, dialect, part.name, part.kind)
                    for verb in part.verbs
                },
                **_parameters(_places(resource, "name"), dialect),
            },
        )


def _places(resource: Resource, *names: str) -> tuple[str, ...]:
    return (*names, "namespace") if resource.namespaced else names


def _operation(
    resource: Resource,
    verb: str,
    dialect: int,
    part: str = "",
    kind: str = "",
    *,
    everywhere: bool = False,
) -> Object:
    kind = kind or resource.kind
    method, action = _METHODS[verb]
    of_log = part == "log"
    answer: Object = {"type": "string"}
    if not of_log:
        name = (
            list_name(resource) if verb == "list" else qualified_kind(resource, _answer(resource, verb, kind))
        )
        answer = reference(name, dialect=dialect)
    operation: Object = {
        "operationId": _identity(resource, verb, part, everywhere=everywhere),
        "tags": [f"{_camel(resource.group) or 'Core'}_{resource.version}"],
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": GROUPS.get(kind, resource.group),
            "version": resource.version,
            "kind": kind,
        },
    }
    asked = [_query(name, dialect) for name in _ASKED[verb]]
    media_type = "text/plain" if of_log else _JSON
    body = _body(resource, verb, kind)
    if dialect == 2:
        if body:
            schema = reference(body, dialect=2)
            asked.append({"name": "body", "in": "body", "required": method != "delete", "schema": schema})
        operation["consumes"] = list(_PATCHES) if verb == "patch" else [_JSON]
        operation["produces"] = [media_type]
        operation["responses"] = {"200": {"description": "OK", "schema": answer}}
    else:
        if body:
            types = _PATCHES if verb == "patch" else (_JSON,)
            schema = reference(body, dialect=3)
            content: Object = {one: {"schema": schema} for one in types}
            operation["requestBody"] = {"content": content, "required": method != "delete"}
        content = {media_type: {"schema": answer}}
        operation["responses"] = {"200": {"description": "OK", "content": content}}
    if asked:
        operation["parameters"] = asked
    return operation


def _answer(resource: Resource, verb: str, kind: str) -> str:
    if verb == "deletecollection" or (verb == "delete" and not resource.answers_deleted):
        return "Status"
    return kind


def _body(resource: Resource, verb: str, kind: str) -> str:
    match verb:
        case "create" | "update":
            return qualified_kind(resource, kind)
        case "patch":
            return qualified_kind(resource, "Patch")
        case "delete" | "deletecollection":
            return qualified_kind(resource, "DeleteOptions")
    return ""


def _identity(resource: Resource, verb: str, part: str, *, everywhere: bool) -> str:
    """Return a name that no other operation has, made as Kubernetes makes them."""
    said = {"deletecollection": "deleteCollection", "get": "read", "update": "replace"}.get(verb, verb)
    group = _camel(resource.group) or "Core"
    scope = "Namespaced" if resource.namespaced and not everywhere else ""
    tail = part.capitalize() + ("ForAllNamespaces" if everywhere else "")
    return f"{said}{group}{resource.version.capitalize()}{scope}{resource.kind}{tail}"


def _camel(group: str) -> str:
    return "".join(step.capitalize() for step in group.removesuffix(".k8s.io").split(".") if step)


def _query(name: str, dialect: int) -> Object:
    type_, description = _QUERIES[name]
    return _parameter(name, "query", type_, description, dialect)


def _parameters(names: tuple[str, ...], dialect: int) -> Object:
    """Return the parameters of all operations of a path: the variables of the path, and `pretty`."""
    descriptions = {"name": "The name of the object.", "namespace": "The namespace of the object."}
    steps = [_parameter(name, "path", "string", descriptions[name], dialect) for name in names]
    return {"parameters": [*steps, _query("pretty", dialect)]}


def _parameter(name: str, place: str, type_: str, description: str, dialect: int) -> Object:
    parameter: Object = {"name": name, "in": place, "description": description}
    if place == "path":
        parameter["required"] = True
    return {**parameter, "type": type_} if dialect == 2 else {**parameter, "schema": {"type": type_}}


# ── Documents ──


def openapi_v3_index() -> Object:
    """Return the answer of `/openapi/v3`: the path of each version's document, with its hash."""
    found: Object = {}
    for group, version in dict.fromkeys((one.group, one.version) for one in _KNOWN):
        place = f"apis/{group}/{version}" if group else f"api/{version}"
        digest = hashlib.sha256(_encoded(f"/openapi/v3/{place}") or b"").hexdigest()
        found[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={digest.upper()}"}
    return {"paths": found}


def openapi_v3(group: str, version: str) -> Object | None:
    """Return the document of one version of a group; None if there is none."""
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
    """Return the answer of `/openapi/v2`: all paths and types, in the older dialect."""
    return {
        "swagger": "2.0",
        "info": _INFO,
        "paths": _paths(_KNOWN, dialect=2),
        "definitions": schemas(_KNOWN, dialect=2),
        "securityDefinitions": {"BearerToken": _SECURITY},
        "security": [{"BearerToken": []}],
    }


def openapi_document(path: str, accept: str) -> tuple[bytes, str] | None:
    """Return the document at `path` (without a query), and its content type.

    It is JSON, or at `/openapi/v2` protobuf if the client prefers that. None for a path without a document,
    and for a client that takes neither; `accept` is its header, empty for a client that takes anything.
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
        found.update(_path_items(one, dialect=dialect))
    return dict(sorted(found.items()))
