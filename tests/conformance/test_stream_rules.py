"""What the judge finds wrong with a list: all that is, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from devplug.conformance.rules import stream as rules
from devplug.devices import LIST_LIMIT_BYTES, Device, Health, list_size_bytes
from devplug.exchange import AdvertisedDevice
from devplug.wire.methods import LIST_AND_WATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    Rule = Callable[[Sequence[AdvertisedDevice]], list[str]]

RULES: dict[str, Rule] = {
    "empty ID": rules.empty_id_faults,
    "duplicate": rules.duplicate_faults,
    "health": rules.health_faults,
    "long ID": rules.long_id_faults,
    "awkward ID": rules.awkward_id_faults,
    "NUMA number": rules.numa_faults,
    "empty topology": rules.empty_topology_faults,
    "absent NUMA node": lambda devices: rules.absent_numa_faults(devices, range(8)),
    "size": rules.size_faults,
}

plain = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters=",="))
right_devices = st.builds(
    AdvertisedDevice,
    plain.map(lambda text: f"dev-{text}"[:63]),
    st.sampled_from(["Healthy", "Unhealthy"]),
    st.none() | st.sets(st.integers(0, 7), min_size=1).map(lambda nodes: tuple(sorted(nodes))),
)
right_lists = st.lists(right_devices, unique_by=lambda device: device.id, max_size=6)

FAULTY: dict[str, st.SearchStrategy[AdvertisedDevice]] = {
    "empty ID": st.just(AdvertisedDevice("", "Healthy")),
    "health": st.builds(
        AdvertisedDevice,
        st.just("odd"),
        st.sampled_from(["", "healthy", "HEALTHY", "Healthy ", "Unknown", "unhealthy"]) | plain,
    ).filter(lambda device: device.health not in {"Healthy", "Unhealthy"}),
    "long ID": st.builds(
        AdvertisedDevice, st.integers(64, 300).map(lambda length: "x" * length), st.just("Healthy")
    ),
    "awkward ID": st.builds(
        AdvertisedDevice,
        st.tuples(plain, st.sampled_from(" ,=\t\n\0\x7fäß漢")).map(
            lambda parts: f"{parts[0]}"[:20] + parts[1]
        ),
        st.just("Healthy"),
    ),
    "NUMA number": st.builds(
        AdvertisedDevice,
        st.just("odd"),
        st.just("Healthy"),
        st.tuples(st.integers(-(1 << 63), -1) | st.integers(1024, (1 << 63) - 1)),
    ),
    "empty topology": st.just(AdvertisedDevice("odd", "Healthy", ())),
    "absent NUMA node": st.builds(
        AdvertisedDevice, st.just("odd"), st.just("Healthy"), st.tuples(st.integers(8, 1023))
    ),
}


def broken_rules(devices: Sequence[AdvertisedDevice]) -> dict[str, int]:
    found = {name: len(faults_of(devices)) for name, faults_of in RULES.items()}
    return {name: count for name, count in found.items() if count}


@given(right_lists)
def test_a_right_list_breaks_no_rule(devices: list[AdvertisedDevice]) -> None:
    assert broken_rules(devices) == {}


@pytest.mark.parametrize("rule", FAULTY)
@given(data=st.data())
def test_one_wrong_device_anywhere_breaks_the_one_rule_once(rule: str, data: st.DataObject) -> None:
    devices = data.draw(right_lists)
    odd = data.draw(FAULTY[rule])
    devices.insert(data.draw(st.integers(0, len(devices))), odd)
    assert broken_rules(devices) == {rule: 1}


@given(right_lists, st.data())
def test_an_id_that_stands_there_again_is_told_once(
    devices: list[AdvertisedDevice], data: st.DataObject
) -> None:
    assume(devices)
    again = data.draw(st.sampled_from(devices))
    times = data.draw(st.integers(1, 3))
    assert broken_rules([*devices, *[again] * times]) == {"duplicate": 1}
    assert f"{1 + times} times" in rules.duplicate_faults([*devices, *[again] * times])[0]


# ── size ──


@given(right_lists)
def test_a_list_is_never_larger_than_what_is_reckoned_for_it(devices: list[AdvertisedDevice]) -> None:
    assert len(LIST_AND_WATCH.response.encode(devices)) <= rules.largest_size_bytes(devices)


@given(st.lists(st.integers(0, 1023), min_size=1, max_size=8))
def test_the_size_is_that_which_the_sdk_reckons_for_its_own_lists(nodes: list[int]) -> None:
    listed = [AdvertisedDevice(f"dev-{number}", "Healthy", (node,)) for number, node in enumerate(nodes)]
    own = [Device(one.id, health=Health.healthy(), numa_nodes=one.numa_nodes or ()) for one in listed]
    assert rules.largest_size_bytes(listed) == list_size_bytes(own)


def test_where_one_device_has_a_numa_node_all_are_taken_to_have_one() -> None:
    near, far = AdvertisedDevice("a", "Healthy", (0,)), AdvertisedDevice("b", "Healthy")
    assert rules.largest_size_bytes([near, far]) == 2 * rules.largest_size_bytes([near])


def test_a_list_that_knows_no_numa_node_is_not_charged_for_one() -> None:
    far = AdvertisedDevice("b", "Unhealthy")
    assert rules.largest_size_bytes([far]) == len(LIST_AND_WATCH.response.encode([far]))


def test_the_number_that_is_said_to_fit_fits_and_one_more_does_not() -> None:
    devices = [AdvertisedDevice("x" * 63, "Healthy", (1,))] * 50_000
    (fault,) = rules.size_faults(devices)
    fitting = int(fault.partition("about ")[2].split()[0])
    assert rules.size_faults(devices[:fitting]) == []
    assert rules.largest_size_bytes(devices[: fitting + 1]) > LIST_LIMIT_BYTES


# ── rows of lists ──


@given(st.lists(right_lists, max_size=6), st.randoms(use_true_random=False))
def test_a_list_that_only_changed_its_order_counts_as_a_repeat(
    lists: list[list[AdvertisedDevice]], random: Random
) -> None:
    doubled = [one for devices in lists for one in (devices, _shuffled(devices, random))]
    assert rules.repeats(doubled) == len(lists) + rules.repeats(lists)


def _shuffled(devices: list[AdvertisedDevice], random: Random) -> list[AdvertisedDevice]:
    return sorted(devices, key=lambda _: random.random())


@given(right_lists, st.integers(2, 5))
def test_a_change_in_one_device_makes_another_list(devices: list[AdvertisedDevice], times: int) -> None:
    other = [*devices, AdvertisedDevice("", "Unhealthy")]
    assert rules.repeats([devices, other] * times) == 0


@given(right_lists)
def test_devices_that_come_one_by_one_and_go_one_by_one_do_not_flap(devices: list[AdvertisedDevice]) -> None:
    coming = [devices[:count] for count in range(len(devices) + 1)]
    assert rules.flapping([*coming, *coming[::-1]]) == []


@given(right_lists, st.integers(1, 4), st.data())
def test_a_device_that_goes_and_comes_back_is_told_with_its_number(
    devices: list[AdvertisedDevice], times: int, data: st.DataObject
) -> None:
    assume(devices)
    gone = data.draw(st.sampled_from(devices))
    without = [device for device in devices if device != gone]
    faults = rules.flapping([devices, *[without, without, devices] * times])
    assert len(faults) == 1
    assert (f"came back {times} times" if times > 1 else "came back") in faults[0]


def test_of_many_faults_a_few_are_told_and_the_rest_counted() -> None:
    assert rules.summary(["a", "b"]) == "a; b"
    assert rules.summary(["a", "b", "c", "d", "e"]) == "a; b; c; and 2 more"
