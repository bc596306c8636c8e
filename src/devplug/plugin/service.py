"""The calls that a kubelet makes on one plugin: validated before user code runs, each with a deadline."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from devplug.devices import ContainerResponse
from devplug.errors import (
    AllocationError,
    DeadlineError,
    IncidentError,
    InvalidRequestError,
    LimitError,
    NotOfferedError,
    NotReadyError,
    PluginError,
    UnhealthyDeviceError,
    UnknownDeviceError,
    quoted,
)
from devplug.logs import AUDIT
from devplug.plugin.contract import offers, options_of
from devplug.plugin.hooks import Hooks
from devplug.plugin.requests import check_containers, check_ids
from devplug.plugin.slices import in_turns
from devplug.plugin.snapshot import ListPace, News, news_of
from devplug.plugin.takeover import KEPT_TIMES
from devplug.plugin.told import Told
from devplug.wire import methods
from devplug.wire.codecs import Encoded
from devplug.wire.messages import list_pieces
from devplug.wire.sockets import stream, unary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from devplug.devices import Device
    from devplug.exchange import PluginOptions, PreferenceRequest
    from devplug.metrics.accumulating import Counts
    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.inventory import Inventory
    from devplug.plugin.slices import Slices
    from devplug.plugin.snapshot import Snapshot
    from devplug.plugin.tally import Tally
    from devplug.wire.sockets import Binding

__all__ = ["PluginService"]

logger = logging.getLogger(__name__)
audit = logging.getLogger(AUDIT)

ANSWER_SECONDS: Final = 0.1
"""How long after an answer the streams stay open, so that it is there before their end is."""

PREFER_TIMEOUT_SECONDS: Final = 1.0
"""How long `prefer` may take; without an answer the kubelet chooses, which always works."""

STREAM_LIMIT: Final = 16
_ADVICE: Final = "delete and recreate the pod to get another device"


class PluginService:
    """What answers the kubelet's calls for one plugin; lives as long as the plugin is served.

    `streams` has a number for each open ListAndWatch stream, growing in the order of their opening;
    `on_stream` is called whenever one opens or ends, or `fault` is another. What happens is counted in
    `tally`.
    """

    def __init__(
        self, plugin: DevicePlugin, inventory: Inventory, tally: Tally, on_stream: Callable[[], None]
    ) -> None:
        self.streams: set[int] = set()
        self.streams_opened = 0
        self.options_told = 0
        """How often GetDevicePluginOptions was answered."""
        self.streams_ended = 0
        """The last stream that we ended ourselves, with those before it."""
        self.strange_calls: tuple[float, ...] = ()
        """When a kubelet has asked for devices that were never listed here, the last few times."""
        self._plugin = plugin
        self._inventory = inventory
        self._tally = tally
        self._on_stream = on_stream
        self._options = options_of(plugin)
        self._calls = 0
        self._ended_at = -math.inf
        self._idle = asyncio.Event()
        self._idle.set()
        self._told = Told()
        self._hooks = Hooks(plugin.resource_name)
        self._told_fault = ""

    @property
    def fault(self) -> str:
        """What keeps calls from being answered; empty if nothing does."""
        return self._hooks.fault

    @property
    def calls_in_flight(self) -> int:
        """How many calls are being answered, without the streams."""
        return self._calls

    def bindings(self) -> tuple[Binding, ...]:
        """Return what a listener has to serve."""
        return (
            unary(methods.GET_OPTIONS, self.options),
            stream(methods.LIST_AND_WATCH, self.list_and_watch),
            unary(methods.GET_PREFERRED_ALLOCATION, self.preferred_allocation),
            unary(methods.ALLOCATE, self.allocate),
            unary(methods.PRE_START_CONTAINER, self.pre_start),
        )

    async def drain(self) -> None:
        """Let calls in flight run to their deadlines, then end the streams.

        In this order: with the stream the kubelet closes the connection, and the calls on it are lost
        (client.go). Calls that come meanwhile are answered, within the longest deadline.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._longest_seconds()):
                await self._quiet()
        await self._inventory.close()

    def _longest_seconds(self) -> float:
        """Return how long a call may take that is made of this plugin."""
        allocate_seconds = self._plugin.allocate_timeout_seconds
        if not self._options.pre_start_required:
            return allocate_seconds
        return max(allocate_seconds, self._plugin.pre_start_timeout_seconds)

    async def end_streams(self) -> None:
        """End the streams that are open now, so that a kubelet which forgot us finds us anew."""
        self.streams_ended = self.streams_opened
        await self._inventory.wake()

    async def _quiet(self) -> None:
        """Wait until no call is in flight, and the last answer had the time to reach the kubelet.

        There the end of the stream and an answer that comes with it are taken in any order.
        """
        loop = asyncio.get_running_loop()
        while True:
            await self._idle.wait()
            wait_seconds = self._ended_at + ANSWER_SECONDS - loop.time()
            if wait_seconds <= 0:
                return
            await asyncio.sleep(wait_seconds)

    def close(self) -> None:
        """Give the threads of the plugin's code back."""
        self._hooks.close()

    async def options(self, _: None) -> PluginOptions:
        """Answer GetDevicePluginOptions: a constant, so that nothing can delay a registration."""
        self.options_told += 1
        return self._options

    async def list_and_watch(self, _: None) -> AsyncIterator[Encoded]:
        """Yield the list at once, then the latest one after each change; never a backlog.

        The same one is not sent twice, unless it has to be (`Inventory.repeat`).
        """
        if len(self.streams) >= STREAM_LIMIT:
            raise LimitError(f"list-and-watch: {STREAM_LIMIT} streams are open, which is the limit")
        self.streams_opened += 1
        number = self.streams_opened
        self.streams.add(number)
        self._tally.streams_opened += 1
        self._on_stream()
        loop = asyncio.get_running_loop()
        pace = ListPace()
        seen: float = 0
        repeats = self._inventory.repeats
        sent: Snapshot | None = None
        wait_seconds: float | None = None
        try:
            while await self._goes_on(number, seen, wait_seconds):
                seen, snapshot = self._inventory.version, self._inventory.snapshot
                asked = self._inventory.repeats
                news = News.BAD if sent is None else await in_turns(news_of(sent, snapshot))
                if news is News.NONE and asked != repeats:
                    news = News.GOOD
                wait_seconds = None if news is News.NONE else pace.wait_seconds(news, loop.time()) or None
                if wait_seconds is not None:
                    if news is News.BAD:
                        seen = math.inf  # it waits for nothing else; good news does, for what may be bad
                    continue
                if news is not News.NONE:
                    await in_turns(self._told.tell(number, snapshot.devices, loop.time()))
                    encoded = Encoded(await in_turns(_content_of(snapshot)))
                    pace.spend(loop.time())
                    repeats = asked
                    self._tally.lists_sent += 1
                    self._told.sent(number, loop.time())
                    yield encoded
                    del encoded
                sent = snapshot
        finally:
            self._told.end(number)
            self.streams.discard(number)
            self._on_stream()

    async def allocate(self, containers: Sequence[tuple[str, ...]]) -> list[ContainerResponse]:
        """Answer Allocate: one response for each container request, in their order."""
        started = time.monotonic()
        facts = {
            "resource_name": self._plugin.resource_name,
            "device_ids": [list(ids) for ids in containers],
        }
        try:
            with _counted(self._tally.allocations, "granted"):
                async with self._answering("allocate", self._plugin.allocate_timeout_seconds):
                    check_containers(containers)
                    await self._inventory.changed_since(0)
                    async with self._hooks.turn():
                        responses = await self._allocate_all(containers)
        except AllocationError as error:
            self._tally.allocate_seconds.observe(time.monotonic() - started)
            if isinstance(error, UnknownDeviceError):
                now = asyncio.get_running_loop().time()
                self.strange_calls = (*self.strange_calls, now)[-KEPT_TIMES:]
            audit.warning("not allocated", extra={**facts, "reason": str(error)})
            raise
        seconds = time.monotonic() - started
        self._tally.allocate_seconds.observe(seconds)
        audit.info("allocated", extra={**facts, "milliseconds": round(1000 * seconds, 1)})
        return responses

    async def preferred_allocation(self, requests: Sequence[PreferenceRequest]) -> list[tuple[str, ...]]:
        """Answer GetPreferredAllocation: for each container the best `size` IDs, or none if `prefer` fails.

        An error here would leak the kubelet's reservations (kubernetes/kubernetes#130145), so only a request
        that no kubelet sends gets one.
        """
        async with self._answering("prefer", None):
            if not self._options.preferred_allocation_available:
                raise NotOfferedError("this plugin does not announce preferred allocation")
            for number, request in enumerate(requests):
                if request.size < 0:
                    raise InvalidRequestError(f"container {number} asks for {request.size} devices")
                if strangers := set(request.must_include) - set(request.available):
                    raise InvalidRequestError(
                        f"container {number} must include {quoted(min(strangers))}, which is not available",
                    )
            return [await self._prefer_one(request) for request in requests]

    async def pre_start(self, device_ids: tuple[str, ...]) -> None:
        """Answer PreStartContainer; a refusal keeps the container waiting, and the kubelet tries again."""
        with _counted(self._tally.pre_starts, "finished"):
            await self._pre_start(device_ids)

    async def _pre_start(self, device_ids: tuple[str, ...]) -> None:
        async with self._answering("pre-start", self._plugin.pre_start_timeout_seconds):
            if not self._options.pre_start_required:
                raise NotOfferedError("this plugin does not announce a pre-start call")
            if not device_ids:
                raise InvalidRequestError("the request names no devices")
            check_ids(device_ids)
            await self._inventory.changed_since(0)
            devices = self._inventory.find(device_ids)
            async with self._marking():
                await self._hooks.call_beside(self._plugin.pre_start, devices)

    async def _allocate_all(self, containers: Sequence[tuple[str, ...]]) -> list[ContainerResponse]:
        try:
            asked = [self._inventory.find_healthy(device_ids) for device_ids in containers]
            async with (
                self._inventory.handing_out([device for devices in asked for device in devices]),
                self._marking(),
            ):
                await self._told.until_known([device.id for devices in asked for device in devices])
                return [await self._allocate_one(devices) for devices in asked]
        except UnhealthyDeviceError as error:
            raise UnhealthyDeviceError(error.reason, *error.devices, advice=_ADVICE) from error

    async def _allocate_one(self, devices: Sequence[Device]) -> ContainerResponse:
        if offers(self._plugin, "prepare"):
            await self._hooks.call(self._plugin.prepare, devices)
        response = await self._hooks.call(self._plugin.allocate, devices)
        if not isinstance(response, ContainerResponse):
            raise PluginError(f"allocate returned {type(response).__name__}, not a ContainerResponse")
        return response

    @asynccontextmanager
    async def _marking(self) -> AsyncIterator[None]:
        """Mark the devices that user code in the block calls unhealthy."""
        try:
            yield
        except UnhealthyDeviceError as error:
            await self._inventory.mark_unhealthy((device.id for device in error.devices), error.reason)
            raise

    async def _prefer_one(self, request: PreferenceRequest) -> tuple[str, ...]:
        devices = self._inventory.snapshot.devices
        available = [devices[id_] for id_ in sorted(set(request.available)) if id_ in devices]
        must_include = [devices[id_] for id_ in sorted(set(request.must_include)) if id_ in devices]
        if not 0 < request.size <= len(available) or len(must_include) > request.size:
            return ()
        try:
            async with asyncio.timeout(PREFER_TIMEOUT_SECONDS), self._hooks.turn():
                ranked = await self._hooks.call_for_list(
                    self._plugin.prefer,
                    available,
                    must_include,
                    request.size,
                )
            chosen = _cut(ranked, available, must_include, request.size)
        except Exception:
            self._tally.preferences.add("failed")
            logger.exception(
                "prefer failed, the kubelet chooses",
                extra={"resource_name": self._plugin.resource_name},
            )
            return ()
        self._tally.preferences.add("ranked")
        return chosen

    async def _goes_on(self, number: int, version: float, seconds: float | None) -> bool:
        """Wait for a list newer than `version`, for so long at most; return whether the stream goes on."""
        try:
            async with asyncio.timeout(seconds):
                return await self._inventory.changed_since(version, lambda: number <= self.streams_ended)
        except TimeoutError:
            return True

    @asynccontextmanager
    async def _answering(self, call: str, seconds: float | None) -> AsyncIterator[None]:
        """Bound one call in time, and let nothing out of it but an `AllocationError` that names the call."""
        deadline = asyncio.timeout(seconds)
        self._calls += 1
        self._idle.clear()
        try:
            async with deadline:
                yield
        except AllocationError as error:
            raise _named(call, error) from error
        except Exception as error:
            if isinstance(error, TimeoutError) and deadline.expired():
                if not self._inventory.is_ready:
                    raise NotReadyError(f"{call}: the plugin is starting") from error
                raise DeadlineError(f"{call}: no answer in {seconds or 0:g}s") from error
            incident = IncidentError(secrets.token_hex(3))
            logger.exception(
                "the plugin's code failed",
                extra={"resource_name": self._plugin.resource_name, "incident": incident.incident},
            )
            raise _named(call, incident) from error
        finally:
            self._calls -= 1
            self._ended_at = asyncio.get_running_loop().time()
            if not self._calls:
                self._idle.set()
            if self.fault != self._told_fault:
                self._told_fault = self.fault
                self._on_stream()


