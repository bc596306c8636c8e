"""What is logged of a change of the list: each change once, many as one line, and nothing of no change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import devplug.plugin.snapshot as snapshots
from devplug import Device, Health
from devplug.plugin.inventory import LOGGED_AT_ONCE, LOGGED_PER_SECOND, Inventory, log_changes
from devplug.plugin.snapshot import LINES_LIMIT, SLICE_DEVICES, Line, Snapshot, next_snapshot, whole
from tests.virtualtime import in_no_time, passes

ILL = Health.unhealthy("too hot")
TOO_FAST = "the device list changes too fast to log each change"
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


@asynccontextmanager
async def logged_inventory() -> AsyncIterator[Inventory]:
    """An inventory whose changes are logged until it is closed."""
    inventory = Inventory("example.com/a")
    async with asyncio.TaskGroup() as group:
        group.create_task(log_changes(inventory))
        yield inventory
        await inventory.close()


async def turns() -> None:
    """Let the changes so far be logged."""
    for _ in range(20):
        await asyncio.sleep(0)


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
    async with logged_inventory() as inventory:
        await inventory.replace([Device("a")])
        await turns()
        for _ in range(3):
            await inventory.replace([Device("a", health=ILL)])
        await turns()
        inventory.note_failure("devices fails")
        await inventory.replace([Device("a")])
    assert [(one.levelname, one.message, vars(one)["resource_name"]) for one in caplog.records] == [
        ("WARNING", "a device is unhealthy", "example.com/a"),
        ("INFO", "devices() works again", "example.com/a"),
        ("INFO", "a device is healthy again", "example.com/a"),
    ]


@in_no_time
async def test_a_device_that_flaps_fills_no_log_and_its_last_state_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with logged_inventory() as inventory:
        await inventory.replace([Device("a")])
        for _ in range(100):
            for health in (ILL, Health.healthy()):
                await inventory.replace([Device("a", health=health)])
                await turns()
        await inventory.replace([Device("a", health=ILL)])
        await passes(10)
    messages = [record.message for record in caplog.records]
    assert len(messages) <= LOGGED_AT_ONCE + 10
    assert messages[-2:] == ["a device is unhealthy", TOO_FAST]


@in_no_time
async def test_devices_that_flap_are_logged_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    others = [Device("other")]
    with caplog.at_level(logging.INFO):
        async with logged_inventory() as inventory:
            for tenths in range(1500):
                if tenths == 700:
                    others = [Device("other", health=ILL)]
                health = ILL if tenths % 2 else Health.healthy()
                await inventory.replace([*others, *(Device(f"d{n}", health=health) for n in range(10))])
                await passes(0.1)
    lines = [vars(record) for record in caplog.records]
    assert len(lines) <= (10 + 1) * (LOGGED_AT_ONCE + 150 * LOGGED_PER_SECOND + 1) + 1
    (ill,) = [line for line in lines if line.get("device_id") == "other"]
    assert ill["message"] == "a device is unhealthy"
    counts = [line["changes"] for line in lines if line["message"] == TOO_FAST]
    assert min(counts[1:-1]) >= 90


async def test_changes_that_have_no_line_are_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with logged_inventory() as inventory:
        for number in range(100):
            await inventory.replace([Device("a", health=Health.unhealthy(f"{number} degrees"))])
    assert [record.message for record in caplog.records] == ["a device is unhealthy"]


async def test_changes_are_logged_in_order_where_a_comparison_takes_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    many = [Device(f"d{number}") for number in range(3 * SLICE_DEVICES)]
    async with logged_inventory() as inventory:
        for listed in (many, [one.with_health(ILL) for one in many], []):
            await inventory.replace(listed)
            await turns()
    assert [record.message for record in caplog.records] == ["many devices changed at once"] * 2
    assert [vars(record).get("left", 0) for record in caplog.records] == [0, len(many)]
