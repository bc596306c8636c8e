"""What kubelets may do, and the rights that the status of a ResourceClaim takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.objects import Object
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.kinds import known
from devplug.sandbox.authorization.authorizer import EVERYTHING, Authorizer, Rights, claim_status_errors
from devplug.sandbox.authorization.nodes import NodeView, why_not
from devplug.sandbox.authorization.rbac import Access
from devplug.sandbox.authorization.users import ADMIN, NODE_NAME, User, node_user, service_account
from devplug.sandbox.registry import NAMESPACES, RESOURCE_SLICES, Registry

DRA = "resource.k8s.io"
RBAC = "rbac.authorization.k8s.io/v1"
JANE = User("jane", ("system:authenticated",))
DRIVER = service_account("lab", "driver", {NODE_NAME: "n1"})


def claims(verb: str, name: str = "c", part_name: str = "") -> Access:
    return Access(
        verb=verb, group=DRA, resource="resourceclaims", part_name=part_name, namespace="lab", name=name
    )


def pod(node: str, **status: Any) -> Object:
    listed = [{"name": "own", "resourceClaimName": "c"}, {"name": "made", "resourceClaimTemplateName": "t"}]
    spec = {"nodeName": node, "resourceClaims": listed}
    return {"metadata": {"name": "p", "namespace": "lab"}, "spec": spec, "status": status}


# ── kubelets ──


def test_a_kubelet_reads_the_claims_of_its_pods() -> None:
    """D95: named ones, generated ones, and those for extended resources."""
    made = {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}]}
    extended = {"extendedResourceClaimStatus": {"resourceClaimName": "p-extended-resources-x"}}
    view = NodeView(pods=[pod("n1", **made, **extended)])
    for name in ("c", "p-made-x", "p-extended-resources-x"):
        assert why_not("n1", claims("get", name), view) is None
        refused = why_not("n2", claims("get", name), view)
        assert refused == "no relationship found between node 'n2' and this object"
    assert why_not("n1", claims("get", "own"), view) is not None
    assert why_not("n1", claims("update"), view) == "can only get individual resources of this type"
    assert why_not("n1", claims("get", part_name="status"), view) == "cannot get subresource"


def test_a_kubelet_reads_its_own_node_and_pods() -> None:
    view = NodeView(pods=[pod("n1")])

    def asked(verb: str, resource: str, name: str = "", **more: Any) -> str | None:
        return why_not("n1", Access(verb=verb, resource=resource, name=name, **more), view)

    assert asked("get", "nodes", "n1") is None
    assert asked("get", "nodes", "n2") == "node 'n1' cannot read 'n2', only its own Node object"
    assert asked("list", "nodes") == "node 'n1' cannot read all nodes, only its own Node object"
    assert asked("patch", "nodes", "n1", part_name="status") is None
    assert asked("delete", "nodes", "n1") == ""
    assert asked("get", "pods", "p", namespace="lab") is None
    assert asked("get", "pods", "q", namespace="lab") is not None
    assert asked("list", "pods", fields={"spec.nodeName": "n1"}) is None
    assert asked("list", "pods") == "can only list/watch pods with spec.nodeName field selector"
    assert asked("watch", "pods", "p", namespace="lab") is None
    assert asked("update", "pods", "p", namespace="lab") == ""
    assert asked("create", "events", namespace="lab") is None
    assert asked("list", "configmaps", namespace="lab") == ""


def test_a_kubelet_renews_its_own_lease() -> None:
    def asked(verb: str, name: str, namespace: str = "kube-node-lease") -> str | None:
        lease = Access(
            verb=verb, group="coordination.k8s.io", resource="leases", namespace=namespace, name=name
        )
        return why_not("n1", lease, NodeView())

    assert asked("update", "n1") is None
    assert asked("create", "") is None
    assert asked("update", "n2") == "can only access node lease with the same name as the requesting node"
    assert asked("get", "n1", "lab") == 'can only access leases in the "kube-node-lease" system namespace'
    assert asked("list", "") == "can only get, create, update, patch, or delete a node lease"


@given(
    st.sampled_from(["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]),
    st.sampled_from(["s1", "s2", ""]),
    st.sampled_from(["n1", "n2", ""]),
)
def test_a_kubelet_touches_no_slice_of_another_node(verb: str, name: str, selected: str) -> None:
    """D95: slices are reached by a name that is its node's, or by a selector for it."""
    view = NodeView(
        slices=[{"metadata": {"name": f"s{n}"}, "spec": {"nodeName": f"n{n}"}} for n in ("1", "2")]
    )
    wanted = {"spec.nodeName": selected} if selected else {}
    access = Access(verb=verb, group=DRA, resource="resourceslices", name=name, fields=wanted)
    if verb != "create" and why_not("n1", access, view) is None:
        of_one = verb in {"get", "update", "patch", "delete"}
        assert (name == "s1") if of_one else (selected == "n1")


