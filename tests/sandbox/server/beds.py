"""An API server on a real port, and what its tests ask it with: http.client and the machine's kubectl."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import subprocess
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, TypeVar

from devplug.k8s.objects import Object
from devplug.sandbox.api.kinds import Resource
from devplug.sandbox.api.options import LogOptions
from devplug.sandbox.registry import NAMESPACES, Registry
from devplug.sandbox.server.app import Control, Logs, Metrics
from devplug.sandbox.server.connections import ConnectionLimits
from devplug.sandbox.server.listener import ApiServer, Tls

T = TypeVar("T")

TOKEN = "a-token-of-a-test"
KUBECTL = shutil.which("kubectl")


def pod(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "busybox:1"}], **spec},
    }


@dataclass
class Answered:
    code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        return str(self.json["message"])


class Server:
    """A server in a thread of its own, with the registry that only that thread may touch."""

    def __init__(self, registry: Registry, api: ApiServer, loop: asyncio.AbstractEventLoop) -> None:
        self.registry = registry
        self.api = api
        self.loop = loop
        self.port = api.port
        self.url = api.url
        self.kubeconfig = api.kubeconfig

    def do(self, act: Callable[[], T]) -> T:
        """Let the server's thread do something."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(act())
            except BaseException as error:  # noqa: BLE001 -- told to who waits
                done.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return done.result(10)

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until the server's thread finds something to be so."""

        async def wait() -> None:
            async with asyncio.timeout(30):
                while not is_so():  # noqa: ASYNC110 -- what becomes so tells nobody
                    await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(wait(), self.loop).result(15)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        *,
        token: str | None = TOKEN,
    ) -> Answered:
        """Ask once; a body that is no bytes is sent as JSON."""
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        told = {"Content-Type": "application/json"} if sent is not None else {}
        if token is not None:
            told["Authorization"] = f"Bearer {token}"
        connection = self.connect()
        try:
            connection.request(method, path, sent, {**told, **(headers or {})})
            answer = connection.getresponse()
            return Answered(
                answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
            )
        finally:
            connection.close()

    @contextmanager
    def follow(self, path: str, headers: Mapping[str, str] | None = None) -> Iterator[HTTPResponse]:
        """Read an answer that goes on; afterwards the client is gone."""
        connection = self.connect()
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}", **(headers or {})})
        answer = connection.getresponse()
        try:
            yield answer
        finally:
            answer.close()
            connection.close()


def registry_of_test(*namespaces: str) -> Registry:
    registry = Registry(seed=1)
    for name in ("default", *namespaces):
        registry.create(NAMESPACES, "", {"metadata": {"name": name}})
    return registry


async def no_logs(_pod: Object, _options: LogOptions) -> AsyncGenerator[bytes, None]:
    nothing: tuple[bytes, ...] = ()
    for line in nothing:
        yield line


def no_metrics(_node: str) -> str | None:
    return None


async def no_control(_method: str, _path: str, _body: object) -> tuple[int, Object] | None:
    return None


def unserved(*, port: int = 0, tls: Tls | None = None) -> ApiServer:
    """A server that nobody runs."""
    return ApiServer(
        Registry(), logs=no_logs, metrics=no_metrics, control=no_control, token="t", port=port, tls=tls
    )


@contextmanager
def served(
    registry: Registry | None = None,
    *,
    logs: Logs | None = None,
    metrics: Metrics | None = None,
    control: Control | None = None,
    tls: Tls | None = None,
    rbac: bool = False,
    beat_seconds: float = 60.0,
    betas: Sequence[Resource] = (),
    limits: ConnectionLimits | None = None,
) -> Iterator[Server]:
    """Serve a registry for a while; afterwards nothing of the server is left."""
    kept = registry or registry_of_test()
    api = ApiServer(
        kept,
        logs=logs or no_logs,
        metrics=metrics or no_metrics,
        control=control or no_control,
        token=TOKEN,
        tls=tls,
        rbac=rbac,
        beat_seconds=beat_seconds,
        betas=betas,
        limits=limits,
    )
    api.listen()
    ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()
    left: list[asyncio.Task[Any]] = []

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(api.run())
            ready.set_result((asyncio.get_running_loop(), task))
        left.extend(asyncio.all_tasks() - {asyncio.current_task()})

    def main() -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(run())

    thread = threading.Thread(target=main)
    thread.start()
    loop, task = ready.result(10)
    try:
        yield Server(kept, api, loop)
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(20)
        assert not thread.is_alive()
    assert left == []


@dataclass
class Kubectl:
    """The real kubectl, with a home and a kubeconfig of its own."""

    folder: Path
    kubeconfig: str

    def __post_init__(self) -> None:
        assert KUBECTL, "kubectl is not installed; the sandbox is for it, and so are these tests"
        (self.folder / "kubeconfig").write_text(self.kubeconfig)

    def __call__(self, *words: str, told: str = "") -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KUBECONFIG": str(self.folder / "kubeconfig"), "HOME": str(self.folder)}
        return subprocess.run(
            [str(KUBECTL), *words],
            cwd=self.folder,
            input=told,
            capture_output=True,
            text=True,
            env=environment,
            timeout=30,
            check=False,
        )

    def begun(self, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "KUBECONFIG": str(self.folder / "kubeconfig"), "HOME": str(self.folder)}
        return subprocess.Popen(
            [str(KUBECTL), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
