"""The stream of health, NodeWatchResources: a driver need not have it; whoever has one is judged by it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final

from devplug.conformance.verdicts import MUST, NOTE, SHOULD, FailedError, SkippedError, check
from devplug.errors import RemoteError
from devplug.wire.dra import WATCH_RESOURCES, HealthWord
from devplug.wire.sockets import connected

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from devplug.conformance.dra.slice_rules import Device
    from devplug.conformance.dra.testbed import DriverBed
    from devplug.wire.dra import DeviceHealthReport

LANE = "health"
_UNKNOWN_METHOD: Final = "Unimplemented"
_WORDS: Final = (HealthWord.UNKNOWN, HealthWord.HEALTHY, HealthWord.UNHEALTHY)
_MESSAGE_LIMIT_BYTES: Final = 1024


class _Stream:
    """A stream of health of one device that a claim has."""

    def __init__(self, device: Device, reports: AsyncGenerator[Sequence[DeviceHealthReport], None]) -> None:
        self.device = device
        self.reports = reports

    async def message(self, seconds: float) -> Sequence[DeviceHealthReport] | None:
        """Return the next message with the device in it; None if none comes in time, or the stream ends."""
        try:
            async with asyncio.timeout(seconds):
                async for message in self.reports:
                    if any(self.of_device(message)):
                        return message
        except TimeoutError:
            pass
        except RemoteError as error:
            raise FailedError(f"the stream ended with {error}") from error
        return None

    def of_device(self, message: Sequence[DeviceHealthReport]) -> Sequence[DeviceHealthReport]:
        """Return the reports in a message that are of the device."""
        names = self.device.pool, self.device.name
        return [one for one in message if (one.pool_name, one.device_name) == names]


@asynccontextmanager
async def _stream(bed: DriverBed, *, tainted: bool = False) -> AsyncIterator[_Stream]:
    """Have a claim prepared, and open a stream beside the kubelet's. Raises `SkippedError` without one.

    With `tainted` it is of a device that has a taint, which claims get that tolerate it.
    """
    if bed.registration.health_error == _UNKNOWN_METHOD:
        raise SkippedError("the driver has no stream of health")
    devices = [one for one in bed.devices() if one.is_tainted] if tainted else bed.free()
    if not devices:
        raise SkippedError("no device has a taint")
    claim = bed.allocate(devices[0])
    if error := await bed.refusal(claim):
        raise SkippedError(f"the claim is refused: {error}")
    async with (
        connected(bed.registration.endpoint) as peer,
        aclosing(peer.stream(WATCH_RESOURCES, None)) as reports,
    ):
        yield _Stream(devices[0], reports)


async def _first(bed: DriverBed, stream: _Stream) -> Sequence[DeviceHealthReport]:
    message = await stream.message(bed.times.first_list_limit_seconds)
    if message is None:
        raise SkippedError("no health of the device was reported (DRA92)")
    return message


@check(
    "DRA90",
    MUST,
    "Health is reported of devices by the pool and the name that their slice has.",
    why="the kubelet looks them up by these, finds none, and the pod's status says Unknown",
    change="take pool and device as they are in the ResourceSlice, and a word that the API has",
    source="pkg/kubelet/apis/dra-health/v1alpha1/api.proto, DeviceIdentifier",
    lane=LANE,
)
async def reports_published_devices(bed: DriverBed) -> str:
    """Have a claim prepared, and compare the first reports with the slices."""
    async with _stream(bed) as stream:
        await _first(bed, stream)
        reports = [one for some in bed.registration.reports for one in some]

    def unpublished() -> Sequence[DeviceHealthReport]:
        published = {(one.pool, one.name) for one in bed.devices()}
        return [one for one in reports if (one.pool_name, one.device_name) not in published]

    await bed.kubelet.until(lambda: not unpublished(), bed.times.republish_limit_seconds)
    for one in unpublished():
        raise FailedError(f"device {one.device_name} of pool {one.pool_name} is in no slice")
    for one in reports:
        if one.health not in _WORDS:
            raise FailedError(f"the health of {one.device_name} is {one.health}, which the API does not have")
    return f"{len(reports)} reports"


@check(
    "DRA91",
    SHOULD,
    "The stream of health stays open.",
    why="at its end the kubelet drops all that it knows, and pods show Unknown until it is back",
    change="end it only with the driver, or where the caller has ended it",
    source="pkg/kubelet/cm/dra/manager.go (HandleWatchResourcesStream); dra_plugin_manager.go (5 s)",
    lane=LANE,
)
async def keeps_the_stream_open(bed: DriverBed) -> None:
    """Hold a stream for a while."""
    async with _stream(bed) as stream:
        try:
            async with asyncio.timeout(bed.times.silence_seconds):
                async for _ in stream.reports:
                    pass
        except TimeoutError:
            return
        except RemoteError as error:
            raise FailedError(f"it ended with {error}") from error
        raise FailedError("it ended")


@check(
    "DRA92",
    SHOULD,
    "Every stream of health begins with the devices that are in use.",
    why="after its restart the kubelet knows no health, and shows Unknown for what it is not told again",
    change="send all on each new stream, and not only what has changed since the last message to anybody",
    source="pkg/kubelet/cm/dra/healthinfo.go; pkg/kubelet/cm/dra/manager.go (a stream's end drops all)",
    lane=LANE,
)
async def begins_with_all(bed: DriverBed) -> None:
    """Have a claim prepared, and wait for its device on a second stream."""
    async with _stream(bed) as stream:
        if await stream.message(bed.times.first_list_limit_seconds) is None:
            limit = bed.times.first_list_limit_seconds
            raise FailedError(f"device {stream.device.name} was not reported within {limit:g} s")


@check(
    "DRA93",
    SHOULD,
    "Health is reported again before the report is too old.",
    why="after 30 s, or what the report says, the kubelet takes it for Unknown, though nothing has changed",
    change="repeat all reports, or set health_check_timeout_seconds to more than your pause",
    source="pkg/kubelet/cm/dra/healthinfo.go (getHealthInfo); dra-health/v1alpha1/api.proto",
    lane="repeated health",
    quick=False,
)
async def repeats_reports(bed: DriverBed) -> str:
    """Have a claim prepared, and wait for a second report of its device as long as the first one counts."""
    async with _stream(bed) as stream:
        (report, *_) = stream.of_device(await _first(bed, stream))
        if report.health not in {HealthWord.HEALTHY, HealthWord.UNHEALTHY}:
            return "the health is Unknown, with and without further reports"
        seconds = float(report.timeout_seconds) if report.timeout_seconds > 0 else bed.times.health_seconds
        if await stream.message(seconds) is None:
            raise FailedError(f"device {report.device_name} was reported once, and that counts {seconds:g} s")
    return f"within {seconds:g} s"


@check(
    "DRA94",
    NOTE,
    "An unhealthy device is reported with a message, of at most 1024 bytes.",
    why="the pod's status says Unhealthy and not why, or the kubelet cuts the message",
    change="say in message what is wrong, in a line",
    source="pkg/kubelet/cm/dra/manager.go (the message in allocatedResourcesStatus)",
    lane=LANE,
)
async def says_why(bed: DriverBed) -> str:
    """Have a claim prepared that tolerates the taint of its device, and read the message."""
    async with _stream(bed, tainted=True) as stream:
        (report, *_) = stream.of_device(await _first(bed, stream))
    if report.health != HealthWord.UNHEALTHY:
        raise SkippedError("the device with a taint is not reported as unhealthy")
    if not report.message:
        raise FailedError(f"device {report.device_name} is unhealthy, and the message is empty")
    if (length := len(report.message.encode())) > _MESSAGE_LIMIT_BYTES:
        raise FailedError(f"the message has {length} bytes")
    return report.message
