"""The kubelet's own metrics, under the names that its /metrics has; one set for each kubelet process."""

from __future__ import annotations

from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Final

from devplug.errors import RemoteError
from devplug.metrics.exposition import Form, exposition
from devplug.metrics.families import Counts, Family, Histogram, Kind, Metric, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_ALLOCATE_BOUNDS_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The buckets that Go's client has by default."""

_ADMISSION_BOUNDS_MS: Final = tuple(0.05 * 2**power for power in range(15))

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


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, text, labels=labels)


_REGISTRATIONS: Final = _counter(
    "kubelet_device_plugin_registration_total",
    "Cumulative number of device plugin registrations. Broken down by resource name.",
    "resource_name",
)
_ALLOCATIONS: Final = Metric(
    "kubelet_device_plugin_alloc_duration_seconds",
    Kind.HISTOGRAM,
    "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
    "seconds",
    ("resource_name",),
)
_REJECTIONS: Final = _counter(
    "kubelet_admission_rejections_total", "Pods that the kubelet refused.", "reason"
)
_ADMISSIONS: Final = _counter(
    "kubelet_topology_manager_admission_requests_total", "Pods that the topology manager was asked about."
)
_ADMISSION_ERRORS: Final = _counter(
    "kubelet_topology_manager_admission_errors_total",
    "Pods that the topology manager refused, or could not allocate for.",
)
_ADMISSION_DURATION: Final = Metric(
    "kubelet_topology_manager_admission_duration_ms",
    Kind.HISTOGRAM,
    "Duration of the topology manager's admission of a pod.",
)
_ALIGNED: Final = _counter(
    "kubelet_container_aligned_compute_resources_count",
    "Containers or pods placed on one NUMA node.",
    *("scope", "boundary"),
)
_NOT_ALIGNED: Final = _counter(
    "kubelet_container_aligned_compute_resources_failure_count",
    "Containers or pods that could not be placed on one NUMA node.",
    *("scope", "boundary"),
)
_PLUGINS: Final = Metric(
    "plugin_manager_total_plugins",
    Kind.GAUGE,
    "Sockets in plugins_registry.",
    labels=("socket_path", "state"),
)
_POD_RESOURCES_REQUESTS: Final = _counter(
    "kubelet_pod_resources_endpoint_requests_total",
    "Calls of monitors, whichever they were.",
    "server_api_version",
)
_POD_RESOURCES_CALLS: Final = {
    f"{kind}_{call}": _counter(
        f"kubelet_pod_resources_endpoint_{kind}_{call}",
        "Calls of monitors, by call and outcome.",
        "server_api_version",
    )
    for kind in ("requests", "errors")
    for call in ("list", "get", "get_allocatable")
}
_DRA_BOUNDS_SECONDS: Final = tuple(0.1 * 400 ** (step / 14) for step in range(15))
"""From 0.1 to 40 s; a call may take 45."""
_DRA_OPERATIONS: Final = Metric(
    "dra_operations_duration_seconds",
    Kind.HISTOGRAM,
    "Duration of preparing and unpreparing the claims of a pod.",
    "seconds",
    ("operation_name", "is_error"),
)
_DRA_CALLS: Final = Metric(
    "dra_grpc_operations_duration_seconds",
    Kind.HISTOGRAM,
    "Duration of the calls to DRA drivers.",
    "seconds",
    ("driver_name", "method_name", "grpc_status_code"),
)
_DRA_CLAIMS: Final = Metric(
    "dra_resource_claims_in_use",
    Kind.GAUGE,
    "Claims that pods of the node use, by driver and in all.",
    labels=("driver_name",),
)


