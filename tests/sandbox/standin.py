"""A stand-in for a sandbox that is up: a folder, and an HTTP server with the operations and a few nodes."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from devplug.errors import KubeletError
from devplug.k8s.objects import Object
from devplug.sandbox.api.errors import StatusError, not_found
from devplug.sandbox.control import Control
from devplug.sandbox.registry import NODES, Registry
from devplug.sandbox.sandboxdir import SandboxDir, SandboxRecord


class FakeCluster:
    """Notes what is called, and refuses what the real one would."""

    def __init__(self) -> None:
        self.called: list[tuple[object, ...]] = []
        self.descriptions: dict[str, Object] = {}

    def nodes(self) -> list[str]:
        return ["worker-0", "worker-1"]

    async def restart_kubelet(self, node: str) -> None:
        self.called.append(("restart", node))

    async def disconnect(self, node: str) -> None:
        self.called.append(("disconnect", node))

    async def reconnect(self, node: str) -> None:
        self.called.append(("reconnect", node))

    async def reboot(self, node: str) -> None:
        raise KubeletError(f"{node} does not come back")

    def description(self, node: str) -> Object:
        return self.descriptions.get(node, {"node": node})

    def plugged(self) -> list[str]:
        return ["tty0"]

    def plug(self, names: list[str]) -> list[str]:
        return names[1:]

    def unplug(self, names: list[str]) -> list[str]:
        return names[:1]

    async def end_pod(self, namespace: str, name: str, container: str | None, exit_code: int) -> None:
        if name == "gone":
            raise not_found("pods", name)
        self.called.append(("end", namespace, name, container, exit_code))

    def down(self) -> None:
        self.called.append(("down",))


@dataclass(slots=True)
class StandIn:
    """What was asked of the server, and what it has."""

    place: SandboxDir
    url: str = ""
    cluster: FakeCluster = field(default_factory=FakeCluster)
    registry: Registry = field(default_factory=Registry)
    seen: list[tuple[str, str, str | None]] = field(default_factory=list)
    refusal: StatusError | None = None
    """What every question to the Kubernetes API is answered with."""

    def answer(self, method: str, path: str, media_type: str, body: object) -> tuple[int, Object]:
        url = urlsplit(path.removeprefix("/secret"))
        if found := asyncio.run(Control(self.cluster).handle(method, url.path, body)):
            return found
        try:
            if self.refusal is not None:
                raise self.refusal
            *_, name, subresource = [*url.path.removeprefix("/api/v1/nodes/").split("/"), ""][:2]
            if method == "GET":
                return 200, self.registry.get(NODES, "", name)
            return 200, self.registry.patch(
                NODES, "", name, media_type, body, part_name=subresource, dry_run="dryRun=All" in url.query
            )
        except StatusError as error:
            return error.code, error.status


@contextmanager
def up_in(folder: Path) -> Iterator[tuple[SandboxDir, StandIn]]:
    """A stand-in that is up in a folder `sb`, with a node worker-0."""
    place = SandboxDir(folder / "sb")
    standin = StandIn(place)
    standin.registry.create(NODES, "", {"metadata": {"name": "worker-0"}, "status": {"phase": "Running"}})

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null")
            standin.seen.append((self.command, self.path, self.headers.get("Authorization")))
            media_type = self.headers.get("Content-Type", "")
            code, told = standin.answer(self.command, self.path, media_type, body)
            content = json.dumps(told).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = _answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, place.claimed():
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        standin.url = f"http://127.0.0.1:{server.server_port}/secret"
        place.node("worker-0").make()
        place.announce(SandboxRecord(os.getpid(), standin.url, "secret", "", ("worker-0", "worker-1")))
        try:
            yield place, standin
        finally:
            server.shutdown()
            thread.join()
