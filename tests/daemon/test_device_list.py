"""The list that the kubelet gets: what is told of each device, also of one that is gone."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.device_list import DeviceList, KnownDevice, ScanResult, after_look
from devplug.daemon.sources.device import HostDevice
from devplug.devices import Health
from tests.daemon.hosts import resource

A, B = HostDevice("a"), HostDevice("b")


def listing(rest: str = "", **more: Callable[[str], str]) -> DeviceList:
    return DeviceList(resource(f'discover: {{usb: {{vendor: "0403"}}}}, {rest}'.rstrip(", ")), **more)  # type: ignore[arg-type]


def name_behind(device_id: str) -> str:
    """Return the name of a device by its ID, whatever its number of replicas was."""
    return device_id.partition("::")[0]


def told(one: DeviceList, sight: ScanResult) -> dict[str, str]:
    """What is advertised, with the reasons; empty for a healthy device."""
    return {device.id: device.health.reason for device in one.update(sight)}


def sight(
    *found: HostDevice, held: frozenset[str] | set[str] = frozenset(), now: float = 0.0, **rest: object
) -> ScanResult:
    return ScanResult(found, now, held_ids=frozenset(held), **rest)  # type: ignore[arg-type]


def test_an_equal_sight_makes_an_equal_list() -> None:
    one = listing()
    assert one.update(sight(A, B)) == one.update(sight(A, B))


# ── held ──


STRANGE = frozenset({"a b", "a/b:c,d", "\xfc", "x" * 70, "a::b c", "-"})
"""Held IDs of another plugin that had the resource name."""


def test_held_ids_that_devplug_would_not_choose_are_listed() -> None:
    one = listing()
    strangers = [HostDevice(name) for name in sorted(STRANGE - {"a::b c"})]
    listed = one.update(sight(A, *strangers, held=STRANGE))
    assert {device.id for device in listed} == STRANGE
    assert {device.id for device in one.retire(STRANGE, {"a b"}, lambda _: Health.healthy())} == STRANGE


def test_a_held_device_stays_after_its_time_until_it_is_free() -> None:
    one = listing("whenUnplugged: {keepUnhealthyFor: 0s}")
    told(one, sight(A))
    assert told(one, sight(held={"a"}, now=1)) == {"a": "unplugged"}
    assert told(one, sight(held={"a"}, now=1e9)) == {"a": "unplugged"}
    assert told(one, sight(now=1e9)) == {}


def test_a_held_device_that_nobody_has_seen_since_the_start_is_listed() -> None:
    assert told(listing(), sight(B, held={"a"})) == {"a": "unplugged", "b": ""}


@pytest.mark.parametrize(
    ("replicas", "held", "listed"),
    [
        (1, {"a::0"}, {"a::0"}),
        (1, {"a::0", "a::2"}, {"a::0", "a::2"}),
        (2, {"a"}, {"a"}),
        (2, {"a::1", "a::3"}, {"a::1", "a::3"}),
        (2, {"a::3"}, {"a::0", "a::3"}),
        (3, {"a::0", "a::3"}, {"a::0", "a::1", "a::3"}),
    ],
)
def test_held_ids_of_another_number_of_replicas_take_the_places_of_others(
    replicas: int, held: set[str], listed: set[str]
) -> None:
    one = listing(f"share: {{replicas: {replicas}}}", name_of=name_behind)
    assert told(one, sight(A, held=held)) == dict.fromkeys(listed, "")
    assert one.has_former


def test_a_name_with_the_mark_of_replicas_in_it_is_a_name() -> None:
    assert told(listing(), sight(HostDevice("a"), HostDevice("a::b"), held={"a::b"})) == {"a": "", "a::b": ""}


# ── other resources ──


def test_what_another_resource_has_is_dropped_at_once() -> None:
    """It did not go, and it will not come back here."""
    one = listing()
    told(one, sight(A, B))
    assert told(one, sight(B, refused={"a": "example.com/other"})) == {"b": ""}


def test_a_held_device_stays_listed_when_its_name_belongs_to_other_hardware() -> None:
    one = listing()
    told(one, sight(A))
    assert told(one, sight(held={"a"}, refused={"a": "its ID is held"})) == {"a": "unplugged"}


# ── checks ──


def test_a_new_device_is_listed_after_its_first_check() -> None:
    one = listing()
    assert told(one, sight(A, B, unchecked={"b"})) == {"a": ""}
    assert told(one, sight(A, B)) == {"a": "", "b": ""}


def test_a_device_that_is_checked_again_after_a_re_plug_stays_listed_meanwhile() -> None:
    one = listing("whenUnplugged: {keepUnhealthyFor: 0s}")
    told(one, sight(A))
    assert told(one, sight(A, unchecked={"a"})) == {"a": "not checked yet since it was plugged in"}
    assert told(one, sight(A)) == {"a": ""}


def test_an_unknown_health_is_as_before_and_healthy_for_who_was_not_there() -> None:
    one = listing()
    mute = HostDevice("a", health=Health.unknown("mute"))
    (device,) = one.update(sight(mute))
    assert device.health == Health.healthy()
    (device,) = one.update(sight(mute))
    assert device.health == Health.unknown("mute")
    told(one, sight(now=1))
    (device,) = one.update(sight(mute, now=2))
    assert device.health == Health.healthy()


def test_what_changes_about_a_device_is_told() -> None:
    one = listing('expose: {env: {"S_{index}": "{serial}"}}')
    assert told(one, sight(A)) == {"a": "no value for {serial}"}
    assert told(one, sight(HostDevice("a", facts={"serial": "1"}))) == {"a": ""}
    assert told(
        one, sight(HostDevice("a", facts={"serial": "1"}), health_of=lambda _: Health.unhealthy("hot"))
    ) == {"a": "hot"}
    (device,) = one.update(sight(HostDevice("a", facts={"serial": "1"}, numa_node=1)))
    assert device.numa_nodes == (1,)


# ── the end ──


def test_a_removed_resource_lists_what_is_held_and_nothing_to_give_out() -> None:
    one = listing("share: {replicas: 2}")
    told(one, sight(A))

    def listed(absent: set[str], fault: str = "") -> dict[str, str]:
        devices = one.retire({"a::1"}, absent, lambda _: Health.from_fault(fault))
        return {device.id: device.health.reason for device in devices}

    assert listed(set()) == {"a::1": ""}
    assert listed({"a"}) == {"a::1": "unplugged"}
    assert listed(set(), "not cleaned up") == {"a::1": "not cleaned up"}


NAMES = st.sampled_from(["a", "b", "c"])
IDS = st.sampled_from(["a", "b", "c", "a::0", "a::1", "b::0", "c::4", "::0"])
SIGHTS = st.builds(
    lambda found, held, refused, unchecked: (found, held, refused, unchecked),
    st.sets(NAMES),
    st.sets(IDS),
    st.dictionaries(NAMES, st.just("x.y/z")),
    st.sets(NAMES),
)


@pytest.mark.parametrize("replicas", [1, 2, 3])
@given(steps=st.lists(SIGHTS, max_size=6))
def test_no_list_lacks_what_is_held_or_has_an_id_twice(
    replicas: int, steps: list[tuple[set[str], set[str], dict[str, str], set[str]]]
) -> None:
    one = listing(f"whenUnplugged: {{keepUnhealthyFor: 0s}}, share: {{replicas: {replicas}}}")
    for at, (names, held, refused, unchecked) in enumerate(steps):
        found = [HostDevice(name) for name in sorted(names - refused.keys())]
        devices = one.update(
            sight(*found, held=held - {"::0"}, now=at, refused=refused, unchecked=unchecked & names)
        )
        ids = [device.id for device in devices]
        assert len(ids) == len(set(ids))
        assert held - {"::0"} <= set(ids)
        healthy = {device.id.partition("::")[0] for device in devices if device.health == Health.healthy()}
        assert healthy <= {found.name for found in found} - unchecked - refused.keys()


PRESENT, GONE = {"a": KnownDevice(A)}, {"a": KnownDevice(A, 5)}


@pytest.mark.parametrize(
    ("before", "looked", "now", "keep_seconds", "after"),
    [
        ({}, [], 5, 600, {}),
        ({}, [A], 5, 600, PRESENT),
        (PRESENT, [], 5, 600, GONE),
        (GONE, [], 604, 600, GONE),
        (GONE, [], 605, 600, {}),
        (GONE, [A], 604, 600, PRESENT),
        (PRESENT, [], 5, 0, {}),
        (GONE, [], 1e9, math.inf, GONE),
        (PRESENT, [B], 5, 600, GONE | {"b": KnownDevice(B)}),
    ],
    ids=[
        "nothing is still nothing",
        "a new device is present",
        "a missing one is gone from now on",
        "it stays gone since then",
        "it is dropped when its time is over",
        "it is present when it is back",
        "with 0 s it is dropped at once",
        "with forever never",
        "others do not matter",
    ],
)
def test_a_look_makes_of_what_was_known(
    before: dict[str, KnownDevice],
    looked: list[HostDevice],
    now: float,
    keep_seconds: float,
    after: dict[str, KnownDevice],
) -> None:
    known = dict(before)
    assert after_look(known, looked, now=now, keep_seconds=keep_seconds) == after
    assert known == before


def test_a_device_that_came_back_changed_is_known_as_it_is_now() -> None:
    moved = HostDevice("a", numa_node=1)
    assert after_look({"a": KnownDevice(A, 5)}, [moved], now=6, keep_seconds=9) == {"a": KnownDevice(moved)}


LOOKS = st.lists(st.tuples(st.floats(0, 100), st.sets(st.sampled_from("abcd"))), max_size=12)
"""Seconds since the look before, and the names that are seen."""
KEEPS = st.one_of(st.just(0.0), st.just(math.inf), st.floats(0.1, 200))


@given(LOOKS, KEEPS)
def test_a_device_is_present_exactly_if_the_last_look_saw_it(
    looks: list[tuple[float, set[str]]], keep_seconds: float
) -> None:
    known: dict[str, KnownDevice] = {}
    now = 0.0
    for seconds, seen in looks:
        now += seconds
        known = after_look(known, map(HostDevice, seen), now=now, keep_seconds=keep_seconds)
        assert {name for name, one in known.items() if one.is_present} == seen


@given(LOOKS, KEEPS)
def test_a_missing_device_is_listed_exactly_as_long_as_it_is_kept(
    looks: list[tuple[float, set[str]]], keep_seconds: float
) -> None:
    known: dict[str, KnownDevice] = {}
    missed_at: dict[str, float] = {}
    now = 0.0
    for seconds, seen in looks:
        now += seconds
        missed_at |= {name: now for name in known if name not in seen and name not in missed_at}
        known = after_look(known, map(HostDevice, seen), now=now, keep_seconds=keep_seconds)
        missed_at = {name: at for name, at in missed_at.items() if name not in seen}
        kept = {name for name, at in missed_at.items() if now < at + keep_seconds}
        assert {name for name, one in known.items() if not one.is_present} == kept
        missed_at = {name: at for name, at in missed_at.items() if name in kept}
