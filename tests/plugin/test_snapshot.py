"""From an author's list to the list that the kubelet gets, and how fast lists may follow: rules only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from devplug import Device, Health, PluginError
from devplug.pace import Pace
from devplug.plugin import snapshot as rules
from devplug.plugin.snapshot import ListPace, Snapshot, Urgency, difference, whole
from devplug.wire.values import LIST_LIMIT_BYTES, AdvertisedDevice, list_size_bytes

GONE = Health.unhealthy("gone")
healths = st.sampled_from([Health.healthy(), Health.unhealthy("x"), Health.unknown("y")])
lists = st.lists(
    st.builds(Device, st.sampled_from("abcdef"), health=healths, numa_nodes=st.lists(st.integers(-1, 3))),
    unique_by=lambda device: device.id,
)


def checked_list(listed: object) -> tuple[Device, ...]:
    return whole(rules.checked_list(listed))


def next_snapshot(before: Snapshot, listed: list[Device], **more: Any) -> Snapshot:
    return whole(rules.next_snapshot(before, listed, **more))


def told(snapshot: Snapshot) -> dict[str, str]:
    return {device.id: device.health for device in snapshot.advertised()}


def after(*steps: list[Device], **last: Any) -> Snapshot:
    snapshot = Snapshot()
    for step in steps[:-1]:
        snapshot = next_snapshot(snapshot, step)
    return next_snapshot(snapshot, steps[-1], **last)


# ── what the kubelet is told ──


def test_devices_are_advertised_in_the_order_of_their_ids() -> None:
    snapshot = after([Device("b"), Device("c"), Device("a")])
    assert [device.id for device in snapshot.advertised()] == ["a", "b", "c"]


@pytest.mark.parametrize("nodes", [(), (-1,), (-1, -1)])
def test_a_device_without_a_numa_node_has_no_topology_at_all(nodes: tuple[int, ...]) -> None:
    advertised = after([Device("a", numa_nodes=nodes)]).advertised()
    assert tuple(advertised) == (AdvertisedDevice("a", "Healthy", None),)


def test_numa_nodes_are_advertised_sorted_and_once_each() -> None:
    device = Device("a", numa_nodes=[1, 0, -1, 1])
    assert tuple(after([device]).advertised()) == (AdvertisedDevice("a", "Healthy", (0, 1)),)


DUST, UNKNOWN = Health.unhealthy("dust"), Health.unknown("no answer")
A, B, SICK, MUTE = Device("a"), Device("b"), Device("a", health=DUST), Device("a", health=UNKNOWN)


@pytest.mark.parametrize(
    ("lists", "last", "healths"),
    [
        ([[SICK]], {}, {"a": DUST}),
        ([[MUTE]], {}, {"a": Health.healthy()}),
        ([[A], [MUTE], [MUTE]], {}, {"a": Health.healthy()}),
        ([[SICK], [MUTE], [MUTE]], {}, {"a": DUST}),
        ([[A, B], [B]], {"held": {"a"}}, {"a": GONE, "b": Health.healthy()}),
        ([[A, B], [B]], {"held": {"b"}}, {"b": Health.healthy()}),
        ([[B]], {"held": {"a"}}, {"b": Health.healthy()}),
        ([[A, B]], {"marked": {"a": "dust"}}, {"a": DUST, "b": Health.healthy()}),
        ([[MUTE, B]], {"failing": "dust"}, {"a": DUST, "b": DUST}),
    ],
    ids=[
        "unhealthy",
        "healthy if it is new and of unknown health",
        "healthy as before if its health is unknown now",
        "unhealthy as before, with the reason",
        "gone if a pod may hold what was dropped",
        "nothing if nobody holds what was dropped",
        "nothing if what is held was never listed",
        "as a mark says",
        "unhealthy if the list is not to be believed",
    ],
)
def test_a_device_is_told_as(
    lists: list[list[Device]], last: dict[str, Any], healths: dict[str, Health]
) -> None:
    snapshot = after(*lists, **last)
    assert {device.id: device.health for device in snapshot.devices.values()} == healths
    assert told(snapshot) == {
        id_: "Healthy" if health == Health.healthy() else "Unhealthy" for id_, health in healths.items()
    }


def test_a_device_that_is_gone_comes_back_with_the_list() -> None:
    assert told(next_snapshot(after([A], [], held={"a"}), [A], held={"a"})) == {"a": "Healthy"}


def test_a_change_of_health_keeps_all_else_of_a_device() -> None:
    device = Device("a", numa_nodes=[1], device_nodes=["/dev/a"], attributes={"k": "v"})
    gone = after([device], [], held={"a"}).devices["a"]
    assert gone == device.with_health(GONE)


@given(lists, lists, st.sets(st.sampled_from("abcdef")))
def test_a_held_device_never_leaves_and_all_others_are_as_listed(
    first: list[Device], second: list[Device], held: set[str]
) -> None:
    snapshot = after(first, second, held=held)
    ids = {device.id for device in second}
    assert set(snapshot.devices) == ids | (held & {device.id for device in first})
    assert list(snapshot.devices) == sorted(snapshot.devices)
    assert all(device.health.state.value != "unknown" for device in snapshot.devices.values())


@given(lists, st.sets(st.sampled_from("abcdef")))
def test_the_same_list_again_changes_nothing(listed: list[Device], held: set[str]) -> None:
    snapshot = after(listed)
    assert next_snapshot(snapshot, listed, held=held) == snapshot


# ── what an author may give ──


@pytest.mark.parametrize("make", [list, tuple, set, frozenset, lambda ds: {d.id: d for d in ds}.values()])
def test_any_collection_of_devices_is_a_list(make: Any) -> None:
    given = [Device("a"), Device("b")]
    assert sorted(checked_list(make(given)), key=lambda device: device.id) == given


@pytest.mark.parametrize(
    ("listed", "text"),
    [
        (Device("a"), 'devices gave one Device, not a list of all: write [Device("a", ...)]'),
        (None, "devices gave NoneType, not a list of all devices"),
        ("abc", "devices gave str, not a list of all devices"),
        ({"a": Device("a")}, "devices gave dict, not a list of all devices"),
        (7, "devices gave int, not a list of all devices"),
        (iter([Device("a")]), "devices gave list_iterator, not a list of all devices"),
        (["a"], 'devices gave a list with "a" in it, which is no Device'),
        ([[Device("a")]], "in it, which is no Device"),
        ([Device("a"), SimpleNamespace(id="b")], "in it, which is no Device"),
        ([Device("a"), Device("a")], 'device ID "a" is listed 2 times'),
        ([Device("a"), Device("a", health=GONE)], 'device ID "a" is listed 2 times'),
    ],
)
def test_what_is_no_list_of_devices_is_refused_with_what_to_write(listed: object, text: str) -> None:
    with pytest.raises(PluginError) as caught:
        checked_list(listed)
    assert text in str(caught.value)


def test_every_double_is_named_up_to_five() -> None:
    with pytest.raises(PluginError) as caught:
        checked_list([Device(f"d{n // 2}") for n in range(20)])
    assert caught.value.faults == tuple(f'device ID "d{n}" is listed 2 times' for n in range(5))


def test_a_list_that_the_kubelet_could_not_take_is_refused_with_the_count_that_fits() -> None:
    listed = [Device(f"{n:063}", numa_nodes=[0]) for n in range(60_000)]
    with pytest.raises(
        PluginError, match=r"60000 devices make a list of \d+ bytes; the kubelet takes"
    ) as found:
        checked_list(listed)
    fitting = int(str(found.value).partition("about ")[2].split()[0])
    assert 0.99 < list_size_bytes(listed[:fitting]) / LIST_LIMIT_BYTES <= 1


# ── how fast ──


def test_a_burst_of_five_goes_at_once_and_the_sixth_waits_half_a_second() -> None:
    pace = Pace()
    for _ in range(5):
        assert pace.wait_seconds(10.0) == 0
        pace.spend(10.0)
    assert pace.wait_seconds(10.0) == 0.5
    assert pace.wait_seconds(10.5) == 0


def test_after_a_rest_the_burst_is_whole_again_and_no_larger() -> None:
    pace = Pace()
    for now in (0.0, 1000.0):
        for _ in range(5):
            assert pace.wait_seconds(now) == 0
            pace.spend(now)
        assert pace.wait_seconds(now) > 0


@given(st.lists(st.floats(0, 3), max_size=60), st.floats(0.5, 10), st.integers(1, 10))
def test_no_span_of_time_sees_more_than_the_burst_and_the_rate(
    pauses: list[float], per_second: float, burst: int
) -> None:
    pace, now, sent = Pace(per_second, burst), 0.0, []
    for pause in pauses:
        now += max(pause, pace.wait_seconds(now + pause))
        if pace.wait_seconds(now) > 0:
            continue
        pace.spend(now)
        sent.append(now)
    for first in range(len(sent)):
        for last in range(first, len(sent)):
            assert last - first + 1 <= burst + per_second * (sent[last] - sent[first]) + 1e-6


@given(st.lists(st.floats(0, 5), max_size=30), st.floats(0, 100))
def test_the_wait_is_never_negative_and_never_longer_than_one_list_takes(
    pauses: list[float], start: float
) -> None:
    pace, now = Pace(), start
    for pause in pauses:
        now += pause
        wait = pace.wait_seconds(now)
        assert 0 <= wait <= 0.5 + 1e-9
        now += wait
        pace.spend(now)


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from([Urgency.NORMAL, Urgency.URGENT])), max_size=80))
@example([(0.0, Urgency.NORMAL)] * 30)
def test_bad_news_never_waits_as_good_news_does_and_no_second_has_more_than_twenty_lists(
    changes: list[tuple[float, Urgency]],
) -> None:
    pace, now, sent = ListPace(), 0.0, [-1.0] * 20
    for pause, urgency in changes:
        now += pause
        assert pace.wait_seconds(Urgency.URGENT, now) <= min(0.07, pace.wait_seconds(Urgency.NORMAL, now))
        assert pace.wait_seconds(Urgency.NORMAL, now) <= 0.5
        now += pace.wait_seconds(urgency, now)
        pace.spend(now)
        sent.append(now)
        assert sent[-1] - sent[-21] >= 1 - 1e-6


HEALTHY, ILL = Health.healthy(), Health.unhealthy("ill")
listed = st.sampled_from([None, HEALTHY, ILL])


@given(st.lists(st.tuples(listed, listed), max_size=4))
def test_news_is_bad_as_soon_as_one_device_has_left_or_become_unhealthy(
    changes: list[tuple[Health | None, Health | None]],
) -> None:
    before, after = (
        Snapshot({str(n): Device(str(n), health=one) for n, one in enumerate(healths) if one})
        for healths in ([old for old, _ in changes], [new for _, new in changes])
    )
    worse = [(old, new) for old, new in changes if old and (not new or (new is ILL and old is not ILL))]
    same = all(old is new for old, new in changes)
    assert whole(difference(before, after)).urgency is (
        Urgency.URGENT if worse else Urgency.NONE if same else Urgency.NORMAL
    )
