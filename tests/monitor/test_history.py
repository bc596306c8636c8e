"""What is told of a step from one status to the next: each thing once, and nothing where nothing changed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.monitor.history import (
    CHANGES_LIMIT,
    GONE,
    SEGMENTS_LIMIT,
    WINDOW_SECONDS,
    ChangeKind,
    History,
    Segment,
    differences,
    slots,
)
from devplug.monitor.node_view import UNANSWERED
from devplug.status import ConfigStatus, DeviceStatus, Holder, NodeStatus, ProcessStatus, ResourceStatus
from tests.monitor.page.nodes import NOW, RESOURCE, device, node, resource, sick

NAME = "example.com/a"
POD = Holder("lab", "p", "main")
HEALTHY = DeviceStatus(id="d", health="Healthy")
BROKEN = DeviceStatus(id="d", health="Unhealthy", reason="unplugged")


def status(*devices: DeviceStatus, **facts: Any) -> NodeStatus:
    return NodeStatus(name="n", at=5.0, resources=(ResourceStatus(name=NAME, devices=devices, **facts),))


def lines(before: NodeStatus, after: NodeStatus) -> list[str]:
    return [one.line for one in differences(before, after)]


def test_a_device_that_comes_is_told_and_one_that_goes() -> None:
    assert lines(status(), status(HEALTHY)) == [f"{NAME} d appeared"]
    assert lines(status(HEALTHY), status()) == [f"{NAME} d vanished"]


def test_a_change_of_health_is_told_with_its_reason() -> None:
    assert lines(status(HEALTHY), status(BROKEN)) == [f"{NAME} d unhealthy (unplugged)"]
    assert lines(status(BROKEN), status(HEALTHY)) == [f"{NAME} d healthy"]


def test_a_device_that_is_lost_to_its_holder_is_told_with_the_holder() -> None:
    held, broken = replace(HEALTHY, holders=(POD,)), replace(BROKEN, holders=(POD,))
    assert lines(status(held), status(broken)) == [
        f"{NAME} d unhealthy (unplugged)",
        f"{NAME} d lost (lab/p/main)",
    ]


def test_a_device_whose_health_is_not_known_is_neither_unhealthy_nor_lost() -> None:
    held = replace(HEALTHY, holders=(POD,))
    unknown = replace(held, health="Unknown", reason="held, but its plugin does not list it")
    assert lines(status(held), status(unknown)) == [
        f"{NAME} d not-known (held, but its plugin does not list it)"
    ]


def test_a_daemon_that_goes_away_and_comes_back_is_one_change_each() -> None:
    held, free = replace(HEALTHY, is_held=True, holders=(POD,)), replace(HEALTHY, id="e")
    with_daemon = status(held, free, is_registered=True, process=7)
    without = status(replace(held, health="Unknown"), fault=UNANSWERED)
    assert lines(with_daemon, without) == [f"{NAME} not-known"]
    assert lines(without, with_daemon) == [f"{NAME} ready"]


def test_holds_and_releases_are_told_in_the_order_in_which_they_make_sense() -> None:
    before, after = replace(HEALTHY, holders=(POD,)), replace(HEALTHY, holders=(Holder("lab", "q", "c"),))
    assert lines(status(before), status(after)) == [
        f"{NAME} d released (lab/p/main)",
        f"{NAME} d held (lab/q/c)",
    ]


def test_a_new_registration_is_told_though_it_was_registered_before() -> None:
    first, second = (
        status(is_registered=True, registered_at=1.0),
        status(is_registered=True, registered_at=2.0),
    )
    lost = status(is_registered=False, fault="no kubelet is connected")
    assert lines(first, second) == [f"{NAME} registered"]
    assert lines(first, lost) == [f"{NAME} not-registered (no kubelet is connected)"]
    assert lines(lost, lost) == []


def test_a_resource_that_comes_brings_its_devices() -> None:
    empty = NodeStatus(name="n", at=1.0)
    assert lines(empty, status(HEALTHY)) == [f"{NAME} appeared", f"{NAME} d appeared"]
    assert lines(status(HEALTHY), empty) == [f"{NAME} d vanished", f"{NAME} vanished"]


def test_an_edit_is_told_whether_it_was_taken_or_not() -> None:
    def with_config(applied_at: float, *problems: str) -> NodeStatus:
        config = ConfigStatus(file="f.yaml", applied_at=applied_at, problems=problems)
        told = ProcessStatus(process=1, version="1", python="3", started_at=0, config=config)
        return NodeStatus(name="n", at=1.0, processes=(told,))

    assert lines(with_config(1), with_config(1, "f.yaml:1:1: error")) == [
        "config-refused (f.yaml:1:1: error)"
    ]
    assert lines(with_config(1), with_config(2)) == ["config-applied (f.yaml)"]
    assert lines(with_config(1), with_config(1)) == []


DEVICES = st.builds(
    DeviceStatus,
    id=st.sampled_from("abc"),
    health=st.sampled_from(["Healthy", "Unhealthy"]),
    holders=st.sets(st.sampled_from([POD, Holder("x", "y", "z")])).map(lambda one: tuple(sorted(one))),
)
LISTS = st.lists(DEVICES, unique_by=lambda one: one.id)


@given(LISTS, LISTS)
def test_the_changes_lead_from_the_one_status_to_the_other(
    before: list[DeviceStatus], after: list[DeviceStatus]
) -> None:
    listed = {one.id for one in before}
    holds = {(one.id, holder) for one in before for holder in one.holders}
    holders = {f"{one.namespace}/{one.pod}/{one.container}": one for one in (POD, Holder("x", "y", "z"))}
    for change in differences(status(*before), status(*after)):
        match change.kind:
            case ChangeKind.APPEARED:
                listed.add(change.device_id)
            case ChangeKind.VANISHED:
                listed.remove(change.device_id)
            case ChangeKind.HELD:
                holds.add((change.device_id, holders[change.text]))
            case ChangeKind.RELEASED:
                holds.remove((change.device_id, holders[change.text]))
            case _:
                continue
    assert listed == {one.id for one in after}
    assert holds == {(one.id, holder) for one in after for holder in one.holders}
    assert differences(status(*after), status(*after)) == ()


MINUTE = 60.0


def history_of(*lists: tuple[float, tuple[DeviceStatus, ...]]) -> History:
    history = History()
    for at, devices in lists:
        history = history.after(node(resource(*devices), at=NOW + at))
    return history


def strip(history: History, name: str = "x") -> list[tuple[float, str, str]]:
    return [(one.since - NOW, one.health, one.reason) for one in history.strip("worker-0", RESOURCE, name)]


def test_a_device_is_remembered_since_its_plugin_knows_it() -> None:
    assert strip(history_of((0, (device("x", since=NOW - 500),)))) == [(-500, "Healthy", "")]


def test_a_device_of_which_nobody_tells_a_time_is_remembered_since_it_was_seen() -> None:
    assert strip(history_of((0, (device("x"),)))) == [(0, "Healthy", "")]


def test_each_change_of_health_begins_a_segment() -> None:
    history = history_of((0, (device("x"),)), (10, (sick("x", since=NOW + 9),)), (20, (device("x"),)))
    assert strip(history) == [(0, "Healthy", ""), (9, "Unhealthy", "link down"), (20, "Healthy", "")]


def test_a_new_reason_for_the_same_health_begins_no_segment() -> None:
    history = history_of((0, (sick("x"),)), (10, (sick("x", "unplugged"),)))
    assert strip(history) == [(0, "Unhealthy", "unplugged")]


def test_a_device_that_leaves_and_comes_back_has_a_gap() -> None:
    history = history_of((0, (device("x"),)), (10, ()), (20, (device("x", since=NOW + 20),)))
    assert strip(history) == [(0, "Healthy", ""), (10, GONE, ""), (20, "Healthy", "")]


def test_a_device_that_stays_away_is_forgotten_with_the_window() -> None:
    gone = history_of((0, (device("x"),)), (10, ()))
    assert strip(gone.after(node(resource(), at=NOW + 11 + WINDOW_SECONDS))) == []


def test_what_ended_before_the_window_is_forgotten() -> None:
    history = history_of((0, (device("x"),)), (10, (sick("x"),)), (20 + WINDOW_SECONDS, (sick("x"),)))
    assert strip(history) == [(10, "Unhealthy", "link down")]


def test_a_device_that_flaps_keeps_its_last_segments() -> None:
    lists = [(float(n), (device("x") if n % 2 else sick("x"),)) for n in range(2 * SEGMENTS_LIMIT)]
    kept = strip(history_of(*lists))
    assert len(kept) == SEGMENTS_LIMIT
    assert kept[-1][0] == 2 * SEGMENTS_LIMIT - 1


def test_devices_that_come_and_go_for_ever_are_not_all_remembered() -> None:
    history = History()
    for n in range(30):
        many = tuple(device(f"{n}-{m}") for m in range(100))
        history = history.after(node(resource(*many), at=NOW + n))
    assert len(history.strips["worker-0"]) <= 2_000 + 100


def test_the_first_status_of_a_node_is_no_change_and_the_next_is() -> None:
    history = history_of((0, (device("x"),)))
    assert history.changes == ()
    history = history.after(node(resource(sick("x")), at=NOW + 1))
    ((name, change),) = history.changes
    assert (name, change.kind, change.device_id, change.text) == ("worker-0", "unhealthy", "x", "link down")


def test_only_the_last_changes_are_kept() -> None:
    many = tuple(device(f"d{n}") for n in range(CHANGES_LIMIT + 50))
    history = history_of((0, ()), (1, many))
    assert len(history.changes) == CHANGES_LIMIT
    assert history.changes[-1][1].device_id == "d99"


# ── slots ──


def test_a_slot_shows_the_worst_of_its_minute() -> None:
    begin = NOW - NOW % MINUTE
    segments = [
        Segment(begin - 90, "Healthy"),
        Segment(begin - 50, "Unhealthy"),
        Segment(begin - 45, "Healthy"),
        Segment(begin + 61, GONE),
        Segment(begin + 130, "Unknown"),
    ]
    assert slots(segments, begin + 190).lstrip("-") == "huh.??"


def test_nothing_is_known_of_a_device_that_never_was() -> None:
    assert slots((), NOW) == "-" * 60


@given(
    steps=st.lists(
        st.tuples(st.floats(0, 2000), st.sampled_from(["Healthy", "Unhealthy", "Unknown", None])), max_size=30
    )
)
def test_strips_are_in_order_within_bounds_and_end_with_the_truth(
    steps: list[tuple[float, str | None]],
) -> None:
    history, at = History(), NOW
    for wait, health in steps:
        at += wait
        devices = [] if health is None else [device("x", health=health, since=at - wait / 2)]
        history = history.after(node(resource(*devices), at=at))
        segments = history.strip("worker-0", RESOURCE, "x")
        times = [one.since for one in segments]
        assert times == sorted(times)
        assert all(since <= at for since in times)
        assert all(one.health != two.health for one, two in pairwise(segments))
        assert all(since > at - WINDOW_SECONDS for since in times[1:])
        drawn = slots(segments, at)
        assert len(drawn) == 60
        if health is not None:
            assert segments[-1].health == health
            assert drawn[-1] != "-"
