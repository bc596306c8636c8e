"""The kubelet's own metrics, under the names that its /metrics has; one set for each kubelet process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import Metric

__all__ = ["KubeletMetrics"]

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""The buckets that Go's client has by default."""

_REJECTION_REASONS: Final = frozenset(
    (
        "AppArmor",
        "Evicted",
        "InvalidNodeInfo",
        "NodeAffinity",
        "NodeShutdown",
        "OutOfcpu",
        "OutOfephemeral-storage",
        "OutOfmemory",
        "OutOfpods",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "SMTAlignmentError",
        "SysctlForbidden",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    ),
)
"""The reasons that are a label of their own (kubelet/metrics); others are summed up."""


class _Collected(CollectorRegistry):
    """Families of metrics that were collected already."""

    def __init__(self, families: list[Metric]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        return iter(self._families)


class KubeletMetrics:
    """Counters of one kubelet process. Lives as long as that; the next process starts at 0."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.registrations = self._counter(
            "kubelet_device_plugin_registration_total",
            "[ALPHA] Cumulative number of device plugin registrations. Broken down by resource name.",
            ["resource_name"],
        )
        self.allocate_seconds = Histogram(
            "kubelet_device_plugin_alloc_duration_seconds",
            "[ALPHA] Duration in seconds to serve a device plugin Allocation request. "
            "Broken down by resource name.",
            ["resource_name"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._rejections = self._counter(
            "kubelet_admission_rejections_total",
            "Pods that the kubelet refused",
            ["reason"],
        )
        self.admissions = self._counter(
            "kubelet_topology_manager_admission_requests_total",
            "Pods that the topology manager was asked about",
        )
        self.admission_errors = self._counter(
            "kubelet_topology_manager_admission_errors_total",
            "Pods that the topology manager refused, or could not allocate for",
        )
        self.admission_duration_ms = Histogram(
            "kubelet_topology_manager_admission_duration_ms",
            "Duration of the topology manager's admission of a pod",
            buckets=[0.05 * 2**power for power in range(15)],
            registry=self.registry,
        )
        self.aligned = self._odd_counter(
            "kubelet_container_aligned_compute_resources_count",
            "Containers or pods placed on one NUMA node",
            ["scope", "boundary"],
        )
        self.aligned_failures = self._odd_counter(
            "kubelet_container_aligned_compute_resources_failure_count",
            "Containers or pods that could not be placed on one NUMA node",
            ["scope", "boundary"],
        )
        self.plugins = Gauge(
            "plugin_manager_total_plugins",
            "Sockets in plugins_registry",
            ["socket_path", "state"],
            registry=self.registry,
        )
        self.pod_resources_requests = self._counter(
            "kubelet_pod_resources_endpoint_requests_total",
            "Calls of monitors, whichever they were",
            ["server_api_version"],
        )
        self._pod_resources = {
            name: self._odd_counter(
                f"kubelet_pod_resources_endpoint_{name}",
                "Calls of monitors, by call and outcome",
                ["server_api_version"],
            )
            for kind in ("requests", "errors")
            for name in (f"{kind}_list", f"{kind}_get", f"{kind}_get_allocatable")
        }

    def count_topology_scopes(self) -> None:
        """Show the alignment counters with 0, as the topology manager does unless its policy is `none`."""
        for scope in ("container", "pod"):
            self.aligned.labels(scope, "numa_node")
            self.aligned_failures.labels(scope, "numa_node")

    def count_rejection(self, reason: str) -> None:
        """Count a refused pod; reasons that name a resource become one label."""
        if reason not in _REJECTION_REASONS:
            reason = "OutOfExtendedResources" if reason.startswith("OutOf") else "Other"
        self._rejections.labels(reason).inc()

    def count_pod_resources_call(self, call: str, version: str) -> None:
        """Count a monitor's call: `list`, `get` or `get_allocatable`, of API `v1` or `v1alpha1`."""
        self.pod_resources_requests.labels(version).inc()
        self._pod_resources[f"requests_{call}"].labels(version).inc()

    def count_pod_resources_error(self, call: str, version: str) -> None:
        """Count a monitor's call that failed."""
        self._pod_resources[f"errors_{call}"].labels(version).inc()

    def value(self, name: str, **labels: str) -> float:
        """Return a sample by its full name and labels; 0 if nothing was counted yet.

        Raises `KeyError` for a name that the kubelet does not have.
        """
        if not any(name.startswith(family.name) for family in self.registry.collect()):
            raise KeyError(name)
        return self.registry.get_sample_value(name, labels) or 0.0

    def exposition(self) -> str:
        """Return all of them in Prometheus' text format, without the library's own `_created` series."""
        families = list(self.registry.collect())
        for family in families:
            family.samples = [one for one in family.samples if not one.name.endswith("_created")]
        return generate_latest(_Collected(families)).decode()

    def _counter(self, name: str, documentation: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(name, documentation, list(labels), registry=self.registry)

    def _odd_counter(self, name: str, documentation: str, labels: Iterable[str]) -> Gauge:
        """Return a counter without `_total` in its name; the library has none, so it is called a gauge."""
        return Gauge(name, documentation, list(labels), registry=self.registry)
