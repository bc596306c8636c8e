"""Who may do what at a server with roles, over its socket and with kubectl."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devplug.k8s.objects import text
from devplug.sandbox.api.kinds import known
from devplug.sandbox.authorization.rbac import make_default_roles
from devplug.sandbox.registry import RESOURCE_CLAIMS, RESOURCE_SLICES, SERVICE_ACCOUNTS
from tests.golden.permissions import CLAIMS, DRIVER, SLICES, claim, device_slice, status
from tests.sandbox.server.beds import Kubectl, Server, registry_of_test, served

RBAC = "rbac.authorization.k8s.io/v1"
TOKEN_PATH = "/api/v1/namespaces/perm/serviceaccounts/drv/token"
AS_NODE = {"Impersonate-User": "system:node:worker-0", "Impersonate-Group": "system:nodes"}
REVIEWS = "/apis/authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    registry = registry_of_test("perm")
    make_default_roles(registry)
    registry.create(SERVICE_ACCOUNTS, "perm", {"metadata": {"name": "drv"}})
    rules = [
        {"verbs": ["get", "list"], "apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"]},
        {"verbs": ["patch"], "apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"]},
    ]
    role: Any = {"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "driver"}, "rules": rules}
    registry.create(known(RBAC, "Role"), "perm", role)
    registry.create(
        known(RBAC, "RoleBinding"),
        "perm",
        {
            "apiVersion": RBAC,
            "kind": "RoleBinding",
            "metadata": {"name": "driver"},
            "roleRef": {"kind": "Role", "name": "driver"},
            "subjects": [{"kind": "ServiceAccount", "name": "drv"}],
        },
    )
    registry.create(RESOURCE_CLAIMS, "perm", claim({}))
    registry.set_status(RESOURCE_CLAIMS, "perm", "c", status())
    registry.create(RESOURCE_SLICES, "", device_slice("mine", nodeName="worker-0"))
    with served(registry, rbac=True) as running:
        yield running


@pytest.fixture(scope="module")
def token(server: Server) -> str:
    answer = server.ask("POST", TOKEN_PATH, {"spec": {"audiences": []}})
    assert answer.code == 201
    return text(answer.json, "status", "token")


def test_a_service_account_does_what_its_role_allows(server: Server, token: str) -> None:
    assert server.ask("GET", f"{CLAIMS}/c", token=token).code == 200
    assert server.ask("GET", CLAIMS, token=token).code == 200
    assert server.ask("GET", f"/{token}{CLAIMS}", token=None).code == 200


@pytest.mark.parametrize(
    ("method", "path", "about", "what"),
    [
        (
            "GET",
            "/api/v1/namespaces/perm/pods?watch=true",
            "pods is forbidden",
            'watch resource "pods" in API group "" in the namespace "perm"',
        ),
        (
            "DELETE",
            f"{CLAIMS}/c",
            'resourceclaims.resource.k8s.io "c" is forbidden',
            'delete resource "resourceclaims" in API group "resource.k8s.io" in the namespace "perm"',
        ),
        (
            "GET",
            "/api/v1/namespaces/perm/pods/a/log",
            'pods "a" is forbidden',
            'get resource "pods/log" in API group "" in the namespace "perm"',
        ),
        (
            "GET",
            "/api/v1/nodes/worker-0/proxy/metrics",
            'nodes "worker-0" is forbidden',
            'get resource "nodes/proxy" in API group "" at the cluster scope',
        ),
        ("GET", "/sandbox/v1/nodes", "forbidden", 'get path "/sandbox/v1/nodes"'),
    ],
)
def test_a_service_account_is_refused_the_rest_in_the_servers_words(
    server: Server, token: str, method: str, path: str, about: str, what: str
) -> None:
    answer = server.ask(method, path, token=token)
    assert (answer.code, answer.json["reason"]) == (403, "Forbidden")
    assert answer.message == f'{about}: User "system:serviceaccount:perm:drv" cannot {what}'


def test_a_right_to_one_name_reads_no_list(server: Server, token: str) -> None:
    path = "/api/v1/namespaces/perm/configmaps"
    assert server.ask("GET", f"{path}/mine", token=token).code == 404
    assert server.ask("GET", f"{path}/other", token=token).code == 403
    assert server.ask("GET", path, token=token).code == 403
    assert server.ask("GET", f"{path}?fieldSelector=metadata.name%3Dmine&watch=true", token=token).code == 403


def test_everybody_may_read_what_the_server_is(server: Server, token: str) -> None:
    for path in ("/version", "/api", "/apis/apps/v1", "/openapi/v3", "/readyz"):
        assert server.ask("GET", path, token=token).code == 200
    assert server.ask("GET", "/version", token=None).code == 200
    assert server.ask("GET", "/api", token=None).code == 401
    assert server.ask("GET", "/api", token=f"{token}x").code == 401


def test_the_status_of_a_claim_takes_more_rights(server: Server, token: str) -> None:
    """D93, D94: the refusal is of fields, and a change of nothing takes none."""
    path, merge = f"{CLAIMS}/c/status", {"Content-Type": "application/merge-patch+json"}
    changed = {"status": {"devices": status(devices=True)["devices"], "reservedFor": []}}
    answer = server.ask("PATCH", path, changed, merge, token=token)
    assert (answer.code, answer.json["reason"]) == (422, "Invalid")
    assert [one["field"] for one in answer.json["details"]["causes"]] == [
        "status.allocation",
        "status.devices",
    ]
    assert 'verb="[arbitrary-node:patch]" permission' in answer.message
    assert server.ask("PATCH", path, {"status": {}}, merge, token=token).code == 200
    held = server.ask("GET", path, token=token)
    assert held.code == 403
    whole = server.ask("GET", f"{CLAIMS}/c", token=token).json
    assert server.ask("PATCH", path, whole, merge, token=token).code == 200


# ── kubelets, and whom one may be instead ──


def test_a_kubelet_publishes_for_its_own_node_alone(server: Server) -> None:
    """D95."""
    slices = {name: device_slice(name, nodeName=f"worker-{name}") for name in ("0", "1")}
    assert server.ask("POST", SLICES, slices["0"], AS_NODE).code == 201
    refused = server.ask("POST", SLICES, slices["1"], AS_NODE)
    assert (refused.code, refused.message) == (
        403,
        (
            'resourceslices.resource.k8s.io "1" is forbidden: '
            "can only create ResourceSlice with the same NodeName as the requesting node"
        ),
    )
    of_node = f"{SLICES}?fieldSelector=spec.nodeName%3Dworker-0%2Cspec.driver%3D{DRIVER}"
    assert len(server.ask("GET", of_node, headers=AS_NODE).json["items"]) == 2
    assert server.ask("DELETE", f"{SLICES}/0", headers=AS_NODE).code == 200


def test_only_who_may_impersonate_is_another_user(server: Server, token: str) -> None:
    answer = server.ask("GET", CLAIMS, headers={"Impersonate-User": "jane"}, token=token)
    assert answer.message == (
        'users "jane" is forbidden: User "system:serviceaccount:perm:drv" cannot impersonate resource '
        '"users" in API group "" at the cluster scope'
    )
    assert server.ask("GET", CLAIMS, headers={"Impersonate-Group": "ops"}).code == 500


# ── reviews ──


def reviewed(server: Server, kind: str, spec: Any, token: str, group: str = REVIEWS) -> Any:
    review = {"kind": kind, "apiVersion": group.removeprefix("/apis/"), "spec": spec}
    answer = server.ask("POST", f"{group}/{kind.lower()}s", review, token=token)
    assert answer.code == 201, answer.body
    return answer.json["status"]


def test_reviews_answer_for_who_asks(server: Server, token: str) -> None:
    wanted = {"group": "resource.k8s.io", "resource": "resourceclaims", "namespace": "perm"}

    def may(**access: str) -> Any:
        spec = {"resourceAttributes": {**wanted, **access}}
        return reviewed(server, "SelfSubjectAccessReview", spec, token)["allowed"]

    assert may(verb="get", name="c")
    assert not may(verb="update", name="c")
    assert not may(verb="get", namespace="default")
    path = {"nonResourceAttributes": {"path": "/api", "verb": "get"}}
    assert reviewed(server, "SelfSubjectAccessReview", path, token) == {"allowed": True}
    rules = reviewed(server, "SelfSubjectRulesReview", {"namespace": "perm"}, token)
    assert {"resourceclaims"} in [set(one["resources"]) for one in rules["resourceRules"]]
    assert any("/api" in one["nonResourceURLs"] for one in rules["nonResourceRules"])
    who = reviewed(server, "SelfSubjectReview", {}, token, "/apis/authentication.k8s.io/v1")
    assert who["userInfo"]["username"] == "system:serviceaccount:perm:drv"


# ── kubectl ──


@pytest.fixture
def kubectl(server: Server, tmp_path: Path) -> Kubectl:
    return Kubectl(tmp_path, server.kubeconfig)


def test_kubectl_asks_and_acts_as_others(kubectl: Kubectl) -> None:
    driver = ("-n", "perm", "--as=system:serviceaccount:perm:drv")
    assert kubectl("auth", "can-i", "get", "resourceclaims", *driver).stdout == "yes\n"
    assert kubectl("auth", "can-i", "delete", "resourceclaims", *driver).stdout == "no\n"
    assert "system:serviceaccounts:perm" in kubectl("auth", "whoami", *driver).stdout
    assert "[get list]" in kubectl("auth", "can-i", "--list", *driver).stdout
    refused = kubectl("get", "pods", *driver)
    assert refused.stderr == (
        'Error from server (Forbidden): pods is forbidden: User "system:serviceaccount:perm:drv" cannot list '
        'resource "pods" in API group "" in the namespace "perm"\n'
    )


def test_kubectl_makes_a_token_that_is_used_in_the_path(server: Server, kubectl: Kubectl) -> None:
    made = kubectl("create", "token", "drv", "-n", "perm")
    assert made.stderr == ""
    url = f"http://127.0.0.1:{server.port}/{made.stdout.strip()}"
    assert "c " in kubectl("--server", url, "get", "resourceclaims", "-n", "perm").stdout


def test_kubectl_makes_and_shows_roles(kubectl: Kubectl) -> None:
    in_default = ("-n", "default")
    kubectl("create", "serviceaccount", "reader", *in_default)
    kubectl("create", "role", "reader", "--verb=get", "--resource=pods", *in_default)
    bound = ("--role=reader", "--serviceaccount=default:reader", "--user=jane")
    kubectl("create", "rolebinding", "reader", *bound, *in_default)
    listed = kubectl("get", "rolebinding", "reader", "-o", "wide", *in_default).stdout.split()
    assert listed[:6] == ["NAME", "ROLE", "AGE", "USERS", "GROUPS", "SERVICEACCOUNTS"]
    assert (listed[7], listed[9], listed[10]) == ("Role/reader", "jane", "default/reader")
    assert "CREATED AT" in kubectl("get", "roles", *in_default).stdout
    told = kubectl("describe", "role", "reader", *in_default).stdout
    assert "pods       []                 []              [get]" in told
    assert kubectl("auth", "can-i", "get", "pods", "--as=jane", *in_default).stdout == "yes\n"
    changed = '{"roleRef": {"name": "other"}}'
    refused = kubectl("patch", "rolebinding", "reader", "--type=merge", "-p", changed, *in_default)
    assert refused.stderr == (
        'The RoleBinding "reader" is invalid: roleRef: Invalid value: '
        '{"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"other"}: cannot change roleRef\n'
    )
