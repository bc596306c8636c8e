"""Validation: each recorded refusal from its manifest, and what may not be changed."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from devplug.k8s.objects import with_part
from devplug.sandbox.api import errors
from devplug.sandbox.api.defaults import defaulted
from devplug.sandbox.api.kinds import Resource, resource_of_kind
from devplug.sandbox.api.validation import change_errors, object_errors
from tests.sandbox.jsons import KUBECTL, as_kubectl, printed


def known(kind: str, version: str = "v1") -> Resource:
    found = resource_of_kind(version, kind)
    assert found is not None
    return found


PODS = known("Pod")
RECORDED = {
    "frac": "30-invalid-fraction.txt",
    "over": "31-invalid-overcommit.txt",
    "reqonly": "32-requests-only.txt",
    "noslash": "33-invalid-noslash.txt",
    "upper": "35-invalid-upper.txt",
    "neg": "36-invalid-negative.txt",
}


def manifest(name: str) -> Any:
    return yaml.safe_load((KUBECTL / f"{name}.yaml").read_text())


@pytest.mark.parametrize("name", RECORDED)
def test_a_manifest_is_refused_as_it_was_recorded(name: str) -> None:
    found = object_errors(PODS, defaulted(PODS, manifest(name)))
    assert as_kubectl(errors.invalid("Pod", name, found)) == printed(RECORDED[name])


@pytest.mark.parametrize("name", ["k8sio", "zero", "unknown", "bound", "pod-a", "oq"])
def test_a_manifest_that_was_taken_is_taken(name: str) -> None:
    assert object_errors(PODS, defaulted(PODS, manifest(name))) == []


REQUESTS = "spec.containers[0].resources.requests"


def pod(**spec: Any) -> Any:
    return defaulted(PODS, {"spec": {"containers": [{"name": "c", "image": "x"}], **spec}})


def told(resource: Resource, one: Any) -> list[str]:
    return [str(fault) for fault in object_errors(resource, one)]


@pytest.mark.parametrize(
    ("one", "faults"),
    [
        (pod(), []),
        (pod(containers=[]), ["spec.containers: Required value"]),
        (
            pod(containers=[{}]),
            ["spec.containers[0].name: Required value", "spec.containers[0].image: Required value"],
        ),
        (
            pod(initContainers=[{"name": "c", "image": "x"}]),
            ['spec.initContainers[0].name: Duplicate value: "c"'],
        ),
        (
            pod(restartPolicy="Sometimes"),
            [
                (
                    'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", '
                    '"OnFailure", "Never"'
                )
            ],
        ),
        (
            pod(nodeSelector={"/a": "1"}),
            ['spec.nodeSelector: Invalid value: "/a": prefix part must be non-empty'],
        ),
    ],
)
def test_a_pod_is_refused_field_by_field(one: Any, faults: list[str]) -> None:
    assert told(PODS, one) == faults


RANGE = "must be between 1 and 65535, inclusive"
REQUIRED = "Required value"
NUL = "must not have a NUL byte"
HEADERS = [{"name": "a\r\nb", "value": "x"}]


@pytest.mark.parametrize(
    ("container", "place", "fault"),
    [
        ({"ports": [{"containerPort": 2**40}]}, "ports[0].containerPort", f"1099511627776: {RANGE}"),
        ({"ports": [{}]}, "ports[0].containerPort", REQUIRED),
        ({"ports": [{"containerPort": 1, "hostPort": -1}]}, "ports[0].hostPort", f"-1: {RANGE}"),
        ({"env": [{"name": "A", "value": "x\0"}]}, "env[0].value", NUL),
        ({"env": [{"value": "x"}]}, "env[0].name", REQUIRED),
        ({"command": ["a", "\0"]}, "command[1]", NUL),
        ({"livenessProbe": {"exec": {"command": []}}}, "livenessProbe.exec.command", REQUIRED),
        ({"livenessProbe": {"exec": {"command": ["\0"]}}}, "livenessProbe.exec.command[0]", NUL),
        ({"readinessProbe": {"httpGet": {"port": 99999}}}, "readinessProbe.httpGet.port", f"99999: {RANGE}"),
        ({"readinessProbe": {"httpGet": {"port": "99999"}}}, "readinessProbe.httpGet.port", "one letter"),
        ({"startupProbe": {"tcpSocket": {"port": 0}}}, "startupProbe.tcpSocket.port", REQUIRED),
        ({"livenessProbe": {"periodSeconds": -1}}, "livenessProbe.periodSeconds", "-1: must be greater"),
        (
            {"livenessProbe": {"httpGet": {"port": 1, "httpHeaders": HEADERS}}},
            "livenessProbe.httpGet.httpHeaders[0]",
            "a valid HTTP header must consist of",
        ),
    ],
)
def test_a_container_that_no_node_can_run_is_refused(container: Any, place: str, fault: str) -> None:
    (found,) = told(PODS, pod(containers=[{"name": "c", "image": "x", **container}]))
    assert found.startswith(f"spec.containers[0].{place}: ")
    assert fault in found


def test_usual_ports_and_probes_are_taken() -> None:
    container = {
        "ports": [{"name": "web", "containerPort": 65535, "hostPort": 1}],
        "env": [{"name": "A", "value": ""}],
        "livenessProbe": {"httpGet": {"port": "web", "httpHeaders": [{"name": "X-A", "value": "b"}]}},
        "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 0},
        "startupProbe": {"grpc": {"port": 1}},
    }
    assert told(PODS, pod(containers=[{"name": "c", "image": "x", **container}])) == []


def test_shared_resources_may_be_asked_for_below_their_limit_and_not_above() -> None:
    def asking(requests: Any, limits: Any) -> list[str]:
        container = {"name": "c", "image": "x", "resources": {"requests": requests, "limits": limits}}
        return told(PODS, pod(containers=[container]))

    assert asking({"cpu": "1"}, {"cpu": "2"}) == asking({"cpu": "1"}, {}) == []
    assert asking({"cpu": "3"}, {"cpu": "2000m"}) == [
        f'{REQUESTS}: Invalid value: "3": must be less than or equal to cpu limit of 2'
    ]
    assert asking({"hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "8Mi"}) == [
        f'{REQUESTS}: Invalid value: "4Mi": must be equal to hugepages-2Mi limit of 8Mi'
    ]


def test_a_node_counts_its_devices_by_the_piece() -> None:
    node = {"status": {"capacity": {"example.com/fpga": "1.5", "cpu": "1.5"}, "allocatable": {"pods": "-1"}}}
    assert told(known("Node"), node) == [
        'status.capacity.example.com/fpga: Invalid value: "1500m": must be an integer',
        'status.allocatable.pods: Invalid value: "-1": must be greater than or equal to 0',
    ]


def test_a_quota_limits_what_quotas_know() -> None:
    quota = {"spec": {"hard": {"requests.example.com/fpga": "1", "pods": "2", "widget": "1", "storage": "1"}}}
    assert told(known("ResourceQuota"), quota) == [
        'spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota',
        'spec.hard[widget]: Invalid value: "widget": must be a standard resource type or fully qualified',
        'spec.hard[widget]: Invalid value: "widget": must be a standard resource for quota',
    ]


DAEMONS = known("DaemonSet", "apps/v1")


def daemons(selected: str, labelled: str, **spec: Any) -> Any:
    template = {"metadata": {"labels": {"app": labelled}}, **pod(**spec)}
    one = {"spec": {"selector": {"matchLabels": {"app": selected}}, "template": template}}
    return with_part(one, {"type": "OnDelete"}, "spec", "updateStrategy")


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        (
            {"type": "Recreate"},
            'type: Unsupported value: "Recreate": supported values: "OnDelete", "RollingUpdate"',
        ),
        (
            {"rollingUpdate": {"maxUnavailable": 0}},
            "rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
        ),
        (
            {"rollingUpdate": {"maxSurge": "10%"}},
            'rollingUpdate.maxSurge: Invalid value: "10%": may not be set when maxUnavailable is non-zero',
        ),
    ],
)
def test_a_daemon_set_says_how_its_pods_are_replaced(strategy: dict[str, Any], told: str) -> None:
    spec = {
        "selector": {"matchLabels": {"app": "a"}},
        "template": {
            "metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    }
    one = {"metadata": {"name": "a"}, "spec": {**spec, "updateStrategy": strategy}}
    assert [str(fault) for fault in object_errors(DAEMONS, defaulted(DAEMONS, one))] == [
        f"spec.updateStrategy.{told}"
    ]
    for right in ({}, {"type": "OnDelete"}, {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}):
        one = {"metadata": {"name": "a"}, "spec": {**spec, "updateStrategy": right}}
        assert object_errors(DAEMONS, defaulted(DAEMONS, one)) == []


def test_a_daemon_set_knows_its_pods_by_their_labels() -> None:
    assert told(DAEMONS, daemons("a", "a")) == []
    assert told(DAEMONS, daemons("a", "b")) == [
        (
            'spec.template.metadata.labels: Invalid value: {"app":"b"}: '
            "`selector` does not match template `labels`"
        )
    ]
    assert told(DAEMONS, {"spec": {"template": pod()}})[0] == "spec.selector: Required value"
    never = daemons("a", "a", restartPolicy="Never")
    assert told(DAEMONS, never) == [
        'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'
    ]
    changed = change_errors(DAEMONS, daemons("b", "b"), daemons("a", "a"))
    assert [str(fault) for fault in changed] == [
        'spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable'
    ]


def changes(new: Any, old: Any) -> list[str]:
    return [str(fault) for fault in change_errors(PODS, new, old)]


def test_of_a_pod_little_may_be_changed() -> None:
    other_image = pod(containers=[{"name": "c", "image": "y"}])
    assert changes(other_image, pod()) == changes(pod(activeDeadlineSeconds=1), pod()) == []
    assert changes(pod(containers=[*pod()["spec"]["containers"]] * 2), pod()) == [
        "spec.containers: Forbidden: pod updates may not add or remove containers"
    ]
    selected = pod(nodeSelector={"a": "b"}, **other_image["spec"], activeDeadlineSeconds=1)
    (refused,) = changes(selected, pod())
    assert refused == (
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
        "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
        "previously negative)\n"
        """\
@@ -11,6 +11,9 @@
  ],
  "dnsPolicy": "ClusterFirst",
  "enableServiceLinks": true,
+ "nodeSelector": {
+  "a": "b"
+ },
  "preemptionPolicy": "PreemptLowerPriority",
  "priority": 0,
  "restartPolicy": "Always",
"""
    )
    fewer = {"spec": {**pod()["spec"], "tolerations": []}}
    more = pod(tolerations=[{"key": "a", "operator": "Exists"}, *pod()["spec"]["tolerations"]])
    assert changes(more, pod()) == []
    assert changes(fewer, pod()) == [
        "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
    ]


def test_other_kinds_have_no_rules_here() -> None:
    assert object_errors(known("ConfigMap"), {}) == change_errors(known("ConfigMap"), {"a": 1}, {}) == []
