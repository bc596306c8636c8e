"""The Node authorizer and NodeRestriction: what the kubelet of one node may do (dra.md D95). Pure.

After plugin/pkg/auth/authorizer/node/node_authorizer.go. Of NodeRestriction only what concerns slices is
here: kubelets of the sandbox are parts of it, and who calls as one is a driver that uses its account, or a
person who tries what a kubelet may do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devplug.dra.scheduling import claim_names
from devplug.k8s.objects import Object, text
from devplug.sandbox.api.errors import forbidden
from devplug.sandbox.authorization.rbac import allows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.authorization.rbac import Access

_LEASES: Final = "kube-node-lease"
_NO_OPINION: Final = ""
_WRITES: Final = ("create", "update", "patch")
_RULES: Final[tuple[Object, ...]] = (
    {"verbs": list(_WRITES), "apiGroups": ["", "events.k8s.io"], "resources": ["events"]},
    {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["services"]},
)
"""What all nodes may do alike, of what there is here (bootstrappolicy NodeRules)."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """The objects by which things belong to nodes."""

    pods: Iterable[Object] = ()
    slices: Iterable[Object] = ()

    def uses_claim(self, node: str, namespace: str, name: str) -> bool:
        """Whether a pod that is bound to the node uses a claim."""
        return any(
            text(pod, "spec", "nodeName") == node
            and text(pod, "metadata", "namespace") == namespace
            and name in {*claim_names(pod).values(), _extended_claim(pod)}
            for pod in self.pods
        )

    def has_slice(self, node: str, name: str) -> bool:
        """Whether a slice is of the node."""
        return any(_name(one) == name and text(one, "spec", "nodeName") == node for one in self.slices)

    def has_pod(self, node: str, namespace: str, name: str) -> bool:
        """Whether a pod is bound to the node."""
        return any(
            (text(pod, "metadata", "namespace"), _name(pod)) == (namespace, name)
            and text(pod, "spec", "nodeName") == node
            for pod in self.pods
        )


def why_not(node: str, access: Access, view: NodeView) -> str | None:
    """Return why the kubelet of a node may not do something, perhaps without a word; None if it may."""
    match (access.group, access.resource):
        case ("resource.k8s.io", "resourceclaims"):
            is_used = view.uses_claim(node, access.namespace, access.name)
            return _why_not_get(node, access, is_related=is_used)
        case ("resource.k8s.io", "resourceslices"):
            return _why_not_slice(node, access, view)
        case ("", "nodes"):
            return _why_not_node(node, access)
        case ("", "pods"):
            return _why_not_pod(node, access, view)
        case ("coordination.k8s.io", "leases"):
            return _why_not_lease(node, access)
    return None if any(allows(rule, access) for rule in _RULES) else _NO_OPINION


def refuse_slice_of_another_node(node: str, resource: Resource, new: Object) -> None:
    """Refuse a new ResourceSlice of a kubelet that is not for its node, with a 403 (admitResourceSlice)."""
    if resource.kind == "ResourceSlice" and text(new, "spec", "nodeName") != node:
        why = "can only create ResourceSlice with the same NodeName as the requesting node"
        raise forbidden(resource.qualified, _name(new), why)


def _why_not_get(node: str, access: Access, *, is_related: bool) -> str | None:
    if access.verb != "get":
        return "can only get individual resources of this type"
    if access.part_name:
        return "cannot get subresource"
    return _why_unrelated(node, access, is_related=is_related)


def _why_unrelated(node: str, access: Access, *, is_related: bool) -> str | None:
    if not access.name:
        return "No Object name found"
    return None if is_related else f"no relationship found between node '{node}' and this object"


def _why_not_slice(node: str, access: Access, view: NodeView) -> str | None:
    if access.part_name:
        return "cannot authorize ResourceSlice subresources"
    match access.verb:
        case "create":
            return None  # what is created is looked at by NodeRestriction
        case "get" | "update" | "patch" | "delete":
            return _why_unrelated(node, access, is_related=view.has_slice(node, access.name))
        case "watch" | "list" | "deletecollection" if access.fields.get("spec.nodeName") == node:
            return None
        case "watch" | "list" | "deletecollection":
            return "can only list/watch/deletecollection resourceslices with nodeName field selector"
    verbs = "get, watch, list, create, update, patch, delete, deletecollection"
    return f"only the following verbs are allowed for a ResourceSlice: {verbs}"


def _why_not_node(node: str, access: Access) -> str | None:
    match (access.part_name, access.verb):
        case ("", "create" | "update" | "patch") | ("status", "update" | "patch"):
            return None
        case ("", "get" | "list" | "watch"):
            if access.name == node:
                return None
            asked = f"'{access.name}'" if access.name else "all nodes"
            return f"node '{node}' cannot read {asked}, only its own Node object"
    return _NO_OPINION


def _why_not_pod(node: str, access: Access, view: NodeView) -> str | None:
    is_here = view.has_pod(node, access.namespace, access.name)
    match (access.part_name, access.verb):
        case ("", "get"):
            return _why_not_get(node, access, is_related=is_here)
        case ("", "list" | "watch"):
            if access.fields.get("spec.nodeName") == node:
                return None
            if access.name:
                return _why_unrelated(node, access, is_related=is_here)
            return "can only list/watch pods with spec.nodeName field selector"
        case ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create"):
            return None
    return _NO_OPINION


def _why_not_lease(node: str, access: Access) -> str | None:
    if access.verb not in {"get", *_WRITES, "delete"}:
        return "can only get, create, update, patch, or delete a node lease"
    if access.namespace != _LEASES:
        return f'can only access leases in the "{_LEASES}" system namespace'
    if access.verb != "create" and access.name != node:
        return "can only access node lease with the same name as the requesting node"
    return None


def _extended_claim(pod: Object) -> str:
    return text(pod, "status", "extendedResourceClaimStatus", "resourceClaimName")


def _name(one: Object) -> str:
    return text(one, "metadata", "name")
