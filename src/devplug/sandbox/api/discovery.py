"""The discovery documents, made of `kinds`: what kubectl reads before it asks for anything.

Two forms of the same: the older one, a document for each version, and the aggregated one of
`apidiscovery.k8s.io/v2` (KEP-3352), which has everything.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from devplug.sandbox.api.kinds import REFUSED, SERVED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.objects import Object

__all__ = [
    "AGGREGATED_MEDIA_TYPE",
    "aggregated",
    "api_group",
    "api_groups",
    "api_versions",
    "resource_list",
]

AGGREGATED_MEDIA_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""What a client names in `Accept`, and reads in `Content-Type`, for the aggregated form."""

_KNOWN = (*SERVED, *REFUSED)


def api_versions(address: str) -> Object:
    """Return what `/api` answers in the older form; `address` is the server's host and port."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def api_groups() -> Object:
    """Return what `/apis` answers in the older form."""
    groups = [_group(group) for group in _groups()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(group: str) -> Object | None:
    """Return what `/apis/GROUP` answers; None for a group that is not here."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)} if group in _groups() else None


def resource_list(group: str, version: str) -> Object | None:
    """Return what `/api/v1` and `/apis/GROUP/VERSION` answer; None for a version that is not here."""
    resources = [one for one in _of(group) if one.version == version]
    if not resources:
        return None
    listed = (entry for one in resources for entry in _entries(one))
    return {
        "kind": "APIResourceList",
        **({"apiVersion": "v1"} if group else {}),
        "groupVersion": resources[0].api_version,
        "resources": sorted(listed, key=lambda entry: str(entry["name"])),
    }


def aggregated(*, core: bool) -> Object:
    """Return what `/api` (`core`) or `/apis` answers in the aggregated form."""
    items = [_discovery("")] if core else [_discovery(group) for group in _groups()]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _groups() -> list[str]:
    return list(dict.fromkeys(one.group for one in _KNOWN if one.group))


def _of(group: str) -> Iterable[Resource]:
    return sorted((one for one in _KNOWN if one.group == group), key=lambda one: one.plural)


def _group(group: str) -> Object:
    versions = dict.fromkeys(one.version for one in _of(group))
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
            "kind": part.kind,
            "verbs": list(part.verbs),
        }


def _storage_version_hash(resource: Resource) -> str:
    """Return what tells clients of another stored version (apiserver discovery.StorageVersionHash)."""
    stored = f"{resource.storage.partition('.')[2]}/{resource.version}/{resource.kind}"
    return base64.b64encode(hashlib.sha256(stored.encode()).digest()[:8]).decode()


def _discovery(group: str) -> Object:
    versions = dict.fromkeys(one.version for one in _of(group))
    return {
        "metadata": {"name": group} if group else {},
        "versions": [
            {
                "version": version,
                "resources": [_discovered(one) for one in _of(group) if one.version == version],
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
                "responseKind": _response_kind(resource, part.kind),
                "verbs": list(part.verbs),
            }
            for part in resource.subresources
        ]
    return entry


def _response_kind(resource: Resource, kind: str) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": kind}