# ── all authorizers together ──


def registry(*objects: tuple[str, Object]) -> Registry:
    made = Registry(seed=1)
    made.create(NAMESPACES, "", {"metadata": {"name": "lab"}})
    for kind, one in objects:
        made.create(known(RBAC, kind), "lab" if kind in {"Role", "RoleBinding"} else "", one)
    return made


def bound_to_jane(name: str, *rules: Any) -> list[tuple[str, Object]]:
    meta: Object = {"metadata": {"name": name}}
    role = {"kind": "ClusterRole", "name": name}
    return [
        *([("ClusterRole", {"kind": "ClusterRole", **meta, "rules": list(rules)})] if rules else []),
        (
            "ClusterRoleBinding",
            {
                "kind": "ClusterRoleBinding",
                **meta,
                "roleRef": role,
                "subjects": [{"kind": "User", "name": "jane"}],
            },
        ),
    ]


def test_the_group_of_masters_may_do_everything() -> None:
    authorizer = Authorizer(registry())
    assert authorizer.decide(ADMIN, claims("delete")).is_allowed
    assert not authorizer.decide(JANE, claims("get")).is_allowed


def test_without_an_authorizer_everybody_may_do_everything() -> None:
    Rights(JANE).require(claims("delete"))
    EVERYTHING.require_own_slice(RESOURCE_SLICES, {})


def test_what_is_wrong_with_bindings_is_told_with_the_refusal() -> None:
    authorizer = Authorizer(registry(*bound_to_jane("gone"), *bound_to_jane("lost")))
    reason = authorizer.decide(JANE, claims("get")).reason
    assert reason == (
        'RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, '
        'clusterrole.rbac.authorization.k8s.io "lost" not found]'
    )


def test_a_kubelet_may_also_do_what_roles_allow() -> None:
    to_nodes = {"kind": "Group", "name": "system:nodes"}
    (_, role), (_, binding) = bound_to_jane(
        "r", {"verbs": ["list"], "apiGroups": [DRA], "resources": ["resourceclaims"]}
    )
    kubelets = Authorizer(
        registry(("ClusterRole", role), ("ClusterRoleBinding", {**binding, "subjects": [to_nodes]}))
    )
    assert kubelets.decide(node_user("n1"), claims("list", "")).is_allowed


def test_roles_cannot_tell_nodes_apart_and_deleting_many_is_a_verb_of_its_own() -> None:
    """D96; what charts add to that, ValidatingAdmissionPolicies, is not in the sandbox."""
    writes = {"verbs": ["create", "delete"], "apiGroups": [DRA], "resources": ["resourceslices"]}
    rights = Rights(JANE, Authorizer(registry(*bound_to_jane("r", writes))))
    rights.require(Access(verb="create", group=DRA, resource="resourceslices"))
    rights.require_own_slice(RESOURCE_SLICES, {"spec": {"nodeName": "n2"}})
    with pytest.raises(StatusError, match="cannot deletecollection resource"):
        rights.require(Access(verb="deletecollection", group=DRA, resource="resourceslices"))


