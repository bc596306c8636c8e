"""For each alert, series at which it fires and series at which it must not, as promtool's unit tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.alerts import ALERTS

NODE = 'job="devplug", instance="n1"'
GPU = f'{NODE}, resource="x.com/gpu"'
G0 = f'{GPU}, device="g0"'
AT_NODE = {"job": "devplug", "instance": "n1"}
AT_GPU = {**AT_NODE, "resource": "x.com/gpu"}
AT_G0 = {**AT_GPU, "device": "g0"}
HOLDER = 'namespace="ml", pod="train-0", container="main"'
AT_HOLDER = {"namespace": "ml", "pod": "train-0", "container": "main"}
OURS = 'namespace="kube-system", pod="devplug-x7x", container="devplug"'
AT_OURS = {"namespace": "kube-system", "pod": "devplug-x7x", "container": "devplug"}


@dataclass(frozen=True)
class Fires:
    """What the person on call reads, of which series."""

    labels: Mapping[str, str]
    summary: str


@dataclass(frozen=True)
class Case:
    """Series by name, one value a minute (`1x9` is ten times 1), and what fires after the given minutes."""

    alert: str
    minutes: int
    series: Mapping[str, str]
    fires: Fires | None = None
    since: int = 0
    """In which minute its expression becomes true; a minute before it has waited enough it is quiet."""


def _devices(healthy: str, unhealthy: str) -> dict[str, str]:
    return {
        f'devplug_devices{{{GPU}, state="healthy"}}': healthy,
        f'devplug_devices{{{GPU}, state="unhealthy"}}': unhealthy,
    }


def _allocations(result: str, values: str) -> dict[str, str]:
    return {f'devplug_allocations_total{{{GPU}, result="{result}"}}': values}


def _durations(fast: str, every: str) -> dict[str, str]:
    name = "devplug_allocate_duration_seconds_bucket"
    bounds = {"0.1": fast, "1.0": fast, "2.5": every, "+Inf": every}
    return {f'{name}{{{GPU}, le="{bound}"}}': values for bound, values in bounds.items()}


BUILD = f'devplug_build_info{{{NODE}, version="1", python="3"}}'
UP = f"up{{{NODE}}}"
DRA = f'{NODE}, driver="d.x.com"'
AT_DRA = {**AT_NODE, "driver": "d.x.com"}
AT_CLAIM = {"namespace": "ml", "claim": "one", "request": "r"}
CLAIMED = f'devplug_device_claimed{{{G0}, namespace="ml", claim="one", request="r"}}'
HELD = f"devplug_device_held{{{G0}, {HOLDER}}}"

CASES = (
    Case(
        "DevplugDown",
        9,
        {UP: "1x3 0x9", BUILD: "1x3 stale"},
        Fires(AT_NODE, "devplug at n1 cannot be scraped"),
        since=4,
    ),
    Case("DevplugDown", 6, {UP: "1x3 0x9", BUILD: "1x3 stale"}),  # not long enough
    Case("DevplugDown", 9, {UP: "1x20", BUILD: "1x20"}),
    Case("DevplugDown", 9, {'up{job="node-exporter", instance="n1"}': "0x20"}),  # not ours
    Case("DevplugAbsent", 20, {UP: "0x30"}, Fires({}, "No devplug is scraped at all")),
    Case("DevplugAbsent", 20, {BUILD: "1x30"}),
    Case(
        "DevplugNotReady",
        12,
        {f"devplug_ready{{{NODE}}}": "0x20", f"devplug_registered{{{GPU}}}": "1x20"},
        Fires(AT_NODE, "devplug at n1 is not ready"),
    ),
    Case(  # the other alert has it
        "DevplugNotReady", 12, {f"devplug_ready{{{NODE}}}": "0x20", f"devplug_registered{{{GPU}}}": "0x20"}
    ),
    Case("DevplugNotReady", 12, {f"devplug_ready{{{NODE}}}": "1x20"}),
    Case(
        "DevplugConfigReloadFailed",
        6,
        {f"devplug_config_last_reload_successful{{{NODE}}}": "0x20"},
        Fires(AT_NODE, "devplug at n1 has refused its configuration"),
    ),
    Case("DevplugConfigReloadFailed", 6, {f"devplug_config_last_reload_successful{{{NODE}}}": "1x20"}),
    Case(
        "DevplugNotRegistered",
        7,
        {f"devplug_registered{{{GPU}}}": "1 0x9"},
        Fires(AT_GPU, "x.com/gpu at n1 is not registered with the kubelet"),
        since=1,
    ),
    Case("DevplugNotRegistered", 7, {f"devplug_registered{{{GPU}}}": "0x2 1x9"}),  # a kubelet restarted
    Case(
        "DevplugRegistrationStorm",
        15,
        {f'devplug_registrations_total{{{GPU}, result="accepted"}}': "1+1x30"},
        Fires({**AT_GPU, "result": "accepted"}, "x.com/gpu at n1 has registered 15 times in 15 minutes"),
    ),
    Case(  # two restarts
        "DevplugRegistrationStorm",
        15,
        {f'devplug_registrations_total{{{GPU}, result="accepted"}}': "1x4 2x4 3x20"},
    ),
    Case(  # no kubelet: that is another alert
        "DevplugRegistrationStorm",
        15,
        {f'devplug_registrations_total{{{GPU}, result="unreachable"}}': "1+5x30"},
    ),
    Case(
        "DevplugTakeover",
        3,
        {f"devplug_takeover_suspected{{{GPU}}}": "0x2 1x9"},
        Fires(AT_GPU, "Another plugin has the name x.com/gpu at n1, or fights for it"),
    ),
    Case("DevplugTakeover", 3, {f"devplug_takeover_suspected{{{GPU}}}": "0x20"}),
    Case("DevplugTakeover", 9, {f"devplug_takeover_suspected{{{GPU}}}": "1x3 0x20"}),  # it is over
    Case(
        "DevplugNoHealthyDevice",
        6,
        _devices("0x20", "2x20"),
        Fires(AT_GPU | {"state": "healthy"}, "No device of x.com/gpu at n1 is healthy"),
    ),
    Case("DevplugNoHealthyDevice", 6, _devices("0x20", "0x20")),  # there is none
    Case("DevplugNoHealthyDevice", 6, _devices("1x20", "1x20")),
    Case(
        "DevplugDevicesUnhealthy",
        16,
        _devices("3x20", "2x20"),
        Fires(AT_GPU | {"state": "unhealthy"}, "2 devices of x.com/gpu at n1 are unhealthy"),
    ),
    Case("DevplugDevicesUnhealthy", 16, _devices("0x20", "2x20")),  # the other alert has it
    Case("DevplugDevicesUnhealthy", 16, _devices("5x20", "0x20")),
    Case(
        "DevplugUnhealthyDeviceHeld",
        6,
        {HELD: "1x20", f"devplug_device_healthy{{{G0}}}": "0x20"},
        Fires(AT_G0 | AT_HOLDER, "Pod ml/train-0 holds the unhealthy device g0"),
    ),
    Case(  # as a PodMonitor calls it
        "DevplugUnhealthyDeviceHeld",
        6,
        {
            f"devplug_device_held{{{G0}, {OURS}, "
            'exported_namespace="ml", exported_pod="train-0", exported_container="main"}': "1x20",
            f"devplug_device_healthy{{{G0}, {OURS}}}": "0x20",
        },
        Fires(
            AT_G0 | AT_OURS | {f"exported_{name}": value for name, value in AT_HOLDER.items()},
            "Pod ml/train-0 holds the unhealthy device g0",
        ),
    ),
    Case("DevplugUnhealthyDeviceHeld", 6, {HELD: "1x20", f"devplug_device_healthy{{{G0}}}": "1x20"}),
    Case(
        "DevplugUnhealthyDeviceHeld",
        6,
        {HELD: "1x20", f'devplug_device_healthy{{{GPU}, device="g1"}}': "0x20"},
    ),
    Case(  # one of the same name at another node
        "DevplugUnhealthyDeviceHeld",
        6,
        {HELD: "1x20", f"devplug_device_healthy{{{G0}}}".replace("n1", "n2"): "0x20"},
    ),
    Case(
        "DevplugDeviceFlapping",
        10,
        {f"devplug_device_healthy{{{G0}}}": "1 0 1 0 1 0 1x20"},
        Fires(AT_G0, "Device g0 has changed its health 6 times in 15 minutes"),
    ),
    Case("DevplugDeviceFlapping", 10, {f"devplug_device_healthy{{{G0}}}": "1 0 1 0 1x20"}),
    Case(
        "DevplugCapacityDropped",
        40,
        _devices("4x10 3x60", "0x70"),
        Fires(AT_GPU, "x.com/gpu at n1 has fewer devices than before, 3"),
        since=11,
    ),
    Case("DevplugCapacityDropped", 40, _devices("4x10 3x60", "0x10 1x60")),  # unhealthy, and still there
    Case("DevplugCapacityDropped", 400, _devices("4x10 3x500", "0x510")),  # six hours later
    Case(
        "DevplugDeviceSeriesOmitted",
        16,
        {f"devplug_device_series_omitted{{{GPU}}}": "9000x20"},
        Fires(AT_GPU, "9000 devices of x.com/gpu at n1 have no series of their own"),
    ),
    Case("DevplugDeviceSeriesOmitted", 16, {f"devplug_device_series_omitted{{{GPU}}}": "0x20"}),
    Case(
        "DevplugAllocateFailing",
        5,
        _allocations("failed", "0x2 1x20"),
        Fires(AT_GPU | {"result": "failed"}, "Allocate of x.com/gpu at n1 was not granted (failed)"),
    ),
    Case("DevplugAllocateFailing", 5, _allocations("granted", "0+1x20")),
    Case("DevplugAllocateFailing", 30, _allocations("failed", "0x2 1x40")),  # a while ago
    Case(
        "DevplugAllocateSlow",
        8,
        _durations("0x20", "0+1x20"),
        Fires(AT_GPU, "Allocate of x.com/gpu at n1 takes 2.485s (p99)"),
        since=1,
    ),
    Case("DevplugAllocateSlow", 8, _durations("0+1x20", "0+1x20")),
    Case("DevplugAllocateSlow", 8, _durations("5x20", "5x20")),  # no calls at all
    Case(
        "DevplugPreStartFailing",
        5,
        {f'devplug_pre_starts_total{{{GPU}, result="timed_out"}}': "0x2 1x20"},
        Fires(
            AT_GPU | {"result": "timed_out"}, "PreStartContainer of x.com/gpu at n1 has failed (timed_out)"
        ),
    ),
    Case("DevplugPreStartFailing", 5, {f'devplug_pre_starts_total{{{GPU}, result="finished"}}': "0+1x20"}),
    Case("DevplugPreStartFailing", 5, {f'devplug_pre_starts_total{{{GPU}, result="timed_out"}}': "2x20"}),
    Case(
        "DevplugPrepareFailing",
        5,
        {f'devplug_claim_prepares_total{{{DRA}, result="refused"}}': "0x2 1x20"},
        Fires(AT_DRA | {"result": "refused"}, "d.x.com at n1 did not prepare a claim (refused)"),
    ),
    Case("DevplugPrepareFailing", 5, {f'devplug_claim_prepares_total{{{DRA}, result="prepared"}}': "0+1x20"}),
    Case("DevplugPrepareFailing", 5, {f'devplug_claim_prepares_total{{{DRA}, result="failed"}}': "2x20"}),
    Case(
        "DevplugUnprepareFailing",
        14,
        {f'devplug_claim_unprepares_total{{{DRA}, result="refused"}}': "0+6x20"},
        Fires(AT_DRA | {"result": "refused"}, "d.x.com at n1 cannot end the use of a claim (refused)"),
    ),
    Case(  # tried again, and well
        "DevplugUnprepareFailing",
        14,
        {f'devplug_claim_unprepares_total{{{DRA}, result="refused"}}': "0 1 2x20"},
    ),
    Case(
        "DevplugUnprepareFailing",
        14,
        {f'devplug_claim_unprepares_total{{{DRA}, result="unprepared"}}': "0+6x20"},
    ),
    Case(
        "DevplugSlicesStale",
        8,
        {f"devplug_slices_stale_seconds{{{DRA}}}": "0+60x20"},
        Fires(AT_DRA, "ResourceSlices of d.x.com at n1 are 8m 0s old"),
        since=6,
    ),
    Case("DevplugSlicesStale", 8, {f"devplug_slices_stale_seconds{{{DRA}}}": "0+60x4 0x20"}),
    Case(
        "DevplugTaintedDeviceClaimed",
        6,
        {CLAIMED: "1x20", f"devplug_device_healthy{{{G0}}}": "0x20"},
        Fires(AT_G0 | AT_CLAIM, "Claim ml/one uses the unhealthy device g0"),
    ),
    Case(  # as a PodMonitor calls it
        "DevplugTaintedDeviceClaimed",
        6,
        {
            f"devplug_device_claimed{{{G0}, {OURS}, "
            'exported_namespace="ml", claim="one", request="r"}': "1x20",
            f"devplug_device_healthy{{{G0}, {OURS}}}": "0x20",
        },
        Fires(
            AT_G0 | AT_OURS | {"exported_namespace": "ml", "claim": "one", "request": "r"},
            "Claim ml/one uses the unhealthy device g0",
        ),
    ),
    Case("DevplugTaintedDeviceClaimed", 6, {CLAIMED: "1x20", f"devplug_device_healthy{{{G0}}}": "1x20"}),
    Case(  # the other alert names the pod
        "DevplugTaintedDeviceClaimed",
        6,
        {CLAIMED: "1x20", HELD: "1x20", f"devplug_device_healthy{{{G0}}}": "0x20"},
    ),
    Case(
        "DevplugPodResourcesFailing",
        20,
        {f'devplug_podresources_errors_total{{{NODE}, trouble="absent"}}': "1+1x30"},
        Fires(AT_NODE | {"trouble": "absent"}, "The kubelet at n1 does not tell who holds what (absent)"),
        since=4,
    ),
    Case(  # a kubelet restarted
        "DevplugPodResourcesFailing",
        9,
        {f'devplug_podresources_errors_total{{{NODE}, trouble="absent"}}': "1 2 3x30"},
    ),
    Case(
        "DevplugPodResourcesStale",
        12,
        {f"devplug_podresources_age_seconds{{{NODE}}}": "0+60x30"},
        Fires(AT_NODE, "Who holds what at n1 is 12m 0s old"),
        since=6,
    ),
    Case("DevplugPodResourcesStale", 12, {f"devplug_podresources_age_seconds{{{NODE}}}": "10x30"}),
)

_RULES = {alert.name: alert for alert in ALERTS}


def unit_tests(rules: str) -> dict[str, Any]:
    """All cases as one file of promtool's."""
    return {"rule_files": [rules], "evaluation_interval": "1m", "tests": [_unit_test(case) for case in CASES]}


def _unit_test(case: Case) -> dict[str, Any]:
    looks = {case.minutes: [_expected(case)] if case.fires else []}
    wait = int(_RULES[case.alert].wait.removesuffix("m"))
    if case.fires and wait:
        looks[case.since + wait - 1] = []
        assert case.since + wait <= case.minutes
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": alerts}
            for minute, alerts in sorted(looks.items())
        ],
    }


def _expected(case: Case) -> dict[str, Any]:
    assert case.fires is not None
    rule = _RULES[case.alert].value
    assert isinstance(rule, dict)
    description = rule["annotations"]["description"]
    for name, value in case.fires.labels.items():
        description = description.replace(f"{{{{ $labels.{name} }}}}", value)
    return {
        "exp_labels": {**rule["labels"], **case.fires.labels},
        "exp_annotations": {
            "summary": case.fires.summary,
            "description": description,
            "runbook_url": rule["annotations"]["runbook_url"],
        },
    }
