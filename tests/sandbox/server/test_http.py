"""The API over real HTTP: verbs, forms of answers, discovery, and what is refused with which words."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from devplug.k8s.objects import Object
from devplug.sandbox.api.kinds import SERVED
from devplug.sandbox.registry import NODES, PODS
from tests.sandbox.jsons import recorded
from tests.sandbox.server.beds import TOKEN, Server, pod, registry_of_test, served

PODS_PATH = "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
METADATA = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}


@pytest.fixture
def server() -> Iterator[Server]:
    with served() as running:
        yield running


@pytest.fixture(scope="module")
def idle() -> Iterator[Server]:
    """For tests that change nothing."""
    with served(metrics=lambda node: "a_metric 1\n" if node == "worker-0" else None) as running:
        yield running


def names(answer: Any) -> list[str]:
    return [one["metadata"]["name"] for one in answer.json["items"]]


def test_an_object_lives_from_post_to_delete(server: Server) -> None:
    made = server.ask("POST", PODS_PATH, pod())
    assert (made.code, made.json["kind"], made.json["metadata"]["namespace"]) == (201, "Pod", "default")
    assert made.headers["content-type"] == "application/json"
    assert server.ask("POST", PODS_PATH, pod()).code == 409

    read = server.ask("GET", f"{PODS_PATH}/a")
    assert (read.code, read.json) == (200, made.json)

    labelled = server.ask("PATCH", f"{PODS_PATH}/a", {"metadata": {"labels": {"app": "x"}}}, MERGE)
    assert (labelled.code, labelled.json["metadata"]["labels"]) == (200, {"app": "x"})
    stale = server.ask("PUT", f"{PODS_PATH}/a", read.json)
    assert (stale.code, stale.json["reason"]) == (409, "Conflict")
    fresh = server.ask("PUT", f"{PODS_PATH}/a", {**labelled.json, "status": {}})
    assert (fresh.code, fresh.json) == (200, labelled.json)

    status = {"status": {"phase": "Running"}}
    assert server.ask("PATCH", f"{PODS_PATH}/a/status", status, MERGE).json["status"]["phase"] == "Running"

    gone = server.ask("DELETE", f"{PODS_PATH}/a", {"gracePeriodSeconds": 0})
    assert (gone.code, gone.json["kind"]) == (200, "Pod")
    missing = server.ask("GET", f"{PODS_PATH}/a")
    assert (missing.code, missing.message) == (404, 'pods "a" not found')
    assert server.ask("PUT", f"{PODS_PATH}/a", fresh.json).code == 404


def test_what_is_only_tried_leaves_nothing(server: Server) -> None:
    assert server.ask("POST", f"{PODS_PATH}?dryRun=All", pod()).code == 201
    assert server.ask("GET", PODS_PATH).json["items"] == []
    server.ask("POST", PODS_PATH, pod())
    server.ask("PATCH", f"{PODS_PATH}/a?dryRun=All", {"metadata": {"labels": {"x": "y"}}}, MERGE)
    assert server.ask("DELETE", f"{PODS_PATH}/a", {"dryRun": ["All"]}).code == 200
    assert server.ask("DELETE", f"{PODS_PATH}?dryRun=All").code == 200
    assert "labels" not in server.ask("GET", f"{PODS_PATH}/a").json["metadata"]


def test_lists_are_selected_and_come_in_pieces(server: Server) -> None:
    for number in range(5):
        server.ask(
            "POST", PODS_PATH, {**pod(), "metadata": {"name": f"p{number}", "labels": {"n": str(number)}}}
        )
    assert names(server.ask("GET", f"{PODS_PATH}?labelSelector=n+in+(1,3)")) == ["p1", "p3"]
    assert names(server.ask("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp4")) == ["p4"]
    assert names(server.ask("GET", f"{PODS_PATH}?limit=5")) == [f"p{number}" for number in range(5)]

    first = server.ask("GET", f"{PODS_PATH}?limit=2")
    assert (names(first), first.json["metadata"]["remainingItemCount"]) == (["p0", "p1"], 3)
    server.ask("POST", PODS_PATH, pod("p11"))
    second = server.ask("GET", f"{PODS_PATH}?limit=3&continue={first.json['metadata']['continue']}")
    assert names(second) == ["p11", "p2", "p3"]
    assert second.json["metadata"]["resourceVersion"] == first.json["metadata"]["resourceVersion"]
    last = server.ask("GET", f"{PODS_PATH}?limit=3&continue={second.json['metadata']['continue']}")
    assert (names(last), "continue" in last.json["metadata"]) == (["p4"], False)
    assert server.ask("GET", f"{PODS_PATH}?limit=2&continue=bm9uc2Vuc2U").code == 400


def test_a_list_of_another_version_than_asked_for_is_refused(server: Server) -> None:
    version = int(server.ask("GET", PODS_PATH).json["metadata"]["resourceVersion"])
    assert server.ask("GET", f"{PODS_PATH}?resourceVersion={version}&resourceVersionMatch=Exact").code == 200
    old = server.ask("GET", f"{PODS_PATH}?resourceVersion=1&resourceVersionMatch=Exact")
    assert (old.code, old.json["reason"]) == (410, "Expired")
    assert server.ask("GET", f"{PODS_PATH}?resourceVersion={version + 9}").code == 504


def test_many_are_deleted_by_one_request(server: Server) -> None:
    for name in ("a", "b"):
        server.ask("POST", PODS_PATH, {**pod(name), "metadata": {"name": name, "labels": {"is": name}}})
    deleted = server.ask("DELETE", f"{PODS_PATH}?labelSelector=is%3Da", {"gracePeriodSeconds": 0})
    assert (deleted.code, deleted.json["kind"], names(deleted)) == (200, "PodList", ["a"])
    assert names(server.ask("GET", PODS_PATH)) == ["b"]


def test_a_deletion_is_answered_with_a_status_or_with_the_object(server: Server) -> None:
    configs = "/api/v1/namespaces/default/configmaps"
    made = server.ask("POST", configs, {"metadata": {"name": "c"}}).json
    wrong = server.ask("DELETE", f"{configs}/c", {"preconditions": {"uid": "other"}})
    assert (wrong.code, wrong.json["reason"]) == (409, "Conflict")
    gone = server.ask("DELETE", f"{configs}/c")
    assert gone.json["status"] == "Success"
    assert gone.json["details"] == {"name": "c", "kind": "configmaps", "uid": made["metadata"]["uid"]}

    server.ask("POST", configs, {"metadata": {"name": "d", "finalizers": ["example.com/x"]}})
    waiting = server.ask("DELETE", f"{configs}/d")
    assert (waiting.code, waiting.json["kind"]) == (200, "ConfigMap")
    assert waiting.json["metadata"]["deletionTimestamp"]


def test_what_an_owner_is_to_leave_or_to_take_with_it_is_told_by_its_finalizers(server: Server) -> None:
    configs = "/api/v1/namespaces/default/configmaps"
    meta = {"name": "c", "finalizers": ["orphan", "example.com/x"]}
    assert server.ask("POST", configs, {"metadata": meta}).code == 201
    for policy, expected in (
        ("Foreground", ["example.com/x", "foregroundDeletion"]),
        ("Orphan", ["example.com/x", "orphan"]),
        (None, ["example.com/x", "orphan"]),
        ("Background", ["example.com/x"]),
    ):
        asked = server.ask("DELETE", f"{configs}/c", {"propagationPolicy": policy})
        assert (asked.code, asked.json["metadata"]["finalizers"]) == (200, expected)
        assert asked.json["metadata"]["deletionTimestamp"]
    server.ask("POST", configs, {"metadata": {"name": "d"}})
    tried = server.ask("DELETE", configs, {"propagationPolicy": "Orphan", "dryRun": ["All"]})
    assert ["orphan"] in [one["metadata"].get("finalizers") for one in tried.json["items"]]
    assert "finalizers" not in server.ask("GET", f"{configs}/d").json["metadata"]


def test_an_event_owns_nothing_and_waits_for_nobody(server: Server) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}
    assert server.ask("POST", "/api/v1/namespaces/default/events", event).code == 201
    gone = server.ask("DELETE", "/api/v1/namespaces/default/events/e", {"propagationPolicy": "Foreground"})
    assert gone.json["status"] == "Success"


def test_a_pod_is_bound_by_either_path(server: Server) -> None:
    for name in ("a", "b"):
        server.ask("POST", PODS_PATH, pod(name))
    binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "worker-0"}}
    done = server.ask("POST", f"{PODS_PATH}/a/binding", binding)
    assert (done.code, done.json["status"]) == (201, "Success")
    assert server.ask("GET", f"{PODS_PATH}/a").json["spec"]["nodeName"] == "worker-0"
    again = server.ask("POST", f"{PODS_PATH}/a/binding", binding)
    assert (again.code, again.message) == (
        409,
        'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "worker-0"',
    )
    other = server.ask("POST", f"{PODS_PATH}/b/binding", binding)
    assert other.message == "name in URL does not match name in Binding object"
    bindings = "/api/v1/namespaces/default/bindings"
    assert server.ask("POST", bindings, {**binding, "metadata": {"name": "b"}}).code == 201
    nowhere = server.ask("POST", bindings, {"metadata": {"name": "b"}, "target": {"kind": "Pod"}})
    assert nowhere.message == (
        '[target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>", '
        "target.name: Required value]"
    )


def test_events_can_be_had_in_both_forms(server: Server) -> None:
    old, new = (f"{root}/namespaces/default/events" for root in ("/api/v1", "/apis/events.k8s.io/v1"))
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "a", "namespace": "default"},
        "note": "hello",
        "reason": "Scheduled",
        "type": "Normal",
        "reportingController": "me",
    }
    made = server.ask("POST", new, event)
    assert (made.code, made.json["apiVersion"], made.json["note"]) == (201, "events.k8s.io/v1", "hello")
    core = server.ask("GET", f"{old}?fieldSelector=involvedObject.name%3Da").json["items"][0]
    assert (core["message"], core["involvedObject"]["name"], "note" in core) == ("hello", "a", False)
    changed = server.ask("PATCH", f"{new}/e", {"note": "again"}, MERGE).json
    assert (changed["note"], "message" in changed) == ("again", False)
    assert server.ask("GET", f"{new}?fieldSelector=regarding.name%3Da").json["items"][0]["note"] == "again"
    row = server.ask("GET", f"{new}?includeObject=Object", headers=TABLE).json["rows"][0]
    assert (row["cells"][6], row["object"]["note"]) == ("again", "again")


# ── forms ──


def test_a_table_has_the_recorded_columns_and_a_row_for_each_object(server: Server) -> None:
    server.ask("POST", PODS_PATH, pod())
    told = server.ask("GET", PODS_PATH, headers=TABLE).json
    real = recorded("60-table-pods.json")
    assert told["columnDefinitions"] == real["columnDefinitions"]
    assert {key: told[key] for key in ("kind", "apiVersion")} == {
        key: real[key] for key in ("kind", "apiVersion")
    }
    assert told["rows"][0]["cells"][:3] == ["a", "0/1", "Pending"]
    assert told["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    one = server.ask("GET", f"{PODS_PATH}/a?includeObject=None", headers=TABLE).json
    assert (len(one["rows"]), one["rows"][0]["object"]) == (1, None)
    assert server.ask("GET", f"{PODS_PATH}?limit=1&includeObject=Half", headers=TABLE).code == 422


def test_metadata_can_be_had_alone(server: Server) -> None:
    server.ask("POST", PODS_PATH, pod())
    one = server.ask("GET", f"{PODS_PATH}/a", headers=METADATA).json
    assert (one["kind"], "spec" in one) == ("PartialObjectMetadata", False)
    many = server.ask("GET", PODS_PATH, headers=METADATA).json
    assert (many["kind"], many["items"][0]["kind"]) == ("PartialObjectMetadataList", "PartialObjectMetadata")


@pytest.mark.parametrize(
    ("accept", "code", "kind"),
    [
        ("", 200, "PodList"),
        ("*/*", 200, "PodList"),
        ("application/vnd.kubernetes.protobuf, application/json", 200, "PodList"),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json;q=0.5", 200, "PodList"),
        ("application/json;q=0.1, application/json;as=Table;v=v1;g=meta.k8s.io", 200, "Table"),
        ("application/yaml", 406, "Status"),
        ("application/vnd.kubernetes.protobuf", 406, "Status"),
        ("text/html;q=oops", 406, "Status"),
    ],
)
def test_the_form_is_the_best_that_the_client_takes(idle: Server, accept: str, code: int, kind: str) -> None:
    answer = idle.ask("GET", PODS_PATH, headers={"Accept": accept})
    assert (answer.code, answer.json["kind"]) == (code, kind)


def test_people_get_lines_and_programs_get_one(idle: Server) -> None:
    assert idle.ask("GET", PODS_PATH).body.count(b"\n") == 1
    assert idle.ask("GET", f"{PODS_PATH}?pretty=true").body.count(b"\n") > 3
    assert idle.ask("GET", PODS_PATH, headers={"User-Agent": "curl/8"}).body.count(b"\n") > 3


# ── what the idle tells of itself ──


def test_the_version_is_the_recorded_one(idle: Server) -> None:
    told, real = idle.ask("GET", "/version").json, recorded("64-version.json")
    assert told.keys() == real.keys()
    assert {**told, "platform": ""} == {**real, "platform": ""}


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/readyz/ping"])
def test_the_server_is_well(idle: Server, path: str) -> None:
    assert idle.ask("GET", path).body == b"ok"


def test_discovery_tells_what_was_recorded_of_what_we_serve(idle: Server) -> None:
    told = {one["name"]: one for one in idle.ask("GET", "/api/v1").json["resources"]}
    real = {one["name"]: one for one in recorded("63-discovery-core-v1.json")["resources"]}
    for resource in SERVED:
        if not resource.group:
            assert told[resource.plural] == real[resource.plural]
    assert idle.ask("GET", "/api").json["versions"] == ["v1"]
    groups = [group["name"] for group in idle.ask("GET", "/apis/").json["groups"]]
    assert "apps" in groups
    assert idle.ask("GET", "/apis/apps").json["preferredVersion"]["version"] == "v1"
    assert idle.ask("GET", "/apis/apps/v1").json["groupVersion"] == "apps/v1"
    assert "/apis" in idle.ask("GET", "/").json["paths"]
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    whole = idle.ask("GET", "/apis", headers={"Accept": accept})
    assert whole.json["kind"] == "APIGroupDiscoveryList"
    assert "as=APIGroupDiscoveryList" in whole.headers["content-type"]
    assert idle.ask("POST", "/api/v1", {}).code == 405


@pytest.mark.parametrize(
    "path", ["/metrics", "/api/v1/widgets", "/apis/none", "/apis/none/v1", "/openapi/v4"]
)
def test_what_is_not_there_is_a_page_not_found(idle: Server, path: str) -> None:
    answer = idle.ask("GET", path)
    assert (answer.code, answer.body) == (404, b"404 page not found\n")


# ── refusals ──


def test_what_the_sandbox_has_not_is_refused_in_words(server: Server) -> None:
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    refused = server.ask("POST", deployments, {"metadata": {"name": "d"}, "spec": {"any": 1}})
    assert (refused.code, refused.json["reason"]) == (403, "Forbidden")
    assert refused.message.startswith('deployments.apps "d" is forbidden: the devplug sandbox runs pods')
    assert server.ask("GET", deployments).json["items"] == []
    assert server.ask("GET", f"{deployments}/d").code == 404
    assert server.ask("DELETE", f"{deployments}/d").code == 404


def test_server_side_apply_is_refused_with_what_to_do_instead(idle: Server) -> None:
    apply = {"Content-Type": "application/apply-patch+yaml"}
    refused = idle.ask("PATCH", f"{PODS_PATH}/a?fieldManager=x", b"kind: Pod", apply)
    assert refused.code == 415
    assert "use kubectl apply without --server-side" in refused.message
    assert idle.ask("PATCH", f"{PODS_PATH}/a", b"{}", {"Content-Type": "text/plain"}).code == 415


def test_a_body_that_cannot_be_read_is_the_clients_fault(idle: Server) -> None:
    assert idle.ask("POST", PODS_PATH, b"{not json").code == 400
    assert idle.ask("POST", PODS_PATH, pod(), {"Content-Encoding": "gzip"}).code == 400
    renamed = idle.ask("PUT", f"{PODS_PATH}/a", pod("b"))
    assert renamed.message == "the name of the object (b) does not match the name on the URL (a)"
    unnamed = idle.ask("PUT", f"{PODS_PATH}/a", {"metadata": {}})
    assert unnamed.message.endswith("was undeterminable: name must be provided")
    elsewhere = idle.ask("PUT", f"{PODS_PATH}/a", {"metadata": {"name": "a", "namespace": "x"}})
    assert "does not match the namespace on the request (default)" in elsewhere.message


def test_a_body_that_is_too_large_is_refused_whether_its_size_is_told_or_not(idle: Server) -> None:
    large = b" " * (3 * 1024 * 1024 + 1)
    told = idle.ask("POST", PODS_PATH, large)
    assert (told.code, told.message) == (413, "Request entity too large: limit is 3145728")
    connection = idle.connect()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    pieces = (large[at : at + 65536] for at in range(0, len(large), 65536))
    connection.request("POST", PODS_PATH, pieces, headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_unknown_fields_are_told_in_warnings_or_refused() -> None:
    with served() as server:
        warned = server.ask("POST", PODS_PATH, pod("a", **{'"fÖo': 1}))
        assert warned.code == 201
        assert warned.headers["warning"].encode("latin-1").decode() == (
            '299 - "unknown field \\"spec.\\\\\\"fÖo\\""'
        )
        strict = server.ask("POST", f"{PODS_PATH}?fieldValidation=Strict", pod("b", **{'"fÖo': 1}))
        assert (strict.code, "strict decoding error" in strict.message) == (400, True)
        silent = server.ask("POST", f"{PODS_PATH}?fieldValidation=Ignore", pod("c", **{'"fÖo': 1}))
        assert (silent.code, "warning" in silent.headers) == (201, False)


def test_a_failure_of_ours_is_a_status_for_the_client_and_a_trace_for_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_node: str) -> str | None:
        raise ZeroDivisionError("the secret reason")

    with served(metrics=broken) as server, caplog.at_level(logging.ERROR):
        failed = server.ask("GET", "/api/v1/nodes/worker-0/proxy/metrics")
        assert (failed.code, failed.json["reason"]) == (500, "InternalError")
        assert b"secret" not in failed.body
        assert server.ask("GET", "/healthz").code == 200
    assert "the secret reason" in caplog.text


def test_openapi_is_served_and_what_is_below_sandbox_is_control() -> None:
    asked: list[object] = []

    async def control(method: str, path: str, body: object) -> tuple[int, Object] | None:
        asked.append((method, path, body))
        return (202, {"is": "so"}) if path == "/sandbox/v1/reboot" else None

    with served(control=control) as server:
        document = server.ask("GET", "/openapi/v3?hash=1", headers={"Accept": "application/json"})
        assert (document.code, document.headers["content-type"]) == (200, "application/json")
        assert "api/v1" in document.json["paths"]
        assert server.ask("GET", "/openapi/v4").code == 404
        done = server.ask("POST", "/sandbox/v1/reboot", {"node": "worker-0"})
        assert (done.code, done.json) == (202, {"is": "so"})
        assert server.ask("GET", "/sandbox/v1/other").code == 404
    assert asked == [("POST", "/sandbox/v1/reboot", {"node": "worker-0"}), ("GET", "/sandbox/v1/other", None)]


def test_names_in_paths_may_be_escaped() -> None:
    registry = registry_of_test()
    registry.create(NODES, "", {"metadata": {"name": "worker-0"}})
    with served(registry) as server:
        assert server.ask("GET", "/api/v1/nodes/worker%2D0").code == 200
        assert server.ask("GET", "/api/v1/nodes/a%2Fb").message == 'nodes "a/b" not found'
        assert server.do(lambda: registry.all(PODS)) == ()
