"""Role-based access control: what a user may do by the roles that are bound to them. Pure.

After component-helpers auth/rbac/validation and apis/rbac/v1/evaluation_helpers.go. A role that a binding
names and that is not there gives nothing, and is told. Roles are not aggregated, and whoever may write roles
may write any: the sandbox has no escalation check.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, fields, text
from devplug.kubelet.gotext import go_quoted
from devplug.sandbox.api.errors import StatusError, forbidden
from devplug.sandbox.api.kinds import known
from devplug.sandbox.authorization.users import AUTHENTICATED, MASTERS, account_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from devplug.sandbox.api.store import Store
    from devplug.sandbox.authorization.users import User

_ANY: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One thing that a user wants to do, to a resource or to a path of the server."""

    verb: str
    group: str = ""
    resource: str = ""
    """The plural; empty for a path."""
    part_name: str = ""
    """The subresource; empty for the object itself."""
    namespace: str = ""
    name: str = ""
    """Empty for all objects, and for what gets its name later."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """The fields to which a selector limits a list, and the values that it wants them to equal."""
    path: str = ""

    @property
    def combined(self) -> str:
        """The resource as roles name it, with its subresource."""
        return f"{self.resource}/{self.part_name}" if self.part_name else self.resource


def refusal(user: User, access: Access, reason: str) -> StatusError:
    """Return the 403 for an access; `reason` is what authorizers say of it (responsewriters/errors.go)."""
    who = f"User {go_quoted(user.name)} cannot {access.verb}"
    why = f": {reason}" if reason else ""
    if not access.resource:
        message = f"forbidden: {who} path {go_quoted(access.path)}{why}"
        return StatusError(403, "Forbidden", message, {})
    where = f"in the namespace {go_quoted(access.namespace)}" if access.namespace else "at the cluster scope"
    what = f"resource {go_quoted(access.combined)} in API group {go_quoted(access.group)}"
    qualified = f"{access.resource}.{access.group}" if access.group else access.resource
    return forbidden(qualified, access.name, f"{who} {what} {where}{why}")


@dataclass(frozen=True, slots=True)
class Policy:
    """All roles and bindings, as they are kept."""

    cluster_roles: Iterable[Object] = ()
    cluster_role_bindings: Iterable[Object] = ()
    roles: Iterable[Object] = ()
    role_bindings: Iterable[Object] = ()

    def rules_for(self, user: User, namespace: str) -> tuple[list[object], list[str]]:
        """Return the rules that are a user's in a namespace, empty for none, and what is wrong with bindings.

        Only rules of cluster roles that are bound in the whole cluster hold without a namespace.
        """
        rules: list[object] = []
        errors: list[str] = []
        for binding in self._bindings_of(user, namespace):
            kind, name = text(binding, "roleRef", "kind"), text(binding, "roleRef", "name")
            role = self._role(kind, text(binding, "metadata", "namespace"), name)
            if role is None:
                errors.append(f"{kind.lower()}.rbac.authorization.k8s.io {go_quoted(name)} not found")
            rules += entries(role, "rules")
        return rules, list(dict.fromkeys(errors))

    def _bindings_of(self, user: User, namespace: str) -> Iterator[Object]:
        for binding in self.cluster_role_bindings:
            if _is_of(user, binding):
                yield binding
        for binding in self.role_bindings if namespace else ():
            if text(binding, "metadata", "namespace") == namespace and _is_of(user, binding):
                yield binding

    def _role(self, kind: str, namespace: str, name: str) -> Object | None:
        kept = self.cluster_roles if kind == "ClusterRole" else self.roles
        place = ("" if kind == "ClusterRole" else namespace, name)
        return next((one for one in kept if _place(one) == place), None)


def allows(rule: object, access: Access) -> bool:
    """Whether one rule of a role allows an access."""
    if not _names(rule, "verbs", access.verb):
        return False
    if not access.resource:
        return any(_covers(str(one), access.path) for one in entries(rule, "nonResourceURLs"))
    whole = [access.combined, *([f"*/{access.part_name}"] if access.part_name else [])]
    names = entries(rule, "resourceNames")
    return (
        _names(rule, "apiGroups", access.group)
        and _names(rule, "resources", *whole)
        and (not names or access.name in names)
    )


def _names(rule: object, field: str, *wanted: str) -> bool:
    return any(one == _ANY or one in wanted for one in entries(rule, field))


def _covers(url: str, path: str) -> bool:
    return url in {_ANY, path} or (url.endswith(_ANY) and path.startswith(url.rstrip(_ANY)))


def _is_of(user: User, binding: Object) -> bool:
    here = text(binding, "metadata", "namespace")
    return any(_is_subject(user, one, here) for one in entries(binding, "subjects"))


def _is_subject(user: User, subject: object, namespace: str) -> bool:
    name = text(subject, "name")
    match text(subject, "kind"):
        case "User":
            return user.name == name
        case "Group":
            return name in user.groups
        case "ServiceAccount":
            return account_of(user.name) == (text(subject, "namespace") or namespace, name)
    return False


def _place(one: Object) -> tuple[str, str]:
    meta = fields(one, "metadata")
    return text(meta, "namespace"), text(meta, "name")


# ── the roles that every cluster has ──────────────────────────────────────────────────────────────

# After plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go, where the sandbox has what they are for.
# `admin`, `edit` and `view` are whole here; a cluster puts them together from other roles.
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
