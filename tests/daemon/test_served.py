"""Health rules, preference and CDI of the file, as a kubelet at the other end of the socket sees them."""

from __future__ import annotations

import json
from contextlib import aclosing
from pathlib import Path

import pytest

from devplug.cdi.spec import kind_of, qualified_name
from devplug.daemon.cdi.spec_files import CdiFolder, file_name
from devplug.daemon.config.types import Resource
from devplug.daemon.context import DaemonContext
from devplug.daemon.daemon import plugin_of
from devplug.daemon.resource import ConfiguredPlugin
from devplug.kubelet.changes import ChangeKind
from devplug.kubelet.pods import PodPhase
from devplug.plugin.contract import options_of
from devplug.wire.deviceplugin import GET_PREFERRED_ALLOCATION
from devplug.wire.sockets import connected
from devplug.wire.values import PreferenceRequest
from tests.daemon.hosts import char_node, link, needs_mknod, resource
from tests.daemon.served import container, plugin, serving, table
from tests.kubelet.fakes import RESOURCE, happened, pod
from tests.virtualtime import on_virtual_time
from tests.waiting import until

anyio_backend = on_virtual_time


def by_id(folder: Path, rest: str) -> Resource:
    return resource(f'discover: {{path: "{folder}/by-id/*"}}, {rest}')


# ── health ──


async def test_a_device_is_first_listed_once_its_rules_have_been_asked(short_dir: Path) -> None:
    link(short_dir / "by-id" / "x0")
    (short_dir / "state").write_text("hot")
    one = plugin(short_dir, f'health: [{{file: "{short_dir}/state", equals: ok, failureThreshold: 1}}]')
    async with aclosing(one.devices()) as lists:
        (device,) = await anext(lists)
        assert "hot" in device.health.reason
    async with serving(short_dir, one) as kubelet:
        assert table(kubelet) == {"x0": "Unhealthy"}


async def test_a_device_that_a_rule_condemns_is_unhealthy_and_healthy_again_when_it_recovers(
    short_dir: Path,
) -> None:
    link(short_dir / "by-id" / "x0")
    state = short_dir / "state"
    state.write_text("ok")
    rule = f'health: [{{file: "{state}", equals: ok, period: 1s, failureThreshold: 1}}]'
    async with serving(short_dir, plugin(short_dir, rule)) as kubelet:
        assert table(kubelet) == {"x0": "Healthy"}
        state.write_text("hot")
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Unhealthy"})
        state.write_text("ok")
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Healthy"})


async def test_a_device_that_is_plugged_in_is_listed_after_its_first_check(short_dir: Path) -> None:
    """No pod may have it before the rule had a look at it."""
    (short_dir / "state").write_text("hot")
    rule = f'health: [{{file: "{short_dir}/state", equals: ok}}]'
    async with serving(short_dir, plugin(short_dir, rule)) as kubelet:
        with kubelet.changes() as changes:
            link(short_dir / "by-id" / "x0")
            await happened(changes, ChangeKind.LISTED)
        assert table(kubelet) == {"x0": "Unhealthy"}


# ── overlap ──


