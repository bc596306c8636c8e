"""The gRPC service that a kubelet calls: it validates requests, and runs the plugin's code with deadlines."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct, field

from devplug.devices import DEVICE_ID_LIMIT_BYTES, ContainerResponse, Device
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
    one_line,
    outcome_of,
    quoted,
)
from devplug.holds.decide import steered
from devplug.linux.notifier import Event, Notifier, within
from devplug.logs import AUDIT
from devplug.plugin.callbacks import PluginCode, hanging_line
from devplug.plugin.contract import offers
from devplug.plugin.inventory import in_turns
from devplug.plugin.snapshot import ListPace, Urgency, difference, slices
from devplug.wire import deviceplugin
from devplug.wire.codecs import Encoded
from devplug.wire.deviceplugin import list_pieces
from devplug.wire.sockets import stream, unary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from devplug.plugin.contract import DevicePlugin
    from devplug.plugin.holds import Holding
    from devplug.plugin.inventory import Inventory
    from devplug.plugin.snapshot import Slices, Snapshot
    from devplug.wire.sockets import Binding
    from devplug.wire.values import PluginOptions, PreferenceRequest


logger = logging.getLogger(__name__)
audit = logging.getLogger(AUDIT)

Result = TypeVar("Result")

# ── requests ──

DEVICES_PER_CALL_LIMIT: Final = 10_000


def check_containers(containers: Sequence[tuple[str, ...]]) -> None:
    """Raise `AllocationError` for a request that can never work."""
    if not containers:
        raise InvalidRequestError("no container requests")
    _check_count(containers)
    if (asked := sum(map(len, containers))) > DEVICES_PER_CALL_LIMIT:
        raise LimitError(f"{asked} devices are asked for; at most {DEVICES_PER_CALL_LIMIT} in one call")
    for number, device_ids in enumerate(containers):
        if not device_ids:
            raise InvalidRequestError(f"container {number} asks for no devices")
    _check_ids(chain.from_iterable(containers))


def _check_count(containers: Sequence[object]) -> None:
    if len(containers) > DEVICES_PER_CALL_LIMIT:
        raise LimitError(f"{len(containers)} containers ask; at most {DEVICES_PER_CALL_LIMIT} in one call")


def _check_ids(device_ids: Iterable[str]) -> None:
    """Raise `AllocationError` for IDs that no device can have, and for one that is asked for twice."""
    seen: set[str] = set()
    for id_ in device_ids:
        if not id_:
            raise InvalidRequestError("a device ID is empty")
        if len(id_) > DEVICE_ID_LIMIT_BYTES:
            raise InvalidRequestError(
                f"device ID {quoted(id_)} is {len(id_)} characters long; at most {DEVICE_ID_LIMIT_BYTES} fit",
            )
        if id_ in seen:
            raise InvalidRequestError(f"device {quoted(id_)} is asked for twice")
        seen.add(id_)


# ── methods ──

ANSWER_SECONDS: Final = 0.1
"""How long after an answer the streams stay open, so that the kubelet reads the answer first."""

LEAVING_SECONDS: Final = 2.0
"""How long a device that only a replaced plugin has listed is still allocated: a kubelet that has chosen it
may ask for a preference first, which takes a second at most, and only then calls Allocate."""

PREFER_TIMEOUT_SECONDS: Final = 1.0
"""How long `prefer` may take; without an answer the kubelet chooses, which always works."""

_ADVICE: Final = "delete and recreate the pod to get another device"


class PluginService:
    """The gRPC service of one resource for the kubelet's calls; lives as long as the resource is served.

    Each call ends with the plugin with which it began. `on_stream` is called whenever a stream opens or ends,
    `fault` changes, or another plugin answers. With `holding` no container gets what another one has.
    """

    def __init__(
        self,
        plugin: DevicePlugin,
        inventory: Inventory,
        on_stream: Callable[[], None],
        holding: Holding | None = None,
    ) -> None:
        self._holding = holding
        if holding is not None:
            holding.clean_up = self._clean_up
        self.streams = ListStreams(inventory, on_stream)
        self.options_answered = 0
        """How often GetDevicePluginOptions was answered."""
        self.announced: PluginOptions | None = None
        """The options that the kubelet got last; None before the first registration."""
        self._code = self._code_of(plugin)
        self._replaced: list[PluginCode] = []
        """The plugins before, as long as they are answering calls."""
        self._inventory = inventory
        self._on_stream = on_stream
        self._calls = 0
        self._ended_at = -math.inf
        self._idle = Event()
        self._idle.set()
        self._reported_fault = ""

    @property
    def plugin(self) -> DevicePlugin:
        """The plugin that answers calls that begin now."""
        return self._code.plugin

    @property
    def fault(self) -> str:
        """What keeps calls from being answered, such as code that hangs; empty if nothing does."""
        return self._code.hooks.fault

    @property
    def resource_name(self) -> str:
        """The resource's name."""
        return self._inventory.resource_name

    @property
    def has_other_options(self) -> bool:
        """Whether the options that the kubelet knows differ from those of the present plugin."""
        return self.announced is not None and self.announced != self._code.options

    def announce(self) -> PluginOptions:
        """Return the options for the kubelet."""
        self.announced = self._code.options
        return self.announced

    async def succeed(
        self,
        plugin: DevicePlugin,
        listed: object,
        begin: Callable[[], None],
        *,
        leaving_seconds: float,
    ) -> None:
        """Let another plugin answer from now on. `listed` is its first list; see `Inventory.succeed`."""

        def replace() -> None:
            begin()
            self.replace(plugin)

        await self._inventory.succeed(listed, replace, self._code, leaving_seconds=leaving_seconds)
        self._close_replaced()

    def replace(self, plugin: DevicePlugin) -> None:
        """Have another plugin answer each call that begins from now on."""
        self._replaced.append(self._code)
        self._code = self._code_of(plugin)
        if self._holding is not None:
            self._holding.replace(plugin)
        self._on_stream()

    def _code_of(self, plugin: DevicePlugin) -> PluginCode:
        return PluginCode(plugin, is_steered=self._holding is not None)

    def _close_replaced(self) -> None:
        """End the threads of replaced plugins that answer no call any more."""
        leaving = {id(one.former) for one in self._inventory.leaving.values()}
        for code in [one for one in self._replaced if not one.calls and id(one) not in leaving]:
            self._replaced.remove(code)
            code.hooks.close()

    def _code_for(self, containers: Iterable[Sequence[str]]) -> PluginCode:
        """Return the code that answers for these devices: the code before, if one has left with that."""
        if self._inventory.leaving:
            for id_ in chain.from_iterable(containers):
                if left := self._inventory.left(id_):
                    return left.former
        return self._code

    @property
    def calls_in_flight(self) -> int:
        """The number of calls that are being answered, without the streams."""
        return self._calls

    def bindings(self) -> tuple[Binding, ...]:
        """Return the methods that a listener has to serve."""
        return (
            unary(deviceplugin.GET_OPTIONS, self.options),
            stream(deviceplugin.LIST_AND_WATCH, self.streams.list_and_watch),
            unary(deviceplugin.GET_PREFERRED_ALLOCATION, self.preferred_allocation),
            unary(deviceplugin.ALLOCATE, self.allocate),
            unary(deviceplugin.PRE_START_CONTAINER, self.pre_start),
        )

    async def drain(self) -> None:
        """Let calls in flight run to their deadlines, then end the streams.

        In this order: with the stream the kubelet closes the connection, and the calls on it are lost
        (client.go). Calls that come meanwhile are answered, within the longest deadline.
        """
        longest_seconds = max(one.longest_seconds() for one in (self._code, *self._replaced))
        if self._holding is not None:
            longest_seconds += self._holding.seconds
        await within(longest_seconds, self._quiet())
        await self._inventory.close()

    async def _quiet(self) -> None:
        """Wait until no call is in flight, and the last answer had the time to reach the kubelet.

        The kubelet handles the end of the stream and an answer that comes with it in any order.
        """
        loop = asyncio.get_running_loop()
        while True:
            await self._idle.wait()
            wait_seconds = self._ended_at + ANSWER_SECONDS - loop.time()
            if wait_seconds <= 0:
                return
            await asyncio.sleep(wait_seconds)

    def close(self) -> None:
        """End the threads of the plugins' code."""
        for code in (self._code, *self._replaced):
            code.hooks.close()

    async def options(self, _: None) -> PluginOptions:
        """Answer GetDevicePluginOptions: a constant, so that nothing can delay a registration."""
        self.options_answered += 1
        return self.announce()

    async def allocate(
        self,
        containers: Sequence[tuple[str, ...]],
        tolerated: Sequence[Callable[[Device], bool]] = (),
        first_indexes: Sequence[int] = (),
    ) -> list[ContainerResponse]:
        """Answer Allocate: one response for each container request, in their order.

        `tolerated` tells for each of them which unhealthy devices it gets; without it, it gets none.
        `first_indexes` are those that the plugin's `allocate` takes besides, if it takes any.
        """
        started = time.monotonic()
        facts: dict[str, object] = {
            "resource_name": self.resource_name,
            "device_ids": [list(ids) for ids in containers],
        }
        code = self._code_for(containers)
        try:
            responses = await self._allocated_in_time(code, containers, tolerated, first_indexes)
        except AllocationError as error:
            self._inventory.counters.allocations.add(outcome_of(error))
            self._inventory.counters.allocate_seconds.observe(time.monotonic() - started)
            audit.warning("not allocated", extra={**facts, "reason": str(error)})
            raise
        seconds = time.monotonic() - started
        self._inventory.counters.allocations.add("granted")
        self._inventory.counters.allocate_seconds.observe(seconds)
        facts["milliseconds"] = round(1000 * seconds, 1)
        # After the answer, which the loop sends first: whoever reads the log slowly holds up no pod.
        asyncio.get_running_loop().call_soon(_log_allocated, facts)
        return responses

    async def _allocated_in_time(
        self,
        code: PluginCode,
        containers: Sequence[tuple[str, ...]],
        tolerated: Sequence[Callable[[Device], bool]],
        first_indexes: Sequence[int],
    ) -> list[ContainerResponse]:
        seconds = code.plugin.allocate_timeout_seconds
        work = self._allocated(code, containers, tolerated, first_indexes)
        if (holding := self._holding) is None:
            return await self._answered(code, "allocate", seconds, work)

        async def freed() -> None:
            check_containers(containers)
            await self._inventory.changed_since(0)
            asked = self._inventory.find(chain.from_iterable(containers))
            await holding.held.before_giving(asked)

        try:
            with holding.allocating():
                await self._answered(code, "allocate", holding.seconds, freed())
                return await self._answered(code, "allocate", seconds, work)
        finally:
            work.close()

    async def preferred_allocation(self, requests: Sequence[PreferenceRequest]) -> list[tuple[str, ...]]:
        """Answer GetPreferredAllocation: for each container the best `size` IDs, or none if `prefer` fails.

        An error here would leak the kubelet's reservations (kubernetes/kubernetes#130145), so only a request
        that no kubelet sends gets one.
        """
        code = self._code
        return await self._answered(code, "prefer", None, self._preferred(code, requests))

    async def _preferred(
        self, code: PluginCode, requests: Sequence[PreferenceRequest]
    ) -> list[tuple[str, ...]]:
        if not code.options.preferred_allocation_available:
            if self.announced and self.announced.preferred_allocation_available:
                return [() for _ in requests]  # it was announced by a plugin before; the kubelet chooses
            raise NotOfferedError("this plugin does not announce preferred allocation")
        _check_count(requests)  # the number of devices is bounded by the decoder
        for number, request in enumerate(requests):
            if request.size < 0:
                raise InvalidRequestError(f"container {number} asks for {request.size} devices")
            if strangers := set(request.must_include) - set(request.available):
                raise InvalidRequestError(
                    f"container {number} must include {quoted(min(strangers))}, which is not available",
                )
        return [await self._prefer_one(code, request) for request in requests]

    async def pre_start(self, device_ids: tuple[str, ...]) -> None:
        """Answer PreStartContainer; a refusal keeps the container waiting, and the kubelet tries again."""
        code = self._code_for([device_ids])
        seconds = code.plugin.pre_start_timeout_seconds
        try:
            await self._answered(code, "pre-start", seconds, self._pre_started(code, device_ids))
        except AllocationError as error:
            self._inventory.counters.pre_starts.add(outcome_of(error))
            raise
        self._inventory.counters.pre_starts.add("finished")

    async def _pre_started(self, code: PluginCode, device_ids: tuple[str, ...]) -> None:
        if not code.options.pre_start_required:
            if self.announced and self.announced.pre_start_required:
                return  # it was announced by a plugin before
            raise NotOfferedError("this plugin does not announce a pre-start call")
        if not device_ids:
            raise InvalidRequestError("the request names no devices")
        _check_ids(device_ids)
        await self._inventory.changed_since(0)
        devices = self._inventory.find(device_ids)
        try:
            await code.hooks.call_beside(code.plugin.pre_start, devices)
        except UnhealthyDeviceError as error:
            await self._mark(error)
            raise

    async def allocate_again(self, device_ids: Sequence[str]) -> ContainerResponse:
        """Return what `allocate` answers now for a container that has these devices; nothing is prepared."""
        code = self._code
        seconds = code.plugin.allocate_timeout_seconds
        return await self._answered(code, "allocate", seconds, self._allocated_again(code, device_ids))

    async def release(self, device_ids: Sequence[str], *, is_again: bool = False) -> None:
        """Have the plugin's `release` and `clean_up` clean up devices that no claim uses any more.

        Raises `AllocationError` if one of them fails, for the caller to try again, and `NotCleanedError` for
        devices that `clean_up` cannot clean now. With `is_again` it is called for these, and not `release`.
        """
        code = self._code
        if offers(code.plugin, "release") and not (is_again and self._holding is not None):
            seconds = code.plugin.allocate_timeout_seconds
            await self._answered(code, "release", seconds, self._released(code, device_ids))
        if self._holding is not None:
            await self._holding.held.release(device_ids)

    async def _clean_up(self, device: Device) -> str:
        """Run the plugin's `clean_up` for a device; return why that failed, or ""."""
        code = self._code
        seconds = code.plugin.clean_up_timeout_seconds
        code.calls += 1
        try:
            async with asyncio.timeout(seconds):
                await code.hooks.call_beside(code.plugin.clean_up, device)
        except TimeoutError as error:
            self._log_hanging("clean_up", error)
            return f"clean_up took longer than {seconds:g} s"
        except Exception as error:
            logger.exception(
                "clean_up() failed; the device is Unhealthy until it succeeds",
                extra={"resource_name": self.resource_name, "device_id": device.id},
            )
            return one_line(f"clean_up: {str(error) or repr(error)}")
        finally:
            code.calls -= 1
        return ""

    async def _released(self, code: PluginCode, device_ids: Sequence[str]) -> None:
        listed = self._inventory.snapshot.devices
        devices = [listed.get(id_) or Device(id_) for id_ in device_ids]
        async with code.hooks.turn:
            await code.hooks.call(code.plugin.release, devices)

    async def _allocated(
        self,
        code: PluginCode,
        containers: Sequence[tuple[str, ...]],
        tolerated: Sequence[Callable[[Device], bool]],
        first_indexes: Sequence[int],
    ) -> list[ContainerResponse]:
        check_containers(containers)
        await self._inventory.changed_since(0)
        try:
            async with code.hooks.turn:
                asked = [*map(self._inventory.find_healthy, containers, tolerated or repeat(None))]
                devices = [device for some in asked for device in some]
                async with self._inventory.handing_out(devices):
                    await self.streams.sent.until_known([device.id for device in devices])
                    if self._holding is not None:
                        self._holding.check_free(devices)
                    more = [(first,) for first in first_indexes] or repeat(())
                    responses = [
                        await self._allocate_one(code, some, *besides, is_first=code.has_prepare)
                        for some, besides in zip(asked, more, strict=False)
                    ]
                    if self._holding is not None:
                        await self._holding.give(devices)
                    return responses
        except UnhealthyDeviceError as error:
            raise UnhealthyDeviceError(error.reason, *error.devices, advice=_ADVICE) from error

    async def _allocated_again(self, code: PluginCode, device_ids: Sequence[str]) -> ContainerResponse:
        async with code.hooks.turn:
            return await self._allocate_one(code, self._inventory.find_healthy(device_ids), is_first=False)

    async def _allocate_one(
        self, code: PluginCode, devices: Sequence[Device], *besides: int, is_first: bool
    ) -> ContainerResponse:
        if self._holding is not None:
            devices = self._holding.of_author(devices)
        try:
            if is_first:
                await code.hooks.call(code.plugin.prepare, devices)
            response = await code.hooks.call(code.plugin.allocate, devices, *besides)
        except UnhealthyDeviceError as error:
            await self._mark(error)
            raise
        if not isinstance(response, ContainerResponse):
            raise PluginError(f"allocate returned {type(response).__name__}, not a ContainerResponse")
        return response

    async def _mark(self, error: UnhealthyDeviceError) -> None:
        """Mark the devices unhealthy that user code reports as unhealthy."""
        await self._inventory.mark_unhealthy((device.id for device in error.devices), error.reason)

    async def _prefer_one(self, code: PluginCode, request: PreferenceRequest) -> tuple[str, ...]:
        devices = self._inventory.snapshot.devices
        available = [devices[id_] for id_ in sorted(set(request.available)) if id_ in devices]
        must_include = [devices[id_] for id_ in sorted(set(request.must_include)) if id_ in devices]
        if not 0 < request.size <= len(available) or len(must_include) > request.size:
            return ()
        if self._holding is not None:
            doubtful = await self._holding.doubtful({one.id for one in available} - set(request.must_include))
            if not doubtful and not offers(code.plugin, "prefer"):
                return ()
            if doubtful:
                allowed, must = steered(
                    [one.id for one in available], request.must_include, request.size, doubtful
                )
                available = [devices[id_] for id_ in sorted(allowed)]
                must_include = [devices[id_] for id_ in sorted(must)]
            if not offers(code.plugin, "prefer"):
                return _cut((), [*must_include, *available], [*must_include, *available], request.size)
        try:
            async with asyncio.timeout(PREFER_TIMEOUT_SECONDS), code.hooks.turn:
                ranked = await code.hooks.call_for_list(
                    code.plugin.prefer,
                    available,
                    must_include,
                    request.size,
                )
            chosen = _cut(ranked, available, must_include, request.size)
        except Exception as error:
            self._inventory.counters.preferences.add("failed")
            if isinstance(error, TimeoutError):
                self._log_hanging("prefer", error)
            logger.exception(
                "prefer() failed; the kubelet chooses the devices",
                extra={"resource_name": self.resource_name},
            )
            return ()
        self._inventory.counters.preferences.add("ranked")
        return chosen

    async def _answered(
        self, code: PluginCode, call: str, seconds: float | None, work: Awaitable[Result]
    ) -> Result:
        """Return what one call's work returns in time; raises an `AllocationError` that names the call."""
        deadline = asyncio.timeout(seconds)
        code.calls += 1
        self._calls += 1
        self._idle.clear()
        try:
            async with deadline:
                return await work
        except AllocationError as error:
            raise _named(call, error) from error
        except Exception as error:
            if isinstance(error, TimeoutError) and deadline.expired():
                if not self._inventory.is_ready:
                    raise NotReadyError(f"{call}: the plugin is starting") from error
                self._log_hanging(call, error)
                raise DeadlineError(f"{call}: no answer in {seconds or 0:g}s") from error
            incident = IncidentError(os.urandom(3).hex())
            logger.exception(
                "the plugin's code raised an error in a call",
                extra={
                    "resource_name": self.resource_name,
                    "call": call,
                    "incident": incident.incident,
                },
            )
            raise _named(call, incident) from error
        finally:
            code.calls -= 1
            self._calls -= 1
            if code is not self._code:
                self._close_replaced()
            self._ended_at = asyncio.get_running_loop().time()
            if not self._calls:
                self._idle.set()
            if self.fault != self._reported_fault:
                self._reported_fault = self.fault
                self._on_stream()

    def _log_hanging(self, call: str, error: BaseException) -> None:
        """Log the line of the author's code that kept a call from its answer, if it is known."""
        if line := hanging_line(error):
            logger.warning(
                "the plugin's code hangs in a call",
                extra={"resource_name": self.resource_name, "call": call, "line": line},
            )