def test_who_may_impersonate_has_the_rights_of_that_user() -> None:
    impersonates = {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"]}
    rights = Rights(JANE, Authorizer(registry(*bound_to_jane("r", impersonates))))
    assert rights.acting_as("joe", [], {}).user == User("joe", ("system:authenticated",))
    with pytest.raises(StatusError) as refused:
        rights.acting_as("joe", ["system:masters"], {})
    assert str(refused.value) == (
        'groups "system:masters" is forbidden: User "jane" cannot impersonate resource "groups" '
        'in API group "" at the cluster scope'
    )
    with pytest.raises(StatusError, match='impersonate resource "serviceaccounts"'):
        rights.acting_as(DRIVER.name, [], {})
    with pytest.raises(StatusError, match='impersonate resource "userextras/scopes"'):
        rights.acting_as("joe", [], {"scopes": ("all",)})
    admin = Rights(ADMIN, rights.authorizer)
    assert admin.acting_as(DRIVER.name, [], dict(DRIVER.extra)).user == DRIVER
    assert admin.acting_as("system:node:n1", ["system:nodes"], {}).user == node_user("n1")


# ── the status of a claim ──

ON_N1 = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
entries = st.lists(
    st.fixed_dictionaries(
        {
            "driver": st.sampled_from(["a.example.com", "b.example.com"]),
            "pool": st.just("p"),
            "device": st.sampled_from(["d0", "d1"]),
        },
        optional={"shareID": st.just("s"), "data": st.sampled_from([{"x": 1}, {"x": 2}])},
    ),
    max_size=3,
    unique_by=lambda one: (one["driver"], one["device"], one.get("shareID")),
)


def claim(devices: list[Any], term: Any = None) -> Object:
    selector = {"nodeSelector": {"nodeSelectorTerms": [term]}} if term else {}
    return {"status": {"allocation": {"devices": {}, **selector}, "devices": devices}}


def drivers_asked(new: Object, old: Object, user: User = DRIVER) -> set[tuple[str, str]]:
    """Return which rights were asked for: verbs and drivers."""
    asked: set[tuple[str, str]] = set()

    def why_not(access: Access) -> str:
        asked.add((access.verb, access.name))
        return "no"

    list(claim_status_errors(user, claims("patch", part_name="status"), new, old, why_not))
    return asked


@given(entries, entries)
def test_each_driver_whose_entries_change_is_asked_for_and_no_other(old: list[Any], new: list[Any]) -> None:
    """D93."""
    changed = {one["driver"] for one in [*old, *new] if one not in old or one not in new}
    asked = drivers_asked(claim(new, ON_N1), claim(old, ON_N1))
    assert {driver for _, driver in asked} == changed
    assert drivers_asked(claim(new), claim(new)) == set()


@pytest.mark.parametrize(
    ("user", "term", "is_associated"),
    [
        (DRIVER, ON_N1, True),
        (service_account("lab", "driver", {NODE_NAME: "n2"}), ON_N1, False),
        (service_account("lab", "driver"), ON_N1, False),
        (User("jane", extra={NODE_NAME: ("n1",)}), ON_N1, False),
        (DRIVER, None, False),
        (DRIVER, {**ON_N1, "matchExpressions": [{"key": "a", "operator": "Exists"}]}, False),
        (DRIVER, {"matchExpressions": [{"key": "a", "operator": "Exists"}]}, False),
    ],
)
def test_a_driver_is_of_the_node_if_the_claim_and_its_token_are(
    user: User, term: Any, is_associated: bool
) -> None:
    """D93: the claim is allocated for the node's name, and the service account's token was made for it."""
    new, old = claim([{"driver": "a", "pool": "p", "device": "d"}], term), claim([], term)
    verbs = {verb for verb, _ in drivers_asked(new, old, user)}
    here = {"associated-node:patch"} if is_associated else set()
    assert verbs == {"arbitrary-node:patch", *here}


def test_all_that_is_missing_is_told() -> None:
    """D93, D94."""
    old: Object = {"status": {}}
    new: Object = {"status": {"allocation": {}, "reservedFor": [{"name": "p"}], "devices": []}}
    assert drivers_asked(old, old) == set()
    assert drivers_asked(new, old) == {("patch", "")}
    rights = Rights(DRIVER, Authorizer(registry()))
    changed: Object = {
        "status": {"reservedFor": [{"name": "p"}], "devices": [{"driver": "b"}, {"driver": "a"}]}
    }
    with pytest.raises(StatusError) as refused:
        rights.require_claim_status(claims("update", part_name="status"), changed, old)
    causes = (refused.value.details or {})["causes"]
    assert isinstance(causes, list)
    assert [one["field"] for one in causes] == ["status.allocation", "status.devices", "status.devices"]