async def test_what_two_resources_find_the_second_one_lists_when_the_first_has_lost_it(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    machine = DaemonContext()
    machine.ownership.reorder(["example.com/z", "example.com/b"])
    first = link(short_dir / "first" / "x0", "/dev/tty")
    link(short_dir / "second" / "y0", "/dev/tty")
    rest = "whenNone: empty, whenUnplugged: {keepUnhealthyFor: 0s}"
    plugins = [
        ConfiguredPlugin(resource(f'discover: {{path: "{short_dir}/{folder}/*"}}, {rest}', name), machine)
        for folder, name in (("first", "example.com/z"), ("second", "example.com/b"))
    ]
    async with serving(short_dir, *plugins) as kubelet:
        await kubelet.wait(lambda: kubelet.capacity() == {"example.com/z": 1, "example.com/b": 0})
        first.unlink()
        await kubelet.wait(lambda: kubelet.capacity() == {"example.com/z": 0, "example.com/b": 1})
    (warning,) = (record for record in caplog.records if record.message.startswith("a device is not offered"))
    assert (warning.__dict__["device_id"], warning.__dict__["reason"]) == ("y0", "belongs to example.com/z")


# ── preference ──


@pytest.mark.parametrize("rest", ["", "prefer: none", "share: {maxPerContainer: 1}", "share: {replicas: 2}"])
def test_preference_is_always_announced(short_dir: Path, rest: str) -> None:
    """Options are part of a registration, which outlives every edit."""
    assert options_of(plugin_of(by_id(short_dir, rest), DaemonContext())).preferred_allocation_available


async def test_without_preference_the_kubelet_chooses_itself(short_dir: Path) -> None:
    names = [f"x{number}" for number in range(4)]
    for name in names:
        link(short_dir / "by-id" / name)
    one = plugin_of(by_id(short_dir, "prefer: none"), DaemonContext())
    async with serving(short_dir, one) as kubelet:
        (socket,) = (short_dir / "plugins").glob("devplug-*.sock")
        async with connected(socket) as peer:
            asked = [PreferenceRequest(tuple(names), ("x3",), 2)]
            chosen = await peer.call(GET_PREFERRED_ALLOCATION, asked)
            assert list(chosen) == [("x3",)]
        assert (await kubelet.run_pod(pod("p", 3))).phase is PodPhase.RUNNING


async def test_replicas_are_taken_from_the_device_that_is_used_least(short_dir: Path) -> None:
    for name in ("x0", "x1"):
        link(short_dir / "by-id" / name)
    one = plugin_of(by_id(short_dir, "share: {replicas: 3}"), DaemonContext())
    async with serving(short_dir, one) as kubelet:
        first = await kubelet.run_pod(pod("p1"))
        second = await kubelet.run_pod(pod("p2"))
        held = {allocation.device_ids[0].partition("::")[0] for allocation in kubelet.allocations()}
        assert (first.phase, second.phase, held) == (first.phase, first.phase, {"x0", "x1"})


# ── CDI ──


def cdi_plugin(folder: Path, rest: str = "") -> tuple[ConfiguredPlugin, Path]:
    cdi = folder / "cdi"
    machine = DaemonContext(cdi=CdiFolder(cdi))
    one = by_id(folder, f"expose: {{strategy: cdi{rest}}}")
    return ConfiguredPlugin(one, machine), cdi / file_name(kind_of(RESOURCE))


@needs_mknod
async def test_with_cdi_a_container_gets_a_name_and_the_runtime_a_file(short_dir: Path) -> None:
    char_node(short_dir / "real" / "chip0")
    link(short_dir / "by-id" / "x0", short_dir / "real" / "chip0")
    one, file = cdi_plugin(
        short_dir, ', containerPath: "/dev/chip{index}", owner: {uid: 1000, gid: 27}, mode: "0660"'
    )
    async with serving(short_dir, one) as kubelet:
        given = await container(kubelet)
        assert given.device_nodes == ()
        assert given.cdi_devices == (qualified_name(kind_of(RESOURCE), "x0"),)
        names = {"path": "/dev/chip0", "hostPath": f"{short_dir}/real/chip0"}
        rights = {"permissions": "rw", "uid": 1000, "gid": 27, "fileMode": 0o660}
        edits = {"deviceNodes": [names | rights]}
        assert json.loads(file.read_text())["devices"] == [{"name": "x0", "containerEdits": edits}]


@needs_mknod
async def test_a_replugged_device_is_another_file_under_the_same_name(short_dir: Path) -> None:
    """A container that restarts then gets the node that is there, without a new Allocate."""
    for number in (0, 1):
        char_node(short_dir / "real" / f"chip{number}", number)
    link(short_dir / "by-id" / "x0", short_dir / "real" / "chip0")
    one, file = cdi_plugin(short_dir)

    def host_path() -> str:
        (device,) = json.loads(file.read_text())["devices"]
        return str(device["containerEdits"]["deviceNodes"][0]["hostPath"])

    async with serving(short_dir, one) as kubelet:
        await container(kubelet)
        (short_dir / "by-id" / "x0").unlink()
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Unhealthy"})
        await until(lambda: host_path() != f"{short_dir}/real/chip0")
        link(short_dir / "by-id" / "x0", short_dir / "real" / "chip1")
        await kubelet.wait(lambda: table(kubelet) == {"x0": "Healthy"})
        await until(lambda: host_path() == f"{short_dir}/real/chip1")
