"""The users of the API server: who a request comes from, with the names and groups of Kubernetes. Pure.

See apiserver authentication/serviceaccount/util.go and pkg/auth/nodeidentifier.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTHENTICATED: Final = "system:authenticated"
MASTERS: Final = "system:masters"
"""The group that may do everything, whatever roles there are."""

NODE_NAME: Final = "authentication.kubernetes.io/node-name"
"""The extra of a service account that says on which node its token is used."""

_NODES: Final = "system:nodes"
_NODE: Final = "system:node:"
_ACCOUNT: Final = "system:serviceaccount:"
_ACCOUNTS: Final = "system:serviceaccounts"


@dataclass(frozen=True, slots=True)
class User:
    """Whom a request comes from."""

    name: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What else is known of the user, under keys."""


ADMIN: Final = User("devplug-sandbox", (MASTERS, AUTHENTICATED))
"""Everybody who has the token of the sandbox's kubeconfig."""

ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))


def service_account(namespace: str, name: str, extra: Mapping[str, str] | None = None) -> User:
    """Return the user that a service account is; `extra` has one value for each key."""
    user = f"{_ACCOUNT}{namespace}:{name}"
    return User(user, groups_of_name(user), {key: (value,) for key, value in (extra or {}).items()})


def node_user(name: str) -> User:
    """Return the user that a node's kubelet is."""
    return User(_NODE + name, (_NODES, AUTHENTICATED))


def groups_of_name(name: str) -> tuple[str, ...]:
    """Return the groups that follow from a user's name: those of a service account, or all authenticated."""
    if account := account_of(name):
        return (_ACCOUNTS, f"{_ACCOUNTS}:{account[0]}", AUTHENTICATED)
    return (AUTHENTICATED,)


def account_of(name: str) -> tuple[str, str] | None:
    """Return the namespace and the name of the service account that a user's name stands for, if it does."""
    match name.removeprefix(_ACCOUNT).split(":") if name.startswith(_ACCOUNT) else ():
        case [namespace, account] if namespace and account:
            return namespace, account
    return None


def node_of(user: User) -> str:
    """Return the node whose kubelet a user is; empty for others."""
    is_node = user.name.startswith(_NODE) and _NODES in user.groups
    return user.name.removeprefix(_NODE) if is_node else ""
