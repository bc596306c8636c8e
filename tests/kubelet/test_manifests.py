"""Pod manifests: what is read of them, and what the API server would refuse, in its words."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from devplug.errors import ConfigError
from devplug.k8s.pod_requests import ALWAYS
from devplug.kubelet.claim_references import ExtendedClaim, RequestMapping
from devplug.kubelet.manifests import read_pod
from devplug.kubelet.pods import Container, Pod

METER = """\
apiVersion: v1
kind: Pod
metadata:
  name: meter-0
  namespace: lab
  uid: 6c5a
  labels: {app: meter}
spec:
  restartPolicy: Never
  nodeName: somewhere
  initContainers:
    - name: flash
      image: flasher
      resources: {limits: {example.com/serial: 2}}
    - name: proxy
      restartPolicy: Always
  containers:
    - name: reader
      image: reader:1
      env:
        - {name: MODE, value: fast}
        - {name: EMPTY}
        - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
      volumeMounts: [{name: x, mountPath: /x}]
      resources:
        requests: {cpu: 250m, example.com/serial: 1}
        limits: {cpu: 500m, memory: 1Ki, example.com/serial: "1000m"}
  volumes: [{name: x, emptyDir: {}}]
status:
  phase: Pending
  extendedResourceClaimStatus:
    resourceClaimName: c
    requestMappings:
      - {containerName: reader, resourceName: example.com/gpu, requestName: container-1-request-0}
"""


def with_resources(resources: object) -> dict[str, Any]:
    """A pod of one container `c`."""
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}


def lines_of(source: Any, file: str = "pod") -> list[str]:
    """What is wrong with a manifest, without the file's name."""
    with pytest.raises(ConfigError) as caught:
        read_pod(source, file=file)
    return [line.removeprefix(f"{file}:") for line in caught.value.lines()]


# ── what is read ──────────────────────────────────────────────────────────────────────────────────


def test_a_manifest_is_read_as_far_as_devices_are_concerned() -> None:
    assert read_pod(METER) == Pod(
        "6c5a",
        "meter-0",
        "lab",
        (Container("flash", {"example.com/serial": 2}), Container("proxy", restart_policy=ALWAYS)),
        (
            Container(
                "reader",
                {"cpu": 1, "memory": 1024, "example.com/serial": 1},
                envs=(("MODE", "fast"), ("EMPTY", "")),
            ),
        ),
        ExtendedClaim("c", (RequestMapping("reader", "example.com/gpu", "container-1-request-0"),)),
    )


def test_a_manifest_may_be_given_as_maps_and_lists_or_as_json() -> None:
    content = yaml.safe_load(METER)
    assert read_pod(content) == read_pod(METER) == read_pod(json.dumps(content))


def test_what_the_api_server_fills_in_may_be_left_out() -> None:
    pod = read_pod("{metadata: {name: a}, spec: {containers: [{name: c}]}}")
    assert pod == Pod("default/a", "a", "default", (), (Container("c"),))


def test_a_pod_without_a_uid_gets_the_one_that_the_caller_has() -> None:
    assert read_pod(with_resources({}), uid="u-1").uid == "u-1"
    assert read_pod(METER, uid="u-1").uid == "6c5a"


def test_pods_of_two_namespaces_get_two_uids() -> None:
    first, second = (
        read_pod({"metadata": {"name": name, "namespace": space}, "spec": {"containers": [{"name": "c"}]}})
        for space, name in (("a", "b-c"), ("a-b", "c"))
    )
    assert first.uid != second.uid


def test_null_stands_for_nothing() -> None:
    pod = read_pod(with_resources({"limits": None, "requests": None}))
    assert pod.containers == (Container("c"),)


def test_anchors_and_merges_are_read_as_kubectl_reads_them() -> None:
    text = """
metadata: {name: p}
spec:
  containers:
  - &first
    name: a
    resources: &one {limits: {example.com/a: 1}}
  - {<<: *first, name: b}
  - {name: c, resources: *one}
"""
    assert [one.limits for one in read_pod(text).containers] == [{"example.com/a": 1}] * 3


def test_empty_documents_around_a_pod_do_not_count() -> None:
    assert read_pod(f"---\n---\n{METER}---\n") == read_pod(METER)


# ── what the API server refuses (kubelet.md 8.6, C100) ────────────────────────────────────────────

