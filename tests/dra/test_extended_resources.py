"""Extended resources that classes serve: which class, and what is asked for which container."""

from __future__ import annotations

from typing import Any

import pytest

from devplug.dra.extended_resources import ExtendedClasses, extended_claim, extended_requests
from devplug.dra.objects import DeviceClass
from devplug.dra.scheduling import Attempt, Fit
from tests.dra.worlds import N1, Json, cluster_of, slice_of

GPUS = "example.com/gpu"
CLASSES = ExtendedClasses([DeviceClass("gpu", (), (), GPUS)])


def container(name: str, amount: int, resource: str = GPUS, **more: Any) -> Json:
    quantities = {"cpu": "1", resource: str(amount)}
    return {"name": name, "resources": {"requests": quantities, "limits": quantities}, **more}


def asked(spec: Json) -> tuple[list[tuple[str, int]], list[tuple[str, str]]]:
    found = extended_requests(spec, [GPUS], CLASSES)
    return (
        [(one["name"], one["exactly"]["count"]) for one in found.requests],
        [(one["containerName"], one["requestName"]) for one in found.mappings],
    )


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        (GPUS, "newest"),
        ("deviceclass.resource.kubernetes.io/old", "old"),
        ("deviceclass.resource.kubernetes.io/none", None),
        ("example.com/other", None),
    ],
)
def test_the_newest_class_serves_a_resource(resource: str, expected: str | None) -> None:
    """D91: of classes of one age the first by name."""
    classes = [
        DeviceClass("old", (), (), GPUS, "2026-01-01T00:00:00Z"),
        DeviceClass("second", (), (), GPUS, "2026-01-02T00:00:00Z"),
        DeviceClass("newest", (), (), GPUS, "2026-01-02T00:00:00Z"),
    ]
    assert ExtendedClasses(classes).of(resource) == expected


def test_each_container_has_a_request_of_its_own() -> None:
    """D91: the number of the request is the place of the resource among all that the container requests."""
    spec = {"containers": [container("c", 2), container("d", 1)]}
    assert asked(spec) == (
        [("container-0-request-1", 2), ("container-1-request-1", 1)],
        [("c", "container-0-request-1"), ("d", "container-1-request-1")],
    )


def test_an_init_container_uses_what_later_containers_ask_for() -> None:
    """D91."""
    spec = {"initContainers": [container("i", 1)], "containers": [container("c", 2)]}
    assert asked(spec) == (
        [("container-1-request-1", 2)],
        [("c", "container-1-request-1"), ("i", "container-1-request-1")],
    )


def test_init_containers_share_the_largest_request_beyond_that() -> None:
    """D91."""
    spec = {"initContainers": [container("i", 3), container("j", 5)], "containers": [container("c", 1)]}
    requests, mappings = asked(spec)
    assert requests == [("container-1-request-1", 4), ("container-2-request-1", 1)]
    assert set(mappings) == {
        ("c", "container-2-request-1"),
        ("i", "container-2-request-1"),
        ("i", "container-1-request-1"),
        ("j", "container-2-request-1"),
        ("j", "container-1-request-1"),
    }


def test_a_sidecar_keeps_its_devices() -> None:
    """D91."""
    spec = {"initContainers": [container("i", 1, restartPolicy="Always")], "containers": [container("c", 1)]}
    assert asked(spec)[0] == [("container-0-request-1", 1), ("container-1-request-1", 1)]


def test_the_claim_belongs_to_the_pod() -> None:
    """D91."""
    found = extended_claim({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}, [])
    assert found["metadata"]["generateName"] == "p-extended-resources-"
    assert found["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert found["metadata"]["ownerReferences"][0]["uid"] == "u"


def two_devices() -> Attempt:
    """Begin with a pod that asks for two of a resource that the class of two devices serves."""
    cluster = cluster_of(slice_of("s", ["a", "b"])).cluster
    cluster.classes = {"gpu": DeviceClass("gpu", (), (), GPUS)}
    return Attempt({"metadata": {"name": "p"}, "spec": {"containers": [container("c", 2)]}}, (), cluster)


def test_the_devices_of_a_pods_resources_are_searched_as_those_of_a_claim() -> None:
    """D91."""
    fit = two_devices().filter(N1, {GPUS: 0})
    assert isinstance(fit, Fit)
    assert fit.extended is not None
    assert [one["device"] for one in fit.allocations[0][1]["devices"]["results"]] == ["a", "b"]


def test_a_node_with_the_resource_from_a_device_plugin_needs_no_claim() -> None:
    """D91."""
    attempt = two_devices()
    assert attempt.filter(N1, {GPUS: 2}) == Fit()
    assert attempt.is_claimed(GPUS, {})
    assert not attempt.is_claimed(GPUS, {GPUS: 1})
