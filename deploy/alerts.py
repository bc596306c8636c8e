"""The alerts on devplug's metrics: when each fires, and what the person on call reads.

What to do about each is a section of docs/monitoring.md, to which its `runbook_url` leads. Expressions keep
the labels of the series they look at and match by `ignoring`, so that they also hold where series have labels
of a cluster; none names a job, which everybody calls differently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from devplug.k8s.yaml import Value, yaml_text

__all__ = ["ALERTS", "Alert", "prometheus_rule_text", "rules_text"]

RUNBOOKS: Final = "https://github.com/devplug/devplug/blob/main/docs/monitoring.md"

_RESOURCE: Final = "{{ $labels.resource }}"
_DEVICE: Final = "{{ $labels.device }}"
_DRIVER: Final = "{{ $labels.driver }}"
_CLAIM: Final = (
    "{{ with $labels.exported_namespace }}{{ . }}{{ else }}{{ $labels.namespace }}{{ end }}"
    "/{{ $labels.claim }}"
)
_CLAIM_LABELS: Final = "namespace, exported_namespace, claim, request"
_WHERE: Final = "at {{ $labels.instance }}"
_NUMBER: Final = '{{ $value | printf "%.0f" }}'
_HOLDER: Final = (
    "{{ with $labels.exported_pod }}{{ $labels.exported_namespace }}/{{ . }}"
    "{{ else }}{{ $labels.namespace }}/{{ $labels.pod }}{{ end }}"
)
"""Prometheus renames a metric's labels where its scrape sets some of the same name (honor_labels)."""
_HOLDER_LABELS: Final = ", ".join(
    f"{prefix}{label}" for prefix in ("", "exported_") for label in ("namespace", "pod", "container")
)


