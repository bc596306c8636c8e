"""A whole sandbox under requests that no sane client makes: whatever is taken, nobody dies of it."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from devplug.sandbox.cluster import Sandbox
from devplug.sandbox.sandboxdir import SandboxDir
from devplug.sandbox.settings import SandboxSettings
from tests.sandbox.server.beds import TOKEN, served

MERGE = "application/merge-patch+json"
PODS = "/api/v1/namespaces/default/pods"
NODE = "/api/v1/nodes/worker-0"
SETS = "/apis/apps/v1/namespaces/default/daemonsets"
LONG = 2**63 - 1


def pod(name: str, **spec: Any) -> Any:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def daemons(name: str, **spec: Any) -> Any:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod("")["spec"]}
    return {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template, **spec},
    }


def weighing(**requests: str) -> Any:
    return [{"name": "c", "image": "i", "resources": {"limits": requests}}]


HOSTILE: list[tuple[str, str, Any]] = [
    ("POST", PODS, pod("null-toleration", tolerations=[None])),
    ("POST", PODS, pod("null-container", containers=[None])),
    ("POST", PODS, pod("null-selector", nodeSelector={"zone": None})),
    ("POST", PODS, pod("too-heavy", containers=weighing(cpu="1e400", memory="1E"))),
    ("POST", PODS, pod("for-ever", activeDeadlineSeconds=LONG, terminationGracePeriodSeconds=LONG)),
    ("POST", PODS, pod("less-than-nothing", overhead={"cpu": "-5"})),
    ("POST", PODS, pod("nowhere", nodeName="../..")),
    ("PATCH", f"{PODS}/for-ever/status", {"status": {"startTime": "9999-12-31T23:59:59-23:59"}}),
    ("PATCH", f"{PODS}/for-ever/status", {"status": {"containerStatuses": [None]}}),
    ("DELETE", f"{PODS}/for-ever", None),
    ("DELETE", f"{PODS}/too-heavy", {"gracePeriodSeconds": LONG}),
    ("POST", SETS, daemons("for-ever", minReadySeconds=2**31 - 1)),
    ("POST", SETS, daemons("null-expression", selector={"matchExpressions": [None]})),
    ("PATCH", NODE, {"spec": {"taints": [None]}}),
    ("PATCH", f"{NODE}/status", {"status": {"capacity": None, "allocatable": {"cpu": None}}}),
    ("PATCH", f"{NODE}/status", {"status": {"conditions": [None], "images": [None]}}),
    ("PATCH", f"{NODE}/status", {"status": None}),
    ("DELETE", NODE, None),
]


def ask(server: str, requests: list[tuple[str, str, Any]]) -> list[int]:
    at = urlsplit(server)
    connection = http.client.HTTPConnection("127.0.0.1", at.port, timeout=20)
    codes = []
    for method, path, body in requests:
        media_type = MERGE if method == "PATCH" else "application/json"
        sent = None if body is None else json.dumps(body)
        connection.request(method, at.path + path, sent, {"Content-Type": media_type})
        answer = connection.getresponse()
        answer.read()
        codes.append(answer.status)
    connection.close()
    return codes


async def test_a_sandbox_lives_through_objects_that_make_no_sense(short_dir: Path) -> None:
    async def main() -> list[int]:
        async with Sandbox(SandboxSettings(folder=short_dir / "s")).running():
            record = SandboxDir(short_dir / "s").running()
            assert record is not None
            codes: list[int] = []
            for request in HOSTILE:
                # One by one, with a turn for every part of the sandbox after each.
                codes += await asyncio.to_thread(ask, record.server, [request])
            codes += await asyncio.to_thread(ask, record.server, [("GET", PODS, None), ("GET", SETS, None)])
            return codes

    codes = await main()
    assert codes[-2:] == [200, 200]
    assert not [request for request, code in zip(HOSTILE, codes, strict=False) if code >= 500]


def test_what_a_pod_as_a_whole_asks_for_is_not_below_nothing() -> None:
    with served() as server:
        for spec in ({"overhead": {"cpu": "-5"}}, {"resources": {"requests": {"memory": "-1Gi"}}}):
            refused = server.ask("POST", PODS, pod("a", **spec))
            assert (refused.code, refused.json["reason"]) == (422, "Invalid")
            assert "must be greater than or equal to 0" in refused.message


def test_an_answer_on_a_connection_in_use_does_not_wait_for_an_acknowledgement() -> None:
    """As Nagle's algorithm would have it (tcp(7)); the server is a thread of this process."""
    with served() as server:
        connection = server.connect()
        connection.request("GET", "/version", headers={"Authorization": f"Bearer {TOKEN}"})
        connection.getresponse().read()
        assert connection.sock is not None
        opened = [one for one in gc.get_objects() if type(one) is socket.socket and one.fileno() >= 0]
        (its_end,) = [one for one in opened if is_connected_to(one, connection.sock.getsockname())]
        assert its_end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        connection.close()


def is_connected_to(one: socket.socket, address: object) -> bool:
    try:
        return bool(one.getpeername() == address)
    except OSError:
        return False
