"""What is logged of a change of the list: each change once, many as one line, and nothing of no change."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import devplug.plugin.snapshot as snapshots
from devplug import Device, Health
from devplug.plugin.inventory import LOGGED_AT_ONCE, Inventory
from devplug.plugin.snapshot import (
    FLAPPING_LINES,
    FLAPPING_SECONDS,
    LINES_LIMIT,
    Flaps,
    Line,
    Snapshot,
    next_snapshot,
    whole,
)
from tests.virtualtime import in_no_time, passes

ILL = Health.unhealthy("too hot")
lists = st.lists(
    st.builds(
        Device,
        st.sampled_from([f"d{number}" for number in range(30)]),
        health=st.sampled_from([Health.healthy(), ILL, Health.unhealthy("gone")]),
        numa_nodes=st.lists(st.integers(0, 1), max_size=2),
    ),
    max_size=30,
    unique_by=lambda device: device.id,
)


def snapshot(*devices: Device) -> Snapshot:
    return whole(next_snapshot(Snapshot(), devices))


def lines_of(before: Snapshot, after: Snapshot, **more: Any) -> tuple[Line, ...]:
    return whole(snapshots.lines_of(before, after, **more))


def told(before: Snapshot, after: Snapshot) -> list[str]:
    return [
        f"{line.message} {line.facts.get('device_id', '')}"
        for line in lines_of(before, after, is_first=False)
    ]


def test_each_change_of_a_device_is_one_line() -> None:
    before = snapshot(Device("a"), Device("b", health=ILL), Device("c"), Device("d", numa_nodes=[0]))
    after = snapshot(Device("a", health=ILL), Device("b"), Device("d", numa_nodes=[1]), Device("e"))
    assert told(before, after) == [
        "a device appeared e",
        "a device is unhealthy a",
        "a device is healthy again b",
        "the NUMA nodes of a device changed d",
        "a device left the list c",
    ]


def test_only_what_is_wrong_is_a_warning_and_it_says_why() -> None:
    lines = lines_of(snapshot(Device("a")), snapshot(Device("a", health=ILL), Device("b")), is_first=False)
    assert [(line.is_warning, line.facts.get("reason")) for line in lines] == [
        (False, None),
        (True, "too hot"),
    ]


def test_of_a_first_list_only_the_unhealthy_devices_are_told() -> None:
    lines = lines_of(Snapshot(), snapshot(Device("a"), Device("b", health=ILL)), is_first=True)
    assert [line.facts["device_id"] for line in lines] == ["b"]


def test_another_reason_alone_is_no_line() -> None:
    assert told(snapshot(Device("a", health=ILL)), snapshot(Device("a", health=Health.unhealthy("x")))) == []


def test_many_changes_at_once_are_one_line_with_their_numbers() -> None:
    before = snapshot(*(Device(f"d{number:03}") for number in range(100)))
    after = snapshot(*(Device(f"d{number:03}", health=ILL) for number in range(90)))
    (line,) = lines_of(before, after, is_first=False)
    assert line.message == "many devices changed at once"
    assert line.is_warning
    assert line.facts == {"devices": 90, "unhealthy": 90, "left": 10, "reasons": ["90 of too hot"]}


@given(lists, lists)
def test_lines_are_few_and_there_are_none_without_a_change(before: list[Device], after: list[Device]) -> None:
    lines = lines_of(snapshot(*before), snapshot(*after), is_first=False)
    assert len(lines) <= LINES_LIMIT
    assert lines_of(snapshot(*after), snapshot(*after), is_first=False) == ()
    changed = {id_: one.health.state for id_, one in snapshot(*before).devices.items()} != {
        id_: one.health.state for id_, one in snapshot(*after).devices.items()
    }
    assert not changed or lines


async def test_a_list_that_is_taken_logs_its_changes_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    inventory = Inventory("example.com/a")
    await inventory.replace([Device("a")])
    for _ in range(3):
        await inventory.replace([Device("a", health=ILL)])
    inventory.note_failure("devices fails")
    await inventory.replace([Device("a")])
    assert [(one.levelname, one.message, vars(one)["resource_name"]) for one in caplog.records] == [
        ("WARNING", "a device is unhealthy", "example.com/a"),
        ("INFO", "a device is healthy again", "example.com/a"),
        ("INFO", "devices() works again", "example.com/a"),
    ]


def test_what_changed_and_changed_back_between_two_lines_is_told_by_its_number() -> None:
    before, after = snapshot(Device("a")), snapshot(Device("a"), Device("b"))
    lines = lines_of(before, after, is_first=False, changes=7)
    assert [(line.message, line.facts) for line in lines] == [
        ("a device appeared", {"device_id": "b"}),
        ("the device list changes too fast to log each change", {"changes": 7}),
    ]


async def test_a_device_that_flaps_fills_no_log_and_its_last_state_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    inventory = Inventory("example.com/a")
    await inventory.replace([Device("a")])
    for _ in range(1000):
        await inventory.replace([Device("a", health=ILL)])
        await inventory.replace([Device("a")])
    await inventory.replace([Device("a", health=ILL)])
    await inventory.close()
    messages = [record.message for record in caplog.records]
    assert len(messages) <= LOGGED_AT_ONCE + 10
    assert messages[-2:] == ["a device is unhealthy", "the device list changes too fast to log each change"]


@in_no_time
async def test_devices_that_flap_for_ten_minutes_have_a_line_a_minute_and_hide_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inventory, others = Inventory("example.com/a"), [Device("other")]
    with caplog.at_level(logging.INFO):
        for tenths in range(6000):
            if tenths == 3000:
                others = [Device("other", health=ILL)]
            health = ILL if tenths % 2 else Health.healthy()
            await inventory.replace([*others, *(Device(f"d{n}", health=health) for n in range(10))])
            await passes(0.1)
        await inventory.close()
    lines = [vars(record) for record in caplog.records]
    assert len(lines) <= 10 * (FLAPPING_LINES + 1 + 600 / FLAPPING_SECONDS + 1) + FLAPPING_LINES + 10 + 1
    (ill,) = [line for line in lines if line.get("device_id") == "other"]
    assert ill["message"] == "a device is unhealthy"
    told = [line["changes"] for line in lines if line["message"] == "a device flaps"]
    assert len(told) >= 10 * 9
    assert min(told[:-10]) >= 50


@given(st.lists(st.tuples(st.floats(0, 30), st.sampled_from("abc")), max_size=300))
def test_no_device_has_more_lines_than_its_share_and_what_was_held_back_is_told_within_a_minute(
    changes: list[tuple[float, str]],
) -> None:
    flaps, now, told, held = Flaps(), 0.0, dict.fromkeys("abc", 0), dict.fromkeys("abc", 0)
    for pause, key in changes:
        end = now + pause
        while (wait := flaps.wait_seconds(now)) is not None and now + wait <= end:
            assert wait <= FLAPPING_SECONDS
            now += wait
            for due, count in flaps.due(now).items():
                assert held.pop(due) == count
                held[due] = 0
                told[due] += 1
        now = end
        if flaps.has_line(key, now):
            told[key] += 1
        else:
            held[key] += 1
        assert told[key] <= FLAPPING_LINES + now / FLAPPING_SECONDS + 1e-6


async def test_changes_that_have_no_line_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    inventory = Inventory("example.com/a")
    for number in range(100):
        await inventory.replace([Device("a", health=Health.unhealthy(f"{number} degrees"))])
    await inventory.close()
    assert [record.message for record in caplog.records] == ["a device is unhealthy"]
