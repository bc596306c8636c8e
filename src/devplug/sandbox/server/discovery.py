"""The documents of the server about itself: version, health, discovery, and where OpenAPI is. Pure.

Discovery is made of `kinds`: what kubectl reads before it asks for anything. It has two forms: the older
one, a document for each version, and the aggregated one of `apidiscovery.k8s.io/v2` (KEP-3352), which has
everything.
"""

from __future__ import annotations

import base64
import hashlib
import platform
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.kinds import REFUSED, SERVED
from devplug.sandbox.openapi.documents import openapi_document
from devplug.sandbox.server.responses import Answer, accepted_forms, json_answer, json_text, text_answer
from devplug.sandbox.server.versions import kept_resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.k8s.objects import Object
    from devplug.sandbox.api.kinds import Resource

AGGREGATED_MEDIA_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""What a client names in `Accept`, and reads in `Content-Type`, for the aggregated form."""

_KNOWN = (*SERVED, *REFUSED)
KUBERNETES_VERSION: Final = "v1.36.2"
"""The version that the sandbox behaves as."""

_HEALTH: Final = ("healthz", "livez", "readyz")
_ARCHITECTURES: Final = {"aarch64": "arm64", "x86_64": "amd64"}


# ── Discovery ──


def api_versions(address: str) -> Object:
    """Return what `/api` answers in the older form; `address` is the server's host and port."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def api_groups(betas: Sequence[Resource] = ()) -> Object:
    """Return what `/apis` answers in the older form."""
    groups = [_group(group, betas) for group in _groups()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(group: str, betas: Sequence[Resource] = ()) -> Object | None:
    """Return what `/apis/GROUP` answers; None for a group that is not here."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, betas)} if group in _groups() else None


def resource_list(group: str, version: str, betas: Sequence[Resource] = ()) -> Object | None:
    """Return what `/api/v1` and `/apis/GROUP/VERSION` answer; None for a version that is not here."""
    resources = [one for one in _of(group, betas) if one.version == version]
    if not resources:
        return None
    listed = (entry for one in resources for entry in _entries(one))
    return {
        "kind": "APIResourceList",
        **({"apiVersion": "v1"} if group else {}),
        "groupVersion": resources[0].api_version,
        "resources": sorted(listed, key=lambda entry: str(entry["name"])),
    }


def aggregated(*, core: bool, betas: Sequence[Resource] = ()) -> Object:
    """Return what `/api` (`core`) or `/apis` answers in the aggregated form."""
    items = [_discovery(group, betas) for group in ([""] if core else _groups())]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _groups() -> list[str]:
    return list(dict.fromkeys(one.group for one in _KNOWN if one.group))


def _of(group: str, betas: Sequence[Resource]) -> Iterable[Resource]:
    return sorted((one for one in (*_KNOWN, *betas) if one.group == group), key=lambda one: one.plural)


def _group(group: str, betas: Sequence[Resource]) -> Object:
    versions = dict.fromkeys(one.version for one in _of(group, betas))
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def _entries(resource: Resource) -> Iterable[Object]:
    """Yield the resource and its subresources as an APIResourceList has them."""
    entry: Object = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if "get" in resource.verbs:
        entry["storageVersionHash"] = _storage_version_hash(resource)
    yield entry
    for part in resource.subresources:
        yield {
            "name": f"{resource.plural}/{part.name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            **({"group": part.group, "version": "v1"} if part.group else {}),
            "kind": part.kind,
            "verbs": list(part.verbs),
        }


def _storage_version_hash(resource: Resource) -> str:
    """Return what tells clients of another stored version (apiserver discovery.StorageVersionHash)."""
    stored = f"{resource.storage.partition('.')[2]}/{kept_resource(resource).version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(stored.encode()).digest()[:8]).decode()


def _discovery(group: str, betas: Sequence[Resource]) -> Object:
    versions = dict.fromkeys(one.version for one in _of(group, betas))
    return {
        "metadata": {"name": group} if group else {},
        "versions": [
            {
                "version": version,
                "resources": [_discovered(one) for one in _of(group, betas) if one.version == version],
                "freshness": "Current",
            }
            for version in versions
        ],
    }


def _discovered(resource: Resource) -> Object:
    entry: Object = {
        "resource": resource.plural,
        "responseKind": _response_kind(resource, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": part.name,
                "responseKind": {
                    **_response_kind(resource, part.kind),
                    **({"group": part.group} if part.group else {}),
                },
                "verbs": list(part.verbs),
            }
            for part in resource.subresources
        ]
    return entry


def _response_kind(resource: Resource, kind: str) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": kind}


# ── Documents by path ──


def version_document(machine: str = platform.machine()) -> Object:
    """Return what `/version` answers; nothing of it is of this program but the machine's architecture."""
    return {
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": KUBERNETES_VERSION,
        "gitCommit": "$Format:%H$",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "go1.26.6",
        "compiler": "gc",
        "platform": f"linux/{_ARCHITECTURES.get(machine, machine)}",
    }


def document_at(
    method: str,
    path: str,
    accept: str,
    address: str,
    *,
    pretty: bool = False,
    betas: Sequence[Resource] = (),
) -> Answer | None:
    """Return the answer for a path of discovery; None for other paths. Raises `StatusError`.

    `address` is the server's host and port; `betas` is served besides `kinds.SERVED`.
    """
    steps = path.strip("/").split("/")
    if not _is_known(steps):
        return None
    if method not in {"GET", "HEAD"}:
        why = f"the server does not allow this method on the requested resource: {path} is only read"
        raise StatusError(405, "MethodNotAllowed", why, {})
    match steps:
        case [health, *_] if health in _HEALTH:
            return text_answer("ok")
        case ["version"]:
            return json_answer(version_document(), pretty=True)
        case ["openapi", *_]:
            found = openapi_document(path, accept)
            return Answer(200, *found) if found else nothing_here()
        case ["api" | "apis"] if _wants_aggregated(accept):
            body = json_text(aggregated(core=steps == ["api"], betas=betas), pretty=pretty)
            return Answer(200, body, AGGREGATED_MEDIA_TYPE)
    found_list = _discovery_document(steps, address, betas)
    return nothing_here() if found_list is None else json_answer(found_list, pretty=pretty)


def _discovery_document(steps: list[str], address: str, betas: Sequence[Resource]) -> Object | None:
    match steps:
        case ["api"]:
            return api_versions(address)
        case ["apis"]:
            return api_groups(betas)
        case ["api", version]:
            return resource_list("", version)
        case ["apis", group]:
            return api_group(group, betas)
        case ["apis", group, version]:
            return resource_list(group, version, betas)
    paths = ["/api", "/api/v1", "/apis", "/openapi/v2", "/openapi/v3", "/version"]
    return {"paths": sorted([*paths, *(f"/{word}" for word in _HEALTH)])}


def nothing_here() -> Answer:
    """Answer that nothing is served under a path (Go's net/http NotFound)."""
    return text_answer("404 page not found\n", 404)


def _is_known(steps: list[str]) -> bool:
    if steps[0] in {"", *_HEALTH, "openapi", "version"}:
        return True
    return (steps[0] == "api" and len(steps) <= 2) or (steps[0] == "apis" and len(steps) <= 3)


def _wants_aggregated(accept: str) -> bool:
    wanted = ("apidiscovery.k8s.io", "v2", "apigroupdiscoverylist")
    for media_type, parameters in accepted_forms(accept):
        if media_type in {"application/json", "*/*"}:
            if (parameters.get("g"), parameters.get("v"), parameters.get("as")) == wanted:
                return True
            if "as" not in parameters:
                return False
    return False
