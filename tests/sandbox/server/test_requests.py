"""What paths and queries ask for, and what nobody can ask."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.kinds import SERVED, Resource, resource_of_path
from devplug.sandbox.api.options import (
    ContinueToken,
    FieldValidation,
    decoded_token,
    encoded_token,
    list_options,
    write_options,
)
from devplug.sandbox.authorization.rbac import Access
from devplug.sandbox.registry import EVENTS, PODS
from devplug.sandbox.server.routes import Verb, node_of_metrics, request_of


def asked(method: str, path: str, **query: str) -> tuple[str, str, str, str, str]:
    found = request_of(method, path, {key: [value] for key, value in query.items()})
    assert found is not None
    return found.verb.value, found.resource.qualified, found.namespace, found.name, found.part_name


def refusal(method: str, path: str) -> tuple[int, str]:
    with pytest.raises(StatusError) as error:
        request_of(method, path, {})
    return error.value.code, str(error.value)


def listed(*, watches: bool = False, **query: str) -> str:
    """The sentence with which the options are refused."""
    with pytest.raises(StatusError) as error:
        list_options({key: [value] for key, value in query.items()}, PODS, watches=watches)
    return str(error.value)


def test_a_method_and_a_path_make_a_verb_and_a_resource() -> None:
    pods = "/api/v1/namespaces/default/pods"
    assert asked("GET", "/api/v1/pods") == ("list", "pods", "", "", "")
    assert asked("GET", pods) == ("list", "pods", "default", "", "")
    assert asked("GET", pods, watch="true") == ("watch", "pods", "default", "", "")
    assert asked("GET", f"{pods}/a", watch="1") == ("watch", "pods", "default", "a", "")
    assert asked("GET", pods, watch="false") == ("list", "pods", "default", "", "")
    assert asked("POST", pods) == ("create", "pods", "default", "", "")
    assert asked("PATCH", f"{pods}/a/status") == ("patch", "pods", "default", "a", "status")
    assert asked("DELETE", pods) == ("deletecollection", "pods", "default", "", "")
    assert asked("POST", f"{pods}/a/binding") == ("create", "pods", "default", "a", "binding")
    assert asked("DELETE", "/apis/apps/v1/namespaces/n/daemonsets/d") == (
        "delete",
        "daemonsets.apps",
        "n",
        "d",
        "",
    )


def test_namespaces_are_places_and_objects() -> None:
    assert asked("GET", "/api/v1/namespaces") == ("list", "namespaces", "", "", "")
    assert asked("GET", "/api/v1/namespaces/n") == ("get", "namespaces", "", "n", "")
    assert asked("PUT", "/api/v1/namespaces/n/finalize") == ("update", "namespaces", "", "n", "finalize")
    assert asked("GET", "/api/v1/namespaces/status/pods") == ("list", "pods", "status", "", "")


def test_a_request_tells_the_access_that_it_takes() -> None:
    def access(method: str, path: str, **query: str) -> Access:
        found = request_of(method, path, {name: [value] for name, value in query.items()})
        assert found is not None
        return found.access

    inside = Access(verb="get", resource="namespaces", namespace="n", name="n")
    assert access("GET", "/api/v1/namespaces/n") == inside
    of_node = {"fieldSelector": "spec.nodeName=a,metadata.name=p,status.phase!=Failed"}
    wanted = {"spec.nodeName": "a", "metadata.name": "p"}
    assert access("GET", "/api/v1/pods", watch="1", **of_node) == Access(
        verb="watch", resource="pods", name="p", fields=wanted
    )
    assert access("GET", "/api/v1/pods", fieldSelector="misspelt=1") == Access(verb="list", resource="pods")
    assert access("POST", "/api/v1/namespaces/n/pods/p/binding") == Access(
        verb="create", resource="pods", part_name="binding", namespace="n", name="p"
    )


@pytest.mark.parametrize(
    "path",
    [
        "/api/v2/pods",
        "/api/v1/widgets",
        "/api/v1/pods/a",
        "/api/v1/namespaces/n/nodes",
        "/api/v1/namespaces/n/pods/a/scale",
        "/api/v1/namespaces/n/pods/a/status/more",
        "/api/v1/namespaces//pods",
        "/apis//v1/pods",
        "/other",
    ],
)
def test_nothing_is_served_under_other_paths(path: str) -> None:
    assert request_of("GET", path, {}) is None


def test_a_verb_that_a_resource_has_not_is_refused() -> None:
    assert refusal("DELETE", "/api/v1/namespaces") == (
        405,
        'deletecollection is not supported on resources of kind "namespaces"',
    )
    assert refusal("POST", "/api/v1/pods")[0] == 405
    assert refusal("POST", "/api/v1/nodes/a")[0] == 405
    assert refusal("GET", "/api/v1/namespaces/n/bindings")[0] == 405
    assert refusal("DELETE", "/api/v1/nodes/a/status")[0] == 405
    assert refusal("TRACE", "/api/v1/nodes")[0] == 405


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/n/pods/a/exec",
        "/api/v1/namespaces/n/pods/a/attach",
        "/api/v1/namespaces/n/pods/a/portforward",
        "/api/v1/namespaces/n/pods/a/proxy/some/where",
        "/api/v1/nodes/worker-0/proxy/stats/summary",
    ],
)
def test_what_needs_a_container_runtime_is_refused_in_words(path: str) -> None:
    code, sentence = refusal("POST", path)
    assert code == 405
    assert "is not in the devplug sandbox: it has no container runtime" in sentence


def test_the_metrics_of_a_kubelet_are_under_its_nodes_proxy() -> None:
    assert node_of_metrics("GET", "/api/v1/nodes/worker-0/proxy/metrics") == "worker-0"
    assert node_of_metrics("POST", "/api/v1/nodes/worker-0/proxy/metrics") == ""
    assert node_of_metrics("GET", "/api/v1/nodes/worker-0/proxy/stats") == ""


def test_what_the_sandbox_refuses_can_be_asked_for_all_the_same() -> None:
    assert asked("GET", "/apis/apps/v1/deployments") == ("list", "deployments.apps", "", "", "")
    assert asked("DELETE", "/apis/apps/v1/namespaces/n/deployments/d")[0] == "delete"


@pytest.mark.parametrize("resource", SERVED, ids=lambda one: one.qualified)
def test_each_verb_of_discovery_is_found_under_its_path(resource: Resource) -> None:
    root = f"/apis/{resource.api_version}" if resource.group else "/api/v1"
    place = f"{root}/namespaces/n/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
    methods = {
        Verb.GET: ("GET", f"{place}/x", {}),
        Verb.LIST: ("GET", place, {}),
        Verb.WATCH: ("GET", place, {"watch": ["true"]}),
        Verb.CREATE: ("POST", place, {}),
        Verb.UPDATE: ("PUT", f"{place}/x", {}),
        Verb.PATCH: ("PATCH", f"{place}/x", {}),
        Verb.DELETE: ("DELETE", f"{place}/x", {}),
        Verb.DELETE_MANY: ("DELETE", place, {}),
    }
    for verb, (method, path, query) in methods.items():
        if verb.value in resource.verbs:
            found = request_of(method, path, query)
            assert found is not None
            assert (found.verb, found.resource) == (verb, resource)
        else:
            assert refusal(method, path)[0] == 405


def test_a_slash_inside_a_name_is_no_step_of_the_path() -> None:
    assert asked("GET", "/api/v1/nodes/a%2Fb")[3] == "a/b"


# ── options ──


def test_a_list_can_be_asked_for_in_many_ways() -> None:
    query = {
        "labelSelector": ["app=fpga"],
        "fieldSelector": ["spec.nodeName=worker-0"],
        "limit": ["500"],
        "resourceVersion": ["7"],
        "resourceVersionMatch": ["Exact"],
    }
    options = list_options(query, PODS, watches=False)
    assert (str(options.labels), options.fields.terms[0].field) == ("app=fpga", "spec.nodeName")
    assert (options.limit, options.version, options.is_exact, options.selects) == (500, "7", True, True)


def test_a_watch_can_ask_for_the_list_first() -> None:
    query = {
        "sendInitialEvents": ["true"],
        "resourceVersionMatch": ["NotOlderThan"],
        "allowWatchBookmarks": [""],
        "timeoutSeconds": ["9"],
    }
    options = list_options(query, PODS, watches=True)
    assert (options.sends_list, options.bookmarks, options.timeout_seconds) == (True, True, 9)


def test_events_of_the_newer_group_are_selected_by_their_own_fields() -> None:
    newer = resource_of_path("events.k8s.io", "v1", "events")
    assert newer is not None
    options = list_options({"fieldSelector": ["regarding.name=a"]}, newer, watches=False)
    assert options.fields.terms[0].field == "involvedObject.name"
    with pytest.raises(StatusError, match=r"field label not supported: regarding.name"):
        list_options({"fieldSelector": ["regarding.name=a"]}, EVENTS, watches=False)


def test_options_that_make_no_sense_are_refused_as_the_api_words_it() -> None:
    assert listed(labelSelector="a in b") == "unable to parse requirement: found 'b' expected: '('"
    assert listed(fieldSelector="spec.foo=1") == "field label not supported: spec.foo"
    assert listed(limit="many") == 'strconv.ParseInt: parsing "many": invalid syntax'
    assert listed(limit="9" * 30).endswith("value out of range")
    assert listed(sendInitialEvents="true") == (
        'ListOptions.meta.k8s.io "" is invalid: '
        "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"
    )
    assert "forbidden unless resourceVersion is provided" in listed(resourceVersionMatch="Exact")
    assert 'Unsupported value: "Newest"' in listed(resourceVersionMatch="Newest", resourceVersion="1")
    assert "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan" in listed(
        watches=True, sendInitialEvents="true"
    )
    assert "forbidden for watch unless sendInitialEvents is provided" in listed(
        watches=True, resourceVersionMatch="NotOlderThan"
    )


def test_a_change_can_be_tried_only() -> None:
    assert write_options({"dryRun": ["All"]}, "CreateOptions").dry_run
    assert write_options({}, "CreateOptions").field_validation is FieldValidation.WARN
    with pytest.raises(StatusError) as error:
        write_options({"dryRun": ["Some"], "fieldValidation": ["Maybe"]}, "PatchOptions")
    assert error.value.code == 422
    assert 'PatchOptions.meta.k8s.io "" is invalid' in str(error.value)
    assert 'dryRun: Unsupported value: ["Some"]: supported values: "All"' in str(error.value)
    assert 'fieldValidation: Unsupported value: "Maybe"' in str(error.value)


@given(st.integers(1, 1 << 62), st.text("abc-.9", max_size=12), st.text("abc-.9", max_size=12))
def test_a_token_leads_back_to_its_place(version: int, namespace: str, name: str) -> None:
    place = ContinueToken(version, namespace, name)
    assert decoded_token(encoded_token(place)) == place


@given(st.text(max_size=40))
def test_a_token_that_we_did_not_make_is_refused_or_none(token: str) -> None:
    with suppress(StatusError):
        assert decoded_token(token) is None or token
