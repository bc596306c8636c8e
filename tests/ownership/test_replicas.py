"""Held replicas, and edits of how many there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.hosts import needs_mknod
from tests.ownership.machine import Stick
from tests.ownership.node import Described, Node, node, usb
from tests.virtualtime import on_virtual_time

anyio_backend = on_virtual_time
pytestmark = needs_mknod

ANY, OTHER = "example.com/any", "example.com/other"
FIRST = Stick("first", "S")

Change = Callable[[Node, Described], Awaitable[None]]

changes = pytest.mark.parametrize(
    "change",
    [
        pytest.param(Node.edit, id="edit"),
        pytest.param(Node.restart, id="restart", marks=pytest.mark.nightly),
        pytest.param(lambda here, one: here.restart(one, is_killed=True), id="kill"),
    ],
)


def shared(replicas: int, name: str = ANY, **more: Any) -> Described:
    return {**usb(name, **more), **({"share": {"replicas": replicas}} if replicas > 1 else {})}


@changes
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), pytest.param(3, 2, marks=pytest.mark.nightly)])
async def test_held_replicas_stay_healthy_and_count_once(
    short_dir: Path, change: Change, before: int, after: int
) -> None:
    """Rules 2 and 4: an edit of share changes nothing for what is held."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(shared(before))
        for number in range(before):
            await here.must_run(f"p{number}", ANY)
        await here.quiet()
        await change(here, shared(after))
        assert [here.health(f"p{number}") for number in range(before)] == [{"Healthy"}] * before
        assert here.capacity() == {ANY: before}
        for number in range(before):
            here.end(f"p{number}")
        await here.quiet()
        assert here.capacity() == {ANY: after}


@changes
@pytest.mark.parametrize("last", [pytest.param(0, marks=pytest.mark.nightly), 1])
async def test_shared_stick_is_cleaned_after_its_last_use_under_other_replicas(
    short_dir: Path, change: Change, last: int
) -> None:
    """Rule 8."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(shared(2, **here.cleaning()))
        for number in range(2):
            await here.must_run(f"p{number}", ANY)
        await here.quiet()
        await change(here, shared(1, **here.cleaning()))
        here.end(f"p{1 - last}")
        await here.quiet()
        assert here.cleaned() == []
        here.end(f"p{last}")
        await here.quiet()
        assert here.cleaned() == ["first"]


@changes
@pytest.mark.parametrize("last", [0, 1])
async def test_renamed_resource_waits_for_the_last_replica(
    short_dir: Path, change: Change, last: int
) -> None:
    """Rule 4."""
    async with node(short_dir) as here:
        here.machine.plug(FIRST, "1")
        await here.start(shared(3))
        for number in range(2):
            await here.must_run(f"p{number}", ANY)
        await change(here, shared(3, OTHER))
        assert await here.run("q", OTHER) is None
        here.end(f"p{1 - last}")
        await here.quiet()
        assert await here.run("r", OTHER) is None
        here.end(f"p{last}")
        await here.quiet()
        await here.must_run("s", OTHER)
