"""The catalogue of all metrics: what dashboards, alerts and docs/metrics.md may rely on. Pure.

Where there are more devices than a Prometheus should be given, some of them have no series of their own. The
reference page is made from the catalogue: `python -m devplug.metrics.catalogue`.
"""

from __future__ import annotations

import sys
from collections import Counter
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from devplug.metrics.families import Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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
    "1 while the kubelet that runs now has accepted the resource, else 0; absent while it waits for devices.",
    "resource",
)
REGISTRATIONS: Final = _counter(
    "devplug_registrations_total",
    "Attempts to register; result is accepted, refused or unreachable. Many mean that kubelets restart.",
    *("resource", "result"),
)
TAKEOVER_SUSPECTED: Final = _gauge(
    "devplug_takeover_suspected",
    "1 while there are signs that another plugin registers the resource's name, else 0.",
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
    "1 while the device is healthy, 0 while it is not; absent where the health is not known.",
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
    "devplug_discovery_duration_seconds", "How long one scan of the machine's devices took.", "resource"
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

# ── claims, by DRA ────────────────────────────────────────────────────────────────────────────────

DEVICE_CLAIMED: Final = _gauge(
    "devplug_device_claimed",
    "Always 1; which claim uses a device, and by which request. There is none for other devices.",
    *("resource", "device", "namespace", "claim", "request"),
)
DEVICES_TAINTED: Final = _gauge(
    "devplug_devices_tainted",
    "Devices with a taint in their ResourceSlice, as unhealthy ones have; none is allocated to a new claim.",
    "resource",
)
CLAIMS: Final = _gauge("devplug_claims", "Claims that use devices on this node.", "driver")
CLAIM_PREPARES: Final = _counter(
    "devplug_claim_prepares_total",
    "Claims that were to be prepared; result is prepared, refused, failed (by a fault) or timed_out.",
    *("driver", "result"),
)
CLAIM_PREPARE_DURATION: Final = _durations(
    "devplug_claim_prepare_duration_seconds",
    "How long it took to prepare a claim, whatever came of it; its pod's start waits for that.",
    "driver",
)
CLAIM_UNPREPARES: Final = _counter(
    "devplug_claim_unprepares_total",
    "Claims whose use was to end; result is unprepared, refused, failed (by a fault) or timed_out.",
    *("driver", "result"),
)
CLAIM_UNPREPARE_DURATION: Final = _durations(
    "devplug_claim_unprepare_duration_seconds",
    "How long it took to end the use of a claim; its pod's end waits for that.",
    "driver",
)
SLICES: Final = _gauge("devplug_slices", "ResourceSlices of this node that are published.", "driver")
SLICES_STALE: Final = _gauge(
    "devplug_slices_stale_seconds",
    "For how long the ResourceSlices have not said what there is; 0 while they do.",
    "driver",
    unit="seconds",
)

# ── the configuration ─────────────────────────────────────────────────────────────────────────────

CONFIG_LAST_RELOAD_SUCCESSFUL: Final = _gauge(
    "devplug_config_last_reload_successful", "1 if the configuration file as it is now is in effect, else 0."
)
CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP: Final = _gauge(
    "devplug_config_last_reload_success_timestamp_seconds",
    "When a configuration file was last read and applied, in seconds since 1970.",
    unit="seconds",
)
CONFIG_RELOADS: Final = _counter(
    "devplug_config_reloads_total", "Changes of the file; result is applied or refused.", "result"
)

# ── who holds what ────────────────────────────────────────────────────────────────────────────────

PODRESOURCES_ERRORS: Final = _counter(
    "devplug_podresources_errors_total",
    "Calls of the kubelet's PodResources without an answer, by trouble, such as absent or timed_out.",
    "trouble",
)
PODRESOURCES_AGE: Final = _gauge(
    "devplug_podresources_age_seconds",
    "How old the last good answer of PodResources is; absent before the first, and while nothing needs it.",
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
        "Claims",
        (
            *(CLAIMS, DEVICE_CLAIMED, DEVICES_TAINTED, CLAIM_PREPARES, CLAIM_PREPARE_DURATION),
            *(CLAIM_UNPREPARES, CLAIM_UNPREPARE_DURATION, SLICES, SLICES_STALE),
        ),
    ),
    (
        "The configuration",
        (CONFIG_LAST_RELOAD_SUCCESSFUL, CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP, CONFIG_RELOADS),
    ),
    ("Who holds what", (PODRESOURCES_ERRORS, PODRESOURCES_AGE, EXPORTER_PROCESSES)),
)
"""All metrics under the headings of docs/metrics.md."""

