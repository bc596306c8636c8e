"""All metrics that devplug tells, as data: what dashboards, alerts and docs/metrics.md may rely on. Pure.

Sums over a metric's labels mean something (prometheus.io/docs/practices/naming): that is why held devices
are a metric of their own, and no third state beside healthy and unhealthy.
"""

from __future__ import annotations

from typing import Final

from devplug.metrics.families import Kind, Metric

__all__ = [
    "ALL",
    "ALLOCATE_DURATION",
    "ALLOCATIONS",
    "BUILD_INFO",
    "CONFIG_LAST_RELOAD_SUCCESSFUL",
    "CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP",
    "CONFIG_RELOADS",
    "DEVICES",
    "DEVICES_HELD",
    "DEVICE_HEALTHY",
    "DEVICE_HEALTH_CHANGE_TIMESTAMP",
    "DEVICE_HELD",
    "DEVICE_INFO",
    "DEVICE_SERIES_OMITTED",
    "DISCOVERY_DURATION",
    "EXPORTER_PROCESSES",
    "GROUPS",
    "HEALTH_TRANSITIONS",
    "LISTANDWATCH_UPDATES",
    "PODRESOURCES_AGE",
    "PODRESOURCES_ERRORS",
    "PREFERENCES",
    "PRE_STARTS",
    "READY",
    "REGISTERED",
    "REGISTRATIONS",
    "START_TIME",
    "STREAMS",
    "STREAMS_OPENED",
    "TAKEOVER_SUSPECTED",
]


def _gauge(name: str, help_: str, *labels: str, unit: str = "") -> Metric:
    return Metric(name, Kind.GAUGE, help_, unit, labels)


def _counter(name: str, help_: str, *labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, help_, labels=labels)


def _durations(name: str, help_: str, *labels: str) -> Metric:
    return Metric(name, Kind.HISTOGRAM, help_, "seconds", labels)


# ── the process ───────────────────────────────────────────────────────────────────────────────────

BUILD_INFO: Final = _gauge(
    "devplug_build_info", "Always 1; which version of devplug this is, on which Python.", "version", "python"
)
START_TIME: Final = _gauge(
    "devplug_start_time_seconds", "When the process started, in seconds since 1970.", unit="seconds"
)
READY: Final = _gauge(
    "devplug_ready", "1 while every enabled resource is registered and a kubelet reads its list, else 0."
)

# ── the kubelet's side: registration, streams, lists ──────────────────────────────────────────────

REGISTERED: Final = _gauge(
    "devplug_registered",
    "1 while the kubelet that runs now has accepted the resource, else 0; none while it waits for devices.",
    "resource",
)
REGISTRATIONS: Final = _counter(
    "devplug_registrations_total",
    "Attempts to register; result is accepted, refused or unreachable. Many mean that kubelets restart.",
    *("resource", "result"),
)
TAKEOVER_SUSPECTED: Final = _gauge(
    "devplug_takeover_suspected",
    "1 while signs tell that another plugin has the resource's name, or fights for it, else 0.",
    "resource",
)
STREAMS: Final = _gauge(
    "devplug_streams", "Open ListAndWatch streams; 0 means that no kubelet reads the list.", "resource"
)
STREAMS_OPENED: Final = _counter(
    "devplug_streams_opened_total", "ListAndWatch streams that were opened.", "resource"
)
LISTANDWATCH_UPDATES: Final = _counter(
    "devplug_listandwatch_updates_total", "Lists that were sent over the streams.", "resource"
)

# ── devices ───────────────────────────────────────────────────────────────────────────────────────