def _log_allocated(facts: Mapping[str, object]) -> None:
    audit.info("allocated", extra=facts)


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
    """Return the available IDs of `must_include`, then of the best ranked, cut to `size`."""
    allowed = {device.id for device in available}
    wanted = dict.fromkeys(device.id for device in (*must_include, *ranked) if device.id in allowed)
    return tuple(wanted)[:size]


# ── the ListAndWatch streams of one plugin ──


TAKEN_SECONDS: Final = 0.1
"""How long a kubelet may take to apply a list that was sent to it: it syncs a file after each."""

FORGET_SECONDS: Final = 60.0
"""How long after a device left the list an Allocate for it may still arrive."""


class _Stream(Struct):
    devices: Mapping[str, Device] = field(default_factory=dict)
    at: float | None = None
    """When the list was sent; None while it is about to be."""
    coming: Mapping[str, Device] | None = None
    """The devices of the next list, until those that left are computed."""
    left_at: Mapping[str, float] = field(default_factory=dict)
    """When each device left the list, also of those that are back."""

    def wait_seconds(self, id_: str, now: float) -> float:
        """Return the seconds to wait for one device, if no list is sent meanwhile."""
        is_leaving = self.coming is not None and id_ in self.devices and id_ not in self.coming
        if not is_leaving and id_ not in self.left_at:
            return 0.0
        if self.at is None or self.coming is not None or id_ not in self.devices:
            return FORGET_SECONDS
        return self.at + TAKEN_SECONDS - now


