"""The metric families of resources and their devices, from the values that every view is made from. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devplug.devices import UNHEALTHY
from devplug.metrics import catalogue
from devplug.metrics.catalogue import DEVICE_SERIES_LIMIT, bounded
from devplug.metrics.families import Family, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devplug.status import (
        DeviceStatus,
        DriverStatus,
        PodResourcesStatus,
        ProcessStatus,
        ResourceStatus,
    )


def resource_families(
    resources: Sequence[ResourceStatus], limit: int = DEVICE_SERIES_LIMIT
) -> tuple[Family, ...]:
    """Return the families of resources; at most `limit` of their devices get series of their own.

    One that waits for its first device is not registered, and nothing is wrong with it: it is left out there.
    """
    listed = [(resource.name, device) for resource in resources for device in resource.devices]
    which = bounded(
        ((name, device.id, device.is_held or not device.is_healthy) for name, device in listed), limit
    )
    chosen = [(name, device) for name, device in listed if (name, device.id) in which.chosen]
    return (
        Family(
            catalogue.REGISTERED,
            [
                Sample((one.name,), float(one.is_registered))
                for one in resources
                if one.is_registered or (one.is_registered is not None and one.fault)
            ],
        ),
        Family(
            catalogue.TAKEOVER_SUSPECTED,
            [
                Sample((one.name,), float(one.takeover is not None))
                for one in resources
                if one.is_registered is not None
            ],
        ),
        Family(
            catalogue.DEVICES,
            [
                Sample((one.name, state), count)
                for one in resources
                if not one.devices or any(map(_has_known_health, one.devices))
                for state, count in (
                    ("healthy", one.allocatable),
                    ("unhealthy", sum(map(_is_unhealthy, one.devices))),
                )
            ],
        ),
        Family(catalogue.DEVICES_HELD, [Sample((one.name,), one.held) for one in resources]),
        Family(
            catalogue.DEVICES_TAINTED,
            [
                Sample((one.name,), sum(bool(device.taint) for device in one.devices))
                for one in resources
                if one.driver and one.is_registered is not None
            ],
        ),
        Family(
            catalogue.DEVICE_SERIES_OMITTED,
            [Sample((one.name,), which.omitted.get(one.name, 0)) for one in resources],
        ),
        *_device_families(chosen),
    )


def _device_families(devices: Iterable[tuple[str, DeviceStatus]]) -> Iterable[Family]:
    listed = list(devices)
    yield Family(
        catalogue.DEVICE_INFO, [Sample((name, device.id, _numa_nodes(device)), 1) for name, device in listed]
    )
    yield Family(
        catalogue.DEVICE_HEALTHY,
        [
            Sample((name, device.id), float(device.is_healthy))
            for name, device in listed
            if _has_known_health(device)
        ],
    )
    yield Family(
        catalogue.DEVICE_HEALTH_CHANGE_TIMESTAMP,
        [Sample((name, device.id), device.since) for name, device in listed if device.since is not None],
    )
    yield Family(
        catalogue.DEVICE_HELD,
        [
            Sample((name, device.id, holder.namespace, holder.pod, holder.container), 1)
            for name, device in listed
            for holder in device.holders
        ],
    )

    claims = dict.fromkeys(  # two shares of a device may be one claim's
        (name, device.id, claim.namespace, claim.name, claim.request)
        for name, device in listed
        for claim in device.claims
    )
    yield Family(catalogue.DEVICE_CLAIMED, [Sample(labels, 1) for labels in claims])


def _has_known_health(device: DeviceStatus) -> bool:
    """Whether the device's health is known; that of another plugin's device often is not."""
    return device.is_healthy or _is_unhealthy(device)


def _is_unhealthy(device: DeviceStatus) -> bool:
    return device.health == UNHEALTHY or (not device.is_healthy and bool(device.reason))


def _numa_nodes(device: DeviceStatus) -> str:
    return ",".join(map(str, device.numa_nodes))


def process_families(status: ProcessStatus) -> tuple[Family, ...]:
    """Return the families of a process as a whole."""
    families = [
        Family(catalogue.BUILD_INFO, [Sample((status.version, status.python), 1)]),
        Family(catalogue.START_TIME, [Sample((), status.started_at)]),
        Family(catalogue.READY, [Sample((), float(not status.faults))]),
    ]
    if (config := status.config) is not None:
        families += [
            Family(catalogue.CONFIG_LAST_RELOAD_SUCCESSFUL, [Sample((), float(not config.problems))]),
            Family(catalogue.CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP, [Sample((), config.applied_at)]),
        ]
    return tuple(families)


def driver_families(drivers: Iterable[DriverStatus], now: float) -> tuple[Family, ...]:
    """Return the families of DRA drivers; `now` is a Unix time in seconds."""
    listed = [*drivers]
    return (
        Family(catalogue.CLAIMS, [Sample((one.name,), one.claims) for one in listed]),
        Family(catalogue.SLICES, [Sample((one.name,), one.slices) for one in listed]),
        Family(catalogue.SLICES_STALE, [Sample((one.name,), _stale_seconds(one, now)) for one in listed]),
    )


def _stale_seconds(driver: DriverStatus, now: float) -> float:
    return 0.0 if driver.stale_since is None else max(0.0, now - driver.stale_since)


def pod_resources_families(status: PodResourcesStatus, now: float) -> tuple[Family, ...]:
    """Return the families of the kubelet's PodResources; `now` is a Unix time in seconds."""
    age = [] if status.answered_at is None else [Sample((), max(0.0, now - status.answered_at))]
    return (
        Family(
            catalogue.PODRESOURCES_ERRORS,
            [Sample((trouble,), count) for trouble, count in sorted(status.errors.items())],
        ),
        Family(catalogue.PODRESOURCES_AGE, age),
    )
