"""The claims in a pod's spec and status: what the API server takes and refuses of them."""

from __future__ import annotations

from typing import Any

import pytest

from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.registry import PODS
from tests.sandbox.resource.writes import Cluster

CLAIM = {"name": "gpu", "resourceClaimName": "c"}
USED = "spec.containers[0].resources.claims[0]"


def pod(*claims: Any, uses: Any = (), **resources: Any) -> Any:
    container = {"name": "c", "image": "x", "resources": {"claims": list(uses), **resources}}
    meta = {"name": "p", "namespace": "ns"}
    return {"metadata": meta, "spec": {"resourceClaims": list(claims), "containers": [container]}}


def refusals(one: Any, status: Any = None) -> list[tuple[str, str]]:
    cluster = Cluster()
    try:
        stored = cluster.registry.create(PODS, "ns", one)
        if status is not None:
            cluster.registry.update(
                PODS, "ns", "p", lambda _: {**stored, "status": status}, part_name="status"
            )
    except StatusError as error:
        causes: Any = (error.details or {})["causes"]
        return [(cause["field"], cause["message"]) for cause in causes]
    return []


NO_SOURCE = (
    'Invalid value: {"Name":"gpu","ResourceClaimName":null,"ResourceClaimTemplateName":null}: must specify '
    "one of: `resourceClaimName`, `resourceClaimTemplateName`"
)


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ([CLAIM], []),
        ([{"name": "gpu", "resourceClaimTemplateName": "t"}], []),
        ([CLAIM, CLAIM], [("spec.resourceClaims[1].name", 'Duplicate value: "gpu"')]),
        ([{"resourceClaimName": "c"}], [("spec.resourceClaims[0].name", "Required value")]),
        ([{"name": "gpu"}], [("spec.resourceClaims[0]", NO_SOURCE)]),
    ],
)
def test_a_pod_names_each_claim_once_and_by_one_source(claims: list[Any], told: Any) -> None:
    """D66."""
    assert refusals(pod(*claims)) == told


def test_a_container_uses_claims_that_the_pod_names() -> None:
    """D66."""
    assert refusals(pod(CLAIM, uses=[{"name": "gpu", "request": "r0"}])) == []
    told = 'Not found: "nic": must be one of the names in pod.spec.resourceClaims'
    assert refusals(pod(CLAIM, uses=[{"name": "nic"}])) == [(USED, f"{told}: gpu")]
    assert refusals(pod(uses=[{"name": "nic"}])) == [(USED, f"{told} which is empty")]


def test_a_status_names_the_claims_that_were_made_for_the_pod() -> None:
    """D60."""
    made = {"name": "gpu", "resourceClaimName": "p-gpu-x"}
    assert refusals(pod(CLAIM), {"resourceClaimStatuses": [made]}) == []
    assert refusals(pod(), {"resourceClaimStatuses": [made]}) == [
        (
            "status.resourceClaimStatuses[0].name",
            'Invalid value: "gpu": must match the name of an entry in `spec.resourceClaims`',
        )
    ]


def test_a_status_maps_extended_resources_to_requests_of_a_claim() -> None:
    """D91."""
    mapping = {
        "containerName": "c",
        "resourceName": "example.com/gpu",
        "requestName": "container-0-request-0",
    }
    status = {"requestMappings": [mapping], "resourceClaimName": "p-extended-resources-x"}
    asking = pod(limits={"example.com/gpu": "2"})
    assert refusals(asking, {"extendedResourceClaimStatus": status}) == []
    found = refusals(pod(), {"extendedResourceClaimStatus": {"requestMappings": [mapping]}})
    place = "status.extendedResourceClaimStatus"
    assert [field for field, _ in found] == [
        f"{place}.requestMappings[0].resourceName",
        f"{place}.resourceClaimName",
    ]


@pytest.mark.parametrize(
    ("name", "health", "count"),
    [
        ("claim:gpu/r0", "Healthy", 0),
        ("claim:gpu", "Unknown", 1),
        ("example.com/fpga", "Unhealthy", 0),
        ("example.com/gpu", "Sick", 2),
    ],
)
def test_the_health_of_devices_is_told_by_claim_or_resource(name: str, health: str, count: int) -> None:
    """D36."""
    devices = [{"resourceID": "d0", "health": health}]
    told = {"name": "c", "allocatedResourcesStatus": [{"name": name, "resources": devices}]}
    one = pod(CLAIM, uses=[{"name": "gpu", "request": "r0"}], limits={"example.com/fpga": "1"})
    assert len(refusals(one, {"containerStatuses": [told]})) == count
