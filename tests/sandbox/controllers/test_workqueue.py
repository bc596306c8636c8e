"""The list of keys that a controller has to look at, and its loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from devplug.k8s.objects import text
from devplug.sandbox.api.errors import bad_request
from devplug.sandbox.controllers.workqueue import KeyIndex, WorkQueue, key_of, run_loop, split_key
from devplug.sandbox.registry import PODS
from tests.sandbox.controllers.beds import Clock, add_pod, new_registry
from tests.waiting import until

if TYPE_CHECKING:
    from devplug.sandbox.api.watchlog import WatchEvent


async def test_a_key_is_on_the_list_once_at_its_earliest_time() -> None:
    clock = Clock()
    work = WorkQueue(lambda: clock.passed)
    work.add("late", 60)
    work.add("late", 90)
    work.add("both", 80)
    work.add("both", 30)
    clock.passed = 100
    assert [await work.next(), await work.next()] == ["both", "late"]


async def test_the_next_key_is_waited_for() -> None:
    work = WorkQueue()
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(work.next())
        await asyncio.sleep(0)
        assert not first.done()
        work.add("later", 0.02)
        work.add("now")
        assert await first == "now"
        assert await work.next() == "later"


async def test_a_key_that_fails_waits_longer_each_time() -> None:
    clock = Clock()
    work = WorkQueue(lambda: clock.passed)
    for wait in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60, 60):
        work.fail("key")
        clock.passed += wait - 0.01
        work.add("other")
        assert await work.next() == "other"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await work.next()
        clock.passed += 0.02
        assert await work.next() == "key"
    work.succeed("key")
    work.fail("key")
    clock.passed += 0.11
    assert await work.next() == "key"


async def test_a_look_that_is_refused_is_tried_again() -> None:
    registry = new_registry()
    work = WorkQueue()
    looks: list[str] = []

    def look(key: str) -> None:
        looks.append(key)
        if len(looks) == 1:
            raise bad_request("not now")

    add_pod(registry, "p")
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(
            run_loop(registry, {PODS: lambda event: work.add(key_of(event.object))}, work, look)
        )
        await until(lambda: len(looks) == 2)
        task.cancel()
    assert looks == ["default/p"] * 2


async def test_an_object_that_breaks_a_controller_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = new_registry()
    work = WorkQueue()
    noted: list[str] = []
    looks: list[str] = []

    def note(event: WatchEvent) -> None:
        noted.append(key_of(event.object))
        if noted[-1] == "default/note":
            raise ZeroDivisionError
        work.add(noted[-1])

    def look(key: str) -> None:
        looks.append(key)
        if key == "default/look":
            raise ZeroDivisionError

    for name in ("note", "look", "fine"):
        add_pod(registry, name)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run_loop(registry, {PODS: note}, work, look))
        await until(lambda: looks.count("default/look") == 2)
        task.cancel()
    assert "default/fine" in looks
    assert {"default/note", "default/look"} == {
        vars(one).get("object") or vars(one).get("key") for one in caplog.records
    }


def test_a_key_names_a_place() -> None:
    registry = new_registry()
    pod = add_pod(registry, "p")
    assert split_key(key_of(pod)) == ("default", "p")
    assert split_key(key_of({"metadata": {"name": "worker-0"}})) == ("", "worker-0")
    assert text(pod, "metadata", "name") == "p"


def test_an_index_knows_who_names_whom() -> None:
    index = KeyIndex()
    assert index.put("a", ["x", "y"]) == {"x", "y"}
    assert index.put("b", ["y"]) == {"y"}
    assert index.naming("y") == ["a", "b"]
    assert index.put("a", ["z"]) == {"x", "y", "z"}
    assert [index.naming(one) for one in "xyz"] == [[], ["b"], ["a"]]
    assert index.put("a", []) == {"z"}
    assert not index.naming("z")