NAME = "requests.example.com/a"
NO_EXTENDED_NAME = "doesn't follow extended resource name standard: it starts with"
NO_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
TO_BE_SET = "Required value: Limit must be set for non overcommitable resources"


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ("{limits: {example.com/a: 500m}}", 's[example.com/a]: Invalid value: "500m": must be an integer'),
        ("{limits: {example.com/a: 1.5}}", 's[example.com/a]: Invalid value: "1.5": must be an integer'),
        (
            "{limits: {example.com/a: -1}}",
            's[example.com/a]: Invalid value: "-1": must be greater than or equal to 0',
        ),
        ("{requests: {example.com/a: 1}}", f"s: {TO_BE_SET}; add example.com/a"),
        (
            "{limits: {gpu: 1}}",
            (
                's[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified, as in '
                "example.com/fpga"
            ),
        ),
        (
            f"{{limits: {{{NAME}: 1}}}}",
            (
                f's[{NAME}]: Invalid value: "{NAME}": {NO_EXTENDED_NAME} "requests.", which quotas use; '
                "drop that prefix"
            ),
        ),
        ("{limits: {example.com/a: one}}", f's[example.com/a]: "one": {NO_QUANTITY}'),
        ("{limit: {example.com/a: 1}}", ": unknown field; did you mean limits?"),
        (
            "{limits: {example.com/a: true}}",
            "s[example.com/a]: must be a quantity, as in example.com/a: 1, and not a boolean",
        ),
        ("{limits: [example.com/a]}", "s: must be a map, and not a list"),
        ("{limits: {1: 1}}", "s: has the key 1, which is not a text; write quotes around it"),
    ],
)
def test_limits_are_checked_as_by_the_api_server(resources: str, told: str) -> None:
    line = f" error: spec.containers[0].resources.limit{told}"
    assert lines_of(with_resources(yaml.safe_load(resources))) == [line]


def test_requests_are_held_against_limits() -> None:
    resources = {"limits": {"example.com/a": 2}, "requests": {"example.com/a": 1}}
    (line,) = lines_of(with_resources(resources))
    assert line.endswith('.resources.requests: Invalid value: "1": must be equal to example.com/a limit of 2')


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {"example.com/a": "1000m"}},
        {"limits": {"example.com/a": "1e0"}, "requests": {"example.com/a": 1}},
        {"limits": {"example.com/a": 0}},
        {"requests": {"cpu": "100m", "memory": "1Gi"}},
        {"limits": {"hugepages-2Mi": "4Mi"}},
        {"limits": {"example.com/A_b.c": 1}},
        {"requests": {"a.kubernetes.io/b": 1}},
        {"claims": [{"name": "x"}]},
    ],
)
def test_what_the_api_server_takes_is_taken(resources: object) -> None:
    read_pod(with_resources(resources))


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_requests_and_limits_have_to_be_equal(requested: int, limit: int) -> None:
    resources = {"limits": {"example.com/a": limit}, "requests": {"example.com/a": f"{requested}000m"}}
    if requested == limit:
        assert read_pod(with_resources(resources)).containers[0].limits == {"example.com/a": limit}
    else:
        assert "must be equal to" in lines_of(with_resources(resources))[0]


def test_a_pod_as_a_whole_cannot_ask_for_devices() -> None:
    manifest = with_resources({})
    manifest["spec"]["resources"] = {"limits": {"cpu": 1, "example.com/a": 1}}
    assert lines_of(manifest) == [
        (
            ' error: spec.resources.limits[example.com/a]: Unsupported value: "example.com/a": '
            "a pod as a whole cannot ask for devices; write it in a container"
        )
    ]


def test_every_container_needs_a_name_of_its_own() -> None:
    manifest = {
        "metadata": {"name": "p"},
        "spec": {
            "initContainers": [{"name": "a"}],
            "containers": [{"name": "a"}, {}, {"name": "B"}, {"name": 3}],
        },
    }
    assert lines_of(manifest) == [
        ' error: spec.containers[0].name: Duplicate value: "a"',
        " error: spec.containers[1].name: Required value",
        (
            ' error: spec.containers[2].name: Invalid value: "B": a lowercase RFC 1123 label must consist of '
            "lower case alphanumeric characters, and '-' between them"
        ),
        " error: spec.containers[3].name: must be a text, and not a number; write quotes around it",
    ]


def test_a_pod_needs_a_name_and_a_container() -> None:
    assert lines_of({}) == [
        " error: metadata.name: Required value",
        " error: spec.containers: Required value",
    ]


