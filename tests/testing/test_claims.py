"""A test gives the kubelet claims, and a DRA driver in any language prepares them."""

from __future__ import annotations

import sys

import pytest

from devplug.errors import KubeletError
from devplug.kubelet.pods import PodPhase
from devplug.testing import SyncKubelet
from devplug.testing.programs import Program

DRIVER = "lab.example.com"

# Nothing of ours: the messages are put together by hand, and served by grpcio.
SCRIPT = """
import os, sys, time
from concurrent.futures import ThreadPoolExecutor
import grpc

root, driver = sys.argv[1:]
endpoint = f"{root}/plugins/{driver}/dra.sock"
os.makedirs(os.path.dirname(endpoint))

def text(number, value):
    content = value if isinstance(value, bytes) else value.encode()
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content

def fields(content):
    found = {}
    while content:
        size = content[1]
        found.setdefault(content[0] >> 3, []).append(content[2:2 + size])
        content = content[2 + size:]
    return found

def prepare(request, context):
    answer = b""
    for claim in fields(request)[1]:
        uid, name = (fields(claim)[number][0].decode() for number in (2, 3))
        if os.path.exists(f"{root}/{name}.broken"):
            result = text(2, "no power")
        else:
            result = text(1, text(2, "pool") + text(3, "dev-0") + text(4, f"example.com/lab={name}"))
        answer += text(1, text(1, uid) + text(2, result))
    print("prepare", name, flush=True)
    return answer

def unprepare(request, context):
    uids = [fields(claim)[2][0] for claim in fields(request)[1]]
    print("unprepare", flush=True)
    return b"".join(text(1, text(1, uid) + text(2, b"")) for uid in uids)

def info(request, context):
    return text(1, "DRAPlugin") + text(2, driver) + text(3, endpoint) + text(4, "v1.DRAPlugin")

def serve(path, service, **methods):
    server = grpc.server(ThreadPoolExecutor())
    handlers = {name: grpc.unary_unary_rpc_method_handler(one) for name, one in methods.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    return server

servers = [
    serve(endpoint, "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
          NodePrepareResources=prepare, NodeUnprepareResources=unprepare),
    serve(f"{root}/plugins_registry/{driver}-reg.sock", "pluginregistration.Registration",
          GetInfo=info, NotifyRegistrationStatus=lambda request, context: b""),
]
while True:
    time.sleep(60)
"""


def started(kubelet: SyncKubelet) -> Program:
    return kubelet.run([sys.executable, "-c", SCRIPT, "{root}", DRIVER], drivers=[DRIVER])


def using(claim: str, name: str = "p") -> dict[str, object]:
    container = {"name": "main", "resources": {"claims": [{"name": "lab"}]}}
    spec = {"resourceClaims": [{"name": "lab", "resourceClaimName": claim}], "containers": [container]}
    return {"metadata": {"name": name}, "spec": spec}


def test_a_claim_is_prepared_by_a_program_and_shared_by_two_pods(kubelet: SyncKubelet) -> None:
    program = started(kubelet)
    claim = kubelet.claims.allocate("bench", DRIVER, "dev-0", parameters={"gain": 3})
    first, second = (kubelet.admit(using("bench", name)) for name in ("p", "q"))
    assert first.phase is second.phase is PodPhase.RUNNING
    assert second.container.cdi_devices == ("example.com/lab=bench",)
    assert second.container.health == {"claim:lab": {"example.com/lab=bench": "Unknown"}}
    assert [consumer["name"] for consumer in claim["status"]["reservedFor"]] == ["p", "q"]
    first.delete()
    second.delete()
    assert claim["status"]["reservedFor"] == []
    assert program.output.splitlines() == ["prepare bench", "unprepare"]
    assert kubelet.claims.removed_slices == (None,)


def test_a_claim_that_cannot_be_prepared_keeps_the_pod_waiting_until_it_is_looked_at_again(
    kubelet: SyncKubelet,
) -> None:
    started(kubelet)
    broken = kubelet.root / "bench.broken"
    broken.touch()
    kubelet.claims.allocate("bench", DRIVER, "dev-0")
    pod = kubelet.admit(using("bench"))
    assert pod.phase is PodPhase.PENDING
    (event,) = kubelet.events
    assert event.message == (
        "Failed to prepare dynamic resources: prepare dynamic resources: "
        "NodePrepareResources failed for ResourceClaim bench: no power"
    )
    broken.unlink()
    pod.sync()
    assert pod.status.phase is PodPhase.RUNNING


def test_a_pod_whose_driver_is_away_is_not_deleted(kubelet: SyncKubelet) -> None:
    program = started(kubelet)
    kubelet.claims.allocate("bench", DRIVER, "dev-0")
    pod = kubelet.admit(using("bench"))
    program.kill()
    kubelet.wait(lambda: not kubelet.has_driver(DRIVER))
    with pytest.raises(KubeletError, match="Unavailable"):
        pod.delete()
    assert pod.phase is PodPhase.RUNNING


def test_a_claim_that_nobody_made_is_told_as_by_the_api_server(kubelet: SyncKubelet) -> None:
    assert kubelet.admit(using("bench")).phase is PodPhase.PENDING
    assert kubelet.events[0].message.endswith(
        'fetch ResourceClaim bench: resourceclaims.resource.k8s.io "bench" not found'
    )
