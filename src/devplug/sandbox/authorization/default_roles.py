"""The roles that every cluster has, and who has them, as far as the sandbox has what they are for. Pure.

After plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go. `admin`, `edit` and `view` are whole here;
a cluster puts them together from other roles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import text
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.kinds import known
from devplug.sandbox.authorization.users import AUTHENTICATED, MASTERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.k8s.objects import Object
    from devplug.sandbox.api.store import Store

__all__ = ["make_default_roles"]

_GROUP: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_ALL: Final = ("*",)
_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_DEVICES: Final = ("resourceclaims", "resourceclaimtemplates")
_HEALTH: Final = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY: Final = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Object:
    return {"verbs": list(verbs), "apiGroups": [group], "resources": list(resources)}


def _paths(verbs: Sequence[str], *urls: str) -> Object:
    return {"verbs": list(verbs), "nonResourceURLs": list(urls)}


_VIEW: Final = (
    _rule("", ("bindings", "configmaps", "events", "namespaces", "pods", "pods/log", "pods/status"), _READ),
    _rule("", ("resourcequotas", "resourcequotas/status", "serviceaccounts"), _READ),
    _rule("apps", ("daemonsets", "daemonsets/status"), _READ),
    _rule("resource.k8s.io", (*_DEVICES, "resourceclaims/status"), _READ),
)
_EDIT: Final = (
    *_VIEW,
    _rule("", ("configmaps", "events", "pods", "serviceaccounts"), _WRITE),
    _rule("", ("serviceaccounts",), ("impersonate",)),
    _rule("", ("serviceaccounts/token",), ("create",)),
    _rule("apps", ("daemonsets",), _WRITE),
    _rule("resource.k8s.io", _DEVICES, _WRITE),
)
_ROLES: Final[Mapping[str, tuple[tuple[Object, ...], tuple[str, ...]]]] = {
    "admin": ((*_EDIT, _rule(_GROUP, ("rolebindings", "roles"), (*_READ, *_WRITE))), ()),
    "cluster-admin": ((_rule("*", _ALL, _ALL), _paths(_ALL, "*")), (MASTERS,)),
    "edit": (_EDIT, ()),
    "system:basic-user": (
        (
            _rule(
                "authorization.k8s.io", ("selfsubjectaccessreviews", "selfsubjectrulesreviews"), ("create",)
            ),
            _rule("authentication.k8s.io", ("selfsubjectreviews",), ("create",)),
        ),
        (AUTHENTICATED,),
    ),
    "system:discovery": ((_paths(("get",), *_DISCOVERY, *_HEALTH),), (AUTHENTICATED,)),
    "system:public-info-viewer": (
        (_paths(("get",), *_HEALTH),),
        (AUTHENTICATED, "system:unauthenticated"),
    ),
    "view": (_VIEW, ()),
}
"""By name: the rules, and the groups that have them."""


def make_default_roles(store: Store) -> None:
    """Make the roles and bindings, unless they are there."""
    for name, (rules, groups) in _ROLES.items():
        meta = {"metadata": {"name": name, "labels": _LABELS}}
        _make(store, "ClusterRole", {**meta, "rules": list(rules)})
        if groups:
            subjects = [{"kind": "Group", "name": group} for group in groups]
            role = {"kind": "ClusterRole", "name": name}
            _make(store, "ClusterRoleBinding", {**meta, "roleRef": role, "subjects": subjects})


def _make(store: Store, kind: str, one: Object) -> None:
    resource = known(f"{_GROUP}/v1", kind)
    try:
        store.get(resource, "", text(one, "metadata", "name"))
    except StatusError:
        store.create(resource, "", {"apiVersion": resource.api_version, "kind": kind, **one})
