"""The routes of the API: which verb of which resource a method and a path ask for, as a value. Pure.

The paths are the API server's (endpoints/request/requestinfo.go). Bodies and headers are not looked at.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from devplug.sandbox.api.errors import StatusError, method_not_supported
from devplug.sandbox.api.fieldselectors import field_selector
from devplug.sandbox.api.kinds import resource_of_path
from devplug.sandbox.api.labelselectors import SelectorError
from devplug.sandbox.api.options import flag_of
from devplug.sandbox.authorization.rbac import Access

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.sandbox.api.kinds import Resource


class Verb(enum.Enum):
    """A verb of the API; the value is its word in discovery and refusals."""

    GET = "get"
    LIST = "list"
    WATCH = "watch"
    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"
    DELETE = "delete"
    DELETE_MANY = "deletecollection"


_VERBS: Final = {
    "GET": (Verb.LIST, Verb.GET),
    "HEAD": (Verb.LIST, Verb.GET),
    "POST": (Verb.CREATE, Verb.CREATE),
    "PUT": (Verb.UPDATE, Verb.UPDATE),
    "PATCH": (Verb.PATCH, Verb.PATCH),
    "DELETE": (Verb.DELETE_MANY, Verb.DELETE),
}
"""By method: the verb for many objects, and for one."""
_OF_ONE: Final = {Verb.GET, Verb.UPDATE, Verb.PATCH, Verb.DELETE}
_OF_MANY: Final = {Verb.LIST, Verb.WATCH, Verb.DELETE_MANY}
_OF_ALL_NAMESPACES: Final = {Verb.LIST, Verb.WATCH}
_OF_A_RUNTIME: Final = {
    "nodes": ("proxy",),
    "pods": ("attach", "ephemeralcontainers", "exec", "portforward", "proxy"),
}
_NAMESPACE_PARTS: Final = ("finalize", "status")


@dataclass(frozen=True, slots=True)
class Request:
    """One thing that a client asks of one resource."""

    verb: Verb
    resource: Resource
    namespace: str = ""
    """Empty for all namespaces, and for what has none."""
    name: str = ""
    part_name: str = ""
    """The subresource; empty for the object itself."""
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def access(self) -> Access:
        """The access that it takes (endpoints/request/requestinfo.go); a namespace is inside of itself."""
        wanted = _wanted_fields(self.query, self.resource) if self.verb in _OF_MANY else {}
        return Access(
            verb=self.verb.value,
            group=self.resource.group,
            resource=self.resource.plural,
            part_name=self.part_name,
            namespace=self.name if self.resource.kind == "Namespace" else self.namespace,
            name=self.name or wanted.get("metadata.name", ""),
            fields=wanted,
        )


def _wanted_fields(query: Mapping[str, Sequence[str]], resource: Resource) -> dict[str, str]:
    """Return the fields that must have one value; none of a selector that cannot be read."""
    try:
        terms = field_selector("".join(query.get("fieldSelector", [])[:1]), resource).terms
    except SelectorError:
        return {}
    return {term.field: term.value for term in terms if term.equal}


def node_of_metrics(method: str, path: str) -> str:
    """Return the node whose kubelet's metrics are asked for, as through a cluster's proxy, or nothing."""
    match [unquote(step) for step in path.strip("/").split("/")]:
        case ["api", "v1", "nodes", name, "proxy", "metrics"] if method in {"GET", "HEAD"}:
            return name
    return ""


def request_of(
    method: str, path: str, query: Mapping[str, Sequence[str]], betas: Sequence[Resource] = ()
) -> Request | None:
    """Return what is asked for; None if nothing is served under the path. Raises `StatusError`.

    `path` is as it came, without the server's own prefix: a slash inside a name is still escaped. `betas` is
    served besides `kinds.SERVED`.
    """
    steps = [unquote(step) for step in path.strip("/").split("/")]
    match steps:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest] if group:
            pass
        case _:
            return None
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and not (len(rest) == 3 and rest[2] in _NAMESPACE_PARTS):
        _, namespace, *rest = rest
    if not rest or (len(rest) > 3 and rest[2] != "proxy"):
        return None
    plural, name, part_name = (*rest, "", "")[:3]
    resource = resource_of_path(group, version, plural, betas)
    if resource is None or "" in steps or (namespace and not resource.namespaced):
        return None
    if part_name in _OF_A_RUNTIME.get(plural, ()):
        raise _no_runtime(resource, name, part_name)
    if (name and resource.namespaced and not namespace) or (
        part_name and resource.subresource(part_name) is None
    ):
        return None
    verb = _verb(method, resource, name, query)
    _refuse_verb(verb, resource, namespace, name, part_name)
    return Request(verb, resource, namespace, name, part_name, query)


def _verb(method: str, resource: Resource, name: str, query: Mapping[str, Sequence[str]]) -> Verb:
    if method not in _VERBS:
        raise method_not_supported(resource.qualified, method.lower())
    verb = _VERBS[method][bool(name)]
    return Verb.WATCH if verb in {Verb.GET, Verb.LIST} and flag_of(query, "watch") else verb


def _refuse_verb(verb: Verb, resource: Resource, namespace: str, name: str, part_name: str) -> None:
    """Refuse what the path has not, with a 405; what the sandbox refuses as a whole, the registry refuses."""
    what = f"{resource.qualified}/{part_name}" if part_name else resource.qualified
    if part_name:
        part = resource.subresource(part_name)
        allowed = part is not None and verb.value in part.verbs
    else:
        allowed = bool(resource.refusal) or verb.value in resource.verbs
        allowed = allowed and (verb not in _OF_ONE or bool(name)) and not (verb is Verb.CREATE and name)
    if resource.namespaced and not namespace:
        allowed = allowed and verb in _OF_ALL_NAMESPACES
    if not allowed:
        raise method_not_supported(what, verb.value)


def _no_runtime(resource: Resource, name: str, part_name: str) -> StatusError:
    """Say why nothing can be done inside a container, so that `kubectl exec` prints it."""
    instead = (
        "a pod runs in name only, or as a program of this machine whose output kubectl logs shows"
        if resource.plural == "pods"
        else "its nodes are emulated inside the sandbox's process"
    )
    sentence = (
        f"{resource.plural}/{part_name} is not in the devplug sandbox: it has no container runtime; {instead}"
    )
    details = {"name": name, "kind": resource.plural}
    return StatusError(405, "MethodNotAllowed", sentence, details)
