"""What a driver reports: counters of the kubelet's calls, its status, and the health of devices in use.

The kubelet shows that health in the status of the pods that use the devices, and nowhere else (dra.md D36,
D37). It believes a report for a while only, so reports are repeated (D34).
"""

from __future__ import annotations

import time
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct, field

from devplug.devices import HealthState
from devplug.errors import outcome_of
from devplug.k8s.errors import ClusterError
from devplug.linux.notifier import within
from devplug.metrics.families import PREPARE_BOUNDS_SECONDS, Counts, Histogram
from devplug.status import DeviceClaim
from devplug.wire.dra import WATCH_RESOURCES, DeviceHealthReport, HealthWord
from devplug.wire.sockets import stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from devplug.devices import Device
    from devplug.driver.claims import ClaimUse
    from devplug.driver.offer import Offer
    from devplug.driver.prepared_claims import PreparedClaims
    from devplug.wire.sockets import Binding


class PublisherStatus(Struct, frozen=True):
    """What is published, as far as the publisher knows."""

    generation: int | None = None
    """That of the pool; None before it was published for the first time, and while there are no devices."""
    slices: int = 0
    devices: int = 0
    """How many devices the slices have."""
    stale_since: float | None = None
    """Since when the slices may not say what is offered, as a Unix time in seconds; None if they say it."""
    error: str = ""
    """Why they do not, or may not for long; empty if they do, or will in a moment."""
    version: str = ""
    """The version of resource.k8s.io."""
    conflict: str = ""
    """What to do, where another instance of the driver has published for longer than a rollout lasts."""


def device_claims(uses: Iterable[ClaimUse], resource_name: str) -> Mapping[str, tuple[DeviceClaim, ...]]:
    """Return the claims that use each of a resource's devices, by device ID, the oldest first."""
    found: dict[str, list[DeviceClaim]] = {}
    for use in sorted(uses, key=lambda use: (use.since, use.namespace, use.name, use.uid)):
        for device in use.devices:
            if device.resource_name == resource_name:
                found.setdefault(device.device_id, []).append(
                    DeviceClaim(
                        namespace=use.namespace,
                        name=use.name,
                        request=device.request,
                        device=device.name,
                        uid=use.uid,
                        since=use.since or None,
                        prepared_for=use.pods,
                        has_admin_access=device.has_admin_access,
                    )
                )
    return {device_id: tuple(claims) for device_id, claims in found.items()}


Question = TypeVar("Question")
Answer = TypeVar("Answer")

# ── counters ──

FAILURES: Final = ("refused", "failed", "timed_out")


class ClaimCounters(Struct):
    """What the kubelet asked, and what came of it; lives as long as the driver."""

    prepares: Counts = field(default_factory=partial(Counts, "prepared", *FAILURES))
    """Claims that the kubelet asked to prepare, those that were prepared already included."""
    prepare_seconds: Histogram = field(default_factory=partial(Histogram, PREPARE_BOUNDS_SECONDS))
    """Of each of them, whatever came of it."""
    unprepares: Counts = field(default_factory=partial(Counts, "unprepared", *FAILURES))
    unprepare_seconds: Histogram = field(default_factory=partial(Histogram, PREPARE_BOUNDS_SECONDS))
    kubelet_api: str = ""
    """The API version of the kubelet's last call, as in `v1.DRAPlugin`; empty before the first call."""

    def count_prepare(self, error: Exception | None, seconds: float) -> None:
        """Count a claim that was to be prepared; `error` is why it was not."""
        self.prepares.add("prepared" if error is None else _result_of(error))
        self.prepare_seconds.observe(seconds)

    def count_unprepare(self, error: Exception | None, seconds: float) -> None:
        """Count a claim that was to be unprepared; `error` is why it was not."""
        self.unprepares.add("unprepared" if error is None else _result_of(error))
        self.unprepare_seconds.observe(seconds)

    def noting(
        self, version: str, call: Callable[[Question], Awaitable[Answer]]
    ) -> Callable[[Question], Awaitable[Answer]]:
        """Return a call that is noted as one of this version."""

        async def noted(question: Question) -> Answer:
            self.kubelet_api = version
            return await call(question)

        return noted


def _result_of(error: Exception) -> str:
    # A refusal of the API server is a ClaimRefusedError; a ClusterError lasted until the deadline.
    return "timed_out" if isinstance(error, ClusterError) else outcome_of(error)


# ── health ──

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
        uses = {device.name: device for use in self._store.claims.values() for device in use.devices}
        found = self._offer.devices_of(uses.values())
        return tuple(self._report(*one) for one in sorted(zip(uses, found, strict=True), key=itemgetter(0)))

    def _report(self, name: str, device: Device | None) -> DeviceHealthReport:
        if device is None:
            word, message = HealthWord.UNKNOWN, "the driver does not see the device"
        else:
            word, message = _WORDS[device.health.state], device.health.reason
        return DeviceHealthReport(
            self._node_name, name, word, timeout_seconds=TIMEOUT_SECONDS, message=message
        )


def _dated(reports: Sequence[DeviceHealthReport]) -> Sequence[DeviceHealthReport]:
    now = int(time.time())
    return [
        DeviceHealthReport(one.pool_name, one.device_name, one.health, now, one.timeout_seconds, one.message)
        for one in reports
    ]
