"""The messages of DRA drivers have the bytes that a real kubelet and a driver exchanged."""

from __future__ import annotations

import pytest

from devplug.wire.codecs import MalformedMessageError
from devplug.wire.dra import (
    PREPARE,
    UNPREPARE,
    WATCH_RESOURCES,
    ClaimName,
    DeviceHealthReport,
    HealthWord,
    PreparedClaim,
    PreparedDevice,
)

UID = "2bde6d7d-e148-4781-88a8-03edc81b99e1"
CLAIM = ClaimName("dra-demo", UID, "p1-gpu-v8wtk")
CDI_NAME = f"k8s.gpu.demo.example.com/claim={UID}-gpu-0"

REQUEST = (
    "0a3e0a086472612d64656d6f122432626465366437642d653134382d343738312d383861382d303365646338316239396531"
    "1a0c70312d6770752d763877746b"
)
PREPARED = (
    "0a8b010a2432626465366437642d653134382d343738312d383861382d30336564633831623939653112630a610a03677075"
    "1208776f726b65722d301a056770752d3022496b38732e6770752e64656d6f2e6578616d706c652e636f6d2f636c61696d3d"
    "32626465366437642d653134382d343738312d383861382d3033656463383162393965312d6770752d30"
)
UNPREPARED = "0a280a2432626465366437642d653134382d343738312d383861382d3033656463383162393965311200"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_both_versions_exchange_the_same_bytes(version: str) -> None:
    """D05, D16: as they were recorded between Kubernetes 1.36 and a driver."""
    prepare, unprepare = PREPARE[f"{version}.DRAPlugin"], UNPREPARE[f"{version}.DRAPlugin"]
    assert prepare.path == f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/NodePrepareResources"
    assert unprepare.path == f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/NodeUnprepareResources"
    for method in (prepare, unprepare):
        assert method.request.encode([CLAIM]).hex() == REQUEST
        assert method.request.decode(bytes.fromhex(REQUEST)) == (CLAIM,)
    answer = {UID: PreparedClaim((PreparedDevice("worker-0", "gpu-0", ("gpu",), (CDI_NAME,)),))}
    assert prepare.response.encode(answer).hex() == PREPARED
    assert prepare.response.decode(bytes.fromhex(PREPARED)) == answer
    assert unprepare.response.encode({UID: ""}).hex() == UNPREPARED
    assert unprepare.response.decode(bytes.fromhex(UNPREPARED)) == {UID: ""}


def test_only_v1_has_share_ids() -> None:
    """D05."""
    answer = {"u": PreparedClaim((PreparedDevice("p", "d", share_id="s"),))}
    v1, v1beta1 = (PREPARE[f"{version}.DRAPlugin"].response for version in ("v1", "v1beta1"))
    assert v1.decode(v1.encode(answer)) == answer
    assert v1beta1.decode(v1.encode(answer)) == {"u": PreparedClaim((PreparedDevice("p", "d"),))}


def test_a_claim_without_a_message_counts_as_one_with_an_empty_one() -> None:
    """An entry of a map may leave out key and value, which are empty then; of two the later one wins."""
    response = PREPARE["v1.DRAPlugin"].response
    assert response.decode(bytes.fromhex("0a030a0175")) == {"u": PreparedClaim()}
    assert response.decode(bytes.fromhex("0a00")) == {"": PreparedClaim()}
    twice = response.encode({"u": PreparedClaim(error="a")}) + response.encode(
        {"u": PreparedClaim(error="b")}
    )
    assert response.decode(twice) == {"u": PreparedClaim(error="b")}
    with pytest.raises(MalformedMessageError, match="NodePrepareResourcesResponse"):
        response.decode(b"\x0a\x05u")


def test_health_reports_have_the_bytes_that_were_recorded() -> None:
    """D32."""
    assert WATCH_RESOURCES.path == "/v1alpha1.DRAResourceHealth/NodeWatchResources"
    reports = (
        DeviceHealthReport("worker-0", "dev-0", HealthWord.UNHEALTHY, 1795362893, message="fan stopped"),
        DeviceHealthReport("worker-0", "dev-0", HealthWord.HEALTHY, 1795362899, timeout_seconds=5),
    )
    content = WATCH_RESOURCES.response.encode(reports)
    assert content.hex() == (
        "0a280a110a08776f726b65722d3012056465762d30100218cda08cd8062a0b66616e2073746f70706564"
        "0a1d0a110a08776f726b65722d3012056465762d30100118d3a08cd8062005"
    )
    assert WATCH_RESOURCES.response.decode(content) == reports
    assert WATCH_RESOURCES.response.decode(b"\x0a\x00") == (DeviceHealthReport("", "", HealthWord.UNKNOWN),)
