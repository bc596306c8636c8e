"""One view of what plugins say and what the kubelet lists, of ours and of others."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.monitor.node_view import UNANSWERED, UNKNOWN, joined, physical_devices
from devplug.status import (
    DeviceClaim,
    DeviceStatus,
    Holder,
    NodeStatus,
    PodResourcesStatus,
    ProcessStatus,
    ResourceStatus,
)
from devplug.wire.values import (
    AllocatableResources,
    ClaimResource,
    ContainerDevices,
    ContainerResources,
    DynamicResource,
    PodResources,
)
from tests.monitor.page.nodes import device, held, resource, sick

OURS, THEIRS = "example.com/ours", "vendor.io/theirs"


def process(number: int, *resources: ResourceStatus) -> ProcessStatus:
    return ProcessStatus(process=number, version="1", python="3", started_at=number, resources=resources)


def reported(*ids: str, is_registered: bool = True, held: Sequence[str] = ()) -> ResourceStatus:
    devices = tuple(DeviceStatus(id=one, health="Healthy", is_held=one in held) for one in ids)
    return ResourceStatus(name=OURS, devices=devices, is_registered=is_registered)


def holding(pod: str, name: str, *ids: str) -> PodResources:
    devices = tuple(ContainerDevices(name, (one,)) for one in ids)
    return PodResources(pod, "lab", (ContainerResources("main", devices),))


def node(
    *processes: ProcessStatus,
    pods: Sequence[PodResources] | None = (),
    allocatable: AllocatableResources | None = None,
    trouble: str = "",
) -> NodeStatus:
    return joined("n", 1.0, processes, pods, allocatable, PodResourcesStatus(trouble=trouble))


def test_the_kubelet_says_who_holds_a_device_of_ours() -> None:
    (one,) = node(process(1, reported("a", "b")), pods=[holding("p", OURS, "b")]).resources
    assert [(device.id, device.is_held, device.holders) for device in one.devices] == [
        ("a", False, ()),
        ("b", True, (Holder("lab", "p", "main"),)),
    ]


def test_what_a_process_gave_out_counts_as_held_before_the_kubelet_lists_it() -> None:
    (one,) = node(process(1, reported("a", held=["a"]))).resources
    assert (one.held, one.devices[0].holders) == (1, ())


def test_what_a_process_that_never_asks_gave_out_counts_as_held_until_the_kubelets_next_answer() -> None:
    given = replace(reported("a", held=["a"]), given_at=10.0)
    for answered_at, count in ((None, 1), (10.5, 1), (11.0, 0)):
        told = PodResourcesStatus(answered_at=answered_at)
        (one,) = joined("n", 1.0, [process(1, given)], (), None, told).resources
        assert one.held == count
    asking = replace(process(1, given), pod_resources=PodResourcesStatus(answered_at=1.0))
    (one,) = joined("n", 1.0, [asking], (), None, PodResourcesStatus(answered_at=99.0)).resources
    assert one.held == 1


def test_a_process_that_asks_the_kubelet_itself_is_believed() -> None:
    asking = replace(process(1, reported("a")), pod_resources=PodResourcesStatus(answered_at=1.0))
    (one,) = node(asking, pods=[holding("p", OURS, "a")]).resources
    assert one.devices[0].holders == ()


def test_a_silent_kubelet_leaves_what_the_processes_say() -> None:
    told = reported("a", held=["a"])
    assert node(process(1, told), pods=None).resources == (told,)


def test_of_two_processes_the_registered_one_is_believed() -> None:
    waiting, serving = reported(is_registered=False), reported("a")
    for order in ((process(1, waiting), process(2, serving)), (process(1, serving), process(2, waiting))):
        assert [one.capacity for one in node(*order).resources] == [1]


def test_a_plugin_of_others_is_shown_by_what_the_kubelet_knows_of_it() -> None:
    on_both = (ContainerDevices(THEIRS, ("x",), (0,)), ContainerDevices(THEIRS, ("x",), (1,)))
    given = AllocatableResources(on_both)
    (one,) = node(pods=[holding("p", THEIRS, "x", "gone")], allocatable=given).resources
    assert (one.name, one.is_registered, one.process) == (THEIRS, None, None)
    assert [(device.id, device.health, device.numa_nodes, device.is_held) for device in one.devices] == [
        ("gone", UNKNOWN, (), True),
        ("x", "Healthy", (0, 1), True),
    ]
    assert one.devices[0].reason == "held, but no longer among the devices that the node can allocate"


def test_a_kubelet_too_old_to_tell_what_it_can_give_blames_no_device() -> None:
    (one,) = node(pods=[holding("p", THEIRS, "x")]).resources
    assert [(device.health, device.reason) for device in one.devices] == [(UNKNOWN, "")]


# ── claims ──

DRIVER = "devices.example.com"
CLAIM = DeviceClaim(namespace="lab", name="c", request="r", device="a-1", since=5.0)


def claiming(pod: str, claim: str, *devices: str, driver: str = DRIVER, pool: str = "n") -> PodResources:
    """A pod as the kubelet lists it whose container has devices by a claim."""
    of = tuple(ClaimResource(driver, pool, one) for one in devices)
    return PodResources(
        pod, "lab", (ContainerResources("main", dynamic_resources=(DynamicResource(claim, "lab", of),)),)
    )


def claimed(*claims: DeviceClaim) -> ResourceStatus:
    devices = (
        DeviceStatus(id="a", health="Healthy", is_held=bool(claims), claims=claims),
        DeviceStatus(id="b", health="Healthy"),
    )
    return ResourceStatus(name=OURS, devices=devices, is_registered=True, driver=DRIVER)


def test_the_kubelet_says_which_containers_have_a_device_by_a_claim() -> None:
    pods = [claiming("p", "c", "a-1"), claiming("q", "c", "a-1")]
    for asks in (None, PodResourcesStatus(answered_at=1.0)):
        ours = replace(process(1, claimed(CLAIM)), pod_resources=asks)
        (one,) = node(ours, pods=pods).resources
        first, second = one.devices
        assert first.holders == (Holder("lab", "p", "main"), Holder("lab", "q", "main"))
        assert (first.claims, first.is_held) == ((CLAIM,), True)
        assert (second.holders, second.is_held) == ((), False)


def test_a_claim_uses_its_device_whatever_a_kubelet_lists() -> None:
    given = replace(claimed(CLAIM), given_at=10.0)
    told = PodResourcesStatus(answered_at=99.0)
    (one,) = joined("n", 1.0, [process(1, given)], (), None, told).resources
    assert (one.held, one.devices[0].holders, one.devices[0].claims) == (1, (), (CLAIM,))


def test_a_claim_that_the_driver_does_not_name_yet_is_of_no_other_driver() -> None:
    (one,) = node(process(1, claimed()), pods=[claiming("p", "c", "a-1")]).resources
    assert (one.name, one.held) == (OURS, 0)


def test_devices_of_other_drivers_are_shown_by_what_the_kubelet_lists() -> None:
    theirs = "gpu.example.org"
    pods = [
        claiming("p", "c", "gpu-0", driver=theirs),
        claiming("q", "c", "gpu-0", driver=theirs),
        claiming("q", "d", "gpu-1", driver=theirs, pool="shelf"),
    ]
    ours, other = node(process(1, claimed(CLAIM)), pods=pods, allocatable=AllocatableResources()).resources
    assert ours.name == OURS
    assert (other.name, other.driver, other.is_registered, other.process) == (theirs, theirs, None, None)
    assert [(one.id, one.health, one.reason, one.is_held) for one in other.devices] == [
        ("gpu-0", UNKNOWN, "", True),
        ("shelf/gpu-1", UNKNOWN, "", True),
    ]
    assert [one.pod for one in other.devices[0].holders] == ["p", "q"]
    assert [[claim.name for claim in one.claims] for one in other.devices] == [["c"], ["d"]]


def test_a_driver_of_ours_of_which_no_process_answers_has_that_as_its_fault() -> None:
    pods = [claiming("p", "c", "a-1"), claiming("q", "d", "gpu-0", driver="gpu.example.org")]
    told = PodResourcesStatus(answered_at=1.0)
    found = joined("n", 1.0, [], pods, None, told, has_left=lambda name: name == DRIVER).resources
    assert [(one.name, one.fault) for one in found] == [(DRIVER, UNANSWERED), ("gpu.example.org", "")]


NAMES = st.sampled_from([OURS, THEIRS])
IDS = st.sampled_from("abc")


@given(
    listed=st.sets(IDS),
    held=st.lists(st.tuples(st.sampled_from(["p", "q"]), NAMES, IDS)),
    given_=st.lists(st.tuples(NAMES, IDS)),
)
def test_every_hold_is_shown_once_and_no_device_twice(
    listed: set[str], held: list[tuple[str, str, str]], given_: list[tuple[str, str]]
) -> None:
    status = node(
        process(1, reported(*sorted(listed))),
        pods=[holding(pod, name, device) for pod, name, device in held],
        allocatable=AllocatableResources(tuple(ContainerDevices(name, (device,)) for name, device in given_)),
    )
    shown = [(one.name, device.id) for one in status.resources for device in one.devices]
    assert len(shown) == len(set(shown))
    assert shown == sorted(shown)
    holds = {
        (holder.pod, one.name, device.id)
        for one in status.resources
        for device in one.devices
        for holder in device.holders
    }
    assert holds == set(held)


def test_a_process_that_gets_no_answer_any_more_knows_less_than_we_who_do() -> None:
    told = PodResourcesStatus(answered_at=1.0, trouble="no right to look")
    failing = replace(process(1, reported("a")), pod_resources=told)
    held = [holding("p", OURS, "a")]
    (one,) = node(failing, pods=held).resources
    assert one.devices[0].holders == (Holder("lab", "p", "main"),)
    (one,) = node(failing, pods=held, trouble="nobody answers").resources
    assert one.devices[0].holders == ()


PROCESSES = st.lists(
    st.builds(
        ProcessStatus,
        process=st.integers(1, 3),
        version=st.just("1"),
        python=st.just("3"),
        started_at=st.sampled_from([1.0, 2.0]),
        resources=st.sets(st.sampled_from("xy")).flatmap(
            lambda ids: st.booleans().map(lambda one: (reported(*sorted(ids), is_registered=one),))
        ),
    ),
    unique_by=lambda one: (one.started_at, one.process),
    max_size=4,
)


@given(PROCESSES, st.randoms(use_true_random=False))
def test_in_which_order_processes_answer_makes_no_difference(
    processes: list[ProcessStatus], random: Random
) -> None:
    shuffled = random.sample(processes, len(processes))
    assert node(*processes) == node(*shuffled)


def test_replicas_of_ours_are_one_device() -> None:
    (kvm,) = physical_devices(resource(held("kvm::0"), device("kvm::1"), replicas=2))
    assert (kvm.id, len(kvm.devices), kvm.held) == ("kvm", 2, 1)


def test_an_id_of_ours_that_only_looks_like_a_replica_stays_itself() -> None:
    assert [one.id for one in physical_devices(resource(device("a::0"), device("a::1")))] == ["a::0", "a::1"]


def test_replicas_of_another_plugin_are_known_by_their_looks() -> None:
    found = physical_devices(resource(device("GPU-1::0"), device("GPU-1::1"), device("GPU-2"), process=None))
    assert [(one.id, len(one.devices)) for one in found] == [("GPU-1", 2), ("GPU-2", 1)]


def test_the_worst_replica_says_how_the_device_is() -> None:
    unknown = device("x::1", health="Unknown")
    (found,) = physical_devices(resource(device("x::0"), unknown, sick("x::2"), replicas=3))
    assert found.worst.health == "Unhealthy"
    (found,) = physical_devices(resource(device("x::0"), unknown, replicas=2))
    assert found.worst.health == "Unknown"