class KubeletMetrics:
    """Counters of one kubelet process. Lives as long as that; the next process starts at 0."""

    def __init__(self) -> None:
        self._counts = {
            metric: Counts()
            for metric in (
                *(_REGISTRATIONS, _REJECTIONS, _ADMISSIONS, _ADMISSION_ERRORS, _ALIGNED, _NOT_ALIGNED),
                *(_POD_RESOURCES_REQUESTS, *_POD_RESOURCES_CALLS.values()),
            )
        }
        for metric in (_ADMISSIONS, _ADMISSION_ERRORS):
            self._counts[metric].begin()
        self._allocations: dict[str, Histogram] = {}
        self._admission_duration = Histogram(_ADMISSION_BOUNDS_MS)
        self._plugins: tuple[Sample, ...] = ()
        self._dra: dict[Metric, dict[tuple[str, ...], Histogram]] = {_DRA_OPERATIONS: {}, _DRA_CALLS: {}}
        self._claims: tuple[Sample, ...] = ()

    # ── what happens ──

    def count_registration(self, resource_name: str) -> None:
        """Count a call of Register, also one that is refused."""
        self._counts[_REGISTRATIONS].add(resource_name)

    def registrations(self) -> dict[str, int]:
        """Return how often Register was called with each resource name."""
        return {name: int(count) for (name,), count in self._counts[_REGISTRATIONS].samples()}

    @contextmanager
    def measure_allocate(self, resource_name: str) -> Iterator[None]:
        """Measure a call of Allocate, also one that fails."""
        began = perf_counter()
        try:
            yield
        finally:
            histogram = self._allocations.setdefault(resource_name, Histogram(_ALLOCATE_BOUNDS_SECONDS))
            histogram.observe(perf_counter() - began)

    def count_admission(self) -> None:
        """Count a pod that the topology manager is asked about."""
        self._counts[_ADMISSIONS].add()

    def count_admission_error(self) -> None:
        """Count a pod that the topology manager refuses or cannot allocate for."""
        self._counts[_ADMISSION_ERRORS].add()

    def observe_admission(self, milliseconds: int) -> None:
        """Count how long an admission took."""
        self._admission_duration.observe(milliseconds)

    def count_topology_scopes(self) -> None:
        """Show the alignment counters with 0, as the topology manager does unless its policy is `none`."""
        for scope in ("container", "pod"):
            self._counts[_ALIGNED].begin(scope, "numa_node")
            self._counts[_NOT_ALIGNED].begin(scope, "numa_node")

    def count_alignment(self, scope: str, *, is_aligned: bool) -> None:
        """Count a container or pod, as `scope` says, that was placed on one NUMA node or could not be."""
        self._counts[_ALIGNED if is_aligned else _NOT_ALIGNED].add(scope, "numa_node")

    def count_rejection(self, reason: str) -> None:
        """Count a refused pod; reasons that name a resource become one label."""
        if reason not in _REJECTION_REASONS:
            reason = "OutOfExtendedResources" if reason.startswith("OutOf") else "Other"
        self._counts[_REJECTIONS].add(reason)

    def show_plugins(self, sockets: Iterable[tuple[str, str]]) -> None:
        """Show these sockets of `plugins_registry`, path and state of each, and no others."""
        self._plugins = tuple(Sample(labels, 1) for labels in sockets)

    def count_pod_resources_call(self, version: str, call: str | None) -> None:
        """Count a monitor's call: `list`, `get` or `get_allocatable` of API `v1`.

        None is the List of `v1alpha1`, which has no counter of its own (server_v1alpha1.go).
        """
        self._counts[_POD_RESOURCES_REQUESTS].add(version)
        if call is not None:
            self._counts[_POD_RESOURCES_CALLS[f"requests_{call}"]].add(version)

    def count_pod_resources_error(self, version: str, call: str) -> None:
        """Count a monitor's call that failed."""
        self._counts[_POD_RESOURCES_CALLS[f"errors_{call}"]].add(version)

    @contextmanager
    def measure_dra(self, operation: str) -> Iterator[None]:
        """Measure `PrepareResources` or `UnprepareResources` of one pod, also one that fails."""
        began, is_error = perf_counter(), "true"
        try:
            yield
            is_error = "false"
        finally:
            self._observe(_DRA_OPERATIONS, (operation, is_error), began)

    @contextmanager
    def measure_dra_call(self, driver: str, method: str) -> Iterator[None]:
        """Measure one call to a DRA driver, also one that fails."""
        began, status = perf_counter(), "OK"
        try:
            yield
        except RemoteError as error:
            status = error.status
            raise
        except BaseException:
            status = "Canceled"
            raise
        finally:
            self._observe(_DRA_CALLS, (driver, method, status), began)

    def _observe(self, metric: Metric, labels: tuple[str, ...], began: float) -> None:
        duration = self._dra[metric].setdefault(labels, Histogram(_DRA_BOUNDS_SECONDS))
        duration.observe(perf_counter() - began)

    def show_claims(self, counts: Mapping[str, int]) -> None:
        """Show how many claims are in use, by driver name."""
        self._claims = tuple(Sample((driver,), count) for driver, count in counts.items())

    # ── what was counted ──

    def families(self) -> tuple[Family, ...]:
        """Return all of them as they are now."""
        allocations = [one.sample(name) for name, one in sorted(self._allocations.items())]
        return (
            *(Family(metric, counts.samples()) for metric, counts in self._counts.items()),
            Family(_ALLOCATIONS, allocations),
            Family(_ADMISSION_DURATION, [self._admission_duration.sample()]),
            Family(_PLUGINS, self._plugins),
            *(
                Family(metric, [one.sample(*labels) for labels, one in sorted(found.items())])
                for metric, found in self._dra.items()
            ),
            Family(_DRA_CLAIMS, self._claims),
        )

    def find(self, name: str, **labels: str) -> float | None:
        """Return a sample by its full name and labels, as `value`; None if nothing was counted yet."""
        for family in self.families():
            metric = family.metric
            suffix = name.removeprefix(metric.name)
            if metric.kind is Kind.HISTOGRAM:
                if name.startswith(metric.name) and suffix in {"_sum", "_count"}:
                    return _found(family, labels, suffix.removeprefix("_"))
            elif name == metric.name:
                return _found(family, labels, "value")
        raise KeyError(name)

    def value(self, name: str, **labels: str) -> float:
        """Return a sample by its full name and labels; 0 if nothing was counted yet.

        Of a histogram there are `_sum` and `_count`. Raises `KeyError` for a name that the kubelet does not
        have.
        """
        return self.find(name, **labels) or 0.0

    def exposition(self) -> str:
        """Return all of them in Prometheus' text format."""
        return exposition(self.families(), Form.TEXT).decode()


def _found(family: Family, labels: dict[str, str], field: str) -> float | None:
    for sample in family.samples:
        if dict(zip(family.metric.labels, sample.labels, strict=True)) == labels:
            return float(getattr(sample, field))
    return None