ALL: Final[tuple[Metric, ...]] = tuple(metric for _, group in GROUPS for metric in group)
"""All metrics of devplug, in the page's order."""

# ── the limit of series ──

DEVICE_SERIES_LIMIT: Final = 1_000
"""Devices with series of their own, of all resources of a process together: about 4,000 series a node."""


class Bounded(Struct, frozen=True):
    """The devices with series of their own, and how many have none."""

    chosen: frozenset[tuple[str, str]]
    """Resource name and device ID of each device that gets series of its own."""
    omitted: Mapping[str, int]
    """How many devices of each resource get none, also where that is 0; in the resources' order."""


def bounded(devices: Iterable[tuple[str, str, bool]], limit: int = DEVICE_SERIES_LIMIT) -> Bounded:
    """Choose at most `limit` devices from (resource name, device ID, whether it is important).

    Important ones come first: those that are held or unhealthy, about which people ask. Then it goes by
    resource name and device ID, so that the same devices are chosen at each scrape and in any order of
    `devices`. One that is given twice counts once, and is important if it is so once.
    """
    important: set[tuple[str, str]] = set()
    others: set[tuple[str, str]] = set()
    for resource_name, device_id, is_important in devices:
        (important if is_important else others).add((resource_name, device_id))
    others -= important
    chosen = frozenset(_first(important, limit) + _first(others, limit - len(important)))
    known = Counter(resource_name for one in (important, others) for resource_name, _ in one)
    counts = Counter(resource_name for resource_name, _ in chosen)
    return Bounded(chosen, {name: known[name] - counts[name] for name in sorted(known)})


def _first(devices: set[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    return list(devices) if len(devices) <= count else nsmallest(count, devices)


# ── the reference page ──

_INTRODUCTION = """\
# Metrics

What `/metrics` tells. It is written as OpenMetrics 1.0.0 for a client that asks for it, as Prometheus does,
and as text 0.0.4 for others. Names begin with `devplug_`, times are in seconds, and `resource` is a resource
name like `example.com/fpga`. A metric of which there is nothing to tell is left out.

The labels `namespace`, `pod` and `container` name the container that holds a device. Prometheus renames them
to `exported_namespace` and so on where it sets such labels of its own, unless the scrape has
`honor_labels: true` (`honorLabels` in a PodMonitor). So it is with the `namespace` of a claim. `driver` is
the name of a DRA driver, which is also the `resource` of another vendor's devices that claims use.

At most {limit:,} devices of a process have series of their own: held and unhealthy ones first, then by
resource name and ID. `devplug_device_series_omitted` says how many have none; the counts by resource are
complete.

*Alpha* metrics may change in any release, *beta* ones keep their labels, *stable* ones keep their meaning.
"""
_HEAD = "| name | type | labels | stability | what it says |\n|---|---|---|---|---|\n"


def page(groups: Iterable[tuple[str, tuple[Metric, ...]]]) -> str:
    """Return the whole page as Markdown: one table under each heading."""
    parts = [_INTRODUCTION.format(limit=DEVICE_SERIES_LIMIT)]
    for heading, metrics in groups:
        parts.append(f"## {heading}\n\n{_HEAD}{''.join(map(_row, metrics))}")
    return "\n".join(parts)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
    return (
        f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.stability.value} | {metric.help} |\n"
    )


if __name__ == "__main__":
    sys.stdout.write(page(GROUPS))
