"""Allocate as a kubelet calls it: its answers, the requests that it refuses, and calls side by side."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from devplug import AllocationError, ContainerResponse, Device
from devplug.devices import DeviceNode
from devplug.kubelet.pods import PodPhase
from devplug.wire import deviceplugin
from devplug.wire.values import PreferenceRequest
from tests.kubelet.fakes import pod
from tests.plugin.allocating import ADVICE, EITHER, InThread, OnLoop
from tests.plugin.fakes import (
    OTHER_RESOURCE,
    RESOURCE,
    UNPLUGGED,
    Fed,
    Listed,
    Steered,
    allocatable,
    devices,
    refusal,
    registered,
    served,
    waiting,
)
from tests.virtualtime import in_no_time, still
from tests.wire.fakes import allocate_raw, with_grpcio

# ── answers ──


async def test_by_default_a_container_gets_the_device_nodes_of_its_devices(short_dir: Path) -> None:
    async with served(short_dir, Listed(), devices("a", "b")) as plugin:
        assert list(await plugin.allocate(["b", "a"])) == [
            ContainerResponse(device_nodes=[DeviceNode("/dev/a"), DeviceNode("/dev/b")])
        ]


async def test_each_container_gets_its_own_answer_in_the_order_of_the_request(short_dir: Path) -> None:
    async with served(short_dir, InThread(), devices("a", "b", "c")) as plugin:
        answers = await plugin.allocate(["c"], ["a", "b"])
        assert [[node.host_path for node in answer.device_nodes] for answer in answers] == [
            ["/dev/c"],
            ["/dev/a", "/dev/b"],
        ]


@EITHER
async def test_a_def_runs_in_a_thread_that_cannot_hold_the_exit_and_an_async_def_on_the_loop(
    short_dir: Path, kind: type[InThread]
) -> None:
    code = kind()
    async with served(short_dir, code, devices("a")) as plugin:
        await plugin.allocate(["a"])
        (thread,) = code.threads
        assert (thread is threading.current_thread()) is (kind is OnLoop)
        assert thread.daemon or kind is OnLoop


async def test_a_def_may_return_an_awaitable(short_dir: Path) -> None:
    async with served(short_dir, InThread(Listed().allocate), devices("a")) as plugin:
        assert (await plugin.allocate(["a"]))[0].device_nodes == (DeviceNode("/dev/a"),)


async def test_the_same_request_again_has_the_same_answer(short_dir: Path) -> None:
    async with served(short_dir, InThread(), devices("a")) as plugin:
        assert list(await plugin.allocate(["a"])) == list(await plugin.allocate(["a"]))


async def test_what_the_author_is_given_are_the_devices_as_listed(short_dir: Path) -> None:
    given: list[Sequence[Device]] = []

    async def note(devices: Sequence[Device]) -> None:
        given.append(devices)

    listed = [Device("a", numa_nodes=[1], attributes={"serial": "7"})]
    async with served(short_dir, Steered(note), listed) as plugin:
        await plugin.allocate(["a"])
    assert [[*devices] for devices in given] == [listed]


async def test_prepare_runs_before_allocate_with_the_same_devices(short_dir: Path) -> None:
    class Prepared(Steered):
        async def prepare(self, devices: Sequence[Device], /) -> None:
            self.calls.append(("prepare", *(device.id for device in devices)))

    prepared = Prepared()
    async with served(short_dir, prepared, devices("a", "b")) as plugin:
        await plugin.allocate(["a", "b"])
    assert prepared.calls == [("prepare", "a", "b"), ("a", "b")]


async def test_a_prepare_that_refuses_keeps_allocate_from_running(short_dir: Path) -> None:
    class Prepared(Steered):
        def prepare(self, devices: Sequence[Device], /) -> None:
            raise AllocationError("no bitstream")

    prepared = Prepared()
    async with served(short_dir, prepared, devices("a")) as plugin:
        assert await plugin.refusal(["a"]) == "FailedPrecondition allocate: no bitstream"
    assert prepared.calls == []


# ── requests that are refused before the author's code runs ──


@pytest.mark.parametrize(
    ("containers", "text"),
    [
        ([], "InvalidArgument allocate: no container requests"),
        ([[]], "InvalidArgument allocate: container 0 asks for no devices"),
        ([["a"], []], "InvalidArgument allocate: container 1 asks for no devices"),
        ([["x"]], f'NotFound allocate: device "x" is not known to {RESOURCE}'),
        ([["a"], ["x"]], f'NotFound allocate: device "x" is not known to {RESOURCE}'),
        ([["a", "a"]], 'InvalidArgument allocate: device "a" is asked for twice'),
        ([["a"], ["a"]], 'InvalidArgument allocate: device "a" is asked for twice'),
        ([[""]], "InvalidArgument allocate: a device ID is empty"),
        ([["sick"]], f'FailedPrecondition allocate: device "sick" is unhealthy (unplugged); {ADVICE}'),
        ([["a", "sick"]], f'FailedPrecondition allocate: device "sick" is unhealthy (unplugged); {ADVICE}'),
        (
            [["y" * 64]],
            f'InvalidArgument allocate: device ID "{"y" * 59}..." is 64 characters long; at most 63 fit',
        ),
        (
            [[f"d{n}" for n in range(10_001)]],
            "ResourceExhausted allocate: 10001 devices are asked for; at most 10000 in one call",
        ),
        (
            [[f"d{n}" for n in range(6_000)], [f"e{n}" for n in range(6_000)]],
            "ResourceExhausted allocate: 12000 devices are asked for; at most 10000 in one call",
        ),
    ],
)
async def test_a_request_that_cannot_be_met_is_refused_in_these_words_and_changes_nothing(
    short_dir: Path, containers: list[list[str]], text: str
) -> None:
    steered = Steered()
    listed = [*devices("a", "b"), Device("sick", health=UNPLUGGED)]
    async with served(short_dir, steered, listed) as plugin, aclosing(plugin.lists()) as lists:
        await anext(lists)
        before = plugin.inventory.snapshot, plugin.inventory.version
        assert await plugin.refusal(*containers) == text
        assert steered.calls == []
        assert (plugin.inventory.snapshot, plugin.inventory.version) == before
        await plugin.inventory.replace(devices("b"))
        assert [device.id for device in await anext(lists)] == ["b"]  # so nothing is held
        await plugin.allocate(["b"])


@with_grpcio
@pytest.mark.parametrize("content", [b"\xff", b"\x0a\x05\x0a\x01", b"\x0a\x03\x0a\x01\xff"])
async def test_bytes_that_are_no_request_are_refused_by_name(short_dir: Path, content: bytes) -> None:
    async with served(short_dir, Listed(), devices("a")) as plugin:
        assert await allocate_raw(plugin.path, content) == "INVALID_ARGUMENT malformed AllocateRequest"
        await plugin.allocate(["a"])


async def test_a_call_before_the_first_list_waits_for_it(short_dir: Path) -> None:
    async with served(short_dir, Listed()) as plugin, asyncio.TaskGroup() as group:
        call = group.create_task(plugin.allocate(["a"]))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not call.done()
        await plugin.inventory.replace(devices("a"))
        assert (await call)[0].device_nodes == (DeviceNode("/dev/a"),)


async def test_a_call_whose_first_list_never_comes_is_refused_at_its_deadline(short_dir: Path) -> None:
    starting = Listed()
    starting.allocate_timeout_seconds = 0.05
    async with served(short_dir, starting) as plugin:
        assert await plugin.refusal(["a"]) == "Unavailable allocate: the plugin is starting"


# ── what may be held ──


async def test_a_refused_request_hands_out_nothing(short_dir: Path) -> None:
    async def refuse_the_second(given: Sequence[Device]) -> None:
        if given[0].id == "b":
            raise AllocationError("no")

    async with served(short_dir, Steered(refuse_the_second), devices("a", "b")) as plugin:
        assert "no" in await plugin.refusal(["a"], ["b"])
        await plugin.inventory.replace([])
        assert plugin.inventory.snapshot.devices == {}


async def test_a_device_that_is_dropped_while_its_answer_is_made_stays_listed(short_dir: Path) -> None:
    """The kubelet looks the device up when the answer comes, and crashes without it (manager.go)."""
    go = asyncio.Event()
    steered = Steered(waiting(go))
    async with (
        served(short_dir, steered, devices("a", "b")) as plugin,
        aclosing(plugin.lists()) as lists,
        asyncio.TaskGroup() as group,
    ):
        await anext(lists)
        call = group.create_task(plugin.allocate(["a"]))
        await steered.entered.wait()
        await plugin.inventory.replace([])
        assert [(device.id, device.health) for device in await anext(lists)] == [("a", "Unhealthy")]
        go.set()
        await call
        assert list(plugin.inventory.snapshot.devices) == ["a"]


async def test_a_device_that_is_dropped_while_its_refusal_is_made_leaves_after_it(short_dir: Path) -> None:
    go = asyncio.Event()

    async def wait_and_refuse(_: Sequence[Device]) -> None:
        await go.wait()
        raise AllocationError("no")

    steered = Steered(wait_and_refuse)
    async with served(short_dir, steered, devices("a")) as plugin, asyncio.TaskGroup() as group:
        call = group.create_task(plugin.refusal(["a"]))
        await steered.entered.wait()
        await plugin.inventory.replace([])
        assert list(plugin.inventory.snapshot.devices) == ["a"]
        go.set()
        await call
        assert list(plugin.inventory.snapshot.devices) == []


# ── turns ──


class Turns(Listed):
    """A plugin that notes how many of its `allocate` and `prefer` run at once; each waits for `go`."""

    allocate_timeout_seconds = 0.1

    def __init__(self) -> None:
        self.go, self.has_begun = threading.Event(), threading.Event()
        self.running = self.most = self.begun = 0
        self._lock = threading.Lock()

    def _run(self) -> None:
        with self._lock:
            self.begun += 1
            self.running += 1
            self.most = max(self.most, self.running)
        self.has_begun.set()
        self.go.wait()
        with self._lock:
            self.running -= 1

    def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
        self._run()
        return ContainerResponse.of(devices)

    def prefer(
        self, available: Sequence[Device], must_include: Sequence[Device], size: int, /
    ) -> Sequence[Device]:
        self._run()
        return available


@in_no_time
async def test_allocate_and_prefer_never_overlap_even_when_one_has_missed_its_deadline(
    short_dir: Path,
) -> None:
    turns = Turns()
    async with served(short_dir, turns, devices("a")) as plugin, asyncio.TaskGroup() as group:
        late = group.create_task(plugin.refusal(["a"]))
        async with still():
            await asyncio.to_thread(turns.has_begun.wait)
        assert await late == "DeadlineExceeded allocate: no answer in 0.1s"
        assert await plugin.refusal(["a"]) == "DeadlineExceeded allocate: no answer in 0.1s"
        preference = [PreferenceRequest(("a",), (), 1)]
        prefer = deviceplugin.GET_PREFERRED_ALLOCATION
        assert [*await plugin.peer.call(prefer, preference)] == [()]
        assert turns.begun == 1
        turns.go.set()
        async with still():
            await plugin.allocate(["a"])
            assert [*await plugin.peer.call(prefer, preference)] == [("a",)]
        assert turns.most == 1


async def test_many_calls_at_once_run_one_after_the_other(short_dir: Path) -> None:
    running = most = 0

    async def count(_: Sequence[Device]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    steered = Steered(count)
    names = [f"a{number}" for number in range(64)]
    async with served(short_dir, steered, devices(*names)) as plugin, asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(plugin.allocate([name]))
    assert most == 1
    assert len(steered.calls) == 64


async def test_a_blocked_def_blocks_neither_the_list_nor_other_plugins(short_dir: Path) -> None:
    go = threading.Event()

    class Blocked(Fed):
        def allocate(self, devices: Sequence[Device], /) -> ContainerResponse:
            go.wait()
            return ContainerResponse.of(devices)

    blocked, other = Blocked("a"), Fed("x", resource_name=OTHER_RESOURCE)
    async with registered(short_dir, blocked, other) as (kubelet, _), asyncio.TaskGroup() as group:
        await kubelet.wait(lambda: allocatable(kubelet) == allocatable(kubelet, OTHER_RESOURCE) == 1)
        admission = group.create_task(kubelet.admit(pod("p")))
        blocked.feed.put(*devices("b"))
        await kubelet.wait(lambda: allocatable(kubelet) == 2)
        other.feed.put(*devices("y"))
        await kubelet.wait(lambda: allocatable(kubelet, OTHER_RESOURCE) == 2)
        go.set()
        assert (await admission).phase is PodPhase.PENDING


@in_no_time
async def test_a_call_that_the_kubelet_gives_up_leaves_no_trace(short_dir: Path) -> None:
    async def hang(_: Sequence[Device]) -> None:
        if len(steered.calls) == 1:
            await asyncio.Event().wait()

    steered = Steered(hang)
    async with served(short_dir, steered, devices("a")) as plugin:
        given_up = plugin.peer.call(deviceplugin.ALLOCATE, [("a",)], timeout_seconds=0.05)
        assert (await refusal(given_up)).startswith("DeadlineExceeded")
        await plugin.allocate(["a"])
