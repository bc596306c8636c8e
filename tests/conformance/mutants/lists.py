"""Mutants whose lists hold something wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import cache

from msgspec.structs import replace

from devplug.wire.codecs import Codec
from devplug.wire.deviceplugin import LIST_AND_WATCH, Method
from devplug.wire.sockets import Binding, Listener
from devplug.wire.values import AdvertisedDevice
from tests.conformance.mutants import Mutant, fails


def listing(check: str, wrong: AdvertisedDevice) -> type[Mutant]:
    """A mutant that lists this device too."""

    @fails(check)
    class Listing(Mutant):
        def devices(self) -> list[AdvertisedDevice]:
            return [*super().devices(), wrong]

    return Listing


ListsADeviceWithoutAnId = listing("STR03", AdvertisedDevice("", "Unhealthy"))
"""Has a device whose serial number is empty, and takes that for its ID."""
ListsADeviceTwice = listing("STR04", AdvertisedDevice("dev-broken", "Unhealthy"))
"""Finds a device in two ways and lists both."""
WritesHealthItsOwnWay = listing("STR05", AdvertisedDevice("dev-lower", "unhealthy"))
"""Calls a broken device "unhealthy"."""
ListsALongId = listing("STR06", AdvertisedDevice("/sys/devices/" + "pci0000:00/" * 6, "Unhealthy"))
"""Takes a path in sysfs, with its slashes, for an ID."""
ForwardsMinusOne = listing("STR08", AdvertisedDevice("dev-nowhere", "Unhealthy", (-1,)))
"""Sends what sysfs says of a device without a NUMA node."""
SendsAnEmptyTopology = listing("STR09", AdvertisedDevice("dev-nowhere", "Unhealthy", ()))
"""Sends a topology without nodes where none is known."""
ListsAnAwkwardId = listing("STR15", AdvertisedDevice("Camera, left", "Unhealthy"))
"""Takes a device's name, with a space and a comma, for its ID."""
ListsANodeThatIsNotThere = listing("STR16", AdvertisedDevice("dev-far", "Unhealthy", (1000,)))
"""Sends a NUMA node that the machine does not have."""


@fails("STR03", start_seconds=20.0)
class ListsBytesThatAreNoText(Mutant):
    """Takes the raw bytes of a descriptor for an ID."""

    def bindings(self) -> tuple[Binding, ...]:
        right = LIST_AND_WATCH.response

        def encode(devices: object) -> bytes:
            return right.encode(devices).replace(b"dev-3", b"dev\xff3")  # type: ignore[arg-type]

        codec = Codec(right.message, encode, right.decode)
        method = Method(LIST_AND_WATCH.service, LIST_AND_WATCH.name, LIST_AND_WATCH.request, codec, True)
        return tuple(
            replace(binding, method=method) if binding.method is LIST_AND_WATCH else binding
            for binding in super().bindings()
        )


@fails("STR06", "STR10")
class ListsTooMuch(Mutant):
    """Takes all that it knows of a device for its ID, so that the list is at the limit."""

    count = 1_035

    def devices(self) -> list[AdvertisedDevice]:
        return _wordy(self.count)


@fails("STR10", start_seconds=20.0)
class ListsMoreThanTheKubeletTakes(ListsTooMuch):
    """Takes all that it knows of a device for its ID, and the list is over the limit."""

    count = 1_100

    def make_listener(self) -> Listener:
        return Listener(self.folder / self.endpoint, self.bindings(), send_limit_bytes=1 << 30)


@cache
def _wordy(count: int) -> list[AdvertisedDevice]:
    return [AdvertisedDevice(f"{number:04000}", "Unhealthy") for number in range(count)]


@fails("STR12", "RES03")
class NamesDevicesByStream(Mutant):
    """Numbers its devices anew for each stream."""

    async def lists(self) -> AsyncIterator[Sequence[AdvertisedDevice]]:
        number = self.streams_opened
        async for devices in super().lists():
            yield [*devices, AdvertisedDevice(f"dev-{number}-of-stream", "Unhealthy")]
