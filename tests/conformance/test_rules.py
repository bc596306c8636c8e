"""The rules on what a plugin said: lists, preferences, restarts and registrations, by values alone."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from devplug.conformance import rules
from devplug.conformance.checks.registration import endpoint_fault, longest_overlap_seconds, loose_bits
from devplug.conformance.figures import Figures, Scheduling
from devplug.conformance.program import scheduling_of
from devplug.conformance.restart_scenes import dead_sockets, sockets
from devplug.conformance.rules import (
    DESCRIPTORS_MORE,
    MEBIBYTE,
    Ids,
    changed_ids,
    completing_questions,
    foreign_fault,
    fresh_questions,
    is_calm,
    memory_growth_bytes,
    missing_fault,
    more_descriptors,
    more_threads,
    repeat_fault,
    size_fault,
    threads_more,
    total_question,
)
from devplug.devices import Device, Health
from devplug.wire.deviceplugin import LIST_AND_WATCH
from devplug.wire.values import LIST_LIMIT_BYTES, AdvertisedDevice, PreferenceRequest, list_size_bytes

Rule = Callable[[Sequence[AdvertisedDevice]], list[str]]

# ── lists ──

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


# ── preferences ──

IDS = st.integers(1, 30).map(lambda count: [f"dev-{number:02}" for number in range(count)])
PREFERENCE_RULES = (size_fault, missing_fault, foreign_fault, repeat_fault)
QUESTION = PreferenceRequest(("a", "b", "c", "d"), ("c",), 2)


@given(IDS)
def test_a_kubelet_can_ask_every_question(ids: list[str]) -> None:
    for question in (total_question(ids), *fresh_questions(ids), *completing_questions(ids)):
        assert set(question.must_include) <= set(question.available) <= set(ids)
        assert len(question.must_include) < question.size <= len(question.available)


@given(IDS)
def test_a_choice_of_the_right_size_and_an_empty_one_have_no_fault(ids: list[str]) -> None:
    for question in (*fresh_questions(ids), *completing_questions(ids)):
        right = tuple(dict.fromkeys((*question.must_include, *question.available)))[: question.size]
        for answer in (right, ()):
            assert [rule(question, answer) for rule in PREFERENCE_RULES] == ["", "", "", ""]


@given(IDS.filter(lambda ids: len(ids) > 2))
def test_a_plugin_that_always_takes_the_first_or_the_last_is_caught_by_some_question(ids: list[str]) -> None:
    questions = completing_questions(ids)
    assert any(missing_fault(one, tuple(sorted(one.available))[: one.size]) for one in questions)
    assert any(missing_fault(one, tuple(sorted(one.available))[-one.size :]) for one in questions)


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        (("c",), size_fault),
        (("c", "a", "b"), size_fault),
        (("a", "b"), missing_fault),
        (("c", "x"), foreign_fault),
        (("c", "c"), repeat_fault),
    ],
)
def test_a_wrong_answer_has_the_one_fault_that_it_has(
    answer: Ids, rule: Callable[[PreferenceRequest, Ids], str]
) -> None:
    assert [one for one in PREFERENCE_RULES if one(QUESTION, answer)] == [rule]


# ── restarts ──

ids = st.frozensets(st.text("abc", min_size=1, max_size=3), max_size=6)


@given(ids, ids)
def test_ids_are_changed_exactly_if_the_sets_differ(before: frozenset[str], after: frozenset[str]) -> None:
    assert bool(changed_ids(before, after)) == (before != after)


def test_a_change_of_ids_names_some_of_those_that_are_gone_and_new() -> None:
    assert changed_ids(["a", "b", "c", "d"], ["x"]) == "4 of 4 IDs are gone (a, b, c, ...), 1 are new (x)"


@given(st.integers(6, 40), st.integers(1, 3))
def test_what_leaks_at_each_restart_is_found_after_enough_of_them(restarts: int, leak: int) -> None:
    row = [
        Figures(leak * n * 8 * MEBIBYTE, 10 + 2 * leak * n, 20 + leak * n, 0.0) for n in range(restarts + 1)
    ]
    assert more_descriptors(row) > DESCRIPTORS_MORE
    assert more_threads(row) > threads_more(row)
    assert memory_growth_bytes(row) > 8 * MEBIBYTE
    assert not is_calm(row)


@given(st.integers(6, 40), st.integers(0, 12), st.integers(0, 5))
def test_a_runtime_that_warms_up_is_no_leak(restarts: int, threads: int, descriptors: int) -> None:
    row = [
        Figures(min(n, 3) * 20 * MEBIBYTE, 4 + threads * (n > 0), 20 + descriptors * (n > 0), 0.0)
        for n in range(restarts + 1)
    ]
    assert is_calm(row)
    assert memory_growth_bytes(row) == 0


@given(st.lists(st.tuples(st.floats(0.01, 9.0), st.floats(0.01, 9.0)), min_size=1, max_size=4))
def test_what_a_plugin_takes_of_a_processor_is_the_same_on_a_busy_machine(
    threads: list[tuple[float, float]],
) -> None:
    seconds = 30.0
    idle = Scheduling(dict.fromkeys(range(len(threads)), (5.0, 5.0)))
    for slower in (1.0, 1.5, 10.0):
        after = Scheduling(
            {
                n: (5.0 + seconds / slower * ran / (ran + slept), 5.0 + seconds * (1 - 1 / slower))
                for n, (ran, slept) in enumerate(threads)
            }
        )
        expected = sum(ran / (ran + slept) for ran, slept in threads)
        assert after.share_since(idle, seconds) == pytest.approx(expected)
        assert Figures(0, 0, 0, 0.0, after).processor_share_since(
            Figures(0, 0, 0, 0.0, idle), seconds
        ) == pytest.approx(expected)


def test_what_threads_took_that_have_ended_counts_too() -> None:
    before, after = Figures(0, 1, 0, 1.0), Figures(0, 1, 0, 3.01)
    assert after.processor_share_since(before, 10.0) == pytest.approx(0.2)


def test_the_longest_wait_of_any_thread_counts_and_a_new_thread_has_none() -> None:
    before = Scheduling({1: (0.0, 1.0), 2: (0.0, 4.0)})
    assert Scheduling({1: (0.0, 3.0), 2: (0.0, 4.5), 3: (9.0, 9.0)}).waited_since(before) == 2.0
    assert Scheduling().waited_since(before) == 0.0


def test_the_kernel_tells_of_the_threads_of_a_process_and_of_none_that_is_gone() -> None:
    here = scheduling_of([os.getpid(), 2**22 + 1])
    assert threading.get_native_id() in here.threads
    assert all(ran >= 0 and waited >= 0 for ran, waited in here.threads.values())


def test_a_socket_is_dead_when_its_listener_is_gone(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").touch()
    with socket.socket(socket.AF_UNIX) as lost:
        lost.bind(str(tmp_path / "lost.sock"))
    with socket.socket(socket.AF_UNIX) as kept, socket.socket(socket.AF_UNIX) as kubelet:
        for end, name in ((kept, "kept.sock"), (kubelet, "kubelet.sock")):
            end.bind(str(tmp_path / name))
            end.listen()
        assert sockets(tmp_path) == {"lost.sock", "kept.sock"}
        assert dead_sockets(tmp_path) == {"lost.sock"}


# ── registrations ──

moments = st.integers(0, 1000).map(float)
spans = st.lists(st.tuples(moments, moments).map(lambda pair: (min(pair), max(pair))))
file_names = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-_.+=:@,", min_size=3, max_size=75)


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("", "is empty"),
        ("..", "which is a path"),
        ("../other.sock", "which is a path"),
        ("/var/lib/kubelet/device-plugins/own.sock", "which is a path"),
        ("folder/own.sock", "which is a path"),
        ("kubelet.sock", "the kubelet's own socket"),
        ("own#1.sock", 'dials "own"'),
        ("own?.sock", 'dials "own"'),
        ("own%20.sock", 'dials "own .sock"'),
        ("own%.sock", "cannot dial"),
        ("own\n.sock", "cannot dial"),
        ("own\0.sock", "cannot dial"),
        ("x" * 76, "a path of 108 bytes"),
    ],
)
def test_an_endpoint_that_leads_elsewhere_is_a_fault(endpoint: str, words: str) -> None:
    assert words in (endpoint_fault(endpoint) or "")


@given(file_names.filter(lambda name: not set(name) <= {"."}))
def test_a_plain_file_name_is_no_fault(endpoint: str) -> None:
    assert endpoint_fault(endpoint) is None


@given(st.lists(moments))
def test_calls_one_after_the_other_do_not_overlap(turns: list[float]) -> None:
    turns = sorted(turns)
    assert longest_overlap_seconds(pairwise(turns)) == 0


@given(spans, moments, moments, moments)
def test_two_calls_overlap_for_as_long_as_both_are_open(
    others: list[tuple[float, float]], start: float, shared: float, rest: float
) -> None:
    pair = [(start, start + shared), (start, start + shared + rest)]
    assert longest_overlap_seconds(pair) == shared
    assert longest_overlap_seconds([*others, *pair]) >= shared


@pytest.mark.parametrize(
    ("mode", "umask", "bits"),
    [(0o755, 0o022, 0), (0o777, 0o022, 0o022), (0o775, 0o002, 0), (0o777, 0o002, 0o002), (0o700, 0o777, 0)],
)
def test_a_mode_is_held_against_the_umask_that_was_given(mode: int, umask: int, bits: int) -> None:
    assert loose_bits(mode, umask) == bits
