"""The registered DRA drivers: their endpoints, their connections, and the wipe of lost drivers' slices.

A driver may have several endpoints, as during a rolling update; each has one connection, which is made again
for ever (cm/dra/plugin/dra_plugin_manager.go).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from devplug.backoff import backoff_seconds
from devplug.errors import KubeletError, RegistrationError, RemoteError
from devplug.kubelet.dra.claim_objects import ClaimError
from devplug.kubelet.gotext import go_quoted
from devplug.wire.dra import PREPARE, UNPREPARE, WATCH_RESOURCES
from devplug.wire.sockets import connected
from devplug.wire.statuses import CLOSING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from devplug.kubelet.metrics import KubeletMetrics
    from devplug.kubelet.settings import SliceRemover
    from devplug.wire.deviceplugin import Method
    from devplug.wire.dra import ClaimName, DeviceHealthReport, PreparedClaim
    from devplug.wire.sockets import Peer

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

SERVICES: Final = tuple(PREPARE)
"""The versions of the API that the kubelet knows, as drivers register them (plugin/dra_plugin.go)."""

CALL_SECONDS: Final = 45.0
"""How long a prepare or unprepare may take (plugin/dra_plugin.go defaultClientCallTimeout)."""

WIPE_DELAY_SECONDS: Final = 30.0
"""How long a driver may be away before its slices are removed (manager.go defaultWipingDelay)."""

_FIRST_WIPE_AGAIN_SECONDS: Final = 1.0
_LAST_WIPE_AGAIN_SECONDS: Final = 300.0
_HEALTH_AGAIN_SECONDS: Final = 5.0

_CONNECT_SECONDS: Final = 20.0
_CONNECT_AGAIN_SECONDS: Final = (0.1, 1.0, 1.6, 2.56, 4.1, 6.6, 10.5, 16.8, 26.8, 42.9, 68.7, 110.0, 120.0)
"""gRPC's waits between attempts to connect, by how many have failed in a row."""

_STOP_TIMEOUT_SECONDS: Final = 5.0


class HealthSink(Protocol):
    """The receiver of what drivers say of their devices' health. No method may wait."""

    def health_reported(self, driver: str, reports: Sequence[DeviceHealthReport]) -> None:
        """A driver sent a message."""

    def health_ended(self, driver: str) -> None:
        """A driver's stream has ended, or could not be opened."""


def chosen_service(driver: str, endpoint: str, services: Sequence[str]) -> str:
    """Return the first of a driver's services that the kubelet knows; raises `RegistrationError`."""
    found = next((one for one in services if one in SERVICES), None)
    if found is not None:
        return found
    where = f"invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {endpoint}: "
    if not services:
        raise RegistrationError(f"{where}empty list of supported gRPC services (aka supported versions)")
    raise RegistrationError(
        f"{where}none of services supported by the plugin ({_listed(services)}) "
        f"are supported by the kubelet ({_listed(SERVICES)})"
    )


def _listed(texts: Sequence[str]) -> str:
    """Return a list of texts as the verb `%q` of Go's fmt prints it."""
    return f"[{' '.join(map(go_quoted, texts))}]"


