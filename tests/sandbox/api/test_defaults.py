"""Defaults: the recorded pod from its manifest, and what is filled in where authors wrote nothing."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from devplug.sandbox.api.defaults import defaulted, qos_class
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.kinds import Resource, resource_of_kind
from tests.sandbox.jsons import KUBECTL, recorded


def known(kind: str, version: str = "v1") -> Resource:
    found = resource_of_kind(version, kind)
    assert found is not None
    return found


PODS, DAEMONS = known("Pod"), known("DaemonSet", "apps/v1")


def pod(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": "x:1", **container}]}}


def container_of(one: Any) -> Any:
    return one["spec"]["containers"][0]


def test_the_recorded_manifest_becomes_the_recorded_pod() -> None:
    manifest = yaml.safe_load((KUBECTL / "pod-a.yaml").read_text())
    real = recorded("65-pod.json")
    spec: Any = defaulted(PODS, manifest)["spec"]
    assert {**spec, "nodeName": "worker-0"} == real["spec"]
    assert qos_class({"spec": spec}) == real["status"]["qosClass"]


@pytest.mark.parametrize(
    "file", sorted(path.name for path in KUBECTL.glob("*.yaml") if "kind: Pod" in path.read_text())
)
def test_what_has_its_defaults_keeps_them(file: str) -> None:
    for manifest in yaml.safe_load_all((KUBECTL / file).read_text()):
        once = defaulted(PODS, manifest)
        assert defaulted(PODS, once) == once


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("x", "Always"),
        ("x:latest", "Always"),
        ("x:1", "IfNotPresent"),
        ("host:5000/x", "Always"),
        ("host:5000/x:1", "IfNotPresent"),
        ("x@sha256:00", "IfNotPresent"),
    ],
)
def test_an_image_is_pulled_anew_unless_it_is_pinned(image: str, policy: str) -> None:
    assert container_of(defaulted(PODS, pod(image=image)))["imagePullPolicy"] == policy


def test_requests_are_made_of_limits_in_pods_and_not_in_templates() -> None:
    limits = {"limits": {"example.com/fpga": 1, "cpu": "1000m"}, "requests": {"cpu": 0.5}}
    assert container_of(defaulted(PODS, pod(resources=limits)))["resources"] == {
        "limits": {"example.com/fpga": "1", "cpu": "1"},
        "requests": {"example.com/fpga": "1", "cpu": "500m"},
    }
    daemons: Any = defaulted(DAEMONS, {"spec": {"template": pod(resources=limits)}})
    assert container_of(daemons["spec"]["template"])["resources"]["requests"] == {"cpu": "500m"}
    assert daemons["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_a_pod_that_tolerates_outages_is_left_as_it_is() -> None:
    held = {"operator": "Exists"}
    given_pod = pod()
    given_pod["spec"]["tolerations"] = [held]
    spec: Any = defaulted(PODS, given_pod)["spec"]
    assert spec["tolerations"] == [held]


def test_volumes_and_ports_have_their_defaults() -> None:
    given_pod = pod(ports=[{"containerPort": 80}])
    given_pod["spec"]["volumes"] = [
        {"name": "a", "configMap": {"name": "c"}},
        {"name": "b", "hostPath": {"path": "/dev"}},
        {"name": "c"},
    ]
    spec: Any = defaulted(PODS, given_pod)["spec"]
    assert spec["volumes"] == [
        {"name": "a", "configMap": {"name": "c", "defaultMode": 420}},
        {"name": "b", "hostPath": {"path": "/dev", "type": ""}},
        {"name": "c", "emptyDir": {}},
    ]
    assert container_of({"spec": spec})["ports"] == [{"protocol": "TCP", "containerPort": 80}]


def test_probes_and_variables_have_their_defaults() -> None:
    """pkg/apis/core/v1/defaults.go SetDefaults_Probe, SetDefaults_HTTPGetAction and the like."""
    http = {"httpGet": {"port": "metrics"}, "initialDelaySeconds": 0, "periodSeconds": 0}
    field, amount = (
        {"fieldRef": {"fieldPath": "spec.nodeName"}},
        {"resourceFieldRef": {"resource": "limits.cpu"}},
    )
    found = container_of(
        defaulted(
            PODS,
            pod(
                livenessProbe=http,
                startupProbe={"grpc": {"port": 1}, "timeoutSeconds": 7},
                lifecycle={"preStop": {"httpGet": {"port": 2, "scheme": "HTTPS"}}},
                env=[{"name": "a", "valueFrom": field}, {"name": "b", "valueFrom": amount}, {"name": "c"}],
            ),
        )
    )
    always = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert found["livenessProbe"] == {**always, "httpGet": {"path": "/", "port": "metrics", "scheme": "HTTP"}}
    assert found["startupProbe"] == {**always, "grpc": {"port": 1, "service": ""}, "timeoutSeconds": 7}
    assert found["lifecycle"] == {"preStop": {"httpGet": {"path": "/", "port": 2, "scheme": "HTTPS"}}}
    assert [one.get("valueFrom") for one in found["env"]] == [
        {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}},
        {"resourceFieldRef": {"divisor": "0", "resource": "limits.cpu"}},
        None,
    ]


def test_a_port_in_the_nodes_network_is_the_nodes_too() -> None:
    """pkg/apis/core/v1/defaults.go defaultHostNetworkPorts; of templates it is not asked."""
    given_pod = pod(ports=[{"containerPort": 80}, {"containerPort": 81, "hostPort": 82}, {}])
    given_pod["spec"]["hostNetwork"] = True
    told = container_of(defaulted(PODS, given_pod))["ports"]
    assert [one.get("hostPort") for one in told] == [80, 82, None]
    daemons: Any = defaulted(DAEMONS, {"spec": {"template": given_pod}})
    told = container_of(daemons["spec"]["template"])["ports"]
    assert [one.get("hostPort") for one in told] == [None, 82, None]


def test_nodes_and_quotas_tell_their_quantities_in_one_form() -> None:
    node = {"status": {"capacity": {"kkloud.io/widget": 2, "cpu": "2000m"}, "allocatable": {"cpu": "0.5"}}}
    assert defaulted(known("Node"), {**node}) == {
        "status": {"capacity": {"kkloud.io/widget": "2", "cpu": "2"}, "allocatable": {"cpu": "500m"}}
    }
    assert defaulted(known("ResourceQuota"), {"spec": {"hard": {"pods": 1000}}}) == {
        "spec": {"hard": {"pods": "1k"}}
    }


def test_other_kinds_are_left_as_they_are() -> None:
    assert defaulted(known("ConfigMap"), {"data": {}}) == {"data": {}}


def test_what_is_no_quantity_is_a_bad_request() -> None:
    with pytest.raises(StatusError) as refused:
        defaulted(PODS, pod(resources={"limits": {"example.com/fpga": "two"}}))
    assert refused.value.code == 400
    assert str(refused.value) == (
        'Pod in version "v1" cannot be handled as a Pod: quantities must match the regular expression '
        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )


BOTH = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"limits": {"example.com/fpga": "1"}, "requests": {"example.com/fpga": "1"}}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": BOTH, "requests": {**BOTH, "cpu": "500m"}}, "Burstable"),
        ({"limits": BOTH, "requests": BOTH}, "Guaranteed"),
        ({"requests": {"cpu": "0"}}, "BestEffort"),
    ],
)
def test_the_class_of_a_pod_follows_from_its_processors_and_memory(resources: Any, expected: str) -> None:
    assert qos_class(pod(resources=resources)) == expected
