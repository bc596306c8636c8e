"""kubectl against the documents: explain, strict validation, and what makes it send an object at all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from devplug.sandbox.openapi.documents import openapi_document
from devplug.sandbox.server.discovery import AGGREGATED_MEDIA_TYPE, aggregated
from tests.sandbox.jsons import KUBECTL

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

PREFIX = "/secret"
"""The sandbox's kubeconfig has such a path in its server's address."""


class Server(ThreadingHTTPServer):
    """Discovery and the documents; what is posted is answered as it came, and noted."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.posted: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].removeprefix(PREFIX)
        if path in {"/api", "/apis"}:
            self.answer(200, json.dumps(aggregated(core=path == "/api")).encode(), AGGREGATED_MEDIA_TYPE)
        elif self.path.startswith(PREFIX) and (
            found := openapi_document(path, self.headers.get("Accept", ""))
        ):
            self.answer(200, *found)
        else:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound"}
            self.answer(404, json.dumps(status | {"code": 404}).encode(), "application/json")

    def do_POST(self) -> None:
        self.server.posted.append(self.path.removeprefix(PREFIX))
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(201, body, "application/json")

    def answer(self, code: int, body: bytes, media_type: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Kubectl:
    def __init__(self, server: Server, home: Path) -> None:
        self.server = server
        self.home = home
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "a", "cluster": {"server": f"http://127.0.0.1:{server.server_port}{PREFIX}"}}
            ],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "users": [{"name": "a", "user": {}}],
            "current-context": "a",
        }
        (home / "kubeconfig").write_text(json.dumps(config))

    def __call__(self, *arguments: str, given: object = None) -> str:
        ended = subprocess.run(
            ["kubectl", *arguments],
            input=json.dumps(given),
            env={**os.environ, "HOME": str(self.home), "KUBECONFIG": str(self.home / "kubeconfig")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with serving() as server:
        yield Kubectl(server, tmp_path_factory.mktemp("home"))


def test_kubectl_explains_where_devices_stand(kubectl: Kubectl) -> None:
    told = kubectl("explain", "pod.spec.containers.resources")
    assert told.startswith("KIND:       Pod\nVERSION:    v1\n\nFIELD: resources <ResourceRequirements>\n")
    assert "limits\t<map[string]Quantity>\n    The most that it gets." in told


def test_kubectl_explains_down_to_the_leaves(kubectl: Kubectl) -> None:
    told = kubectl("explain", "daemonset.spec.template.spec.volumes", "--recursive")
    assert "GROUP:      apps\nKIND:       DaemonSet\n" in told
    assert "  hostPath\t<HostPathVolumeSource>\n" in told
    assert "    path\t<string> -required-\n" in told
    assert "    enum: " in told


def test_kubectl_reads_the_old_document_too(kubectl: Kubectl) -> None:
    told = kubectl("explain", "node.status", "--output=plaintext-openapiv2")
    assert "   allocatable\t<map[string]string>\n" in told
    assert "   conditions\t<[]Object>\n" in told


def test_kubectl_applies_the_recorded_inputs_with_strict_validation(kubectl: Kubectl) -> None:
    inputs = list(KUBECTL.glob("*.yaml"))
    files = [f"--filename={path}" for path in inputs]
    told = kubectl("apply", "--dry-run=client", "--validate=strict", *files)
    kinds = "\n".join(path.read_text() for path in inputs).count("kind:")
    assert told.count(" created (dry run)\n") == kinds


@pytest.mark.parametrize(
    ("api_version", "kind", "path"),
    [
        ("v1", "Pod", "/api/v1/namespaces/default/pods"),
        ("v1", "Binding", "/api/v1/namespaces/default/bindings"),
        ("apps/v1", "Deployment", "/apis/apps/v1/namespaces/default/deployments"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    ],
)
def test_kubectl_leaves_validation_to_the_server(
    kubectl: Kubectl, api_version: str, kind: str, path: str
) -> None:
    one = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "misspelt": 1}
    kubectl("create", "--validate=strict", "-f", "-", given=one)
    assert kubectl.server.posted[-1].startswith(f"{path}?")
    assert "fieldValidation=Strict" in kubectl.server.posted[-1]
