"""Between two holders: a device is cleaned before the next container has it, whatever comes first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from devplug import serve
from devplug.daemon.config.types import Resource
from devplug.daemon.context import DaemonContext
from devplug.daemon.resource import ConfiguredPlugin, care_of
from devplug.daemon.service import serve_config
from devplug.daemon.sources.device import HostDevice
from devplug.devices import Device
from devplug.errors import UnhealthyDeviceError
from devplug.holds.hardware import Hardware, Use
from devplug.holds.held_device import Rules
from devplug.holds.held_devices import HeldDevices
from devplug.holds.holders import Holders
from devplug.holds.ownership import Claims
from devplug.kubelet.kubelet import Kubelet
from devplug.kubelet.pods import Container, Pod, PodPhase
from devplug.kubelet_dir import CHECKPOINT_NAME
from tests.daemon.hosts import config, link, resource
from tests.kubelet.fakes import RESOURCE, SYSTEM, healthy, registered
from tests.virtualtime import on_virtual_time, passes
from tests.waiting import until

anyio_backend = on_virtual_time
QUICK = Rules(period_seconds=0.05, grace_seconds=0.05)


def with_command(key: str, script: str, rest: str = "") -> Resource:
    text = f'{key}: {{exec: {{command: [/bin/sh, -c, "{script}"]}}}}'
    return resource(f"discover: {{static: {{ids: [a, b]}}}}, {text}, {rest}".rstrip(", "))


def held_devices(described: Resource, holders: Holders | None, **more: Any) -> HeldDevices[HostDevice]:
    return HeldDevices(care_of(described), holders, **more)


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


# ── before the next one has it ──


async def test_a_device_that_is_given_out_again_is_cleaned_first(tmp_path: Path) -> None:
    log = tmp_path / "log"
    held = held_devices(with_command("onRelease", f"echo $DEVPLUG_DEVICE_ID >> {log}"), None)
    await held.before_giving([Device("a")])
    held.give([Device("a")])
    assert lines(log) == []
    await held.before_giving([Device("a"), Device("b")])
    assert lines(log) == ["a"]
    await held.before_giving([Device("a")])
    assert lines(log) == ["a"]


async def test_a_device_that_cannot_be_cleaned_is_refused_and_unhealthy_until_it_can(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    held = held_devices(
        with_command("onRelease", f"test ! -e {broken} || {{{{ echo stuck; exit 7; }}}}"), None
    )
    held.give([Device("a")])
    with pytest.raises(UnhealthyDeviceError) as refused:
        await held.before_giving([Device("a")])
    assert refused.value.reason == "onRelease ended with 7: stuck"
    assert held.health_of("a").reason == "onRelease ended with 7: stuck"
    assert held.changed.is_set()
    broken.unlink()
    await held.before_giving([Device("a")])
    assert held.health_of("a").reason == ""


async def test_a_cleaning_that_failed_is_tried_again_by_itself(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    held = held_devices(with_command("onRelease", f"test ! -e {broken}"), None, retry_seconds=0.05)
    held.give([Device("a")])
    with pytest.raises(UnhealthyDeviceError):
        await held.before_giving([Device("a")])
    async with asyncio.TaskGroup() as group:
        running = group.create_task(held.run())
        broken.unlink()
        await until(lambda: not held.health_of("a").reason)
        running.cancel()


async def test_a_device_of_which_others_hold_a_replica_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    one = with_command("onRelease", f"echo $DEVPLUG_DEVICE_ID >> {log}", "share: {replicas: 2}")
    held = held_devices(one, None)
    held.give([Device("a::0"), Device("a::1")])
    await held.before_giving([Device("a::0")])
    assert lines(log) == []


async def test_the_command_knows_what_the_device_says_of_itself(tmp_path: Path) -> None:
    log = tmp_path / "log"
    one = resource(
        'discover: {usb: {vendor: "0403"}}, '
        "onRelease: {exec: {command: "
        f'[/bin/sh, -c, "echo $0 $DEVPLUG_SERIAL > {log}", "{{serial}}"]}}}}'
    )
    held = held_devices(one, None)
    held.follow([HostDevice("a", facts={"serial": "A6008"})], is_any_gone=False)
    held.give([Device("a")])
    await held.before_giving([Device("a")])
    assert lines(log) == ["A6008", "A6008"]


# ── by claims, which two daemons may serve ──


class Claimed:
    """The devices that claims use, and two daemons that share the driver's record of them."""

    def __init__(self, folder: Path, rest: str = "") -> None:
        self.log, self.broken = folder / "log", folder / "broken"
        self.ids: set[str] = set()
        self.adopted: dict[str, Use] = {}
        self.are_lost = False
        one = with_command(
            "onRelease", f"echo $DEVPLUG_DEVICE_ID >> {self.log}; test ! -e {self.broken}", rest
        )
        claims = Claims(lambda: frozenset(self.ids), adopt=self.adopt, are_records_lost=lambda: self.are_lost)
        self.old, self.new = (
            held_devices(one, None, claims=claims, dirty_file=folder / "dirty") for _ in range(2)
        )

    async def adopt(self, uses: Mapping[str, Use]) -> None:
        self.adopted.update(uses)

    async def give(self, held: HeldDevices[HostDevice], *ids: str) -> None:
        """Do what the driver and the plugin do when a claim is prepared."""
        self.ids.update(ids)
        devices = [Device(one) for one in ids]
        await held.before_giving(devices)
        held.give(devices)

    async def release(self, held: HeldDevices[HostDevice], *ids: str) -> None:
        """Do what they do when it is unprepared."""
        await held.release(ids)
        self.ids.difference_update(ids)


