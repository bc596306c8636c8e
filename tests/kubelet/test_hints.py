"""On which NUMA nodes a request can be met: against a naive account of it, and what is allocated already."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.devices import ContainerResponse
from devplug.errors import KubeletCrashError
from devplug.k8s.pod_requests import ALWAYS
from devplug.kubelet.allocation import DeviceAllocations, Need
from devplug.kubelet.claim_references import ExtendedClaim, RequestMapping
from devplug.kubelet.hints import container_hints, hints_for, pod_hints
from devplug.kubelet.pods import Container, Pod
from devplug.kubelet.resources import UNKNOWN, disconnected, listed
from devplug.kubelet.topology import Hints, TopologyHint, mask_of, nodes_of
from devplug.wire.values import AdvertisedDevice
from tests.kubelet.fakes import OTHER_RESOURCE, RESOURCE, Devices, healthy, pod, unhealthy

Nodes = tuple[int, ...]
Said = list[tuple[Nodes, bool]]
"""Each hint as its nodes, and whether it is preferred."""


def device(device_id: str, *nodes: int, health: str = "Healthy") -> AdvertisedDevice:
    return AdvertisedDevice(device_id, health, nodes)


def said(hints: Hints) -> Said | None:
    if hints is None:
        return None
    assert all(hint.mask for hint in hints)
    return [(nodes_of(hint.mask or 0), hint.is_preferred) for hint in hints]


# ── the specification: the text of kubelet.md 6.2, step by step ───────────────────────────────────


def naive_hints(
    devices: Mapping[str, AdvertisedDevice],
    available: Collection[str],
    reusable: Collection[str],
    required: int,
    machine_nodes: Sequence[int],
) -> Said:
    def touches(device_id: str, mask: Nodes) -> bool:
        return any(node in mask for node in devices[device_id].numa_nodes or ())

    hosting = {node for one in devices.values() for node in one.numa_nodes or ()}
    space = sorted(hosting.intersection(machine_nodes)) or sorted(machine_nodes)
    minimum = len(space)
    found: list[Nodes] = []
    for mask in (one for size in range(1, len(space) + 1) for one in combinations(space, size)):
        total = sum(touches(device_id, mask) for device_id in devices)
        if total >= required and len(mask) < minimum:
            minimum = len(mask)
        # A topology that is there and names no node still has to touch (topology_hints.go asks for nil).
        bound = [device_id for device_id in reusable if devices[device_id].numa_nodes is not None]
        if not all(touches(device_id, mask) for device_id in bound):
            continue
        if len(bound) + sum(touches(device_id, mask) for device_id in available) >= required:
            found.append(mask)
    return [(mask, len(mask) == minimum) for mask in found]


@given(st.data())
def test_hints_are_what_going_through_all_sets_of_nodes_finds(data: st.DataObject) -> None:
    """C88, too: what could be on one node if it were free is preferred there alone."""
    nodes = st.none() | st.lists(st.integers(0, 5), unique=True, max_size=3).map(tuple)
    ids = st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True)
    healths = st.sampled_from(["Healthy", "Unhealthy"])
    devices = {
        one: AdvertisedDevice(one, data.draw(healths), data.draw(nodes, label=f"nodes of {one}"))
        for one in data.draw(ids)
    }
    some = st.sets(st.sampled_from(sorted(devices)))
    available, reusable = data.draw(some, label="available"), data.draw(some, label="reusable")
    required = data.draw(st.integers(0, 6), label="required")
    machine_nodes = sorted(data.draw(st.sets(st.integers(0, 4), min_size=1), label="machine"))
    hints = hints_for(devices, available, reusable, required, machine_nodes, compat=True)
    assert said(hints) == naive_hints(devices, available, reusable, required, machine_nodes)


# ── case by case ──────────────────────────────────────────────────────────────────────────────────


def fresh(devices: Devices, required: int, machine_nodes: Sequence[int] = (0, 1)) -> Said | None:
    """The hints where nothing is in use."""
    by_id = {one.id: one for one in devices}
    return said(hints_for(by_id, by_id, (), required, machine_nodes, compat=True))


def test_thirty_six_nodes_are_no_trouble_if_devices_are_on_eight() -> None:
    """Such a machine has 2**36 sets of nodes; 1.36 looks at the 255 that can matter."""
    devices = tuple(device(f"gpu{node}", node) for node in range(0, 36, 5))
    hints = fresh(devices, 1, range(36))
    assert hints is not None
    assert len(hints) == 2 ** len(devices) - 1
    assert [nodes for nodes, is_preferred in hints if is_preferred] == [(node,) for node in range(0, 36, 5)]
    assert fresh(devices, 8, range(36)) == [(tuple(range(0, 36, 5)), True)]


@pytest.mark.parametrize("machine_nodes", [(0, 1), range(36)])
@pytest.mark.parametrize("required", [1, 2])
def test_devices_on_unknown_nodes_alone_cannot_be_placed(required: int, machine_nodes: Sequence[int]) -> None:
    """However many nodes the machine has: none of them needs to be looked at to know that."""
    assert fresh((device("a", 46), device("b", 47)), required, machine_nodes) == []


def test_more_nodes_than_can_be_gone_through_end_the_kubelet() -> None:
    """The real one goes through 2**n sets of nodes, and runs out of memory on the way."""
    devices = {f"d{node}": device(f"d{node}", node) for node in range(21)}
    with pytest.raises(KubeletCrashError, match=r"2\*\*21 subsets"):
        hints_for(devices, devices, (), 1, range(21), compat=True)
    assert hints_for(devices, devices, (), 1, range(21), compat=False) is None


# ── reuse ─────────────────────────────────────────────────────────────────────────────────────────


# ── what is allocated adds ────────────────────────────────────────────────────────────────────────────

ON_BOTH = (device("a", 0), device("b", 0), device("c", 1), device("d", 1))


def allocated(devices: Devices, resource_name: str = RESOURCE) -> DeviceAllocations:
    allocations = DeviceAllocations()
    allocations.update(resource_name, listed(UNKNOWN, devices))
    return allocations


def give(allocations: DeviceAllocations, pod_uid: str, container_name: str, *device_ids: str) -> None:
    """Assign these devices, as after an Allocate."""
    need = Need(pod_uid, container_name, RESOURCE, len(device_ids))
    allocations.assign(need, device_ids, ContainerResponse(), compat=True)
    allocations.release_unassigned()


def of_container(allocations: DeviceAllocations, whole: Pod, name: str = "c") -> dict[str, Hints]:
    return container_hints(allocations, whole, whole.container(name), [0, 1], compat=True)


def of_pod(allocations: DeviceAllocations, whole: Pod) -> dict[str, Hints]:
    return pod_hints(allocations, whole, [0, 1], compat=True)


@pytest.mark.parametrize("devices", [(), healthy("a"), (device("a"),)])
def test_a_resource_without_any_numa_node_does_not_care(devices: Devices) -> None:
    """C89."""
    assert (
        of_container(allocated(devices), pod("u")) == of_pod(allocated(devices), pod("u")) == {RESOURCE: None}
    )


def test_an_unhealthy_device_with_a_node_is_enough_to_care() -> None:
    assert of_container(allocated((*healthy("a"), device("b", 0, health="Unhealthy"))), pod("u")) == {
        RESOURCE: []
    }


def test_names_that_no_plugin_ever_served_get_no_hints() -> None:
    assert of_container(allocated(ON_BOTH), pod("u", resource_name=OTHER_RESOURCE)) == {}
    assert of_pod(allocated(ON_BOTH), pod("u", resource_name="cpu")) == {}


def test_too_few_devices_are_impossible() -> None:
    allocations = allocated((*ON_BOTH, *unhealthy("e")))
    give(allocations, "other", "c", "a")
    assert of_container(allocations, pod("u", 3)) == {
        RESOURCE: [TopologyHint(mask_of([0, 1]), is_preferred=True)]
    }
    assert of_container(allocations, pod("u", 4)) == of_pod(allocations, pod("u", 4)) == {RESOURCE: ()}


def test_a_lost_plugin_makes_its_resource_impossible() -> None:
    allocations = allocated(ON_BOTH)
    allocations.update(RESOURCE, disconnected(allocations.state(RESOURCE)))
    assert of_container(allocations, pod("u")) == {RESOURCE: ()}


def test_a_container_that_has_its_devices_gets_hints_from_exactly_those() -> None:
    allocations = allocated(ON_BOTH)
    give(allocations, "u", "c", "c", "d")
    assert said(of_container(allocations, pod("u", 2))[RESOURCE]) == [((1,), True), ((0, 1), False)]
    assert of_container(allocations, pod("u", 2)) == of_pod(allocations, pod("u", 2))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_container_that_has_another_number_of_devices_is_impossible(count: int) -> None:
    allocations = allocated(ON_BOTH)
    give(allocations, "u", "c", "c", "d")
    assert (
        of_container(allocations, pod("u", count)) == of_pod(allocations, pod("u", count)) == {RESOURCE: ()}
    )


def test_a_limit_of_nought_gets_hints_too() -> None:
    assert said(of_container(allocated(ON_BOTH), pod("u", 0))[RESOURCE]) == [
        ((0,), True),
        ((1,), True),
        ((0, 1), False),
    ]


def test_a_limit_that_dra_serves_gets_hints_too() -> None:
    """C79, from the other side: only the allocation skips it."""
    claim = ExtendedClaim("u-extended-resources-x", (RequestMapping("c", RESOURCE),))
    whole = Pod("u", "u", containers=pod("u").containers, extended_claim=claim)
    assert of_container(allocated(ON_BOTH), whole)[RESOURCE]
    assert of_pod(allocated(ON_BOTH), whole)[RESOURCE]


def test_a_held_device_that_left_the_list_crashes_the_kubelet() -> None:
    """Manager.go looks it up without a check, when hints for its container are asked for again."""
    allocations = allocated(ON_BOTH)
    give(allocations, "u", "c", "a")
    allocations.update(RESOURCE, listed(allocations.state(RESOURCE), ON_BOTH[1:]))
    with pytest.raises(KubeletCrashError, match=r"generateDeviceTopologyHints"):
        of_container(allocations, pod("u"))
    assert container_hints(allocations, pod("u"), pod("u").containers[0], [0, 1], compat=False) == {
        RESOURCE: []
    }


def test_what_init_containers_left_over_counts_as_available_for_a_container_only() -> None:
    init, app = Container("i", {RESOURCE: 2}), Container("c", {RESOURCE: 3})
    whole = Pod("u", "u", init_containers=(init,), containers=(app,))
    allocations = allocated(ON_BOTH[1:])
    allocations.begin_container("u")
    give(allocations, "u", "i", "b", "c")
    allocations.end_container("u", "i", runs_to_its_end=True, compat=True)
    assert said(of_container(allocations, whole)[RESOURCE]) == [((0, 1), True)]
    assert of_pod(allocations, whole) == {RESOURCE: ()}
    assert of_container(allocations, pod("v", 2)) == {RESOURCE: ()}


def test_what_the_containers_of_a_pod_have_is_one_set_to_pod_hints() -> None:
    two = (Container("c1", {RESOURCE: 1}), Container("c2", {RESOURCE: 1}))
    allocations = allocated(ON_BOTH)
    give(allocations, "u", "c1", "a")
    give(allocations, "u", "c2", "c")
    assert said(of_pod(allocations, Pod("u", "u", containers=two))[RESOURCE]) == [((0, 1), False)]


# ── what a pod asks for ───────────────────────────────────────────────────────────────────────────


containers = st.lists(
    st.tuples(st.booleans(), st.dictionaries(st.sampled_from(["x.com/a", "x.com/b"]), st.integers(0, 4))),
    max_size=5,
)


@given(containers, containers)
def test_a_pod_asks_for_its_peak(
    init: list[tuple[bool, dict[str, int]]], apps: list[tuple[bool, dict[str, int]]]
) -> None:
    """Kubelet.md 6.3: apps and sidecars together, or an init container with the sidecars before it."""
    whole = Pod(
        "u",
        "u",
        init_containers=tuple(
            Container(f"i{place}", limits, ALWAYS if is_sidecar else None)
            for place, (is_sidecar, limits) in enumerate(init)
        ),
        containers=tuple(Container(f"c{place}", limits) for place, (_, limits) in enumerate(apps)),
    )
    names = {name for _, limits in (*init, *apps) for name in limits}

    def peak(name: str) -> int:
        sidecars = [limits.get(name, 0) if is_sidecar else 0 for is_sidecar, limits in init]
        together = sum(limits.get(name, 0) for _, limits in apps) + sum(sidecars)
        alone = [
            limits.get(name, 0) + sum(sidecars[:place])
            for place, (is_sidecar, limits) in enumerate(init)
            if not is_sidecar
        ]
        return max([together, *alone])

    assert whole.limits() == {name: peak(name) for name in names}