@dataclass(eq=False, slots=True)
class DriverEndpoint:
    """One endpoint of a driver, from its registration until it is deregistered."""

    driver: str
    endpoint: str
    """The path of the socket that serves it."""
    service: str
    metrics: KubeletMetrics
    peer: Peer | None = None
    """The connection; None while there is none."""
    is_closed: bool = False
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a first attempt to connect is over."""
    running: list[asyncio.Task[None]] = field(default_factory=list)

    async def prepare(self, claims: Sequence[ClaimName]) -> Mapping[str, PreparedClaim]:
        """Call NodePrepareResources; raises `RemoteError`."""
        return await self._call(PREPARE[self.service], claims)

    async def unprepare(self, claims: Sequence[ClaimName]) -> Mapping[str, str]:
        """Call NodeUnprepareResources; raises `RemoteError`."""
        return await self._call(UNPREPARE[self.service], claims)

    async def _call(self, method: Method[Sequence[ClaimName], Answer], claims: Sequence[ClaimName]) -> Answer:
        with self.metrics.measure_dra_call(self.driver, method.path):
            if self.is_closed:
                raise RemoteError("Canceled", CLOSING)
            if self.peer is not None:
                return await self.peer.call(method, claims, timeout_seconds=CALL_SECONDS)
            async with connected(Path(self.endpoint), connect_within_seconds=CALL_SECONDS) as peer:
                return await peer.call(method, claims, timeout_seconds=CALL_SECONDS)


class Drivers:
    """The table of registered drivers. Lives from `open` to `close`; its tasks run in the group given."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        health: HealthSink,
        slices: SliceRemover | None,
        metrics: KubeletMetrics,
        announce: Callable[[], None],
    ) -> None:
        self._tasks = tasks
        self._health = health
        self._slices = slices
        self._metrics = metrics
        self._announce = announce
        self._endpoints: dict[str, list[DriverEndpoint]] = {}
        """By driver name, in order of registration."""
        self._wipes: dict[str | None, asyncio.Task[None]] = {}
        self._is_closed = False

    def open(self) -> None:
        """Begin to remove all slices of the node: no driver is registered yet."""
        if self._slices is not None:
            self._wipes[None] = self._begin(self._wipe(None, 0.0), "wipe of all resource slices")

    async def close(self) -> None:
        """Close all connections and give up all wipes; safe to repeat."""
        self._is_closed = True
        endpoints = (one for known in self._endpoints.values() for one in known)
        running = [*self._wipes.values(), *(task for one in endpoints for task in one.running)]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_STOP_TIMEOUT_SECONDS)

    # ── registration (the watcher's PluginHandler) ──

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Raise `RegistrationError` for a driver without a version that the kubelet knows."""
        chosen_service(name, endpoint, versions)

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Add an endpoint, and begin to connect to it; raises `RegistrationError` if it is there already."""
        service = chosen_service(name, endpoint, versions)
        known = self._endpoints.setdefault(name, [])
        if any(one.endpoint == endpoint for one in known):
            raise RegistrationError(f"endpoint {endpoint} already registered for DRA driver plugin {name}")
        one = DriverEndpoint(name, endpoint, service, self._metrics)
        known.append(one)
        one.running += (
            self._begin(self._keep_connected(one), f"connection to {endpoint}"),
            self._begin(self._watch_health(one), f"health stream of {endpoint}"),
        )
        self._changed(name)

    def deregister(self, name: str, endpoint: str) -> None:
        """Remove an endpoint, and close its connection."""
        known = self._endpoints.get(name, [])
        for one in [one for one in known if one.endpoint == endpoint]:
            known.remove(one)
            one.is_closed = True
            for task in one.running:
                task.cancel()
            self._health.health_ended(name)
        if not known:
            self._endpoints.pop(name, None)
        self._changed(name)

    # ── use ──

    def endpoint(self, driver: str) -> DriverEndpoint:
        """Return the endpoint that gets a call: the newest that is connected, else the newest.

        Raises `ClaimError` for a driver without one.
        """
        known = self._endpoints.get(driver)
        if not known:
            raise ClaimError(
                f"DRA driver {driver} is not registered" if driver else "DRA driver name is empty"
            )
        return next((one for one in reversed(known) if one.peer is not None), known[-1])

    def is_usable(self, driver: str) -> bool:
        """Whether a driver has an endpoint that is connected."""
        return any(one.peer is not None for one in self._endpoints.get(driver, ()))

    # ── connections ──

    async def _keep_connected(self, one: DriverEndpoint) -> None:
        failures = 0
        while True:
            try:
                async with connected(Path(one.endpoint), connect_within_seconds=_CONNECT_SECONDS) as peer:
                    failures = 0
                    one.peer = peer
                    one.tried.set()
                    self._changed(one.driver)
                    await peer.lost()
            except RemoteError as error:
                failures += 1
                logger.debug(
                    "cannot connect to a DRA driver", extra={"endpoint": one.endpoint, "reason": str(error)}
                )
            finally:
                was_connected, one.peer = one.peer is not None, None
                one.tried.set()
                if was_connected:
                    self._changed(one.driver)
            await asyncio.sleep(_CONNECT_AGAIN_SECONDS[min(failures, len(_CONNECT_AGAIN_SECONDS) - 1)])

    async def _watch_health(self, one: DriverEndpoint) -> None:
        """Read health as long as there is some, and try again for ever where there is none."""
        await one.tried.wait()
        while True:
            if one.peer is not None:
                try:
                    async with aclosing(one.peer.stream(WATCH_RESOURCES, None)) as messages:
                        async for reports in messages:
                            self._health.health_reported(one.driver, reports)
                except RemoteError as error:
                    logger.debug(
                        "the health stream of a DRA driver has ended",
                        extra={"endpoint": one.endpoint, "reason": str(error)},
                    )
                self._health.health_ended(one.driver)
            await asyncio.sleep(_HEALTH_AGAIN_SECONDS)

    # ── slices ──

    def _changed(self, driver: str) -> None:
        """Begin or give up the wipe of a driver's slices, after any change of its endpoints."""
        self._announce()
        if self._slices is None or self._is_closed:
            return
        pending = self._wipes.get(driver)
        if self.is_usable(driver):
            if pending is not None:
                pending.cancel()
                del self._wipes[driver]
        elif pending is None:
            wipe = self._wipe(driver, WIPE_DELAY_SECONDS)
            self._wipes[driver] = self._begin(wipe, f"wipe of the resource slices of {driver}")

    async def _wipe(self, driver: str | None, delay_seconds: float) -> None:
        """Remove slices after a delay, as often as it takes."""
        assert self._slices is not None
        await asyncio.sleep(delay_seconds)
        failures = 0
        while True:
            try:
                await self._slices.remove_slices(driver)
                break
            except KubeletError as error:
                failures += 1
                logger.info(
                    "cannot remove resource slices; tried again",
                    extra={"driver": driver, "reason": str(error)},
                )
            await asyncio.sleep(
                backoff_seconds(failures, _FIRST_WIPE_AGAIN_SECONDS, _LAST_WIPE_AGAIN_SECONDS)
            )
        del self._wipes[driver]

    def _begin(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        return self._tasks.create_task(_contained(work, name), name=name)


async def _contained(work: Coroutine[object, object, None], name: str) -> None:
    """Do the work for one driver; an error that nobody expected ends nothing else."""
    try:
        await work
    except Exception:
        logger.exception("the work for a DRA driver failed because of a bug", extra={"work": name})
