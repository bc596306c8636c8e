"""Manifests that people write become pods, or are refused with everything that is wrong with them."""

from __future__ import annotations

import pytest

from devplug.errors import ConfigError
from devplug.kubelet.manifests import pod_of
from devplug.kubelet.pods import ALWAYS, Container, Pod

MANIFEST = """
apiVersion: v1
kind: Pod
metadata:
  name: meter
  namespace: lab
spec:
  initContainers:
    - name: probe
      resources: {limits: {example.com/serial: 2}}
    - name: proxy
      restartPolicy: Always
  containers:
    - name: reader
      image: example.com/reader
      env:
        - {name: SPEED, value: "9600"}
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
      resources:
        requests: {cpu: 100m, example.com/serial: "1"}
        limits: {cpu: 500m, memory: 1Mi, example.com/serial: 1}
"""


NO_QUANTITY = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
ONLY = "only init containers have one, and it is 'Always'"


def problems(manifest: str | dict[str, object]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        pod_of(manifest)
    return [str(problem) for problem in caught.value.problems]


def container(resources: object) -> dict[str, object]:
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }


def test_a_manifest_becomes_the_pod_that_the_kubelet_gets() -> None:
    assert pod_of(MANIFEST) == Pod(
        "lab-meter",
        "meter",
        "lab",
        (Container("probe", {"example.com/serial": 2}), Container("proxy", {}, ALWAYS)),
        (
            Container(
                "reader",
                {"cpu": 1, "memory": 2**20, "example.com/serial": 1},
                envs=(("SPEED", "9600"),),
            ),
        ),
    )


def test_a_uid_of_its_own_is_kept() -> None:
    manifest = container({})
    manifest["metadata"] = {"name": "p", "uid": "1234"}
    assert pod_of(manifest).uid == "1234"


def test_what_dra_serves_is_read_from_the_status() -> None:
    manifest = container({"limits": {"example.com/gpu": 1}})
    mapping = {
        "containerName": "c",
        "resourceName": "example.com/gpu",
        "requestName": "container-0-request-0",
    }
    manifest["status"] = {"extendedResourceClaimStatus": {"requestMappings": [mapping]}}
    assert pod_of(manifest).dra_limits == {("c", "example.com/gpu")}


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (
            {"limits": {"example.com/gpu": "500m"}},
            'limits[example.com/gpu]: Invalid value: "500m": must be an integer',
        ),
        (
            {"limits": {"example.com/gpu": -1}},
            'limits[example.com/gpu]: Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            {"requests": {"example.com/gpu": 1}},
            (
                "requests[example.com/gpu]: Required value: "
                "Limit must be set for non overcommitable resources: example.com/gpu"
            ),
        ),
        (
            {"requests": {"example.com/gpu": 1}, "limits": {"example.com/gpu": 2}},
            'requests[example.com/gpu]: Invalid value: "1": must be equal to example.com/gpu limit of 2',
        ),
        (
            {"limits": {"example.com/gpu": "two"}},
            f"limits[example.com/gpu]: 'two' is not a quantity, as 1, 500m and 1Gi are: {NO_QUANTITY}",
        ),
        (
            {"limits": {"example.com/gpu": True}},
            f"limits[example.com/gpu]: True is not a quantity, as 1, 500m and 1Gi are: {NO_QUANTITY}",
        ),
    ],
)
def test_what_the_api_refuses_is_refused_in_its_words(resources: object, message: str) -> None:
    assert problems(container(resources)) == [f"spec.containers[0].resources.{message}"]


def test_a_thousand_thousandths_are_one_device() -> None:
    assert pod_of(container({"limits": {"example.com/gpu": "1000m"}})).containers[0].limits == {
        "example.com/gpu": 1,
    }


def test_all_problems_are_told_at_once() -> None:
    assert problems(
        {
            "kind": "Deployment",
            "metadata": {},
            "spec": {
                "initContainers": [{"name": "i", "restartPolicy": "Never"}],
                "containers": [{"name": "c", "restartPolicy": "Always"}, {"name": "c"}, "d", {"name": 7}],
            },
        },
    ) == sorted(
        [
            "kind: is 'Deployment'; write a Pod, since nothing here makes pods of other kinds",
            "metadata.name: is missing",
            f"spec.initContainers[0].restartPolicy: is 'Never'; {ONLY}",
            f"spec.containers[0].restartPolicy: is 'Always'; {ONLY}",
            "spec.containers[1].name: Duplicate value: 'c'",
            "spec.containers[2]: must be a mapping, not 'd'",
            "spec.containers[3].name: must be text, not 7; quote it",
        ],
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has 0 documents; give one pod at a time"),
        ("kind: Pod\n---\nkind: Pod", "has 2 documents; give one pod at a time"),
        ("- a", "a manifest must be a mapping, not ['a']"),
        (
            "spec: {containers: []}\nmetadata: {name: p}",
            "spec.containers: is empty; a pod has at least one container",
        ),
        ("metadata: {name: p}", "spec: is missing"),
    ],
)
def test_text_that_is_no_pod_is_refused(text: str, message: str) -> None:
    assert any(message in problem for problem in problems(text))


def test_broken_yaml_is_told_with_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        pod_of("kind: Pod\nmetadata: {name: [}")
    assert str(caught.value).startswith("pod manifest:2:19: error: not YAML: ")
