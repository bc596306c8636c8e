"""What roles allow: rules, bindings and subjects, and the sentence of a refusal."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.objects import Object
from devplug.sandbox.authorization.rbac import Access, Policy, allows, refusal
from devplug.sandbox.authorization.users import ADMIN, User, service_account

VERBS = ("get", "list", "associated-node:update")
GROUPS = ("", "apps", "resource.k8s.io")
PLURALS = ("pods", "resourceclaims")
PARTS = ("", "status", "driver")
NAMES = ("", "a", "gpu.example.com")
PATHS = ("/api", "/api/v1", "/apis", "/metrics")
RESOURCES = [f"{plural}/{part}" if part else plural for plural, part in product(PLURALS, PARTS)]
DRIVER = service_account("lab", "driver")

# Of a Struct's own signature hypothesis would read the annotations, which are there for mypy alone.
accesses = st.builds(
    lambda **more: Access(**more),  # noqa: PLW0108
    verb=st.sampled_from(VERBS),
    group=st.sampled_from(GROUPS),
    resource=st.sampled_from(PLURALS),
    part_name=st.sampled_from(PARTS),
    name=st.sampled_from(NAMES),
    namespace=st.sampled_from(["", "lab", "other"]),
)
rules = st.fixed_dictionaries(
    {
        "verbs": st.lists(st.sampled_from(["*", *VERBS]), max_size=2),
        "apiGroups": st.lists(st.sampled_from(["*", *GROUPS]), max_size=2),
        "resources": st.lists(st.sampled_from(["*", "*/status", "*/driver", *RESOURCES]), max_size=2),
        "resourceNames": st.lists(st.sampled_from(NAMES[1:]), max_size=1),
    }
)
users = st.sampled_from([DRIVER, service_account("other", "driver"), User("jane", ("ops",)), User("joe")])
subjects = st.sampled_from(
    [
        {"kind": "User", "name": "jane"},
        {"kind": "Group", "name": "ops"},
        {"kind": "Group", "name": "system:serviceaccounts:lab"},
        {"kind": "ServiceAccount", "name": "driver", "namespace": "lab"},
        {"kind": "ServiceAccount", "name": "driver"},
    ]
)


def named(namespace: str, **more: object) -> Object:
    return {"metadata": {"name": "r", **({"namespace": namespace} if namespace else {})}, **more}


def bound(namespace: str, kind: str, *who: Object) -> Object:
    return named(namespace, roleRef={"kind": kind, "name": "r"}, subjects=list(who))


def is_allowed(policy: Policy, user: User, access: Access) -> bool:
    return any(allows(rule, access) for rule in policy.rules_for(user, access.namespace)[0])


# ── rules ──


@given(rules, accesses)
def test_a_rule_allows_what_it_stands_for_written_out(rule: dict[str, list[str]], access: Access) -> None:
    """Each `*` is written out as all that there is, and a rule is then the product of its lists."""
    verbs = VERBS if "*" in rule["verbs"] else rule["verbs"]
    groups = GROUPS if "*" in rule["apiGroups"] else rule["apiGroups"]
    resources = {one for one in RESOURCES if one in rule["resources"] or "*" in rule["resources"]}
    resources |= {one for one in RESOURCES if f"*/{one.partition('/')[2]}" in rule["resources"]}
    covered = product(verbs, groups, resources, rule["resourceNames"] or NAMES)
    assert allows(rule, access) == ((access.verb, access.group, access.combined, access.name) in set(covered))


@given(st.lists(rules, max_size=3), rules, accesses)
def test_another_rule_never_takes_a_right_away(held: list[Object], more: Object, access: Access) -> None:
    before, after = (
        Policy([named("", rules=every)], [bound("", "ClusterRole", {"kind": "User", "name": "jane"})])
        for every in (held, [*held, more])
    )
    jane = User("jane")
    assert is_allowed(after, jane, access) or not is_allowed(before, jane, access)


@given(st.sampled_from(PATHS), st.lists(st.sampled_from(["*", "/api*", "/api/*", *PATHS]), max_size=2))
def test_a_path_is_allowed_whole_or_by_its_beginning(path: str, urls: list[str]) -> None:
    rule = {"verbs": ["get"], "nonResourceURLs": urls}
    covered = any(url == path or (url.endswith("*") and path.startswith(url[:-1])) for url in urls)
    assert allows(rule, Access(verb="get", path=path)) == covered


def test_a_resource_does_not_stand_for_its_subresources() -> None:
    rule = {"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]}
    assert allows(rule, Access(verb="get", resource="pods", name="a"))
    assert not allows(rule, Access(verb="get", resource="pods", part_name="log", name="a"))


# ── bindings ──


@given(users, subjects, accesses, st.sampled_from(["Role", "ClusterRole"]))
def test_a_binding_in_a_namespace_gives_nothing_outside_of_it(
    user: User, subject: Object, access: Access, kind: str
) -> None:
    all_rights = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    policy = Policy(
        cluster_roles=[named("", rules=all_rights)],
        roles=[named("lab", rules=all_rights)],
        role_bindings=[bound("lab", kind, subject)],
    )
    if is_allowed(policy, user, access):
        assert access.namespace == "lab"
        everywhere = Policy([named("", rules=all_rights)], [bound("", "ClusterRole", subject)])
        is_by_default = subject == {"kind": "ServiceAccount", "name": "driver"}
        assert is_by_default or is_allowed(everywhere, user, access)


def test_subjects_are_users_groups_and_service_accounts() -> None:
    rights = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
    asked = Access(verb="get", resource="pods", namespace="lab", name="a")

    def may(user: User, subject: Object) -> bool:
        policy = Policy(roles=[named("lab", rules=rights)], role_bindings=[bound("lab", "Role", subject)])
        return is_allowed(policy, user, asked)

    assert may(User("jane"), {"kind": "User", "name": "jane"})
    assert may(User("jane", ("ops",)), {"kind": "Group", "name": "ops"})
    assert may(DRIVER, {"kind": "Group", "name": "system:serviceaccounts"})
    assert may(DRIVER, {"kind": "ServiceAccount", "name": "driver"})
    assert may(DRIVER, {"kind": "User", "name": "system:serviceaccount:lab:driver"})
    assert not may(DRIVER, {"kind": "ServiceAccount", "name": "driver", "namespace": "other"})
    assert not may(User("ops"), {"kind": "Group", "name": "ops"})


def test_a_role_that_is_not_there_is_told_once() -> None:
    policy = Policy(cluster_role_bindings=[bound("", "ClusterRole", {"kind": "User", "name": "jane"})] * 2)
    assert policy.rules_for(User("jane"), "lab") == (
        [],
        ['clusterrole.rbac.authorization.k8s.io "r" not found'],
    )


# ── refusals ──


def test_a_refusal_says_who_what_and_where() -> None:
    inside = Access(verb="get", resource="pods", part_name="log", namespace="lab", name="a")
    assert str(refusal(ADMIN, inside, "")) == (
        'pods "a" is forbidden: User "devplug-sandbox" cannot get resource "pods/log" in API group "" '
        'in the namespace "lab"'
    )
    everywhere = Access(verb="list", group="apps", resource="daemonsets")
    assert str(refusal(ADMIN, everywhere, "why")) == (
        'daemonsets.apps is forbidden: User "devplug-sandbox" cannot list resource "daemonsets" in API group '
        '"apps" at the cluster scope: why'
    )
    path = Access(verb="get", path="/metrics")
    assert str(refusal(ADMIN, path, "")) == 'forbidden: User "devplug-sandbox" cannot get path "/metrics"'
