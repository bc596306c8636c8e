"""The authorizer of the API server, and the rights of the user of one request. Pure.

It asks in the order of a cluster's `--authorization-mode=Node,RBAC`: the group system:masters may do
everything, then the Node authorizer and the roles are asked, and what nobody allows is refused with what each
of them said. Who writes the status of a ResourceClaim needs more than that (dra.md D93, D94;
pkg/registry/resource/utils.go); its refusal is a fault of a field.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from devplug.k8s.objects import Object, entries, part, same, text
from devplug.sandbox.api.errors import forbidden_field, invalid
from devplug.sandbox.api.kinds import known
from devplug.sandbox.authorization.nodes import NodeView, refuse_slice_of_another_node, why_not
from devplug.sandbox.authorization.rbac import Access, Policy, allows, refusal
from devplug.sandbox.authorization.users import (
    ADMIN,
    AUTHENTICATED,
    MASTERS,
    NODE_NAME,
    User,
    account_of,
    groups_of_name,
    node_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from devplug.sandbox.api.errors import FieldError
    from devplug.sandbox.api.kinds import Resource
    from devplug.sandbox.api.store import Store

_GROUP: Final = "rbac.authorization.k8s.io/v1"
_CLUSTER_ROLES: Final = known(_GROUP, "ClusterRole")
_CLUSTER_ROLE_BINDINGS: Final = known(_GROUP, "ClusterRoleBinding")
_ROLES: Final = known(_GROUP, "Role")
_ROLE_BINDINGS: Final = known(_GROUP, "RoleBinding")
_PODS: Final = known("v1", "Pod")
_AS: Final = "impersonate"
_AUTHENTICATION: Final = "authentication.k8s.io"
_SLICES: Final = known("resource.k8s.io/v1", "ResourceSlice")


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether something is allowed, and what the authorizers say if it is not; often nothing."""

    is_allowed: bool
    reason: str = ""


class Authorizer:
    """Decides by the objects of one store; lives as long as the server."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def decide(self, user: User, access: Access) -> Decision:
        """Return whether a user may do something."""
        if MASTERS in user.groups:
            return Decision(is_allowed=True)
        reasons = []
        if node := node_of(user):
            contents = self._store.contents
            said = why_not(node, access, NodeView(contents(_PODS), contents(_SLICES)))
            if said is None:
                return Decision(is_allowed=True)
            reasons.append(said)
        rules, errors = self.rules_for(user, access.namespace)
        if any(allows(rule, access) for rule in rules):
            return Decision(is_allowed=True)
        if errors:
            told = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
            reasons.append(f"RBAC: {told}")
        return Decision(is_allowed=False, reason="\n".join(filter(None, reasons)))

    def rules_for(self, user: User, namespace: str) -> tuple[list[object], list[str]]:
        """Return the rules of a user's roles in a namespace, and what is wrong with bindings."""
        contents = self._store.contents
        policy = Policy(
            contents(_CLUSTER_ROLES),
            contents(_CLUSTER_ROLE_BINDINGS),
            contents(_ROLES),
            contents(_ROLE_BINDINGS),
        )
        return policy.rules_for(user, namespace)


