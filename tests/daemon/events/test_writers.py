"""What waits for the API server: bounded, ageing, and one thing that fails does not keep the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from devplug.daemon.events.objects import Event, Notice, Reason, event_name
from devplug.daemon.events.writers import EVENT_LIFE_SECONDS, EVENTS_LIMIT, EventWriter
from devplug.k8s.account import chosen_account
from devplug.k8s.client import ApiServer, connected
from devplug.k8s.errors import ClusterError
from devplug.sandbox.cluster import Sandbox
from devplug.sandbox.registry import EVENTS
from devplug.sandbox.settings import SandboxSettings

NOW = 1_700_000_000.0


def event(suffix: str, count: int = 1, at: float = NOW, *, is_new: bool = True) -> Event:
    notice = Notice(Reason.DEVICE_UNHEALTHY, "example.com/a", "example.com/a: x", is_warning=True)
    return Event(suffix, notice, count, at, at, is_new)


def lane() -> EventWriter:
    return EventWriter("m", lambda: NOW)


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[tuple[Sandbox, ApiServer, EventWriter]]:
    sandbox = Sandbox(SandboxSettings(folder=folder / "s"))
    async with sandbox.running(), connected(lambda: chosen_account(str(sandbox.kubeconfig), None)) as server:
        yield sandbox, server, lane()


def written(sandbox: Sandbox) -> dict[str, int]:
    found: list[Any] = list(sandbox.registry.listing(EVENTS).items)
    return {
        one["metadata"]["name"]: one["count"] for one in found if one.get("reportingComponent") == "devplug"
    }


async def test_an_event_whose_creation_got_no_answer_is_not_made_twice(short_dir: Path) -> None:
    async with cluster(short_dir) as (sandbox, server, first):
        again = lane()
        first.put(event("a"))
        await first.write(server)
        again.put(event("a", 3))
        await again.write(server)
        assert written(sandbox) == {"m.a": 3}


async def test_what_changes_while_it_waits_is_written_once_and_created_if_it_was_not(short_dir: Path) -> None:
    async with cluster(short_dir) as (sandbox, server, one):
        one.put(event("a"))
        one.put(event("a", 2, is_new=False))
        await one.write(server)
        assert written(sandbox) == {"m.a": 2}


async def test_what_changes_while_it_is_written_is_written_again(short_dir: Path) -> None:
    async with cluster(short_dir) as (sandbox, server, one):
        one.put(event("a"))
        async with asyncio.TaskGroup() as group:
            group.create_task(one.write(server))
            await asyncio.sleep(0)
            one.put(event("a", 2, is_new=False))
        assert one.is_done
        assert written(sandbox) == {"m.a": 2}


async def test_an_event_that_the_server_does_not_take_does_not_keep_the_others(short_dir: Path) -> None:
    async with cluster(short_dir) as (sandbox, server, one):
        one.put(event("NO NAME"))
        one.put(event("b"))
        for _ in range(3):
            with pytest.raises(ClusterError):
                await one.write(server)
        assert written(sandbox) == {"m.b": 1}


async def test_an_event_that_waited_for_an_hour_is_dropped(short_dir: Path) -> None:
    async with cluster(short_dir) as (sandbox, server, one):
        one.put(event("a", at=NOW - EVENT_LIFE_SECONDS - 1))
        one.put(event("b", at=NOW - EVENT_LIFE_SECONDS + 1))
        await one.write(server)
        assert one.is_done
        assert written(sandbox) == {"m.b": 1}


async def test_of_too_many_the_oldest_are_dropped(short_dir: Path) -> None:
    async with cluster(short_dir) as (sandbox, server, one):
        for number in range(EVENTS_LIMIT + 2):
            one.put(event(f"{number:03}"))
        await one.write(server)
        assert sorted(written(sandbox)) == [f"m.{number:03}" for number in range(2, EVENTS_LIMIT + 2)]


def test_the_name_of_an_event_fits_whatever_the_node_is_called() -> None:
    long = "n" * 252 + "."
    name = event_name(long, replace(event("0f"), suffix="0f"))
    assert len(name) <= 253
    assert name.endswith("n.0f")