async def test_what_one_daemon_gave_the_other_one_cleans_once(tmp_path: Path) -> None:
    node = Claimed(tmp_path)
    for first, second in ((node.old, node.new), (node.new, node.old)):
        await node.give(first, "a")
        assert node.old.held_ids() == node.new.held_ids() == {"a"}
        await node.release(second, "a")
        assert not node.old.held_ids() | node.new.held_ids()
    assert lines(node.log) == ["a", "a"]


async def test_devices_of_lost_records_are_cleaned_once_but_for_those_in_use(tmp_path: Path) -> None:
    node = Claimed(tmp_path)
    node.new.follow([HostDevice("a"), HostDevice("b"), HostDevice("c")], is_any_gone=False)
    await node.give(node.new, "b")
    node.are_lost = True
    for _ in range(2):
        await node.give(node.new, "a")
        await node.release(node.new, "a")
    assert lines(node.log) == ["a", "a", "a"]
    await node.give(node.new, "c")
    assert lines(node.log) == ["a", "a", "a", "c"]


async def test_replicas_that_are_released_at_the_same_time_are_cleaned_once(tmp_path: Path) -> None:
    node = Claimed(tmp_path, "share: {replicas: 3}")
    await node.give(node.old, "a::0", "a::1", "a::2")
    await node.release(node.old, "a::2")
    assert lines(node.log) == []
    async with asyncio.TaskGroup() as group:
        for one in ("a::0", "a::1"):
            group.create_task(node.release(node.old, one))
    assert lines(node.log) == ["a"]


@pytest.mark.parametrize("content", ['["a"]', "["], ids=["whole", "damaged"])
async def test_what_an_older_version_left_to_clean_is_recorded_by_the_driver(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "dirty").write_text(content)
    node = Claimed(tmp_path)
    hardware = Hardware("1-2", "S")
    node.new.follow([HostDevice("a", identity=hardware)], is_any_gone=False)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(node.new.run())
        await until(lambda: not (tmp_path / "dirty").exists())
        running.cancel()
    assert node.adopted == {"a": Use("a", hardware, is_dirty=True)}


@pytest.mark.parametrize("content", ['["a"]', "["], ids=["whole", "damaged"])
async def test_what_an_older_version_left_to_clean_is_cleaned_before_it_is_given(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "dirty").write_text(content)
    node = Claimed(tmp_path)
    node.new.follow([HostDevice("a")], is_any_gone=False)
    for _ in range(2):
        await node.give(node.new, "a")
    assert lines(node.log) == ["a"]


# ── with a kubelet that tells who holds what ──


@asynccontextmanager
async def told(root: Path) -> AsyncIterator[tuple[Kubelet, Holders]]:
    kubelet = Kubelet.under(root)
    checkpoint = root / "device-plugins" / CHECKPOINT_NAME
    holders = Holders(root / "pod-resources" / "kubelet.sock", checkpoint=checkpoint, rules=QUICK)
    async with kubelet.running(), asyncio.TaskGroup() as group:
        asking = group.create_task(holders.run())
        yield kubelet, holders
        asking.cancel()


def pod(name: str = "p", kind: str = "a") -> Pod:
    return Pod(f"uid-{name}", name, containers=(Container("main", {f"example.com/{kind}": 1}),))


async def test_a_device_that_came_free_is_held_until_it_is_clean(short_dir: Path) -> None:
    log = short_dir / "log"
    async with (
        told(short_dir) as (kubelet, holders),
        registered(kubelet, healthy("a")),
        asyncio.TaskGroup() as group,
    ):
        held = held_devices(with_command("onRelease", f"echo $DEVPLUG_DEVICE_ID >> {log}"), holders)
        running = group.create_task(held.run())
        held.give([Device("a")])
        assert held.held_names() == {"a"}
        await until(lambda: not held.held_names())
        assert lines(log) == ["a"]
        running.cancel()


