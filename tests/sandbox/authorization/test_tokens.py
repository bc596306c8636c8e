"""The tokens of users: whose they are, how long they are valid, and what they may be bound to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.objects import Object, text
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.authorization.tokens import issued, pod_user, signed, user_of_token
from devplug.sandbox.authorization.users import (
    User,
    account_of,
    groups_of_name,
    node_of,
    node_user,
    service_account,
)
from devplug.sandbox.registry import NAMESPACES, NODES, PODS, Registry

NOW = datetime(2026, 11, 23, 9, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
SECRET = "a secret of a test"

texts = st.text(max_size=8)
# Of a Struct's own signature hypothesis would read the annotations, which are there for mypy alone.
users = st.builds(
    lambda *told: User(*told),  # noqa: PLW0108
    texts,
    st.lists(texts, max_size=3).map(tuple),
    st.dictionaries(texts, st.lists(texts, max_size=2).map(tuple), max_size=2),
)


@given(users, texts.filter(bool))
def test_a_token_tells_its_user_to_who_has_the_secret(user: User, secret: str) -> None:
    token = signed(user, secret, LATER)
    assert user_of_token(token, secret, NOW) == user
    assert user_of_token(token, f"{secret}x", NOW) is None
    assert user_of_token(token, secret, LATER) is None


@given(users, st.data())
def test_a_token_with_another_character_is_nobodys(user: User, data: st.DataObject) -> None:
    token = signed(user, SECRET, LATER)
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters().filter(lambda one: one != token[place]))
    assert user_of_token(f"{token[:place]}{other}{token[place + 1 :]}", SECRET, NOW) is None


@given(texts)
def test_what_is_no_token_is_nobodys(given_token: str) -> None:
    assert user_of_token(given_token, SECRET, NOW) is None


def test_nothing_is_signed_without_a_secret() -> None:
    assert user_of_token(signed(User("jane"), "", LATER), "", NOW) is None


def test_the_names_of_service_accounts_and_nodes_say_their_groups() -> None:
    account = service_account("lab", "driver")
    assert account.name == "system:serviceaccount:lab:driver"
    assert account.groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:lab",
        "system:authenticated",
    )
    assert account_of(account.name) == ("lab", "driver")
    assert account_of("system:serviceaccount:lab") is None
    assert groups_of_name("jane") == ("system:authenticated",)
    assert node_of(node_user("worker-0")) == "worker-0"
    assert not node_of(User("system:node:worker-0"))


# ── requests for one ──


def registry() -> Registry:
    made = Registry(seed=1, now=lambda: NOW)
    made.create(NAMESPACES, "", {"metadata": {"name": "lab"}})
    made.create(NODES, "", {"metadata": {"name": "worker-0"}})
    container = {"name": "main", "image": "x"}
    spec = {"serviceAccountName": "driver", "nodeName": "worker-0", "containers": [container]}
    made.create(PODS, "lab", {"metadata": {"name": "driver-x"}, "spec": spec})
    return made


def asked(**spec: Any) -> Any:
    account: Object = {"metadata": {"namespace": "lab", "name": "driver"}}
    return issued({"spec": {"audiences": [], **spec}}, account, registry(), SECRET)


def test_a_token_of_a_pod_tells_its_node() -> None:
    """D93: the node comes from the token."""
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "driver-x"}
    answer = asked(boundObjectRef=bound)
    user = user_of_token(answer["status"]["token"], SECRET, NOW)
    assert user == pod_user(registry().get(PODS, "lab", "driver-x"))
    assert user is not None
    assert user.extra["authentication.kubernetes.io/node-name"] == ("worker-0",)
    assert user.extra["authentication.kubernetes.io/pod-name"] == ("driver-x",)
    assert answer["status"]["expirationTimestamp"] == "2026-11-23T10:00:00Z"


def test_a_token_of_a_node_tells_the_node_alone() -> None:
    answer = asked(boundObjectRef={"kind": "Node", "apiVersion": "v1", "name": "worker-0"})
    expected = service_account("lab", "driver", {"authentication.kubernetes.io/node-name": "worker-0"})
    assert user_of_token(answer["status"]["token"], SECRET, NOW) == expected


def test_a_token_lives_as_long_as_it_is_asked_for() -> None:
    token = text(asked(expirationSeconds=600), "status", "token")
    assert user_of_token(token, SECRET, NOW + timedelta(seconds=599)) == service_account("lab", "driver")
    assert user_of_token(token, SECRET, NOW + timedelta(seconds=600)) is None


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"expirationSeconds": 60}, "may not specify a duration less than 10 minutes"),
        ({"boundObjectRef": {"kind": "Pod", "name": "gone"}}, 'pods "gone" not found'),
        ({"boundObjectRef": {"kind": "Node", "name": "gone"}}, 'nodes "gone" not found'),
        ({"boundObjectRef": {"kind": "Pod", "name": "driver-x", "uid": "u"}}, "UID in the bound object"),
        ({"boundObjectRef": {"kind": "Secret", "apiVersion": "v1"}}, "object of type v1, Kind=Secret"),
    ],
)
def test_a_token_that_cannot_be_is_refused(spec: Any, sentence: str) -> None:
    with pytest.raises(StatusError, match=sentence):
        asked(**spec)


def test_a_pod_of_another_account_gives_no_token() -> None:
    account: Object = {"metadata": {"namespace": "lab", "name": "another"}}
    bound = {"kind": "Pod", "name": "driver-x"}
    with pytest.raises(StatusError, match="pod running with different serviceaccount name"):
        issued({"spec": {"boundObjectRef": bound}}, account, registry(), SECRET)