def _content_of(snapshot: Snapshot) -> Slices[bytes]:
    """Return the bytes of a list."""
    pieces: list[bytes] = []
    for piece in list_pieces(snapshot.advertised()):
        if pieces:
            yield
        pieces.append(piece)
    return b"".join(pieces)


@contextmanager
def _counted(results: Counts, success: str) -> Iterator[None]:
    """Count how the block ends: `success`, `refused`, `timed_out` or `failed`; not if it is cancelled."""
    try:
        yield
    except (DeadlineError, NotReadyError):
        results.add("timed_out")
        raise
    except IncidentError:
        results.add("failed")
        raise
    except AllocationError:
        results.add("refused")
        raise
    results.add(success)


def _named(call: str, error: AllocationError) -> AllocationError:
    """Return `error` with the call's name in front; the author's own object may be raised again."""
    named = type(error).__new__(type(error), f"{call}: {error}")
    vars(named).update(vars(error))
    return named


def _cut(
    ranked: Iterable[Device],
    available: Iterable[Device],
    must_include: Sequence[Device],
    size: int,
) -> tuple[str, ...]:
    """Return the IDs of `must_include`, then of the best ranked, cut to `size`; strangers are left out."""
    allowed = {device.id for device in available}
    wanted = dict.fromkeys(device.id for device in (*must_include, *ranked) if device.id in allowed)
    return tuple(wanted)[:size]
