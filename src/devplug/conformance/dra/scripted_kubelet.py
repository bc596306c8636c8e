"""The kubelet's end of DRA drivers, for the judge: it registers and calls drivers, and records what happens.

Drivers are found and registered by the emulator's plugin watcher, so with the real kubelet's rules: it dials
again until a driver listens, and repeats a failed registration after a backoff. Claims are the emulator's
subject (`kubelet.dra`); here only what a driver sees of them matters.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from devplug.conformance.scripted_kubelet import ScriptedTasks
from devplug.errors import RegistrationError, RemoteError
from devplug.kubelet.changes import Changes
from devplug.kubelet.metrics import KubeletMetrics
from devplug.kubelet.settings import KubeletSettings
from devplug.kubelet.watcher import PluginWatcher, RegistrationRecord
from devplug.wire.dra import PREPARE, WATCH_RESOURCES
from devplug.wire.sockets import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from devplug.wire.deviceplugin import Method
    from devplug.wire.dra import DeviceHealthReport

Request = TypeVar("Request")
Response = TypeVar("Response")

INFO_SECONDS: Final = 1.0
"""How long the kubelet waits for GetInfo (dra.md D08); the judge waits longer, to tell how long it took."""

DRIVER_TYPE: Final = "DRAPlugin"
_SERVES_SECONDS: Final = 1.0
"""How long a driver may take from GetInfo until its service socket accepts connections. No call comes sooner:
a pod has to be scheduled first."""
_RECONCILE_SECONDS: Final = 0.05
"""How often changes of the folder are acted upon; the real kubelet does so each second."""
_HEALTH_AGAIN_SECONDS: Final = 5.0


@dataclass(eq=False, slots=True)
class Registration(RegistrationRecord):
    """One registration socket of a driver, with what the kubelet learnt over it."""

    first_dial_error: str = ""
    """Why the service socket did not accept a connection soon after the first GetInfo."""
    reports: list[Sequence[DeviceHealthReport]] = field(default_factory=list)
    health_error: str = ""

    @property
    def version(self) -> str:
        """The first announced version that a kubelet knows; empty for none (dra.md D04)."""
        versions = self.info.supported_versions if self.info else ()
        return next((word for word in versions if word in PREPARE), "")

    @property
    def is_live(self) -> bool:
        """Whether the driver is registered over this socket now."""
        return self.registered_at is not None and self.gone_at is None


class ScriptedDraKubelet(ScriptedTasks):
    """The kubelet of one node for drivers; lives as long as its `scripted_dra_kubelet` block.

    It is the watcher's handler for plugins of type DRAPlugin.
    """

    def __init__(self, folder: Path, tasks: asyncio.TaskGroup, dial_seconds: float) -> None:
        super().__init__(tasks)
        self.folder = folder
        self.registrations: list[Registration] = []
        """All that were found by this kubelet or one before it, the newest last."""
        self._settings = KubeletSettings(
            dial_timeout_seconds=dial_seconds,
            info_timeout_seconds=dial_seconds,
            notify_timeout_seconds=dial_seconds,
            reconcile_period_seconds=_RECONCILE_SECONDS,
        )
        self._changes = Changes(time.monotonic)
        self._watcher: PluginWatcher | None = None
        self._health: dict[tuple[str, str], asyncio.Task[None]] = {}

    # ── its life ──

    async def start(self) -> None:
        """Watch `plugins_registry` from now on; every socket there is new."""
        handlers = {DRIVER_TYPE: self}
        self._watcher = PluginWatcher(
            self.folder, handlers, self._tasks, self._changes, KubeletMetrics(), self._settings, self._record
        )
        await self._watcher.open()

    async def stop(self) -> None:
        """End as a process does; all registrations are forgotten. Safe to repeat."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            await watcher.close()
        for key in list(self._health):
            self.deregister(*key)

    async def follow(self) -> None:
        """Wake up waiters at each change of a registration, until cancelled."""
        with self._changes.watching() as changes:
            async for _ in changes:
                self.notify()

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

    # ── the watcher's handler ──

    def _record(self, path: Path, found_at: float) -> Registration:
        one = Registration(path, found_at)
        self.registrations.append(one)
        return one

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:  # noqa: ARG002
        """Raise `RegistrationError` for a driver that the kubelet refuses (dra.md D06)."""
        if not versions:
            raise RegistrationError("empty list of supported gRPC services (aka supported versions)")
        if not any(word in PREPARE for word in versions):
            raise RegistrationError("none of services supported by the plugin are supported by the kubelet")

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:  # noqa: ARG002
        """Dial the service socket once, and take reports of health from now on."""
        found = (one for one in reversed(self.registrations) if one.gone_at is None and one.info)
        named = (one for one in found if _identity(one) == (name, endpoint))
        one = next(named, None)
        if one is None:
            return  # its socket was removed meanwhile
        if one.endpoint.is_absolute() and one.attempts == 1:
            try:
                async with connected(one.endpoint, ready_within_seconds=_SERVES_SECONDS):
                    pass
            except RemoteError as error:
                one.first_dial_error = str(error)
        self.deregister(name, endpoint)
        self._health[name, endpoint] = self.task_of(self._watch_health(one))

    def deregister(self, name: str, endpoint: str) -> None:
        """Take no more reports of health from a driver whose registration socket is gone."""
        task = self._health.pop((name, endpoint), None)
        if task is not None:
            task.cancel()

    async def _watch_health(self, one: Registration) -> None:
        """Take reports of health for as long as it is registered (dra.md D32)."""
        while True:
            try:
                async with (
                    connected(
                        one.endpoint, connect_within_seconds=self._settings.dial_timeout_seconds
                    ) as peer,
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


def _identity(one: Registration) -> tuple[str, str]:
    """Return what the watcher knows a driver by."""
    return (one.info.name, str(one.endpoint)) if one.info else ("", "")


@asynccontextmanager
async def scripted_dra_kubelet(folder: Path, dial_seconds: float) -> AsyncIterator[ScriptedDraKubelet]:
    """Have a kubelet for a `plugins_registry`, not started yet; it and its tasks end with the block.

    `dial_seconds` is how long each dial and each call of a registration is waited for.
    """
    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        kubelet = ScriptedDraKubelet(folder, tasks, dial_seconds)
        following = tasks.create_task(kubelet.follow())
        try:
            yield kubelet
        except Exception as error:  # noqa: BLE001 -- raised again below: a TaskGroup would wrap it
            failure = error
        finally:
            await kubelet.stop()
            following.cancel()
    if failure is not None:
        raise failure
