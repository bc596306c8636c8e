"""A DRA driver that answers each call as a recording says."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from devplug.errors import RemoteError
from devplug.wire.deviceplugin import Method
from devplug.wire.dra import PREPARE, UNPREPARE, WATCH_RESOURCES
from devplug.wire.pluginregistration import GET_INFO, NOTIFY_REGISTRATION_STATUS
from devplug.wire.sockets import Binding, stream, unary
from devplug.wire.values import PluginInfo, RegistrationStatus
from tests.golden.dra_notation import ROOT
from tests.kubelet.dra_driver import FakeDriver

Json = Any


def _kind(path: str) -> str:
    return "health" if path == WATCH_RESOURCES.path else "driver"


class RecordedDriver(FakeDriver):
    """A driver, or one instance of it, that answers from its own lines of a timeline."""

    def __init__(self, root: Path, name: str, instance: str, script: list[Json]) -> None:
        super().__init__(root, name, instance)
        self.answers: dict[str, list[Json]] = {}
        for line in script:
            path = line.get("reply") or line.get("fail")
            if path:
                self.answers.setdefault(path, []).append(line)
        self.has_health = any("stream" in line for line in script)
        self.seen: defaultdict[str, asyncio.Queue[tuple[str, str]]] = defaultdict(asyncio.Queue)
        """The calls to come, by service: a health stream is opened whatever else is called."""
        self.cancelled_after: float | None = None

    @property
    def info(self) -> PluginInfo:
        raise NotImplementedError

    async def next_call(self, path: str) -> tuple[str, str]:
        """Return path and bytes, in hexadecimal digits, of the next call to the service of this path."""
        return await self.seen[_kind(path)].get()

    def more_calls(self) -> Iterator[tuple[str, str]]:
        """Yield the calls that nobody has asked for."""
        for queue in self.seen.values():
            while not queue.empty():
                yield queue.get_nowait()

    async def begin(self) -> None:
        if self._service is None:
            await self.serve()
        await self.register()

    def send(self, message_hex: str) -> None:
        self.report(WATCH_RESOURCES.response.decode(bytes.fromhex(message_hex)))

    def bindings(self) -> list[Binding]:
        methods: list[Method[Any, Any]] = [*PREPARE.values(), *UNPREPARE.values()]
        found = [unary(method, self._replay(method)) for method in methods if method.path in self.answers]
        return [*found, *([stream(WATCH_RESOURCES, self._watch)] if self.has_health else [])]

    def _replay(self, method: Method[Any, Any]) -> Callable[[Any], Any]:
        async def answer(request: Any) -> Any:
            self._saw(method, method.request.encode(request))
            line = self.answers[method.path].pop(0)
            if "fail" not in line:
                return method.response.decode(bytes.fromhex(line["response_hex"]))
            if line["error"] != "cancelled":
                raise RemoteError("Internal", "driver says no")  # which the recorded events repeat
            began = asyncio.get_running_loop().time()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self.cancelled_after = round(asyncio.get_running_loop().time() - began, 1)

        return answer

    def _saw(self, method: Method[Any, Any], content: bytes) -> None:
        self.seen[_kind(method.path)].put_nowait((method.path, content.hex()))

    def note(self, call: Any) -> None:
        if call.method.endswith("NodeWatchResources"):
            self._saw(WATCH_RESOURCES, b"")

    async def _info(self, _: None) -> PluginInfo:
        self._saw(GET_INFO, b"")
        told = self.answers[GET_INFO.path].pop(0)["response"]
        return PluginInfo(
            told["type"],
            told["name"],
            told.get("endpoint", "").replace(ROOT, str(self.root)),
            tuple(told.get("supported_versions", ())),
        )

    async def _status(self, status: RegistrationStatus) -> None:
        shown = RegistrationStatus(status.plugin_registered, status.error.replace(str(self.root), ROOT))
        self._saw(NOTIFY_REGISTRATION_STATUS, NOTIFY_REGISTRATION_STATUS.request.encode(shown))
