"""What the server tells of itself: its version, its health, discovery, and where OpenAPI is. Pure."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.discovery import (
    AGGREGATED_MEDIA_TYPE,
    aggregated,
    api_group,
    api_groups,
    api_versions,
    resource_list,
)
from devplug.sandbox.api.statuses import StatusError
from devplug.sandbox.server.answers import Answer, accepted_forms, json_answer, json_text, text_answer

if TYPE_CHECKING:
    from devplug.sandbox.api.objects import Object
    from devplug.sandbox.server.hooks import Documents

__all__ = ["KUBERNETES_VERSION", "document_at", "nothing_here", "version_document"]

KUBERNETES_VERSION: Final = "v1.36.2"
"""The version that the sandbox behaves as."""

_HEALTH: Final = ("healthz", "livez", "readyz")
_ARCHITECTURES: Final = {"aarch64": "arm64", "x86_64": "amd64"}


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
    method: str, path: str, accept: str, address: str, documents: Documents, *, pretty: bool = False
) -> Answer | None:
    """Return what is told under a path; None if it is none of these. Raises `StatusError`.

    `address` is the server's host and port.
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
            found = documents(path, accept)
            return Answer(200, *found) if found else nothing_here()
        case ["api" | "apis"] if _wants_aggregated(accept):
            told = json_text(aggregated(core=steps == ["api"]), pretty=pretty)
            return Answer(200, told, AGGREGATED_MEDIA_TYPE)
    found_list = _discovered(steps, address)
    return nothing_here() if found_list is None else json_answer(found_list, pretty=pretty)


def _discovered(steps: list[str], address: str) -> Object | None:
    match steps:
        case ["api"]:
            return api_versions(address)
        case ["apis"]:
            return api_groups()
        case ["api", version]:
            return resource_list("", version)
        case ["apis", group]:
            return api_group(group)
        case ["apis", group, version]:
            return resource_list(group, version)
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
    for media_type, told in accepted_forms(accept):
        if media_type in {"application/json", "*/*"}:
            if (told.get("g"), told.get("v"), told.get("as")) == wanted:
                return True
            if "as" not in told:
                return False
    return False