@dataclass(frozen=True, slots=True)
class Alert:
    """One alerting rule."""

    name: str
    severity: str
    """`critical`: pods cannot get devices; `warning`: somebody should look today; `info`: good to know."""
    wait: str
    """How long the expression has to hold, as Prometheus writes durations."""
    expression: str
    """Lines of PromQL."""
    summary: str
    description: str
    """What it means and what to look at first, each as a template."""

    @property
    def value(self) -> Value:
        """The rule as Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": f"{self.expression}\n",
            "for": self.wait,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{RUNBOOKS}#{self.name.lower()}",
            },
        }


_PROCESS: Final = (
    Alert(
        "DevplugDown",
        "critical",
        "5m",
        "up == 0 and ignoring (version, python) last_over_time(devplug_build_info[1d])",
        f"devplug {_WHERE} cannot be scraped",
        "It served metrics within the last day and does not any more. If the process is gone, the kubelet "
        "has set the node's devices unhealthy and no new pod gets one. Look at its pod and at /healthz.",
    ),
    Alert(
        "DevplugAbsent",
        "warning",
        "15m",
        "absent(devplug_build_info)",
        "No devplug is scraped at all",
        "Prometheus has no target that tells devplug_build_info. Look at the DaemonSet, at the PodMonitor or "
        "the scrape configuration, and at the network policy.",
    ),
    Alert(
        "DevplugNotReady",
        "warning",
        "10m",
        "devplug_ready == 0 unless ignoring (resource) devplug_registered == 0",
        f"devplug {_WHERE} is not ready",
        "Everything is registered, and yet something is wrong, such as a discovery that fails. /readyz and "
        "devplug status say which resource, and why.",
    ),
    Alert(
        "DevplugConfigReloadFailed",
        "warning",
        "5m",
        "devplug_config_last_reload_successful == 0",
        f"devplug {_WHERE} has refused its configuration",
        "The file has changed and cannot be used, so what it said before is still served; after a restart "
        "nothing would be. The log, /readyz and devplug validate say what is wrong, and where.",
    ),
)

_REGISTRATION: Final = (
    Alert(
        "DevplugNotRegistered",
        "critical",
        "5m",
        "devplug_registered == 0",
        f"{_RESOURCE} {_WHERE} is not registered with the kubelet",
        "The node has none of it to give: pods that ask for it stay Pending, or fail at admission. "
        "/readyz and devplug status say why.",
    ),
    Alert(
        "DevplugRegistrationStorm",
        "warning",
        "0m",
        'increase(devplug_registrations_total{result="accepted"}[15m]) > 4',
        f"{_RESOURCE} {_WHERE} has registered {_NUMBER} times in 15 minutes",
        "Each time a kubelet restarted or dropped the stream, and the devices were gone for a moment. Look "
        "at the kubelet's log, and for a second plugin with the same resource name.",
    ),
    Alert(
        "DevplugTakeover",
        "critical",
        "0m",
        "devplug_takeover_suspected == 1",
        f"Another plugin has the name {_RESOURCE} {_WHERE}, or fights for it",
        "Pods that ask for it may get what that plugin says, with the rights of the container runtime, or "
        "fail. devplug status, /status and the audit line in the log name the signs, devices and sockets. "
        "Find that plugin and stop it.",
    ),
)

_DEVICES: Final = (
    Alert(
        "DevplugNoHealthyDevice",
        "critical",
        "5m",
        'devplug_devices{state="healthy"} == 0 and ignoring (state) devplug_devices{state="unhealthy"} > 0',
        f"No device of {_RESOURCE} {_WHERE} is healthy",
        "The node has devices and can give none of them to a pod. devplug status says why each is unhealthy.",
    ),
    Alert(
        "DevplugDevicesUnhealthy",
        "warning",
        "15m",
        'devplug_devices{state="unhealthy"} > 0 and ignoring (state) devplug_devices{state="healthy"} > 0',
        f"{_NUMBER} devices of {_RESOURCE} {_WHERE} are unhealthy",
        "The others can still be given out. devplug status says why each is unhealthy.",
    ),
    Alert(
        "DevplugUnhealthyDeviceHeld",
        "warning",
        "5m",
        f"devplug_device_held\nand ignoring ({_HOLDER_LABELS})\ndevplug_device_healthy == 0",
        f"Pod {_HOLDER} holds the unhealthy device {_DEVICE}",
        f"Its container keeps {_DEVICE} of {_RESOURCE} {_WHERE} and may not work: the kubelet moves nobody. "
        "Mend the device, or delete the pod so that it gets another one.",
    ),
    Alert(
        "DevplugDeviceFlapping",
        "warning",
        "0m",
        "changes(devplug_device_healthy[15m]) > 4",
        f"Device {_DEVICE} has changed its health {_NUMBER} times in 15 minutes",
        f"{_DEVICE} of {_RESOURCE} {_WHERE} comes and goes. Look at cable, power and the kernel's log, or "
        "let its health rule want more failures in a row.",
    ),
    Alert(
        "DevplugCapacityDropped",
        "info",
        "15m",
        "sum without (state) (devplug_devices)\n"
        "< max_over_time((sum without (state) (devplug_devices))[6h:5m])",
        f"{_RESOURCE} {_WHERE} has fewer devices than before, {_NUMBER}",
        "Devices were unplugged or lost, or a change of the configuration dropped them. If that was meant, "
        "there is nothing to do: this ends by itself after six hours.",
    ),
    Alert(
        "DevplugDeviceSeriesOmitted",
        "info",
        "15m",
        "devplug_device_series_omitted > 0",
        f"{_NUMBER} devices of {_RESOURCE} {_WHERE} have no series of their own",
        "There are more devices than the limit of series allows. Counts are complete, and held and unhealthy "
        "devices come first; queries about single devices miss the rest.",
    ),
)

_CALLS: Final = (
    Alert(
        "DevplugAllocateFailing",
        "warning",
        "0m",
        'increase(devplug_allocations_total{result!="granted"}[15m]) > 0',
        f"Allocate of {_RESOURCE} {_WHERE} was not granted ({{{{ $labels.result }}}})",
        "Each one is a pod that failed with UnexpectedAdmissionError and is not tried again; its controller "
        "makes another. The audit line in the log and devplug why POD say the reason.",
    ),
    Alert(
        "DevplugAllocateSlow",
        "warning",
        "5m",
        "histogram_quantile(0.99, rate(devplug_allocate_duration_seconds_bucket[15m])) > 1",
        f"Allocate of {_RESOURCE} {_WHERE} takes {{{{ $value | humanizeDuration }}}} (p99)",
        "The kubelet admits one pod at a time, so every pod of this node waits for it. Look at commands of "
        "the configuration and at what else keeps the machine busy.",
    ),
    Alert(
        "DevplugPreStartFailing",
        "warning",
        "0m",
        'increase(devplug_pre_starts_total{result!="finished"}[15m]) > 0',
        f"PreStartContainer of {_RESOURCE} {_WHERE} has failed ({{{{ $labels.result }}}})",
        "The container did not start, and the kubelet tries again. The log says what the preparation of the "
        "device met.",
    ),
)

_CLAIMS: Final = (
    Alert(
        "DevplugPrepareFailing",
        "warning",
        "0m",
        'increase(devplug_claim_prepares_total{result!="prepared"}[15m]) > 0',
        f"{_DRIVER} {_WHERE} did not prepare a claim ({{{{ $labels.result }}}})",
        "The pod stays Pending with FailedPrepareDynamicResources, and the kubelet tries again after a "
        "minute. Its event and the audit line `not prepared` in the log say why.",
    ),
    Alert(
        "DevplugUnprepareFailing",
        "warning",
        "5m",
        'increase(devplug_claim_unprepares_total{result!="unprepared"}[15m]) > 4',
        f"{_DRIVER} {_WHERE} cannot end the use of a claim ({{{{ $labels.result }}}})",
        "The pod stays Terminating, and nobody else gets the device; the kubelet tries again every ten "
        "seconds. The audit line `not unprepared` in the log says why, as an onRelease that fails.",
    ),
    Alert(
        "DevplugSlicesStale",
        "warning",
        "1m",
        "devplug_slices_stale_seconds > 300",
        f"ResourceSlices of {_DRIVER} {_WHERE} are {{{{ $value | humanizeDuration }}}} old",
        "The scheduler allocates by what was published before: devices that are gone or unhealthy since, and "
        "none that has come. devplug status and the log say what is in the way of writing.",
    ),
    Alert(
        "DevplugTaintedDeviceClaimed",
        "warning",
        "5m",
        f"devplug_device_claimed\nand ignoring ({_CLAIM_LABELS})\ndevplug_device_healthy == 0\n"
        f"unless ignoring (claim, request, {_HOLDER_LABELS})\ndevplug_device_held",
        f"Claim {_CLAIM} uses the unhealthy device {_DEVICE}",
        f"Its pods keep {_DEVICE} of {_RESOURCE} {_WHERE} and may not work; the taint keeps new claims away "
        "only. Mend the device, or delete the pods so that they get another one.",
    ),
)

_HOLDERS: Final = (
    Alert(
        "DevplugPodResourcesFailing",
        "warning",
        "5m",
        "increase(devplug_podresources_errors_total[15m]) > 4",
        f"The kubelet {_WHERE} does not tell who holds what ({{{{ $labels.trouble }}}})",
        "Whatever was held counts as held, and a device that was given back is not cleaned. Look at whether "
        "the folder pod-resources is mounted, and at other monitors that ask too often.",
    ),
    Alert(
        "DevplugPodResourcesStale",
        "warning",
        "5m",
        "devplug_podresources_age_seconds > 300",
        f"Who holds what {_WHERE} is {{{{ $value | humanizeDuration }}}} old",
        "The kubelet has answered before and does not any more. Look at the kubelet, and at the trouble that "
        "devplug_podresources_errors_total names.",
    ),
)

GROUPS: Final[tuple[tuple[str, tuple[Alert, ...]], ...]] = (
    ("devplug-process", _PROCESS),
    ("devplug-registration", _REGISTRATION),
    ("devplug-devices", _DEVICES),
    ("devplug-calls", _CALLS),
    ("devplug-claims", _CLAIMS),
    ("devplug-holders", _HOLDERS),
)

ALERTS: Final[tuple[Alert, ...]] = tuple(alert for _, group in GROUPS for alert in group)
"""All alerts, in the order of their groups."""


def _groups() -> Value:
    return {"groups": [{"name": name, "rules": [one.value for one in group]} for name, group in GROUPS]}


def rules_text() -> str:
    """Return the rule file of a Prometheus."""
    return yaml_text(_groups())


def prometheus_rule_text() -> str:
    """Return the same as an object for the Prometheus operator."""
    return yaml_text(
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {"name": "devplug", "labels": {"app.kubernetes.io/name": "devplug"}},
            "spec": _groups(),
        }
    )
