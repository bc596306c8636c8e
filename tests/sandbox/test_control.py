"""The sandbox's own operations: which request calls what, and how refusals are told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from devplug.k8s.objects import Object
from devplug.sandbox.client import ClientError, NoSandboxError, SandboxClient
from devplug.sandbox.control import Control
from devplug.sandbox.sandboxdir import SandboxDir, SandboxRecord
from tests.sandbox.standin import FakeCluster, up_in


def answer(
    method: str, path: str, body: object = None, cluster: FakeCluster | None = None
) -> tuple[int, Object] | None:
    return asyncio.run(Control(cluster or FakeCluster()).handle(method, path, body))


# ── routes ──


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "nodes", None, {"nodes": [{"node": "worker-0"}, {"node": "worker-1"}]}),
        ("GET", "nodes/worker-1", None, {"node": "worker-1"}),
        ("GET", "devices", None, {"names": ["tty0"]}),
        ("POST", "devices/plug", {"names": ["a", "b"]}, {"names": ["b"]}),
        ("POST", "devices/unplug", {"names": ["a", "b"]}, {"names": ["a"]}),
    ],
)
def test_questions_are_answered(method: str, path: str, body: object, expected: object) -> None:
    assert answer(method, f"/sandbox/v1/{path}", body) == (200, expected)


@pytest.mark.parametrize(
    ("path", "body", "called"),
    [
        ("nodes/worker-1/restart-kubelet", None, ("restart", "worker-1")),
        ("nodes/worker-1/disconnect", None, ("disconnect", "worker-1")),
        ("nodes/worker-1/reconnect", None, ("reconnect", "worker-1")),
        ("pods/lab/p/end", None, ("end", "lab", "p", None, 0)),
        ("pods/lab/p/end", {"container": "c", "exitCode": 3}, ("end", "lab", "p", "c", 3)),
        ("pods/lab/a%2Fb/end", {"container": ""}, ("end", "lab", "a/b", None, 0)),
        ("down", None, ("down",)),
    ],
)
def test_acts_are_done(path: str, body: object, called: tuple[object, ...]) -> None:
    cluster = FakeCluster()
    assert answer("POST", f"/sandbox/v1/{path}", body, cluster) == (200, {})
    assert cluster.called == [called]


@pytest.mark.parametrize("path", ["/", "/api/v1/nodes", "/sandbox", "/sandbox/v2/nodes"])
def test_other_paths_are_not_ours(path: str) -> None:
    assert answer("GET", path) is None


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "words"),
    [
        ("GET", "nowhere", None, 404, "no operation GET /sandbox/v1/nowhere"),
        ("PUT", "down", None, 404, "no operation PUT"),
        ("GET", "nodes/worker-9", None, 404, 'no node "worker-9"; it has worker-0, worker-1'),
        ("POST", "nodes/worker-9/reboot", None, 404, "no node"),
        ("POST", "nodes/worker-0/reboot", None, 422, "worker-0 does not come back"),
        ("POST", "pods/lab/gone/end", None, 404, 'pods "gone" not found'),
        ("POST", "pods/lab/p/end", {"exitCode": 256}, 400, "from 0 to 255"),
        ("POST", "pods/lab/p/end", {"exitCode": -1}, 400, "from 0 to 255"),
        ("POST", "pods/lab/p/end", {"exitCode": "1"}, 400, "from 0 to 255"),
        ("POST", "pods/lab/p/end", {"exitCode": True}, 400, "from 0 to 255"),
        ("POST", "devices/plug", None, 400, "name the devices"),
        ("POST", "devices/plug", {"names": [1]}, 400, "name the devices"),
    ],
)
def test_refusals_say_why(method: str, path: str, body: object, code: int, words: str) -> None:
    answered = answer(method, f"/sandbox/v1/{path}", body)
    assert answered is not None
    assert answered[0] == code
    assert words in str(answered[1]["error"])


# ── the other end ──


def test_the_client_finds_the_server_and_shows_the_token(short_dir: Path) -> None:
    with up_in(short_dir) as (place, standin):
        assert SandboxClient(place).operate("POST", "devices", "plug", names=["a", "b"]) == {"names": ["b"]}
        assert standin.seen == [("POST", "/secret/sandbox/v1/devices/plug", "Bearer secret")]


def test_the_client_says_what_the_sandbox_says(short_dir: Path) -> None:
    with up_in(short_dir) as (place, _), pytest.raises(ClientError, match=r'pods "gone" not found'):
        SandboxClient(place).operate("POST", "pods", "lab", "gone", "end")


def test_a_name_with_a_slash_stays_one_step(short_dir: Path) -> None:
    with up_in(short_dir) as (place, _), pytest.raises(ClientError, match='no node "a/b"'):
        SandboxClient(place).operate("GET", "nodes", "a/b")


def test_where_no_sandbox_is_up_the_client_says_how_to_start_one(short_dir: Path) -> None:
    with pytest.raises(NoSandboxError, match=rf"no sandbox is up in {short_dir}.*: devplug sandbox up"):
        SandboxClient(SandboxDir(short_dir / "sb"))


def test_a_sandbox_that_does_not_answer_is_named_with_its_process(short_dir: Path) -> None:
    with up_in(short_dir) as (place, _):
        place.announce(SandboxRecord(4242, "http://127.0.0.1:1", "secret", "", ("worker-0",)))
        with pytest.raises(ClientError, match=r"process 4242\) does not answer: .*refused"):
            SandboxClient(place).operate("GET", "nodes")
