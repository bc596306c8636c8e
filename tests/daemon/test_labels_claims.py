"""Resources with a nodeSelector that pods get by claims: their devices stay published until it is decided."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from devplug.daemon.config.loader import load
from devplug.daemon.service import serve_config
from devplug.driver.device_entries import device_name
from devplug.kubelet.kubelet import Kubelet
from devplug.plugin.drivers import NODE_NAME_VARIABLE
from devplug.plugin.serving import Serving
from devplug.sandbox.registry import NODES
from tests.driver.apiserver import NODE, Cluster, cluster
from tests.virtualtime import on_virtual_time, passes
from tests.waiting import until

anyio_backend = on_virtual_time

ALL, GPU = "example.com/all", "example.com/gpu"
FILE = f"""
version: 1
driver: d.example.com
resources:
- {{name: {ALL}, serve: dra, discover: {{static: {{ids: [a0]}}}}}}
- {{name: {GPU}, serve: dra, discover: {{static: {{ids: [g0]}}}}}}
"""
SELECTED = FILE.replace("[g0]}}}", '[g0]}}, nodeSelector: {gpu: "on"}}')
BOTH = {device_name(ALL, "a0"), device_name(GPU, "g0")}


@pytest.fixture(autouse=True)
def _account(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NODE_NAME_VARIABLE, NODE)
    monkeypatch.setenv("KUBECONFIG", str(short_dir / "kubeconfig"))


@asynccontextmanager
async def daemon(root: Path, text: str, look_again: asyncio.Event | None = None) -> AsyncIterator[Serving]:
    """A daemon that reads this text from a file."""
    (root / "c.yaml").write_text(text)
    async with serve_config(
        load(text, "c.yaml"),
        plugin_dir=root / "device-plugins",
        cdi_folder=root / "cdi",
        file=root / "c.yaml",
        look_again=look_again,
    ) as serving:
        yield serving


def label(server: Cluster, **labels: str) -> None:
    def labelled(old: Any) -> Any:
        return {**old, "metadata": {**old["metadata"], "labels": labels}}

    server.registry.update(NODES, "", NODE, labelled)


@asynccontextmanager
async def node(root: Path) -> AsyncIterator[Cluster]:
    """A node whose kubelet knows drivers, with the label."""
    (root / "plugins_registry").mkdir()
    kubelet = Kubelet.under(root)
    async with cluster(root) as server, kubelet.running():
        label(server, gpu="on")
        yield server


@pytest.mark.parametrize("has_label", [True, False])
async def test_a_daemon_that_follows_another_leaves_devices_published_until_it_knows_its_labels(
    short_dir: Path, has_label: bool
) -> None:
    async with node(short_dir) as server:
        async with daemon(short_dir, SELECTED):
            await until(lambda: server.devices().keys() == BOTH)
        server.writes.clear()
        server.hides_labels = True
        async with daemon(short_dir, SELECTED):
            await passes(60)
            assert server.writes == []
            label(server, gpu="on" if has_label else "off")
            server.hides_labels = False
            if has_label:
                await passes(20)
                assert server.writes == []
            else:
                await until(lambda: server.devices().keys() == {device_name(ALL, "a0")})


async def test_an_edit_that_adds_a_selector_leaves_devices_published_until_the_labels_are_read(
    short_dir: Path,
) -> None:
    look_again = asyncio.Event()
    async with node(short_dir) as server, daemon(short_dir, FILE, look_again=look_again) as serving:
        await until(lambda: server.devices().keys() == BOTH)
        server.writes.clear()
        server.hides_labels = True
        old = serving.plugins
        (short_dir / "c.yaml").write_text(SELECTED)
        look_again.set()
        await passes(60)
        server.hides_labels = False
        await until(lambda: serving.plugins[1] is not old[1])
        await passes(10)
        assert server.devices().keys() == BOTH
        assert server.writes == []
        label(server, gpu="off")
        await until(lambda: server.devices().keys() == {device_name(ALL, "a0")})
