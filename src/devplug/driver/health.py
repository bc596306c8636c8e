"""The health of the devices that claims use, as a stream for the kubelet.

It shows in the status of the pods that use them, and nowhere else (dra.md D36, D37): devices that no claim
uses are left out. What is said counts for a while, so it is repeated (D34).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from devplug.devices import HealthState
from devplug.linux.notifier import within
from devplug.wire.dra import WATCH_RESOURCES, DeviceHealthReport, HealthWord
from devplug.wire.sockets import stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from devplug.driver.offer import Offer
    from devplug.driver.prepared_claims import PreparedClaims
    from devplug.wire.sockets import Binding

TIMEOUT_SECONDS: Final = 60
"""How long the kubelet believes a report."""

REPEAT_SECONDS: Final = 20.0

_WORDS: Final = {
    HealthState.HEALTHY: HealthWord.HEALTHY,
    HealthState.UNHEALTHY: HealthWord.UNHEALTHY,
    HealthState.UNKNOWN: HealthWord.UNKNOWN,
}


class HealthService:
    """The service that reports health; lives as long as its driver.

    `on_stream` is called whenever a stream opens or ends.
    """

    def __init__(
        self,
        node_name: str,
        store: PreparedClaims,
        offer: Offer,
        on_stream: Callable[[], None] = lambda: None,
    ) -> None:
        self.open_streams = 0
        """How many a kubelet has open: one, as long as it is there."""
        self._node_name = node_name
        self._store = store
        self._offer = offer
        self._on_stream = on_stream

    def binding(self) -> Binding:
        """Return the method that a listener has to serve."""
        return stream(WATCH_RESOURCES, self._watch)

    async def _watch(self, _: None) -> AsyncIterator[Sequence[DeviceHealthReport]]:
        """Yield the health of all devices in use: at once, after each change, and again before it is over."""
        self.open_streams += 1
        self._on_stream()
        try:
            told: Sequence[DeviceHealthReport] = ()
            is_change = True
            while True:
                change = self._offer.changed.next
                reports = self._reports()
                if reports and (reports != told or not is_change):
                    told = reports
                    yield _dated(reports)
                is_change = await within(REPEAT_SECONDS, change.wait())
        finally:
            self.open_streams -= 1
            self._on_stream()

    def _reports(self) -> Sequence[DeviceHealthReport]:
        names = {device.name for use in self._store.claims.values() for device in use.devices}
        return tuple(map(self._report, sorted(names)))

    def _report(self, name: str) -> DeviceHealthReport:
        offered = self._offer.devices.get(name)
        if offered is None:
            word, message = HealthWord.UNKNOWN, "the driver does not see the device"
        else:
            health = offered.device.health
            word, message = _WORDS[health.state], health.reason
        return DeviceHealthReport(
            self._node_name, name, word, timeout_seconds=TIMEOUT_SECONDS, message=message
        )


def _dated(reports: Sequence[DeviceHealthReport]) -> Sequence[DeviceHealthReport]:
    now = int(time.time())
    return [
        DeviceHealthReport(one.pool_name, one.device_name, one.health, now, one.timeout_seconds, one.message)
        for one in reports
    ]
