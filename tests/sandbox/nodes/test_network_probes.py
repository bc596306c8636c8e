"""Probes that ask a program over the network: HTTP, HTTPS and gRPC, at real servers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from devplug.sandbox.nodes.probes import ContainerProbes, probe_of

HOST = "127.0.0.1"


class Answers:
    """What is told of one probe: "ready", or the message of its failure."""

    def __init__(self) -> None:
        self.first: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def started(self) -> None:
        """Nothing waits for it."""

    def ready(self, is_ready: bool) -> None:
        if is_ready and not self.first.done():
            self.first.set_result("ready")

    def failed(self, kind: str, message: str) -> None:
        if not self.first.done():
            self.first.set_result(message)

    async def end(self, kind: str, grace_seconds: int | None) -> None:
        """No probe of liveness runs here."""


async def no_program(_: Sequence[str]) -> tuple[int, str]:
    raise AssertionError("no command is probed")


async def said(**action: Any) -> str:
    """What the first try of a readiness probe comes to: "ready", or why not."""
    answers = Answers()
    probe = probe_of({"readinessProbe": {"timeoutSeconds": 20, **action}}, "readinessProbe")
    probes = ContainerProbes({"Readiness": probe}, HOST, no_program, answers)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(probes.run())
        first = await answers.first
        running.cancel()
    return first


# ── HTTP ──


class Pages(BaseHTTPRequestHandler):
    """Answers with the status that the path names, or with what the request had."""

    def do_GET(self) -> None:
        word = self.path.partition("?")[0].strip("/")
        kind, _, rest = word.partition("/")
        if kind == "to":
            self.send_response(302)
            self.send_header("Location", rest if rest.startswith("http") else f"/{rest}")
        elif kind == "loop":
            self.send_response(307)
            self.send_header("Location", "/loop")
        elif kind == "headers":
            wanted = dict(pair.split("=") for pair in self.path.partition("?")[2].split("&") if pair)
            found = {name: self.headers.get(name, "") for name in wanted}
            self.send_response(200 if found == wanted else 418)
        elif kind == "large":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"x" * (1 << 20))
            return
        else:
            self.send_response(int(kind))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def pages(certificate: Path | None = None) -> Iterator[int]:
    """Serve the pages; yield the port."""
    server = ThreadingHTTPServer((HOST, 0), Pages)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with pages() as served:
        yield served


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/200", "ready"),
        ("399", "ready"),
        ("/400", "HTTP probe failed with statuscode: 400"),
        ("/500?verbose=1", "HTTP probe failed with statuscode: 500"),
        ("/to/204", "ready"),
        ("/to/to/503", "HTTP probe failed with statuscode: 503"),
        ("/to/http://elsewhere.invalid/503", "ready"),
        ("/loop", "stopped after 10 redirects"),
        ("/large", "ready"),
    ],
)
async def test_the_status_decides_after_redirects_on_the_host(port: int, path: str, answer: str) -> None:
    assert await said(httpGet={"port": port, "path": path}) == answer


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ([], "User-Agent=kube-probe/1.36&Accept=*/*"),
        ([{"name": "X-Token", "value": "a"}, {"name": "host", "value": "me"}], "X-Token=a&Host=me"),
        ([{"name": "Accept", "value": ""}, {"name": "user-agent", "value": "me"}], "Accept=&User-Agent=me"),
    ],
)
async def test_headers_of_the_probe_take_the_place_of_the_usual_ones(
    port: int, headers: list[dict[str, str]], wanted: str
) -> None:
    assert await said(httpGet={"port": port, "path": f"/headers?{wanted}", "httpHeaders": headers}) == "ready"


async def test_https_takes_any_certificate(tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other"]
    subprocess.run([*made, "-keyout", str(both), "-out", f"{both}.crt"], check=True, capture_output=True)
    with both.open("a") as file:
        file.write(Path(f"{both}.crt").read_text())
    with pages(both) as served:
        given = {"port": served, "scheme": "HTTPS"}
        assert await said(httpGet={**given, "path": "/200"}) == "ready"
        assert await said(httpGet={**given, "path": "/503"}) == "HTTP probe failed with statuscode: 503"
        assert "probe" not in await said(httpGet={"port": served, "path": "/200"})


async def test_a_server_that_does_not_answer_is_given_up_after_its_time() -> None:
    with socket.create_server((HOST, 0)) as silent:
        served = silent.getsockname()[1]
        assert await said(httpGet={"port": served}, timeoutSeconds=1) == "timed out after 1s"
        assert await said(grpc={"port": served}, timeoutSeconds=1) == (
            f'timeout: failed to connect service "{HOST}:{served}" within 1s: context deadline exceeded'
        )


# ── gRPC ──

STATUSES = {b"": 1, b"\x0a\x04down": 2, b"\x0a\x04none": 3}
"""The status of each request: of the whole server, and of a service by its name."""


@asynccontextmanager
async def health_server(*, is_served: bool = True) -> AsyncIterator[int]:
    """Serve `grpc.health.v1.Health`, by a library of others; yield the port."""

    async def check(request: bytes, _: object) -> bytes:
        if request == b"\x0a\x04slow":
            await asyncio.Event().wait()
        return bytes((8, STATUSES[request]))

    server = grpc.aio.server()
    service = "grpc.health.v1.Health" if is_served else "example.com.Other"
    handlers = {"Check": grpc.unary_unary_rpc_method_handler(check)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    served = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    try:
        yield served
    finally:
        await server.stop(0)


async def test_the_health_of_a_service_decides() -> None:
    async with health_server() as served:
        assert await said(grpc={"port": served}) == "ready"
        down = await said(grpc={"port": served, "service": "down"})
        assert down == 'service unhealthy (responded with "NOT_SERVING")'
        assert "SERVICE_UNKNOWN" in await said(grpc={"port": served, "service": "none"})
        slow = await said(grpc={"port": served, "service": "slow"}, timeoutSeconds=1)
        assert slow == "timeout: health rpc did not complete within 1s"


async def test_a_server_without_the_health_service_fails() -> None:
    async with health_server(is_served=False) as served:
        assert await said(grpc={"port": served}) == (
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): "
            "Method not found!"
        )
