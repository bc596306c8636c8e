"""The kubelet's end of DRA drivers, for the judge: it finds, asks, registers and calls, and writes all down.

What a right kubelet does with claims is `kubelet.dra`'s; here only what a driver sees of it matters.
"""

from __future__ import annotations

import asyncio
import stat
import time
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from devplug.conformance.scripted_kubelet import ScriptedTasks
from devplug.errors import RemoteError
from devplug.linux.inotify import shared_watcher
from devplug.wire.dra import PREPARE, WATCH_RESOURCES
from devplug.wire.pluginregistration import GET_INFO, NOTIFY_REGISTRATION_STATUS
from devplug.wire.sockets import connected, socket_identity
from devplug.wire.values import RegistrationStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from devplug.linux.inotify import Watcher
    from devplug.wire.deviceplugin import Method
    from devplug.wire.dra import DeviceHealthReport
    from devplug.wire.values import PluginInfo

__all__ = ["DRIVER_TYPE", "INFO_SECONDS", "Registration", "ScriptedDraKubelet", "scripted_dra_kubelet"]

Request = TypeVar("Request")
Response = TypeVar("Response")

INFO_SECONDS: Final = 1.0
"""How long the kubelet waits for GetInfo (dra.md D08); the judge waits longer, to tell how long it took."""

DRIVER_TYPE: Final = "DRAPlugin"
_HEALTH_AGAIN_SECONDS: Final = 5.0


@dataclass(eq=False, slots=True)
class Registration:
    """One registration socket from its discovery on. Times are of the monotonic clock."""

    path: Path
    found_at: float
    info: PluginInfo | None = None
    info_seconds: float | None = None
    info_error: str = ""
    version: str = ""
    """The first announced one that a kubelet knows; empty for none (dra.md D04)."""
    refusal: str = ""
    """Why it is not registered."""
    registered_at: float | None = None
    notify_error: str = ""
    """Why NotifyRegistrationStatus was not answered."""
    first_dial_error: str = ""
    """Why nobody could be dialled at its endpoint when it had told it."""
    gone_at: float | None = None
    """When its socket was removed, or replaced."""
    is_asked: bool = False
    """Whether all was asked of it that a kubelet asks."""
    reports: list[Sequence[DeviceHealthReport]] = field(default_factory=list)
    health_error: str = ""

    @property
    def endpoint(self) -> Path:
        """The service socket."""
        return Path(self.info.endpoint if self.info else "")

    @property
    def is_live(self) -> bool:
        """Whether it is registered now."""
        return self.registered_at is not None and self.gone_at is None