class SentLists:
    """The lists that were sent last on each stream, and when devices left them and came back.

    The kubelet crashes if a device of an answer to Allocate is not in its list (manager.go
    allocateContainerResources). A device may be in our list again while the kubelet has only got a list
    without it.
    """

    def __init__(self) -> None:
        self._streams: dict[int, _Stream] = {}
        self._changed = Notifier()

    def sending(self, number: int, devices: Mapping[str, Device], now: float) -> Slices[None]:
        """Record that a list is about to be sent on a stream; `sent` follows soon, whatever the peer does."""
        stream = self._streams.setdefault(number, _Stream())
        stream.coming = devices
        left_at: dict[str, float] = {}
        for is_later, known in slices(stream.left_at.items()):
            if is_later:
                yield
            left_at.update((id_, at) for id_, at in known if at > now - FORGET_SECONDS)
        for is_later, ids in slices(stream.devices):
            if is_later:
                yield
            left_at.update((id_, now) for id_ in ids if id_ not in devices)
        stream.left_at = left_at
        stream.devices, stream.at, stream.coming = devices, None, None
        self._changed.notify()

    def sent(self, number: int, now: float) -> None:
        """Record that the list of `sending` was sent."""
        self._streams[number].at = now
        self._changed.notify()

    def end(self, number: int) -> None:
        """Record that a stream has ended."""
        self._streams.pop(number, None)
        self._changed.notify()

    async def until_known(self, ids: Collection[str]) -> None:
        """Wait until the kubelet knows devices again that have left its list and come back, if any has."""
        loop = asyncio.get_running_loop()
        while (wait_seconds := self._wait_seconds(ids, loop.time())) > 0:
            await within(wait_seconds, self._changed.next.wait())

    def _wait_seconds(self, ids: Iterable[str], now: float) -> float:
        """Return the seconds to wait, if no list is sent meanwhile; 0 if there is nothing to wait for."""
        ids = tuple(ids)
        return max(
            (stream.wait_seconds(id_, now) for stream in self._streams.values() for id_ in ids), default=0.0
        )


