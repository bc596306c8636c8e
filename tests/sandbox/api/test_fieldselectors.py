"""Field selectors: what they match in each kind, and the words for what is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.sandbox.api.fieldselectors import field_selector
from devplug.sandbox.api.kinds import SERVED, Resource, resource_of_path
from devplug.sandbox.api.labelselectors import SelectorError
from devplug.sandbox.server.versions import asked_form, kept_form


def served(plural: str, group: str = "") -> Resource:
    found = resource_of_path(group, "v1", plural)
    assert found is not None
    return found


PODS = served("pods")
FIELDS = {
    "metadata.name": ("metadata", "name"),
    "spec.nodeName": ("spec", "nodeName"),
    "status.phase": ("status", "phase"),
}
VALUES = st.sampled_from(["", "a", "a,b", "a=b", "a\\b", "w-1"])


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(FIELDS)), st.sampled_from(["=", "==", "!="]), VALUES), max_size=3
    ),
    st.fixed_dictionaries(dict.fromkeys(sorted(FIELDS), VALUES)),
)
def test_a_selector_matches_just_when_each_of_its_terms_does(
    asked: list[tuple[str, str, str]], held: dict[str, str]
) -> None:
    pod: dict[str, Any] = {"metadata": {}, "spec": {}, "status": {}}
    for name, (part, field) in FIELDS.items():
        pod[part][field] = held[name]
    escaped = [
        name + sign + value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
        for name, sign, value in asked
    ]
    selector = field_selector(",".join(escaped), PODS)
    assert selector.matches(pod) == all(
        (held[name] == value) is (sign != "!=") for name, sign, value in asked
    )


@pytest.mark.parametrize(
    ("written", "resource", "told"),
    [
        ("status.x=1", PODS, "field label not supported: status.x"),
        ("metadata.namespace=x", served("nodes"), "field label not supported: metadata.namespace"),
        (
            "spec.x=1",
            served("configmaps"),
            '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        (
            "involvedObject.name=x",
            served("events", "events.k8s.io"),
            "field label not supported: involvedObject.name",
        ),
        ("metadata.name", PODS, "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("metadata.name=a\\x", PODS, "invalid field selector: invalid escape sequence: \\x"),
        ("metadata.name=a\\", PODS, "invalid field selector: invalid escape sequence: \\"),
        ("metadata.name=a=b", PODS, "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_what_is_no_selector_is_refused_in_the_server_s_words(
    written: str, resource: Resource, told: str
) -> None:
    with pytest.raises(SelectorError) as refused:
        field_selector(written, resource)
    assert str(refused.value) == told


@pytest.mark.parametrize("resource", SERVED, ids=lambda one: one.qualified)
def test_each_kind_is_found_by_its_name_and_by_nothing(resource: Resource) -> None:
    one: dict[str, Any] = {"metadata": {"name": "one"}}
    assert field_selector("metadata.name=one", resource).matches(one)
    assert not field_selector("metadata.name!=one,", resource).matches(one)
    assert field_selector("", resource).matches({})


EVENT: dict[str, Any] = {
    "kind": "Event",
    "apiVersion": "v1",
    "metadata": {"name": "w-two.1", "namespace": "default"},
    "involvedObject": {"kind": "Pod", "name": "w-two", "namespace": "default"},
    "reason": "FailedScheduling",
    "message": "0/1 nodes are available",
    "type": "Warning",
    "count": 2,
    "source": {"component": "default-scheduler"},
    "reportingComponent": "default-scheduler",
}


def test_events_are_found_by_what_they_are_about() -> None:
    asked = "involvedObject.name=w-two,involvedObject.kind=Pod,source=default-scheduler,type!=Normal"
    assert field_selector(asked, served("events")).matches(EVENT)
    assert not field_selector("involvedObject.name=w-one", served("events")).matches(EVENT)
    by_group = field_selector(
        "regarding.name=w-two,reportingController=default-scheduler", served("events", "events.k8s.io")
    )
    assert by_group.matches(EVENT)


def test_an_event_has_two_forms_that_say_the_same() -> None:
    resource = served("events", "events.k8s.io")
    grouped = asked_form(resource, EVENT)
    assert (grouped["regarding"], grouped["note"]) == (EVENT["involvedObject"], EVENT["message"])
    assert grouped["deprecatedCount"] == 2
    assert kept_form(resource, grouped) == EVENT


def test_an_old_client_s_host_is_the_node_and_booleans_are_words() -> None:
    pod: dict[str, Any] = {"spec": {"nodeName": "worker-0", "hostNetwork": True}}
    assert field_selector("spec.host=worker-0,spec.hostNetwork=true", PODS).matches(pod)
    assert field_selector("spec.unschedulable=false", served("nodes")).matches({"spec": {}})