class ScriptedDraKubelet(ScriptedTasks):
    """The kubelet of one node for drivers; lives as long as its `scripted_dra_kubelet` block."""

    def __init__(self, folder: Path, tasks: asyncio.TaskGroup, watcher: Watcher, dial_seconds: float) -> None:
        super().__init__(tasks)
        self.folder = folder
        self.registrations: list[Registration] = []
        """All that were found by this kubelet or one before it, the newest last."""
        self._watcher = watcher
        self._dial_seconds = dial_seconds
        self._looking: asyncio.Task[None] | None = None
        self._asking: dict[Registration, asyncio.Task[None]] = {}
        self._known: dict[Path, tuple[object, Registration]] = {}

    # ── its life ──

    def start(self) -> None:
        """Look at `plugins_registry` from now on; every socket there is new."""
        self._looking = self.task_of(self._look())

    async def stop(self) -> None:
        """End as a process does; all registrations are forgotten. Safe to repeat."""
        looking, self._looking = self._looking, None
        tasks = [*self._asking.values(), *([looking] if looking else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        now = time.monotonic()
        for _, one in self._known.values():
            one.gone_at = one.gone_at or now
        self._known.clear()
        self._asking.clear()

    # ── what happened ──

    def live(self, name: str = "") -> Sequence[Registration]:
        """Return the registrations of now, of the driver `name` if one is given; the newest last."""
        return [
            one
            for one in self.registrations
            if one.is_live and (not name or (one.info and one.info.name == name))
        ]

    # ── calls ──

    async def call(
        self, methods: Mapping[str, Method[Request, Response]], name: str, request: Request, seconds: float
    ) -> Response:
        """Call the driver `name` at its newest socket that is connected (D09). Raises `RemoteError`."""
        error = RemoteError("Unavailable", f"DRA driver {name} is not registered")
        for one in reversed(self.live(name)):
            try:
                async with connected(one.endpoint, connect_within_seconds=seconds) as peer:
                    return await peer.call(methods[one.version], request, timeout_seconds=seconds)
            except RemoteError as failure:
                if not failure.is_unsent:
                    raise
                error = failure
        raise error

    # ── looking and asking ──

    async def _look(self) -> None:
        wake = asyncio.Event()
        with self._watcher.subscribe(wake.set) as subscription:
            while True:
                wake.clear()
                subscription.arm([f"{self.folder}/*"])
                self._take_in()
                await wake.wait()

    def _take_in(self) -> None:
        found = {
            path: identity
            for path in sorted(self.folder.iterdir())
            if not path.name.startswith(".") and _is_socket(path) and (identity := socket_identity(path))
        }
        for path, (known, one) in list(self._known.items()):
            if found.get(path) != known:
                one.gone_at = time.monotonic()
                del self._known[path]
                self._asking.pop(one).cancel()
        for path, new in found.items():
            if path not in self._known:
                one = Registration(path, time.monotonic())
                self.registrations.append(one)
                self._known[path] = new, one
                self._asking[one] = self.task_of(self._ask(one))
        self.notify()

    async def _ask(self, one: Registration) -> None:
        try:
            await self._register(one)
        finally:
            one.is_asked = True
            self.notify()
        if one.registered_at is not None:
            await self._watch_health(one)

    async def _register(self, one: Registration) -> None:
        begun = time.monotonic()
        try:
            async with connected(one.path, connect_within_seconds=self._dial_seconds) as peer:
                one.info = await peer.call(GET_INFO, None, timeout_seconds=self._dial_seconds)
                one.info_seconds = time.monotonic() - begun
                one.refusal = _refusal_of(one.info)
                one.version = next((word for word in one.info.supported_versions if word in PREPARE), "")
                await self._dial(one)
                if not one.refusal:
                    one.registered_at = time.monotonic()
                status = RegistrationStatus(not one.refusal, one.refusal)
                try:
                    await peer.call(NOTIFY_REGISTRATION_STATUS, status, timeout_seconds=self._dial_seconds)
                except RemoteError as error:
                    one.notify_error = str(error)
        except RemoteError as error:
            one.info_error = str(error)

    async def _dial(self, one: Registration) -> None:
        if one.refusal or not one.endpoint.is_absolute():
            return
        try:
            async with connected(one.endpoint, connect_within_seconds=self._dial_seconds):
                pass
        except RemoteError as error:
            one.first_dial_error = str(error)

    async def _watch_health(self, one: Registration) -> None:
        """Take reports of health for as long as it is registered (dra.md D32)."""
        while True:
            try:
                async with (
                    connected(one.endpoint, connect_within_seconds=self._dial_seconds) as peer,
                    aclosing(peer.stream(WATCH_RESOURCES, None)) as reports,
                ):
                    async for some in reports:
                        one.reports.append(some)
                        self.notify()
                one.health_error = "EOF"
            except RemoteError as error:
                one.health_error = error.status
            self.notify()
            await asyncio.sleep(_HEALTH_AGAIN_SECONDS)


def _refusal_of(info: PluginInfo) -> str:
    """Return why the kubelet does not register who says this of itself; empty if it does (dra.md D06)."""
    if info.type != DRIVER_TYPE:
        return f"no handler registered for plugin type: {info.type}"
    if not info.supported_versions:
        return "empty list of supported gRPC services (aka supported versions)"
    if not any(word in PREPARE for word in info.supported_versions):
        return "none of services supported by the plugin are supported by the kubelet"
    return ""


def _is_socket(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISSOCK(path.stat().st_mode)
    return False


@asynccontextmanager
async def scripted_dra_kubelet(folder: Path, dial_seconds: float) -> AsyncIterator[ScriptedDraKubelet]:
    """Have a kubelet for a `plugins_registry`, not started yet; it and its tasks end with the block.

    `dial_seconds` is how long each dial and each call of a registration is waited for.
    """
    failure: Exception | None = None
    async with shared_watcher() as watcher, asyncio.TaskGroup() as tasks:
        kubelet = ScriptedDraKubelet(folder, tasks, watcher, dial_seconds)
        try:
            yield kubelet
        except Exception as error:  # noqa: BLE001 -- raised again below: a TaskGroup would wrap it
            failure = error
        finally:
            await kubelet.stop()
    if failure is not None:
        raise failure
