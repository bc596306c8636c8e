"""An API server alone, without nodes or controllers, that can misbehave and notes what is asked of it.

For whoever tries a client of the API: `devplug verify --dra` judges DRA drivers with it. The older versions
of resource.k8s.io are served too, for drivers that know no v1.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from devplug.dra.versions import GROUP, from_v1, to_v1
from devplug.k8s.objects import Object, maps, text, with_part
from devplug.linux.notifier import Notifier, within
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.kinds import BETAS, known
from devplug.sandbox.registry import NAMESPACES, NODES, RESOURCE_SLICES, Registry
from devplug.sandbox.server.bodies import decoded_object
from devplug.sandbox.server.listener import ApiServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

    from devplug.k8s.podaccount import PodAccount
    from devplug.sandbox.api.options import LogOptions
    from devplug.sandbox.server.app import Application, Receive, Scope, Send
    from devplug.sandbox.server.listener import Tls

LOG_LENGTH: Final = 64
"""How many changes of one kind a watcher may be behind; so few that they are soon made."""

NAMESPACE: Final = "default"
_VERSION: Final = "resource.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request that was answered, or whose answer has begun; the time is of the monotonic clock."""

    method: str
    path: str
    """Without the query, from `/api` on."""
    code: int
    at: float


class ScriptedApiServer:
    """The API server of one cluster with one node; lives as long as its `scripted_api_server` block."""

    def __init__(
        self,
        node_name: str,
        tasks: asyncio.TaskGroup,
        on_change: Callable[[], None],
        log_length: int,
        tls: Tls | None = None,
    ) -> None:
        self.refuse_code = 0
        """The HTTP status of every answer; 0 to answer rightly."""
        self._delay_seconds = 0.0
        self._delay_set = Notifier()
        self.dropped: Sequence[str] = ()
        """The fields of devices in slices that it does not know, and drops."""
        self.requests: list[AnsweredRequest] = []
        self._registry = Registry(log_length=log_length)
        self._log_length = log_length
        self._tasks = tasks
        self._on_change = on_change
        self._token = secrets.token_hex(16)
        self._tls = tls
        self._port = 0
        self._serving: asyncio.Task[None] | None = None
        self.kubeconfig = ""
        """The text of the administrator's kubeconfig, from the first `start` on."""
        self.account: PodAccount | None = None
        """What a pod with all rights has mounted, from the first `start` on; None without TLS."""
        self._registry.create(NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
        self._registry.create(NODES, "", {"metadata": {"name": node_name}})

    @property
    def delay_seconds(self) -> float:
        """How long each answer is held back; a change is for requests that wait already, too."""
        return self._delay_seconds

    @delay_seconds.setter
    def delay_seconds(self, seconds: float) -> None:
        self._delay_seconds = seconds
        self._delay_set.notify()

    # ── its life ──

    async def start(self) -> None:
        """Listen, from the second time on at the same port."""
        server = ApiServer(
            self._registry,
            logs=_no_log,
            metrics=lambda _: None,
            control=_no_control,
            token=self._token,
            port=self._port,
            tls=self._tls,
            betas=BETAS,
            around=self._around,
        )
        server.listen()
        self._port = server.port
        self.kubeconfig = server.kubeconfig
        self.account = server.account_of(self._token) if self._tls else None
        self._serving = self._tasks.create_task(server.run())

    async def stop(self) -> None:
        """Be away: every connection ends, and new ones are refused. Safe to repeat."""
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.cancel()
            await asyncio.wait([serving])

    async def follow(self) -> None:
        """Tell of every change of a slice, until cancelled."""
        async with aclosing(self._registry.follow(RESOURCE_SLICES)) as events:
            async for _ in events:
                self._on_change()

    # ── what is stored ──

    def slices(self) -> Sequence[Object]:
        """Return all ResourceSlices, by name."""
        return self._registry.all(RESOURCE_SLICES)

    def create(self, kind: str, content: Object) -> Object:
        """Store a new object of `resource.k8s.io/v1`, with its status, and return it."""
        resource = known(_VERSION, kind)
        namespace = NAMESPACE if resource.namespaced else ""
        stored = self._registry.create(resource, namespace, {"apiVersion": _VERSION, "kind": kind, **content})
        status = content.get("status")
        if not status:
            return stored
        name = text(stored, "metadata", "name")
        return self._registry.update(
            resource, namespace, name, lambda old: {**old, "status": status}, part_name="status"
        )

    def replace(self, kind: str, name: str, change: Callable[[Object], Object], *, part: str = "") -> Object:
        """Store an object with a change, or its subresource `part`; return it."""
        resource = known(_VERSION, kind)
        return self._registry.update(
            resource, NAMESPACE if resource.namespaced else "", name, change, part_name=part
        )

    def delete(self, kind: str, name: str) -> None:
        """Remove an object, if it is there."""
        resource = known(_VERSION, kind)
        namespace = NAMESPACE if resource.namespaced else ""
        if self._registry.find(resource, namespace, name) is not None:
            self._registry.delete(resource, namespace, name)

    def compact(self) -> None:
        """Have more changes of slices than a watcher may be behind: each of them is answered with 410."""
        other = {
            "metadata": {"name": "compaction"},
            "spec": {
                "driver": "compaction.example.com",
                "pool": {"name": "compaction", "generation": 1, "resourceSliceCount": 1},
                "allNodes": True,
                "devices": [],
            },
        }
        for _ in range(self._log_length):
            self.create("ResourceSlice", other)
            self.delete("ResourceSlice", "compaction")

    # ── answers ──

    def _around(self, app: Application) -> Application:
        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return
            raw = scope["raw_path"].decode("ascii", "replace").partition("?")[0]
            path = raw[raw.find("/api") :]
            if parse_qs(scope["query_string"].decode("ascii", "replace")).get("watch"):
                path += "?watch"

            async def noted(message: dict[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    answered = AnsweredRequest(scope["method"], path, message["status"], time.monotonic())
                    self.requests.append(answered)
                    self._on_change()
                await send(message)

            begun = time.monotonic()
            while (left := begun + self.delay_seconds - time.monotonic()) > 0:
                await within(left, self._delay_set.next.wait())
            if self.refuse_code:
                await _refuse(self.refuse_code, noted)
            elif self.dropped and scope["method"] in {"POST", "PUT"} and "/resourceslices" in path:
                body = await _body(receive)
                scope, body = _without(self.dropped, path.split("/")[3], scope, body)
                await app(scope, _once(body, receive), noted)
            else:
                await app(scope, receive, noted)

        return answer


@asynccontextmanager
async def scripted_api_server(
    node_name: str, on_change: Callable[[], None], log_length: int = LOG_LENGTH, tls: Tls | None = None
) -> AsyncIterator[ScriptedApiServer]:
    """Have an API server that listens; `on_change` is called after each request and change of a slice.

    It remembers the last `log_length` changes of a kind. With `tls` it serves https, and `account` is what a
    pod finds mounted; `listener.Tls.made_in` makes a certificate.
    """
    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        server = ScriptedApiServer(node_name, tasks, on_change, log_length, tls)
        following = tasks.create_task(server.follow())
        try:
            await server.start()
            yield server
        except Exception as error:  # noqa: BLE001 -- raised again below: a TaskGroup would wrap it
            failure = error
        finally:
            following.cancel()
            await server.stop()
    if failure is not None:
        raise failure


async def _body(receive: Receive) -> bytes:
    content, has_more = b"", True
    while has_more:
        message = await receive()
        content += message.get("body", b"")
        has_more = message.get("more_body", False)
    return content


def _without(dropped: Sequence[str], version: str, scope: Scope, body: bytes) -> tuple[Scope, bytes]:
    """Return the request for a slice of that version, without these fields of its devices.

    A body that cannot be read stays as it is, for the application to refuse.
    """
    headers = {name.lower(): value for name, value in scope["headers"]}
    content_type = headers.get(b"content-type", b"").decode("latin-1")
    try:
        sent = decoded_object(body, content_type, "ResourceSlice", f"{GROUP}/{version}").object
    except StatusError:
        return scope, body
    written = to_v1("ResourceSlice", sent, version)
    devices = [
        {key: value for key, value in one.items() if key not in dropped}
        for one in maps(written, "spec", "devices")
    ]
    kept = with_part(written, devices, "spec", "devices")
    body = json.dumps(from_v1("ResourceSlice", kept, version)).encode()
    headers |= {b"content-length": str(len(body)).encode(), b"content-type": b"application/json"}
    return {**scope, "headers": list(headers.items())}, body


def _once(body: bytes, receive: Receive) -> Receive:
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> dict[str, Any]:
        return messages.pop() if messages else dict(await receive())

    return again


async def _refuse(code: int, send: Callable[[dict[str, Any]], Any]) -> None:
    message = "the API server refuses everything for a while"
    body = json.dumps(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    ).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _no_control(_method: str, _path: str, _body: object) -> None:
    return None


async def _no_log(_pod: Object, _options: LogOptions) -> AsyncGenerator[bytes, None]:
    nothing: tuple[bytes, ...] = ()
    for line in nothing:
        yield line