class ListStreams:
    """The ListAndWatch streams of one plugin; `on_change` is called whenever one opens or ends."""

    def __init__(self, inventory: Inventory, on_change: Callable[[], None]) -> None:
        self.open: set[int] = set()
        """A number for each open stream, growing in the order of their opening."""
        self.opened = 0
        self.ended = 0
        """The last stream that we ended ourselves, with those before it."""
        self._inventory = inventory
        self._on_change = on_change
        self.sent = SentLists()

    async def list_and_watch(self, _: None) -> AsyncIterator[Encoded]:
        """Yield the latest list now, after each change, and after `Inventory.repeat`; never a backlog."""
        self.opened += 1
        number = self.opened
        self.open.add(number)
        self._inventory.counters.streams_opened += 1
        self._on_change()
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
                urgency = Urgency.URGENT
                if sent is not None:
                    urgency = (await in_turns(difference(sent, snapshot))).urgency
                if urgency is Urgency.NONE and asked != repeats:
                    urgency = Urgency.NORMAL
                wait_seconds = None
                if urgency is not Urgency.NONE:
                    wait_seconds = pace.wait_seconds(urgency, loop.time()) or None
                if wait_seconds is not None:
                    if urgency is Urgency.URGENT:
                        seen = math.inf  # it waits for its time only; other lists for a change, too
                    continue
                if urgency is not Urgency.NONE:
                    await in_turns(self.sent.sending(number, snapshot.devices, loop.time()))
                    encoded = Encoded(await in_turns(_content_of(snapshot)))
                    pace.spend(loop.time())
                    repeats = asked
                    self._inventory.counters.lists_sent += 1
                    self.sent.sent(number, loop.time())
                    yield encoded
                    del encoded
                sent = snapshot
        finally:
            self.sent.end(number)
            self.open.discard(number)
            self._on_change()

    def end(self) -> None:
        """End the streams that are open now, so that the kubelet drops this endpoint."""
        self.ended = self.opened
        self._inventory.wake()

    async def _goes_on(self, number: int, version: float, seconds: float | None) -> bool:
        """Wait for a list newer than `version`, for so long at most; return whether the stream goes on."""
        try:
            async with asyncio.timeout(seconds):
                return await self._inventory.changed_since(version, lambda: number <= self.ended)
        except TimeoutError:
            return True


def _content_of(snapshot: Snapshot) -> Slices[bytes]:
    """Return the bytes of a list."""
    pieces: list[bytes] = []
    for piece in list_pieces(snapshot.advertised()):
        if pieces:
            yield
        pieces.append(piece)
    return b"".join(pieces)
