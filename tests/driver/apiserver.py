"""An API server of the sandbox on a port of its own, which can be stopped, started, and made to be old."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from devplug.k8s.account import Account, chosen_account
from devplug.k8s.objects import Object, maps
from devplug.sandbox.api.kinds import BETAS
from devplug.sandbox.registry import NODES, RESOURCE_SLICES, Registry
from devplug.sandbox.server.listener import ApiServer
from tests.sandbox.server.beds import TOKEN, no_control, no_logs, no_metrics, registry_of_test

NODE = "worker-0"

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Cluster:
    """A registry that outlives its API server; lives as long as `cluster`'s block."""

    def __init__(self, folder: Path, tasks: asyncio.TaskGroup) -> None:
        self.tasks = tasks
        self.registry: Registry = registry_of_test()
        self.version = "v1"
        """The only version of resource.k8s.io that is served."""
        self.dropped: tuple[str, ...] = ()
        """The fields of devices that the server does not know."""
        self.expired_watches = 0
        """How many watches are answered with 410."""
        self.refuse: Callable[[str], tuple[int, Mapping[str, str]] | None] = lambda _: None
        """Returns the code and the headers with which a method is refused; that of watches is WATCH."""
        self.hides_labels = False
        """Whether Nodes are refused to who asks for nothing else: a daemon that reads its labels."""
        self.watch_content: bytes | None = None
        """What all there is in watches, which end then."""
        self.calls: list[str] = []
        """The methods of all calls for slices."""
        self.before_write: Callable[[], None] = lambda: None
        """Called once, before the next write."""
        self.permits: asyncio.Semaphore | None = None
        """If there is one, each write waits for a permit."""
        self.waiting = 0
        """How many writes wait for one."""
        self.accounts = 0
        """How often somebody wanted to connect."""
        self.writes: list[str] = []
        """The methods of all writes of slices."""
        self.kubeconfig = folder / "kubeconfig"
        self._port = 0
        self._server: asyncio.Task[None] | None = None
        self.make_node(NODE)

    def make_node(self, name: str) -> Object:
        return self.registry.create(NODES, "", {"metadata": {"name": name}})

    def account(self) -> Account:
        self.accounts += 1
        return chosen_account(str(self.kubeconfig), None)

    def slices(self, node: str = NODE) -> list[Any]:
        found: list[Any] = list(self.registry.listing(RESOURCE_SLICES).items)
        return [one for one in found if one["spec"]["nodeName"] == node]

    def devices(self) -> dict[str, Any]:
        return {one["name"]: one for found in self.slices() for one in found["spec"].get("devices", [])}

    def wipe(self) -> None:
        """Do what a kubelet does when it starts (D12)."""
        for one in self.slices():
            self.registry.delete(RESOURCE_SLICES, "", one["metadata"]["name"])

    def start(self) -> None:
        api = ApiServer(
            self.registry,
            logs=no_logs,
            metrics=no_metrics,
            control=no_control,
            token=TOKEN,
            port=self._port,
            betas=BETAS,
            around=lambda app: _Old(self, app),
        )
        api.listen()
        self._port = api.port
        self.kubeconfig.write_text(api.kubeconfig)
        self._server = self.tasks.create_task(api.run())

    async def stop(self) -> None:
        if self._server is not None:
            self._server.cancel()
            await asyncio.wait({self._server})
            self._server = None


class _Old:
    """An API server as it was in an earlier release, in front of today's."""

    def __init__(self, cluster: Cluster, app: Any) -> None:
        self._cluster = cluster
        self._app = app
        self._drivers: set[object] = set()
        """The addresses of those who have asked for DRA."""

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        _, group, rest = scope["path"].partition("/apis/resource.k8s.io/")
        if not group:
            is_hidden = self._cluster.hides_labels and scope["client"] not in self._drivers
            if is_hidden and "/api/v1/nodes" in scope["path"]:
                await _answer(send, 500, "labels are hidden by the test")
            else:
                await self._app(scope, receive, send)
            return
        self._drivers.add(scope["client"])
        if rest.partition("/")[0] != self._cluster.version:
            await _answer(send, 404, "the server could not find the requested resource")
            return
        is_watch = "watch=true" in scope["query_string"].decode()
        method = "WATCH" if is_watch else scope["method"]
        self._cluster.calls.append(method)
        if is_watch and self._cluster.expired_watches:
            self._cluster.expired_watches -= 1
            await _answer(send, 410, "too old resource version")
            return
        if is_watch and self._cluster.watch_content is not None:
            await _send(send, 200, {}, self._cluster.watch_content)
            return
        if (refusal := self._cluster.refuse(method)) is not None:
            await _answer(send, refusal[0], "refused by the test", refusal[1])
            return
        if scope["method"] in {"POST", "PUT", "DELETE"}:
            self._cluster.writes.append(scope["method"])
            act, self._cluster.before_write = self._cluster.before_write, lambda: None
            act()
            await self._permitted()
        if scope["method"] in {"POST", "PUT"}:
            body = json.dumps(self._without_dropped(json.loads(await _body(receive)))).encode()
            kept = [one for one in scope["headers"] if one[0] != b"content-length"]
            headers = [*kept, (b"content-length", str(len(body)).encode())]
            await self._app({**scope, "headers": headers}, _once(body, receive), send)
            return
        await self._app(scope, receive, send)

    async def _permitted(self) -> None:
        if self._cluster.permits is not None:
            self._cluster.waiting += 1
            await self._cluster.permits.acquire()
            self._cluster.waiting -= 1

    def _without_dropped(self, written: Object) -> Object:
        """Return a slice of v1 without the fields that the server does not know."""
        if not self._cluster.dropped:
            return written
        devices = []
        for one in maps(written, "spec", "devices"):
            kept: Any = {key: value for key, value in one.items() if key not in self._cluster.dropped}
            if "allowMultipleAllocations" in self._cluster.dropped and "capacity" in kept:
                kept["capacity"] = {key: {"value": one["value"]} for key, one in kept["capacity"].items()}
            devices.append(kept)
        spec: Any = written["spec"]
        if "devices" in spec:
            spec = {**spec, "devices": devices}
        return {**written, "spec": spec}


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def _once(body: bytes, receive: Receive) -> Receive:
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Mapping[str, Any]:
        return messages.pop() if messages else await receive()

    return again


async def _answer(send: Send, code: int, message: str, headers: Mapping[str, str] | None = None) -> None:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    await _send(send, code, headers or {}, json.dumps(status).encode())


async def _send(send: Send, code: int, headers: Mapping[str, str], body: bytes) -> None:
    told = {"content-type": "application/json", **headers}
    encoded = [(name.encode(), value.encode()) for name, value in told.items()]
    await send({"type": "http.response.start", "status": code, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    """A cluster of one node whose API server runs."""
    async with asyncio.TaskGroup() as tasks:
        made = Cluster(folder, tasks)
        made.start()
        try:
            yield made
        finally:
            await made.stop()
