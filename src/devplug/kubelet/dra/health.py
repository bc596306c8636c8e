"""The health of devices as DRA drivers report it: kept for a while, in pods' status and in a file. Pure.

The real kubelet has it in `dra_health_state`, which it reads at its start and does not rely on
(cm/dra/healthinfo.go). Nothing is scheduled or stopped by it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from devplug.kubelet.claim_references import ResourceHealth
from devplug.kubelet.gotext import go_json
from devplug.wire.dra import HealthWord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.kubelet.dra.claim_cache import ClaimCache
    from devplug.kubelet.pods import Container, Pod
    from devplug.wire.dra import DeviceHealthReport

_TIMEOUT_SECONDS: Final = 30
"""How long a report counts that says nothing of it (healthinfo.go DefaultHealthTimeout)."""

_MESSAGE_LIMIT_BYTES: Final = 1024
_WORDS: Final = {HealthWord.HEALTHY: "Healthy", HealthWord.UNHEALTHY: "Unhealthy"}
_UNKNOWN: Final = "Unknown"

DeviceKey = tuple[str, str]
"""Pool name and device name."""


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """What is known of one device."""

    health: str = _UNKNOWN
    message: str = ""
    timeout_seconds: int = _TIMEOUT_SECONDS
    reported_at_seconds: float = 0.0
    """By the kubelet's clock."""

    @classmethod
    def reported(cls, report: DeviceHealthReport, now: float) -> DeviceHealth:
        """Return what a report says that came now; its own time is not read."""
        timeout = report.timeout_seconds if report.timeout_seconds > 0 else _TIMEOUT_SECONDS
        return cls(_WORDS.get(report.health, _UNKNOWN), _cut(report.message), timeout, now)

    def is_over(self, now: float) -> bool:
        """Whether it does not count any more."""
        return now - self.reported_at_seconds > self.timeout_seconds

    def says_as(self, other: DeviceHealth | None) -> bool:
        """Whether another report says the same."""
        return other is not None and (self.health, self.message, self.timeout_seconds) == (
            other.health,
            other.message,
            other.timeout_seconds,
        )


def _cut(message: str) -> str:
    content = message.encode()
    if len(content) <= _MESSAGE_LIMIT_BYTES:
        return message
    return content[: _MESSAGE_LIMIT_BYTES - 3].decode(errors="replace") + "..."


@dataclass(frozen=True, slots=True)
class HealthCache:
    """The health of all devices, by driver name; replaced at each report."""

    drivers: Mapping[str, Mapping[DeviceKey, DeviceHealth]] = field(default_factory=dict)

    def reported(
        self, driver: str, reports: Sequence[DeviceHealthReport], now: float
    ) -> tuple[HealthCache, frozenset[DeviceKey]]:
        """Return the cache after a message, and the devices of which something else is known then.

        A device that the message leaves out keeps its health until that is over.
        """
        before = self.drivers.get(driver, {})
        told = {(one.pool_name, one.device_name): DeviceHealth.reported(one, now) for one in reports}
        lost = {
            key: DeviceHealth(_UNKNOWN, "", old.timeout_seconds, now)
            for key, old in before.items()
            if key not in told and old.health != _UNKNOWN and old.is_over(now)
        }
        changed = {key for key, health in told.items() if not health.says_as(before.get(key))} | lost.keys()
        return HealthCache({**self.drivers, driver: {**before, **told, **lost}}), frozenset(changed)

    def without(self, driver: str) -> HealthCache:
        """Return the cache with nothing of a driver, the stream of which has ended."""
        return HealthCache({name: devices for name, devices in self.drivers.items() if name != driver})

    def device(self, driver: str, key: DeviceKey, now: float) -> DeviceHealth:
        """Return what counts now for a device."""
        known = self.drivers.get(driver, {}).get(key)
        return DeviceHealth() if known is None or known.is_over(now) else known


# ── pods ──────────────────────────────────────────────────────────────────────────────────────────


def claims_health(
    pod: Pod, claims: ClaimCache, health: HealthCache, now: float
) -> Mapping[str, Mapping[str, Sequence[ResourceHealth]]]:
    """Return container → name in `allocatedResourcesStatus` → devices, for the app containers of a pod.

    A device goes by its first CDI name, and is listed once under each name. The claim for extended resources
    is not shown (manager.go UpdateAllocatedResourcesStatus).
    """
    names = {one.name: one.claim_name for one in pod.resource_claims}

    def devices(container: Container) -> Mapping[str, Sequence[ResourceHealth]]:
        found: dict[str, dict[str, ResourceHealth]] = {}
        for used in container.claims:
            claim = claims.claims.get((pod.namespace, names.get(used.name) or ""))
            # A driver names requests only, and no subrequests.
            served = claim.serving(used.request.partition("/")[0]) if claim else ()
            shown: dict[str, ResourceHealth] = {}
            for driver, device in served:
                pool, name = device.pool_name, device.device_name
                known = health.device(driver, (pool, name), now)
                resource_id = next(iter(device.cdi_device_ids), f"{driver}/{pool}/{name}")
                shown.setdefault(resource_id, ResourceHealth(resource_id, known.health, known.message))
            found[f"claim:{used.name}/{used.request}" if used.request else f"claim:{used.name}"] = shown
        return {name: tuple(shown.values()) for name, shown in found.items() if shown}

    return {container.name: devices(container) for container in pod.containers if container.claims}


# ── the file ──────────────────────────────────────────────────────────────────────────────────────


def encode(cache: HealthCache, epoch_seconds: float) -> bytes:
    """Return the file's bytes; `epoch_seconds` is when the kubelet's clock was 0, in seconds since 1970."""
    return go_json(
        {
            driver: {
                "Devices": {
                    f"{pool}/{name}": _state(pool, name, devices[pool, name], epoch_seconds)
                    for pool, name in sorted(devices, key="/".join)
                }
            }
            for driver, devices in sorted(cache.drivers.items())
        }
    ).encode()


def _state(pool: str, name: str, health: DeviceHealth, epoch_seconds: float) -> Mapping[str, object]:
    moment = datetime.fromtimestamp(epoch_seconds + health.reported_at_seconds, UTC)
    return {
        "PoolName": pool,
        "DeviceName": name,
        "Health": health.health,
        "LastUpdated": moment.isoformat().replace("+00:00", "Z"),
        "HealthCheckTimeout": health.timeout_seconds * 1_000_000_000,
        "Message": health.message,
    }


def decode(content: bytes, epoch_seconds: float) -> HealthCache:
    """Return the cache in the file's bytes; `epoch_seconds` as above. Raises ValueError."""
    try:
        document = json.loads(content)
        return HealthCache(
            {
                driver: dict(_device(state, epoch_seconds) for state in devices["Devices"].values())
                for driver, devices in document.items()
            }
        )
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _device(state: Mapping[str, Any], epoch_seconds: float) -> tuple[DeviceKey, DeviceHealth]:
    moment = datetime.fromisoformat(state["LastUpdated"]).timestamp()
    health = DeviceHealth(
        state["Health"],
        state["Message"],
        state["HealthCheckTimeout"] // 1_000_000_000,
        moment - epoch_seconds,
    )
    return (state["PoolName"], state["DeviceName"]), health