FILE = """
- name: example.com/a
  discover: {{path: "{root}/by-id/*"}}
  whenUnplugged: {{keepUnhealthyFor: 0s}}
  onRelease: {{exec: {{command: [/bin/sh, -c, "echo free $DEVPLUG_DEVICE_ID >> {root}/log"]}}}}
  onLost: {{exec: {{command: [/bin/sh, -c, "echo lost $DEVPLUG_DEVICE_ID >> {root}/log"]}}}}
"""


@asynccontextmanager
async def daemon(root: Path) -> AsyncIterator[tuple[Kubelet, Path, Callable[[], bool]]]:
    """A kubelet, a daemon with its own times, its commands' log, and whether it remembers who holds what."""
    kubelet = Kubelet.under(root)
    monitoring = root / "pod-resources" / "kubelet.sock"
    file = config(FILE.format(root=root))

    def is_remembered() -> bool:
        memory = kubelet.plugin_dir / ".devplug"
        return any('"p"' in one.read_text() for one in memory.glob("held-*.json"))

    async with kubelet.running(), serve_config(file, plugin_dir=kubelet.plugin_dir, pod_resources=monitoring):
        yield kubelet, root / "log", is_remembered


async def test_a_held_device_that_is_pulled_out_stays_listed_until_its_pod_is_over(short_dir: Path) -> None:
    """It is cleaned when it is there again: its paths may lead to other hardware meanwhile."""
    device = link(short_dir / "by-id" / "x0")
    async with daemon(short_dir) as (kubelet, log, is_remembered):
        await kubelet.wait(lambda: kubelet.allocatable() == {"example.com/a": 1})
        assert (await kubelet.run_pod(pod())).phase is PodPhase.RUNNING
        await until(is_remembered)
        device.unlink()
        await kubelet.wait(lambda: not kubelet.allocatable().get("example.com/a"))
        assert kubelet.capacity() == {"example.com/a": 1}
        await until(lambda: lines(log) == ["lost", "x0"])
        kubelet.remove_pod("uid-p")
        await kubelet.wait(lambda: not kubelet.capacity().get("example.com/a"))
        assert lines(log) == ["lost", "x0"]
        link(device)
        await kubelet.wait(lambda: kubelet.allocatable() == {"example.com/a": 1})
        await until(lambda: lines(log) == ["lost", "x0", "free", "x0"])


async def test_a_device_stays_held_while_a_new_kubelet_waits_for_the_api_server(short_dir: Path) -> None:
    """A real node showed it: a static pod got a device, and the other one was cleaned under its container."""
    for name in ("x0", "x1"):
        link(short_dir / "by-id" / name)
    async with daemon(short_dir) as (kubelet, log, is_remembered):
        await kubelet.wait(lambda: kubelet.allocatable() == {"example.com/a": 2})
        await kubelet.run_pod(pod())
        await until(is_remembered)
        kubelet.lose_api_server()
        await kubelet.restart()
        await kubelet.wait(lambda: kubelet.allocatable() == {"example.com/a": 2})
        static = await kubelet.run_pod(replace(pod("static"), is_static=True))
        assert static.phase is PodPhase.RUNNING
        await passes(310)
        assert lines(log) == []
        kubelet.remove_pod("uid-p")
        await passes(310)
        assert lines(log) == []
        await kubelet.find_api_server()
        await until(lambda: lines(log) == ["free", "x0"])
        kubelet.remove_pod("uid-static")
        await until(lambda: lines(log) == ["free", "x0", "free", "x1"])


async def test_ids_of_another_number_of_replicas_leave_the_list_once_they_are_free(short_dir: Path) -> None:
    link(short_dir / "by-id" / "x0")

    def shared(replicas: int) -> Resource:
        return resource(f'discover: {{path: "{short_dir}/by-id/*"}}, share: {{replicas: {replicas}}}')

    async with told(short_dir) as (kubelet, holders), serve(plugin_dir=short_dir / "device-plugins") as one:
        machine = DaemonContext(holders=holders)
        holders.own(RESOURCE)
        four = ConfiguredPlugin(shared(4), machine)
        one.add(four, held_ids=four.held.held_ids)
        await kubelet.wait(lambda: kubelet.allocatable() == {RESOURCE: 4})
        await kubelet.run_pod(SYSTEM)
        for name in ("p", "q", "r"):
            limits = {RESOURCE: 1}
            await kubelet.run_pod(Pod(f"uid-{name}", name, containers=(Container("main", limits),)))
        await one.remove(RESOURCE)
        two = ConfiguredPlugin(shared(2), machine, before=four)
        one.add(two, held_ids=two.held.held_ids)
        await kubelet.wait(lambda: kubelet.capacity() == {RESOURCE: 3})
        for name in ("p", "q", "r"):
            kubelet.remove_pod(f"uid-{name}")
        await kubelet.wait(lambda: kubelet.capacity() == {RESOURCE: 2})
