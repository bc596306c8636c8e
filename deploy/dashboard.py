"""The Grafana dashboard: which panels there are and what each asks of Prometheus."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from deploy.panels import (
    GREEN_FROM_ONE,
    RED_FROM_ONE,
    SCHEMA_VERSION,
    Query,
    choice,
    datasource_choice,
    heatmap,
    lines,
    panels_of,
    stat,
    table,
    timeline,
)

if TYPE_CHECKING:
    from devplug.k8s.yaml import Value

__all__ = ["dashboard_text"]

_NODE: Final = 'job=~"$job", instance=~"$instance"'
_ALL: Final = f'{_NODE}, resource=~"$resource"'
_HEALTH: Final = {1: ("healthy", "green"), 0: ("unhealthy", "red")}
_DEVICE: Final = "job, instance, resource, device"
"""What names one device among the series of all nodes."""


def _held() -> str:
    """Return who holds each device, `namespace/pod/container` in the label `holder`.

    The metric's own labels are `exported_` ones where the scrape has set some of the same name.
    """
    ours, theirs = (
        ", ".join(f'"{prefix}{label}"' for label in ("namespace", "pod", "container"))
        for prefix in ("", "exported_")
    )
    named = f'label_join(devplug_device_held{{{_ALL}}}, "holder", "/", {ours})'
    both = f'label_join({named}, "exported_holder", "/", {theirs})'
    return f'label_replace({both}, "holder", "$1", "exported_holder", "(.+/.+/.+)")'


def _devices() -> str:
    """Return the health of each device, once for each holder, with its NUMA nodes."""
    on = f"on ({_DEVICE})"
    free = f"devplug_device_healthy{{{_ALL}}} unless {on} devplug_device_held"
    either = f"{_held()} * {on} group_left () devplug_device_healthy\nor {free}"
    return f"({either})\n* {on} group_left (numa_node) devplug_device_info"


def _summed(metric: str, more: str = "") -> Query:
    return Query(f"sum by (resource) ({metric}{{{_ALL}{more}}})", "{{resource}}")


def _rate(metric: str, by: str, legend: str) -> Query:
    return Query(f"sum by ({by}) (increase({metric}{{{_ALL}}}[$__rate_interval]))", legend)


def _quantile(share: float, metric: str, by: str) -> Query:
    buckets = f"sum by ({by}, le) (rate({metric}_bucket{{{_ALL}}}[$__rate_interval]))"
    return Query(f"histogram_quantile({share:g}, {buckets})", f"p{share * 100:g} {{{{{by}}}}}")


def _claimed() -> str:
    """Return which claim uses each device; see `_held` for the exported label."""
    renamed = '"namespace", "$1", "exported_namespace", "(.+)"'
    return f"label_replace(devplug_device_claimed{{{_ALL}}}, {renamed})"


def _driver_rate(metric: str) -> Query:
    counted = f"sum by (driver, result) (increase({metric}{{{_NODE}}}[$__rate_interval]))"
    return Query(counted, "{{driver}} {{result}}")


def _driver_p99(metric: str, word: str) -> Query:
    buckets = f"sum by (driver, le) (rate({metric}_bucket{{{_NODE}}}[$__rate_interval]))"
    return Query(f"histogram_quantile(0.99, {buckets})", f"{{{{driver}}}} {word}")


_OVERVIEW: Final = (
    stat("Total", "Devices that the nodes have, healthy or not.", _summed("devplug_devices"), width=6),
    stat(
        "Allocatable",
        "Healthy devices: what the kubelets may give out, held ones included.",
        _summed("devplug_devices", ', state="healthy"'),
        width=6,
        colors=GREEN_FROM_ONE,
    ),
    stat("Held", "Devices that containers hold.", _summed("devplug_devices_held"), width=6),
    stat(
        "Unhealthy",
        "Devices that are given to nobody; a container may still hold one.",
        _summed("devplug_devices", ', state="unhealthy"'),
        width=6,
        colors=RED_FROM_ONE,
    ),
)

_DEVICES: Final = (
    table(
        "Device to pod",
        "Each device, and the container that holds it; once for each where several do.",
        Query(_devices()),
        columns={
            "instance": "instance",
            "resource": "resource",
            "device": "device",
            "numa_node": "NUMA",
            "holder": "held by",
            "Value": "health",
        },
        words=_HEALTH,
        width=24,
    ),
    timeline(
        "Health of devices",
        "Each device over time; a gap means that no process reported it.",
        Query(f"devplug_device_healthy{{{_ALL}}}", "{{instance}} {{resource}} {{device}}"),
        words=_HEALTH,
        width=24,
    ),
    lines(
        "Held over time",
        "Devices that containers hold.",
        _summed("devplug_devices_held"),
        width=12,
        is_stepped=True,
    ),
    lines(
        "Changes of health",
        "The number of changes, by the new health.",
        _rate("devplug_health_transitions_total", "resource, to", "{{resource}} to {{to}}"),
        width=12,
    ),
)

_CALLS: Final = (
    heatmap(
        "Allocate, by duration",
        "The number of calls, by duration.",
        Query(
            f"sum by (le) (increase(devplug_allocate_duration_seconds_bucket{{{_ALL}}}[$__rate_interval]))",
            "{{le}}",
        ),
        width=12,
    ),
    lines(
        "Allocate, p50 and p99",
        "A pod's start waits for this call, and so does every other pod of the node.",
        _quantile(0.5, "devplug_allocate_duration_seconds", "resource"),
        _quantile(0.99, "devplug_allocate_duration_seconds", "resource"),
        width=12,
        unit="s",
    ),
    lines(
        "Allocate, by result",
        "All but granted ones are pods that failed at admission.",
        _rate("devplug_allocations_total", "resource, result", "{{resource}} {{result}}"),
        width=8,
    ),
    lines(
        "PreStartContainer, by result",
        "All but finished ones are containers that did not start.",
        _rate("devplug_pre_starts_total", "resource, result", "{{resource}} {{result}}"),
        width=8,
    ),
    lines(
        "Discovery, p99",
        "How long a scan of the machine's devices takes.",
        _quantile(0.99, "devplug_discovery_duration_seconds", "resource"),
        width=8,
        unit="s",
    ),
)

_CLAIMS: Final = (
    table(
        "Device to claim",
        "Each device that a claim uses, by DRA; once for each where several share it.",
        Query(_claimed()),
        columns={
            "instance": "instance",
            "resource": "resource",
            "device": "device",
            "namespace": "namespace",
            "claim": "claim",
            "request": "request",
        },
        width=24,
    ),
    lines(
        "Prepare, by result",
        "All but prepared ones are pods that wait for a minute or more.",
        _driver_rate("devplug_claim_prepares_total"),
        width=8,
    ),
    lines(
        "Unprepare, by result",
        "All but unprepared ones are pods that stay Terminating.",
        _driver_rate("devplug_claim_unprepares_total"),
        width=8,
    ),
    lines(
        "Prepare and unprepare, p99",
        "A pod's start waits for the first, its end for the second.",
        _driver_p99("devplug_claim_prepare_duration_seconds", "prepare"),
        _driver_p99("devplug_claim_unprepare_duration_seconds", "unprepare"),
        width=8,
        unit="s",
    ),
    lines(
        "Claims and slices",
        "Claims that use devices, and ResourceSlices that are published.",
        Query(f"sum by (driver) (devplug_claims{{{_NODE}}})", "{{driver}} claims"),
        Query(f"sum by (driver) (devplug_slices{{{_NODE}}})", "{{driver}} slices"),
        width=8,
        is_stepped=True,
    ),
    lines(
        "Age of stale slices",
        "For how long slices have not said what there is; 0 is well.",
        Query(f"devplug_slices_stale_seconds{{{_NODE}}}", "{{instance}} {{driver}}"),
        width=8,
        unit="s",
    ),
    lines(
        "Tainted devices",
        "Unhealthy devices that no new claim gets; pods may still have one.",
        _summed("devplug_devices_tainted"),
        width=8,
        is_stepped=True,
    ),
)

_KUBELET: Final = (
    timeline(
        "Registered",
        "Whether the kubelet has accepted the resource and reads its list.",
        Query(f"devplug_registered{{{_ALL}}}", "{{instance}} {{resource}}"),
        words={1: ("registered", "green"), 0: ("not registered", "red")},
        width=12,
        height=8,
    ),
    lines(
        "Registrations, by result",
        "Many accepted ones mean that kubelets restart.",
        _rate("devplug_registrations_total", "resource, result", "{{resource}} {{result}}"),
        width=12,
    ),
    lines(
        "Age of PodResources' answer",
        "How old the last answer about holders is; the kubelet is asked every few seconds.",
        Query(f"devplug_podresources_age_seconds{{{_NODE}}}", "{{instance}}"),
        width=12,
        unit="s",
    ),
    lines(
        "Errors of PodResources",
        "Calls of the kubelet without an answer, by trouble.",
        Query(
            "sum by (instance, trouble) "
            f"(increase(devplug_podresources_errors_total{{{_NODE}}}[$__rate_interval]))",
            "{{instance}} {{trouble}}",
        ),
        width=12,
    ),
)

_PROCESS: Final = (
    stat(
        "Ready",
        "Whether every resource of a daemon is registered and read; /readyz says which is not.",
        Query(f"devplug_ready{{{_NODE}}}", "{{instance}}"),
        width=6,
        words={1: ("ready", "green"), 0: ("not ready", "red")},
    ),
    stat(
        "Configuration",
        "Whether the configuration file as it is now is in effect.",
        Query(f"devplug_config_last_reload_successful{{{_NODE}}}", "{{instance}}"),
        width=6,
        words={1: ("served", "green"), 0: ("refused", "red")},
    ),
    stat(
        "Configuration read",
        "When a configuration file was last read and applied.",
        Query(f"devplug_config_last_reload_success_timestamp_seconds{{{_NODE}}} * 1000", "{{instance}}"),
        width=6,
        unit="dateTimeFromNow",
    ),
    stat(
        "Without series",
        "Devices that have no series of their own, because there are too many.",
        _summed("devplug_device_series_omitted"),
        width=6,
    ),
    table(
        "Versions",
        "Which devplug runs where.",
        Query(f"devplug_build_info{{{_NODE}}}"),
        columns={"job": "job", "instance": "instance", "version": "devplug", "python": "Python"},
        width=12,
        height=6,
    ),
    lines(
        "Changes of the configuration",
        "By whether they were applied.",
        Query(
            "sum by (instance, result) "
            f"(increase(devplug_config_reloads_total{{{_NODE}}}[$__rate_interval]))",
            "{{instance}} {{result}}",
        ),
        width=12,
        height=6,
    ),
)

_ROWS: Final = (
    ("Devices by resource", _OVERVIEW),
    ("Devices", _DEVICES),
    ("Calls about containers", _CALLS),
    ("Claims", _CLAIMS),
    ("Kubelet", _KUBELET),
    ("Processes", _PROCESS),
)


def dashboard_text() -> str:
    """Return the dashboard as the JSON that Grafana imports."""
    variables: list[Value] = [
        datasource_choice(),
        choice("job", "Job", "label_values(devplug_build_info, job)"),
        choice("instance", "Instance", 'label_values(devplug_build_info{job=~"$job"}, instance)'),
        choice("resource", "Resource", f"label_values(devplug_devices{{{_NODE}}}, resource)"),
    ]
    board: Value = {
        "uid": "devplug-devices",
        "title": "devplug: devices and who holds them",
        "description": "Devices of device plugins, their health, the pods that hold them, and the plugins.",
        "tags": ["devplug", "kubernetes", "devices"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "templating": {"list": variables},
        "annotations": {"list": []},
        "links": [],
        "panels": panels_of(_ROWS),
    }
    return json.dumps(board, indent=2) + "\n"