@dataclass(frozen=True, slots=True)
class Rights:
    """What the user of one request may do; everything without an authorizer."""

    user: User
    authorizer: Authorizer | None = None

    def decide(self, access: Access) -> Decision:
        """Return whether the user may do something."""
        if self.authorizer is None:
            return Decision(is_allowed=True)
        return self.authorizer.decide(self.user, access)

    @property
    def has_everything(self) -> bool:
        """Whether the user may do all that there is."""
        return self.authorizer is None or MASTERS in self.user.groups

    def rules_for(self, namespace: str) -> tuple[list[object], list[str]]:
        """Return the rules of the user's roles in a namespace, and what keeps them from being all."""
        if self.authorizer is None:
            return [], []
        rules, errors = self.authorizer.rules_for(self.user, namespace)
        if node_of(self.user):
            errors = [*errors, "node authorizer does not support user rule resolution"]
        return rules, errors

    def require(self, access: Access) -> None:
        """Raise a `StatusError` (403) for what the user may not do."""
        decision = self.decide(access)
        if not decision.is_allowed:
            raise refusal(self.user, access, decision.reason)

    def acting_as(self, name: str, groups: Sequence[str], extra: Mapping[str, tuple[str, ...]]) -> Rights:
        """Return the rights of another user whom this one asks to be (endpoints/filters/impersonation).

        Without groups they follow from the name. Raises `StatusError` (403) for who may not be that user.
        """
        if account := account_of(name):
            self.require(Access(verb=_AS, resource="serviceaccounts", namespace=account[0], name=account[1]))
        else:
            self.require(Access(verb=_AS, resource="users", name=name))
        for group in groups:
            self.require(Access(verb=_AS, resource="groups", name=group))
        for key, values in extra.items():
            of_key = Access(verb=_AS, group=_AUTHENTICATION, resource="userextras", part_name=key)
            for value in values:
                self.require(replace(of_key, name=value))
        whole = dict.fromkeys((*groups, AUTHENTICATED)) if groups else groups_of_name(name)
        return replace(self, user=User(name, tuple(whole), extra))

    def require_own_slice(self, resource: Resource, new: Object) -> None:
        """Raise a `StatusError` (403) for a new ResourceSlice of a kubelet for another node."""
        if self.authorizer is not None and (node := node_of(self.user)):
            refuse_slice_of_another_node(node, resource, new)

    def require_claim_status(self, access: Access, new: Object, old: Object) -> None:
        """Raise a `StatusError` (422) for a change of a ResourceClaim's status that takes more rights."""

        def why_not(asked: Access) -> str:
            decision = self.decide(asked)
            return "" if decision.is_allowed else str(refusal(self.user, asked, decision.reason))

        if errors := list(claim_status_errors(self.user, access, new, old, why_not)):
            raise invalid("ResourceClaim.resource.k8s.io", access.name, errors)


EVERYTHING: Final = Rights(ADMIN)
"""The rights of a sandbox without authorization, where there is one user."""

# ── The status of a ResourceClaim ──


def claim_status_errors(
    user: User, access: Access, new: Object, old: Object, why_not: Callable[[Access], str]
) -> Iterator[FieldError]:
    """Yield the fields of a ResourceClaim's status that a user may not change so.

    `access` is that to `resourceclaims/status`, which the user has. `why_not` says why an access is refused,
    or nothing.
    """
    if not all(same(_status(new, word), _status(old, word)) for word in ("allocation", "reservedFor")):
        binding = replace(access, part_name="binding", namespace="", name="")
        if why := why_not(binding):
            yield forbidden_field(
                "status.allocation",
                "changing status.allocation or status.reservedFor requires "
                f'resource="resourceclaims/binding", verb="{binding.verb}" permission: {why}',
            )
    is_there = _is_on_node_of(user, new)
    verbs = [f"associated-node:{access.verb}"] if is_there else []
    verbs.append(f"arbitrary-node:{access.verb}")
    for driver in sorted(_changed_drivers(new, old)):
        asked = [replace(access, part_name="driver", name=driver, verb=verb) for verb in verbs]
        reasons = [why_not(one) for one in asked]
        if all(reasons):
            yield forbidden_field(
                "status.devices",
                'changing status.devices requires resource="resourceclaims/driver", '
                f'verb="[{" ".join(verbs)}]" permission: {reasons[0]}',
            )


def _status(claim: Object, word: str) -> object:
    return part(claim, "status", word) or None


def _changed_drivers(new: Object, old: Object) -> set[str]:
    """Return the drivers whose entries in `status.devices` were added, changed or taken away."""
    before, after = (
        {tuple(text(one, word) for word in ("driver", "pool", "device", "shareID")): one for one in listed}
        for listed in (entries(old, "status", "devices"), entries(new, "status", "devices"))
    )
    return {key[0] for key in before.keys() | after.keys() if not same(before.get(key), after.get(key))}


def _is_on_node_of(user: User, claim: Object) -> bool:
    """Whether a claim is allocated for one node alone, and a service account's token is used on that node."""
    named = user.extra.get(NODE_NAME, ())
    return account_of(user.name) is not None and len(named) == 1 and named[0] == _node_of_claim(claim)


def _node_of_claim(claim: Object) -> str | None:
    match part(claim, "status", "allocation", "nodeSelector", "nodeSelectorTerms"):
        case [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [str(node)]}], **rest}]:
            return None if rest.get("matchExpressions") else node
    return None
