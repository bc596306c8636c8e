"""What the kubelet counts, under the names of its own /metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from devplug.devices import ContainerResponse
from devplug.errors import RemoteError
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.metrics import KubeletMetrics
from devplug.kubelet.pods import Container, Pod
from devplug.kubelet.topology import NodeHardware, NumaNode, Policy, Scope, TopologySettings
from devplug.wire.values import AdvertisedDevice, PluginOptions
from tests.kubelet.fakes import (
    OTHER_RESOURCE,
    RESOURCE,
    Clock,
    Ids,
    healthy,
    pod,
    refuse,
    registered,
    running,
    served,
)
from tests.virtualtime import in_no_time, passes

TWO_NODES = NodeHardware((NumaNode(0), NumaNode(1)))
APART = tuple(AdvertisedDevice(device_id, "Healthy", (node,)) for device_id, node in (("a", 0), ("b", 1)))

REGISTRATIONS = "kubelet_device_plugin_registration_total"
ALLOCATIONS = "kubelet_device_plugin_alloc_duration_seconds"
ADMISSIONS = "kubelet_topology_manager_admission_requests_total"
ADMISSION_ERRORS = "kubelet_topology_manager_admission_errors_total"
ADMISSION_DURATION = "kubelet_topology_manager_admission_duration_ms"
REJECTIONS = "kubelet_admission_rejections_total"
ALIGNED = "kubelet_container_aligned_compute_resources_count"
NOT_ALIGNED = "kubelet_container_aligned_compute_resources_failure_count"


def allocations(kubelet: Kubelet, resource_name: str = RESOURCE) -> float:
    return kubelet.metrics.value(f"{ALLOCATIONS}_count", resource_name=resource_name)


def admissions(kubelet: Kubelet) -> tuple[float, float, float]:
    """Asked, failed, measured."""
    metrics = kubelet.metrics
    return (
        metrics.value(ADMISSIONS),
        metrics.value(ADMISSION_ERRORS),
        metrics.value(f"{ADMISSION_DURATION}_count"),
    )


def alignments(metrics: KubeletMetrics) -> list[float | None]:
    """Aligned containers and pods, then those that could not be; None for what has not even a 0."""
    return [
        metrics.find(name, scope=scope, boundary="numa_node")
        for name in (ALIGNED, NOT_ALIGNED)
        for scope in ("container", "pod")
    ]


def samples(kubelet: Kubelet, family: str) -> dict[str, float]:
    """What a scrape shows of a metric: label values, joined, → value."""
    (found,) = (
        one
        for one in text_string_to_metric_families(kubelet.metrics.exposition())
        if one.name == family.removesuffix("_total")
    )
    return {
        " ".join(sample.labels.values()): sample.value for sample in found.samples if sample.name == family
    }


# ── plugins ───────────────────────────────────────────────────────────────────────────────────────


async def test_every_register_call_counts_under_the_name_it_was_made_with(short_dir: Path) -> None:
    """C15: refused ones too, so that bad names make labels."""
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")) as plugin:
        assert samples(kubelet, REGISTRATIONS) == {RESOURCE: 1}
        for version, name in (("v2", RESOURCE), ("v1beta1", "gpu"), ("v2", "gpu"), ("v1beta1", "")):
            with pytest.raises(RemoteError):
                await plugin.register(name, version=version)
        assert samples(kubelet, REGISTRATIONS) == {RESOURCE: 2, "gpu": 2, "": 1}
        assert kubelet.registrations("gpu") == 2


async def test_every_allocate_call_is_measured_also_one_that_fails(short_dir: Path) -> None:
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b", "c")) as plugin:
        assert allocations(kubelet) == 0
        two = (Container("c1", {RESOURCE: 1}), Container("c2", {RESOURCE: 1}))
        await kubelet.admit(Pod("u", "u", containers=two))
        assert allocations(kubelet) == 2
        plugin.on_allocate = refuse
        await kubelet.admit(pod("v"))
        assert allocations(kubelet) == 3
        # Neither of these comes to a call.
        await kubelet.admit(pod("w", 99))
        await kubelet.admit(pod("x", 0))
        assert (allocations(kubelet), allocations(kubelet, OTHER_RESOURCE)) == (3, 0)


async def test_other_calls_of_a_plugin_are_not_measured(short_dir: Path) -> None:
    options = PluginOptions(pre_start_required=True, preferred_allocation_available=True)
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a"), options=options):
        before = kubelet.metrics.exposition().count("\n")
        await kubelet.admit(pod("u"))
        after = kubelet.metrics.exposition().count("\n")
        await kubelet.start_container("u", "c")
        assert kubelet.metrics.exposition().count("\n") == after > before
        assert allocations(kubelet) == 1


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        (ALLOCATIONS, [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]),
        (ADMISSION_DURATION, [0.05 * 2**power for power in range(15)]),
    ],
)
async def test_durations_have_the_real_kubelets_buckets(
    short_dir: Path, name: str, bounds: list[float]
) -> None:
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")):
        await kubelet.admit(pod("u"))
        (family,) = (
            one for one in text_string_to_metric_families(kubelet.metrics.exposition()) if one.name == name
        )
        found = [sample.labels["le"] for sample in family.samples if sample.name.endswith("_bucket")]
        assert [float(bound) for bound in found] == [*bounds, float("inf")]


# ── admission ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("policy", "errors"),
    [(Policy.NONE, 0), (Policy.BEST_EFFORT, 1), (Policy.RESTRICTED, 1), (Policy.SINGLE_NUMA_NODE, 2)],
)
@pytest.mark.parametrize("scope", list(Scope))
async def test_every_pod_is_counted_and_a_failure_is_an_error_unless_the_policy_is_none(
    short_dir: Path, policy: Policy, scope: Scope, errors: int
) -> None:
    """A pod without devices, one that gets some, one on two nodes, one that cannot be."""
    async with (
        running(short_dir, machine=TWO_NODES, topology=TopologySettings(policy, scope)) as kubelet,
        registered(kubelet, APART),
    ):
        await kubelet.admit(Pod("plain", "plain", containers=(Container("c"),)))
        await kubelet.admit(pod("one"))
        kubelet.remove_pod("one")
        await kubelet.admit(pod("two", 2))
        kubelet.remove_pod("two")
        await kubelet.admit(pod("three", 3))
        assert admissions(kubelet) == (4, errors, 4)


@in_no_time
async def test_an_admission_is_measured_in_milliseconds(short_dir: Path) -> None:
    """From before the first call of a plugin to after the last one."""

    async def think(_: Ids) -> Sequence[ContainerResponse]:
        await passes(0.25)
        return [ContainerResponse()]

    two = (Container("c1", {RESOURCE: 1}), Container("c2", {RESOURCE: 1}))
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a", "b")) as plugin:
        plugin.on_allocate = think
        await kubelet.admit(Pod("u", "u", containers=two))
        assert kubelet.metrics.value(f"{ADMISSION_DURATION}_sum") == 500


async def test_a_pod_that_the_last_check_refuses_is_no_error_of_topology(short_dir: Path) -> None:
    async with running(short_dir, topology=TopologySettings("best-effort")) as kubelet:
        kubelet.patch_node(OTHER_RESOURCE, 0)
        assert (await kubelet.admit(pod("u", 1, OTHER_RESOURCE))).is_terminal
        assert admissions(kubelet) == (1, 0, 1)


async def test_pods_that_are_admitted_again_count_again(short_dir: Path) -> None:
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")):
        await kubelet.run_pod(pod("u"))
        await kubelet.restart()
        assert admissions(kubelet) == (1, 0, 1)


async def test_refused_pods_are_counted_by_reason(short_dir: Path) -> None:
    """C77, C86: resources are summed up under one label."""
    clock = Clock()
    topology = TopologySettings("single-numa-node")
    async with (
        served(short_dir, APART, clock=clock, machine=TWO_NODES, topology=topology) as (kubelet, _),
        registered(kubelet, healthy("x"), OTHER_RESOURCE, "q"),
    ):
        await kubelet.admit(pod("apart", 2))
        await kubelet.admit(pod("many", 2, OTHER_RESOURCE))
        kubelet.drop_stream(RESOURCE)
        clock.seconds += 301
        kubelet.update_node_status()
        await kubelet.admit(pod("late"))
        kubelet.patch_node("x.com/none", 0)
        await kubelet.admit(pod("none", 1, "x.com/none"))
        assert samples(kubelet, REJECTIONS) == {
            "TopologyAffinityError": 1,
            "UnexpectedAdmissionError": 1,
            "OutOfExtendedResources": 2,
        }


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("OutOfcpu", "OutOfcpu"),
        ("OutOfpods", "OutOfpods"),
        ("OutOfexample.com/a", "OutOfExtendedResources"),
        ("Whatever", "Other"),
    ],
)
def test_only_well_known_reasons_are_labels(reason: str, label: str) -> None:
    metrics = KubeletMetrics()
    metrics.count_rejection(reason)
    assert metrics.value(REJECTIONS, reason=label) == 1
    assert metrics.exposition().count(f"{REJECTIONS}{{") == 1


# ── alignment ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("policy", "scope", "counted"),
    [
        (Policy.NONE, Scope.POD, [None, None, None, None]),
        (Policy.BEST_EFFORT, Scope.CONTAINER, [0, 0, 0, 0]),
        (Policy.RESTRICTED, Scope.POD, [0, 0, 0, 0]),
        (Policy.SINGLE_NUMA_NODE, Scope.CONTAINER, [3, 0, 1, 0]),
        (Policy.SINGLE_NUMA_NODE, Scope.POD, [0, 1, 0, 2]),
    ],
)
async def test_alignment_is_counted_under_single_numa_node_for_its_scope(
    short_dir: Path, policy: Policy, scope: Scope, counted: list[float | None]
) -> None:
    """Two containers on one node each, one without devices, then one that would need both nodes."""
    wanted = {RESOURCE: 1}

    async with (
        running(short_dir, machine=TWO_NODES, topology=TopologySettings(policy, scope)) as kubelet,
        registered(kubelet, APART),
    ):
        await kubelet.admit(Pod("u", "u", containers=(Container("c1", wanted), Container("c2", wanted))))
        kubelet.remove_pod("u")
        await kubelet.admit(Pod("plain", "plain", containers=(Container("c"),)))
        await kubelet.admit(pod("v", 2))
        assert alignments(kubelet.metrics) == counted


async def test_a_container_that_could_not_be_allocated_is_not_counted_as_aligned(short_dir: Path) -> None:
    topology = TopologySettings(Policy.SINGLE_NUMA_NODE)
    async with served(short_dir, APART, machine=TWO_NODES, topology=topology) as (kubelet, plugin):
        plugin.on_allocate = refuse
        await kubelet.admit(pod("u"))
        assert alignments(kubelet.metrics) == [0, 0, 0, 0]
        assert admissions(kubelet) == (1, 1, 1)


# ── whose they are ────────────────────────────────────────────────────────────────────────────────


async def test_each_kubelet_process_begins_at_nought(short_dir: Path) -> None:
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")):
        await kubelet.admit(pod("u"))
        before = kubelet.metrics
        assert allocations(kubelet) == 1
        await kubelet.restart(with_pods=False)
        assert (allocations(kubelet), kubelet.registrations(RESOURCE)) == (0, 0)
        assert before.value(f"{ALLOCATIONS}_count", resource_name=RESOURCE) == 1
    # What was counted last can still be read when nothing runs any more.
    assert kubelet.metrics.value(ADMISSIONS) == 0


async def test_two_kubelets_in_one_process_count_apart(short_dir: Path) -> None:
    async with (
        running(short_dir / "one") as one,
        running(short_dir / "two") as two,
        registered(one, healthy("a")),
    ):
        await one.admit(pod("u"))
        await two.admit(pod("u"))
        assert (one.registrations(RESOURCE), two.registrations(RESOURCE)) == (1, 0)
        assert (allocations(one), allocations(two)) == (1, 0)
        assert admissions(one) == admissions(two) == (1, 0, 1)


def test_what_was_never_counted_is_nought() -> None:
    metrics = KubeletMetrics()
    assert metrics.value(ADMISSIONS) == metrics.value(ADMISSIONS, label="x") == 0


async def test_the_duration_of_an_admission_is_in_whole_milliseconds(short_dir: Path) -> None:
    async with running(short_dir) as kubelet, registered(kubelet, healthy("a")):
        await kubelet.admit(pod("u"))
        assert kubelet.metrics.value("kubelet_topology_manager_admission_duration_ms_sum") % 1 == 0


def test_a_name_that_the_kubelet_does_not_have_is_an_error() -> None:
    with pytest.raises(KeyError, match="kubelet_no_such_total"):
        KubeletMetrics().value("kubelet_no_such_total")
