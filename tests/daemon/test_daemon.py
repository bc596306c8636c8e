"""A configuration as served plugins: which of its resources this machine has, and that they are served."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from devplug.daemon.config.selectors import StaticSelector
from devplug.daemon.placement import placement_of
from devplug.daemon.service import serve_config
from devplug.daemon.sources.device import HostDevice
from devplug.daemon.sources.kinds import StaticSource
from devplug.kubelet.kubelet import Kubelet
from devplug.plugin.drivers import NODE_NAME_VARIABLE
from tests.daemon.hosts import config
from tests.virtualtime import on_virtual_time

anyio_backend = on_virtual_time
TWO = """
- {name: example.com/here, discover: {static: {ids: [a, b]}}, nodeNames: ["gpu-*", edge]}
- {name: example.com/all, discover: {static: {ids: [c]}}}
"""


@pytest.mark.parametrize(
    ("node_name", "names"),
    [
        ("gpu-1", ["example.com/here", "example.com/all"]),
        ("edge", ["example.com/here", "example.com/all"]),
        ("edge-1", ["example.com/all"]),
        ("GPU-1", ["example.com/all"]),
    ],
)
def test_a_machine_has_the_resources_whose_globs_cover_its_name(node_name: str, names: list[str]) -> None:
    assert [resource.name for resource in placement_of(config(TWO), node_name, None).here] == names


async def test_all_resources_of_this_machine_are_served(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NODE_NAME_VARIABLE, "edge")
    kubelet = Kubelet(short_dir)
    async with kubelet.running(), serve_config(config(TWO), plugin_dir=short_dir):
        await kubelet.wait(lambda: kubelet.capacity() == {"example.com/all": 1, "example.com/here": 2})


async def test_resources_of_other_machines_are_left_out_and_named_in_the_log(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(NODE_NAME_VARIABLE, "cpu-1")

    async def scenario() -> None:
        async with serve_config(config(TWO), plugin_dir=short_dir) as serving:
            assert [plugin.resource_name for plugin in serving.plugins] == ["example.com/all"]

    with caplog.at_level(logging.INFO, "devplug.daemon"):
        await scenario()
    (record,) = [record for record in caplog.records if record.name == "devplug.daemon.daemon"]
    assert (vars(record)["names"], vars(record)["node"]) == (["example.com/here"], "cpu-1")


async def test_nothing_is_left_in_the_folder_when_the_block_is_left(short_dir: Path) -> None:
    async with serve_config(config(TWO), plugin_dir=short_dir) as serving:
        async with asyncio.timeout(30):
            while not list(short_dir.iterdir()):  # noqa: ASYNC110 -- nothing tells of the lock without a kubelet
                await asyncio.sleep(0)
        assert serving.plugins
    assert list(short_dir.iterdir()) == []


# ── devices without hardware ──────────────────────────────────────────────────────────────────────


def test_static_devices_are_sorted_and_know_their_numa_nodes() -> None:
    source = StaticSource((StaticSelector(ids=("b", "a"), numa_nodes={"b": 1}), StaticSelector(ids=("c",))))
    assert source.look() == (HostDevice("a"), HostDevice("b", (), 1, {"numaNode": 1}), HostDevice("c"))
