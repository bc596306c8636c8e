"""Roles and bindings: their defaults, what is wrong with them, and that default roles are right."""

from __future__ import annotations

from typing import Any

import pytest

from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.kinds import known
from devplug.sandbox.authorization.rbac import make_default_roles
from devplug.sandbox.registry import NAMESPACES, Registry

GROUP = "rbac.authorization.k8s.io"
PODS = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
JANE = {"kind": "User", "name": "jane"}
ACCOUNT = {"kind": "ServiceAccount", "name": "driver"}
ROLE = {"kind": "Role", "name": "r"}


def made(kind: str, name: str = "r", **rest: Any) -> Any:
    registry = Registry(seed=1)
    registry.create(NAMESPACES, "", {"metadata": {"name": "lab"}})
    resource = known(f"{GROUP}/v1", kind)
    one = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, **rest}
    return registry.create(resource, "lab" if resource.namespaced else "", one)


def test_groups_of_a_binding_are_filled_in() -> None:
    binding = made("RoleBinding", roleRef=ROLE, subjects=[JANE, {"kind": "Group", "name": "ops"}, ACCOUNT])
    assert binding["roleRef"] == {**ROLE, "apiGroup": GROUP}
    assert [one.get("apiGroup", "") for one in binding["subjects"]] == [GROUP, GROUP, ""]


def test_a_role_may_be_called_as_a_step_of_a_path() -> None:
    assert made("ClusterRole", "system:My_Role@1", rules=[PODS])["metadata"]["name"] == "system:My_Role@1"
    with pytest.raises(StatusError, match="may not contain '/'"):
        made("ClusterRole", "a/b")
    with pytest.raises(StatusError, match=r"may not be '\.\.'"):
        made("ClusterRole", "..")


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ({**PODS, "verbs": []}, "verbs: Required value: verbs must contain at least one value"),
        (
            {**PODS, "apiGroups": []},
            "apiGroups: Required value: resource rules must supply at least one api group",
        ),
        (
            {**PODS, "resources": []},
            "resources: Required value: resource rules must supply at least one resource",
        ),
        (
            {"verbs": ["get"], "nonResourceURLs": ["*"]},
            'nonResourceURLs: Invalid value: ["*"]: namespaced rules cannot apply to non-resource URLs',
        ),
    ],
)
def test_a_rule_that_allows_nothing_is_refused(rule: Any, fault: str) -> None:
    with pytest.raises(StatusError) as refused:
        made("Role", rules=[rule])
    assert str(refused.value) == f'Role.{GROUP} "r" is invalid: rules[0].{fault}'


def test_a_rule_is_for_resources_or_for_paths() -> None:
    with pytest.raises(StatusError, match="cannot apply to both regular resources and non-resource URLs"):
        made("ClusterRole", rules=[{**PODS, "nonResourceURLs": ["/api"]}])
    assert made("ClusterRole", rules=[{"verbs": ["get"], "nonResourceURLs": ["/api"]}])


@pytest.mark.parametrize(
    ("kind", "role", "subject", "fault"),
    [
        ("ClusterRoleBinding", ROLE, JANE, 'roleRef.kind: Unsupported value: "Role": supported values: "C'),
        ("RoleBinding", {"kind": "Role"}, JANE, "roleRef.name: Required value"),
        ("RoleBinding", {**ROLE, "name": "a%b"}, JANE, "may not contain '%'"),
        ("RoleBinding", {**ROLE, "apiGroup": "apps"}, JANE, 'roleRef.apiGroup: Unsupported value: "apps"'),
        ("RoleBinding", ROLE, {"kind": "User"}, r"subjects\[0\].name: Required value"),
        ("RoleBinding", ROLE, {"kind": "Pod", "name": "p"}, r'subjects\[0\].kind: Unsupported value: "Pod"'),
        ("RoleBinding", ROLE, {**ACCOUNT, "name": "A"}, r'subjects\[0\].name: Invalid value: "A"'),
        ("RoleBinding", ROLE, {**ACCOUNT, "apiGroup": "apps"}, r"subjects\[0\].apiGroup: Unsupported value"),
        ("RoleBinding", ROLE, {**JANE, "apiGroup": "apps"}, r"subjects\[0\].apiGroup: Unsupported value"),
        (
            "ClusterRoleBinding",
            {**ROLE, "kind": "ClusterRole"},
            ACCOUNT,
            r"subjects\[0\].namespace: Required value",
        ),
    ],
)
def test_a_binding_that_binds_nobody_is_refused(kind: str, role: Any, subject: Any, fault: str) -> None:
    with pytest.raises(StatusError, match=fault):
        made(kind, roleRef=role, subjects=[subject])


def test_default_roles_are_made_once_and_stay_as_somebody_made_them() -> None:
    registry = Registry(seed=1)
    make_default_roles(registry)
    roles, bindings = (known(f"{GROUP}/v1", kind) for kind in ("ClusterRole", "ClusterRoleBinding"))
    registry.update(roles, "", "view", lambda old: {**old, "rules": [PODS]})
    version = registry.version
    make_default_roles(registry)
    assert registry.version == version
    names = {one["metadata"]["name"] for one in registry.all(bindings)}  # type: ignore[index]
    assert names <= {one["metadata"]["name"] for one in registry.all(roles)}  # type: ignore[index]