DEVICES: Final = _gauge(
    "devplug_devices",
    "Devices by state, healthy or unhealthy; both together are the node's capacity.",
    *("resource", "state"),
)
DEVICES_HELD: Final = _gauge(
    "devplug_devices_held", "Devices that containers hold, whatever their health.", "resource"
)
DEVICE_INFO: Final = _gauge(
    "devplug_device_info",
    "Always 1; the NUMA nodes of a device, joined by commas; empty for none.",
    *("resource", "device", "numa_node"),
)
DEVICE_HEALTHY: Final = _gauge(
    "devplug_device_healthy",
    "1 while the device is healthy, 0 while it is not; none where nobody tells.",
    *("resource", "device"),
)
DEVICE_HEALTH_CHANGE_TIMESTAMP: Final = _gauge(
    "devplug_device_health_change_timestamp_seconds",
    "When the device's health last changed or was first seen, in seconds since 1970.",
    *("resource", "device"),
    unit="seconds",
)
DEVICE_HELD: Final = _gauge(
    "devplug_device_held",
    "Always 1; which container holds a device. There is none for a free device.",
    *("resource", "device", "namespace", "pod", "container"),
)
DEVICE_SERIES_OMITTED: Final = _gauge(
    "devplug_device_series_omitted",
    "Devices without series of their own, because there are too many; held and unhealthy ones come first.",
    "resource",
)
HEALTH_TRANSITIONS: Final = _counter(
    "devplug_health_transitions_total",
    "Changes of devices' health; to is healthy or unhealthy.",
    *("resource", "to"),
)
DISCOVERY_DURATION: Final = _durations(
    "devplug_discovery_duration_seconds", "How long one look at the machine's devices took.", "resource"
)

# ── calls about containers ────────────────────────────────────────────────────────────────────────

ALLOCATIONS: Final = _counter(
    "devplug_allocations_total",
    "Allocate calls; result is granted, refused, failed (in the plugin's code) or timed_out.",
    *("resource", "result"),
)
ALLOCATE_DURATION: Final = _durations(
    "devplug_allocate_duration_seconds", "How long Allocate calls took, whatever came of them.", "resource"
)
PRE_STARTS: Final = _counter(
    "devplug_pre_starts_total",
    "PreStartContainer calls; result is finished, refused, failed (in the plugin's code) or timed_out.",
    *("resource", "result"),
)
PREFERENCES: Final = _counter(
    "devplug_preferences_total",
    "GetPreferredAllocation calls; result is ranked, or failed: then the kubelet chose alone.",
    *("resource", "result"),
)

# ── the configuration ─────────────────────────────────────────────────────────────────────────────

CONFIG_LAST_RELOAD_SUCCESSFUL: Final = _gauge(
    "devplug_config_last_reload_successful", "1 if the file as it is now is what is served, else 0."
)
CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP: Final = _gauge(
    "devplug_config_last_reload_success_timestamp_seconds",
    "When a file was last read and served, in seconds since 1970.",
    unit="seconds",
)
CONFIG_RELOADS: Final = _counter(
    "devplug_config_reloads_total", "Changes of the file; result is applied or refused.", "result"
)

# ── who holds what ────────────────────────────────────────────────────────────────────────────────

PODRESOURCES_ERRORS: Final = _counter(
    "devplug_podresources_errors_total",
    "Questions to the kubelet's PodResources without an answer, by trouble, such as absent or timed_out.",
    "trouble",
)
PODRESOURCES_AGE: Final = _gauge(
    "devplug_podresources_age_seconds",
    "How old the last good answer of PodResources is; none before the first, nor while nobody needs to know.",
    unit="seconds",
)
EXPORTER_PROCESSES: Final = _gauge(
    "devplug_exporter_processes", "Plugin processes on the node whose status sockets answer the exporter."
)

GROUPS: Final[tuple[tuple[str, tuple[Metric, ...]], ...]] = (
    ("The process", (BUILD_INFO, START_TIME, READY)),
    (
        "Registration and lists",
        (
            *(REGISTERED, REGISTRATIONS, TAKEOVER_SUSPECTED),
            *(STREAMS, STREAMS_OPENED, LISTANDWATCH_UPDATES),
        ),
    ),
    (
        "Devices",
        (
            *(DEVICES, DEVICES_HELD, DEVICE_INFO, DEVICE_HEALTHY, DEVICE_HEALTH_CHANGE_TIMESTAMP),
            *(DEVICE_HELD, DEVICE_SERIES_OMITTED, HEALTH_TRANSITIONS, DISCOVERY_DURATION),
        ),
    ),
    ("Calls about containers", (ALLOCATIONS, ALLOCATE_DURATION, PRE_STARTS, PREFERENCES)),
    (
        "The configuration",
        (CONFIG_LAST_RELOAD_SUCCESSFUL, CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP, CONFIG_RELOADS),
    ),
    ("Who holds what", (PODRESOURCES_ERRORS, PODRESOURCES_AGE, EXPORTER_PROCESSES)),
)
"""All metrics under the headings of docs/metrics.md."""

ALL: Final[tuple[Metric, ...]] = tuple(metric for _, group in GROUPS for metric in group)
"""All metrics that devplug tells, in the page's order."""