def test_no_name_is_made_of_generate_name() -> None:
    assert lines_of({"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c"}]}}) == [
        " error: metadata.generateName: generateName is not supported here; write name",
        " error: metadata.name: Required value",
    ]


def test_the_value_of_a_variable_has_to_be_a_text() -> None:
    manifest = with_resources({})
    manifest["spec"]["containers"][0]["env"] = [{"name": "A", "value": 1}, {"value": "x"}]
    assert lines_of(manifest) == [
        " error: spec.containers[0].env[0].value: must be a text, and not a number; write quotes around it",
        " error: spec.containers[0].env[1].name: Required value",
    ]


# ── what is no pod ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "kind: Deployment",
            (
                "1:7: error: kind: a Deployment is not a pod but makes pods; "
                "write kind: Pod with what it has under spec.template"
            ),
        ),
        (
            "kind: CronJob",
            (
                "1:7: error: kind: a CronJob is not a pod but makes pods; "
                "write kind: Pod with what it has under spec.jobTemplate.spec.template"
            ),
        ),
        (
            "kind: List\nitems: []",
            "1:7: error: kind: a manifest is one pod; give each of the items by itself",
        ),
        ("kind: Node", '1:7: error: kind: "Node" is no pod; write kind: Pod'),
        ("apiVersion: v2", '1:13: error: apiVersion: "v2" has no pods; write apiVersion: v1'),
        ("", " error: the manifest is empty; write a pod"),
        ("- kind: Pod", "1:1: error: must be a map, and not a list"),
        (
            "kind: Pod\n---\nkind: Pod",
            "3:1: error: this is the second of 2 documents, and a manifest is one pod; give each by itself",
        ),
        ("kind: [", "1:8: error: this is not YAML: did not find expected node content"),
        ("kind: [\n", "2:1: error: this is not YAML: did not find expected node content"),
        (
            "kind: !new x",
            "1:7: error: this is not YAML: could not determine a constructor for the tag '!new'",
        ),
        ("when: 2020-99-99", " error: this is not YAML: month must be in 1..12"),
        ("a: " + "[" * 200_000, "1:103: error: is more than 100 levels deep"),
    ],
)
def test_what_is_no_pod_is_refused_with_what_to_do(text: str, line: str) -> None:
    assert lines_of(text) == [line]


# ── all at once, with the place ───────────────────────────────────────────────────────────────────


def test_all_problems_of_a_text_are_told_at_once_with_line_and_column() -> None:
    text = """\
kind: Pod
metadata: {name: p}
specs: {}
spec:
  containers:
  - name: c
    resources:
      limits:
        example.com/a: 500m
        example.com/a: 1
      requests: {example.com/b: 1}
"""
    assert lines_of(text, "pod.yaml") == [
        "3:8: error: specs: unknown field; did you mean spec?",
        (
            "9:9: error: spec.containers[0].resources.limits: Required value: "
            "Limit must be set for non overcommitable resources; add example.com/b"
        ),
        '10:9: error: the key "example.com/a" stands here again; the first is in line 9',
    ]


def test_what_a_merge_brings_is_told_at_its_own_place() -> None:
    text = """\
metadata: {name: p}
spec:
  containers:
  - {name: a, resources: &one {limits: {example.com/a: 1.5}}}
  - {name: b, resources: {<<: *one}}
"""
    assert [line.split(" ")[0] for line in lines_of(text)] == ["4:56:", "4:56:"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["kind", "metadata", "name", "spec", "containers", "env", "resources"])
                | st.sampled_from(["limits", "requests", "status", "example.com/a"])
                | st.integers(),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_any_content_is_a_pod_or_refused(content: object) -> None:
    for source in ({"spec": {"containers": content}}, {"metadata": content, "spec": content}):
        with pytest.raises(ConfigError):
            read_pod(source)


@pytest.mark.parametrize("text", ["null", "~", "Null", "--- null"])
def test_a_manifest_that_is_null_is_empty(text: str) -> None:
    with pytest.raises(ConfigError, match="the manifest is empty; write a pod"):
        read_pod(text)


@given(
    st.text(st.sampled_from("kind: Pod\n-[]{}&*!<'\"#|>,?%@`\t\0spec"), max_size=40) | st.text(max_size=20)
)
def test_any_text_is_refused_with_an_error_of_ours(text: str) -> None:
    with pytest.raises(ConfigError):
        read_pod(text)
