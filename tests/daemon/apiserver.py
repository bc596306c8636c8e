"""A stand-in for the API server: nodes to get and to watch, and lists of DeviceClasses, over real sockets."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asked."""

    path: str
    query: Mapping[str, str]
    authorization: str = ""

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"


@dataclass(slots=True, eq=False)
class _Watch:
    name: str
    events: asyncio.Queue[dict[str, Any] | None] = field(default_factory=asyncio.Queue)


class ApiServer:
    """What a cluster says; it lives as long as `api_server`'s block."""

    def __init__(self) -> None:
        self.port = 0
        self.nodes: dict[str, dict[str, Any]] = {}
        self.classes: dict[str, list[str | None]] = {}
        """By version of resource.k8s.io: the extendedResourceName of each class. Others are not served."""
        self.refusals: dict[str, tuple[int, str]] = {}
        """By kind of question (get, watch, list): an HTTP status and a body instead of the answer."""
        self.requests: list[Request] = []
        self._watches: set[_Watch] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._version = 1000
        self._pulse = asyncio.Event()

    def label(self, name: str, **labels: str) -> None:
        """Give a Node exactly these labels; it is made if there is none."""
        kind = "MODIFIED" if name in self.nodes else "ADDED"
        self._version += 1
        self.nodes[name] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "resourceVersion": str(self._version), "labels": dict(labels)},
        }
        self._tell(kind, name)

    def delete(self, name: str) -> None:
        """Delete a Node."""
        self._tell("DELETED", name)
        del self.nodes[name]

    def end_watches(self, *last_lines: dict[str, Any]) -> None:
        """End all watches that are open, after these last events."""
        for watch in self._watches:
            for line in last_lines:
                watch.events.put_nowait(line)
            watch.events.put_nowait(None)

    @property
    def watches(self) -> int:
        """How many are open."""
        return len(self._watches)

    async def wait(self, claim: Callable[[], object]) -> None:
        """Wait until something is so; looked at whenever something is asked."""
        while not claim():
            self._pulse.clear()
            await self._pulse.wait()

    def _tell(self, kind: str, name: str) -> None:
        for watch in self._watches:
            if watch.name == name:
                watch.events.put_nowait({"type": kind, "object": self.nodes[name]})

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer what comes over one connection, until its other end closes it."""
        self._writers.add(writer)
        try:
            while request := await _read(reader):
                self.requests.append(request)
                self._pulse.set()
                await self._answer(request, writer)
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def close(self) -> None:
        """Close all connections."""
        self.end_watches()
        for writer in self._writers:
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        kind = "watch" if request.is_watch else "get" if "/nodes/" in request.path else "list"
        if kind in self.refusals:
            status, body = self.refusals[kind]
            # As from a load balancer: only what the API server itself says is JSON.
            _send(writer, status, body, "application/json" if body.startswith("{") else "text/html")
        elif kind == "watch":
            await self._watch(request, writer)
        elif kind == "get":
            node = self.nodes.get(request.path.rpartition("/")[2])
            _send(writer, 200 if node else 404, json.dumps(node or _status(404, "nodes not found")))
        else:
            self._list(request, writer)
        await writer.drain()

    async def _watch(self, request: Request, writer: asyncio.StreamWriter) -> None:
        watch = _Watch(request.query["fieldSelector"].partition("=")[2])
        if "resourceVersion" not in request.query and watch.name in self.nodes:
            watch.events.put_nowait({"type": "ADDED", "object": self.nodes[watch.name]})
        self._watches.add(watch)
        self._pulse.set()
        try:
            writer.write(_head(200, "application/json", "Transfer-Encoding: chunked"))
            while event := await watch.events.get():
                # In two pieces, as networks do it.
                line = json.dumps(event) + "\n"
                _chunk(writer, line[:10])
                await writer.drain()
                _chunk(writer, line[10:])
                await writer.drain()
            if not writer.is_closing():
                writer.write(b"0\r\n\r\n")
        finally:
            self._watches.discard(watch)
            self._pulse.set()

    def _list(self, request: Request, writer: asyncio.StreamWriter) -> None:
        version = request.path.split("/")[3]
        if version not in self.classes:
            _send(writer, 404, json.dumps(_status(404, "the server could not find the requested resource")))
            return
        start = int(request.query.get("continue", "0"))
        end = start + int(request.query.get("limit", "1000000"))
        names = self.classes[version]
        items = [
            {"metadata": {"name": f"c{number}"}, "spec": {"extendedResourceName": name} if name else {}}
            for number, name in enumerate(names[start:end], start)
        ]
        rest = {"continue": str(end)} if end < len(names) else {}
        text = json.dumps(
            {"kind": "DeviceClassList", "metadata": {"resourceVersion": "1", **rest}, "items": items}
        )
        writer.write(_head(200, "application/json", "Transfer-Encoding: chunked"))
        for at in range(0, len(text), 1000):
            _chunk(writer, text[at : at + 1000])
        writer.write(b"0\r\n\r\n")


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


def refusal(code: int, message: str) -> tuple[int, str]:
    """Return what the API server itself answers when it refuses."""
    return code, json.dumps(_status(code, message))


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    url = urlsplit(first.split(" ")[1])
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    return Request(url.path, query, headers.get("authorization", ""))


def _head(status: int, content_type: str, *more: str) -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status} Said", f"Content-Type: {content_type}", *more, "", "")).encode()


def _send(
    writer: asyncio.StreamWriter, status: int, body: str, content_type: str = "application/json"
) -> None:
    writer.write(_head(status, content_type, f"Content-Length: {len(body.encode())}") + body.encode())


def _chunk(writer: asyncio.StreamWriter, text: str) -> None:
    data = text.encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


@asynccontextmanager
async def api_server(kubeconfig: Path, tls: ssl.SSLContext | None = None) -> AsyncIterator[ApiServer]:
    """An API server on loopback, and a kubeconfig that leads to it."""
    server = ApiServer()
    async with asyncio.TaskGroup() as connections:

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.create_task(server.answer(reader, writer))

        listener = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
        server.port = listener.sockets[0].getsockname()[1]
        write_kubeconfig(kubeconfig, server.port)
        try:
            yield server
        finally:
            listener.close()
            server.close()


def write_kubeconfig(kubeconfig: Path, port: int) -> None:
    """Write a kubeconfig that leads to this port of loopback."""
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "a",
                "clusters": [{"name": "a", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "a", "user": {"token": "from-kubeconfig"}}],
                "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            }
        )
    )
