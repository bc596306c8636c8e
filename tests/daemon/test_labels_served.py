"""Resources with a nodeSelector, served as the labels of this machine say, with a kubelet on real sockets."""

from __future__ import annotations

import logging
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from devplug.daemon.config.loader import load
from devplug.daemon.service import serve_config
from devplug.errors import ConfigError
from devplug.kubelet.kubelet import Kubelet
from devplug.plugin.drivers import NODE_NAME_VARIABLE
from tests.daemon.apiserver import api_server, write_kubeconfig
from tests.virtualtime import now, on_virtual_time, passes
from tests.waiting import until

anyio_backend = on_virtual_time


FILE = """
version: 1
resources:
- {name: example.com/all, discover: {static: {ids: [a0]}}}
- {name: example.com/gpu, discover: {static: {ids: [g0]}}, nodeSelector: {gpu: "on"}}
"""


@pytest.fixture(autouse=True)
def _account(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NODE_NAME_VARIABLE, "m")
    monkeypatch.setenv("KUBECONFIG", str(short_dir / "kubeconfig"))


async def test_a_resource_comes_and_goes_with_the_labels_of_its_machine(short_dir: Path) -> None:
    kubelet = Kubelet.under(short_dir)
    async with api_server(short_dir / "kubeconfig") as cluster, kubelet.running():
        cluster.label("m")
        async with serve_config(load(FILE, "f"), plugin_dir=short_dir / "device-plugins"):
            await kubelet.wait(lambda: kubelet.capacity() == {"example.com/all": 1})
            await cluster.wait(lambda: cluster.watches)
            cluster.label("m", gpu="on")
            await kubelet.wait(lambda: kubelet.capacity() == {"example.com/all": 1, "example.com/gpu": 1})
            cluster.label("m", gpu="off")
            await kubelet.wait(lambda: kubelet.allocatable().get("example.com/gpu", 0) == 0)
            assert kubelet.allocatable()["example.com/all"] == 1


async def test_a_resource_whose_labels_are_not_read_yet_is_not_called_another_machines(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "devplug.daemon.daemon")
    kubelet = Kubelet.under(short_dir)
    async with api_server(short_dir / "kubeconfig") as cluster, kubelet.running():
        cluster.label("m", gpu="on")
        async with serve_config(load(FILE, "f"), plugin_dir=short_dir / "device-plugins"):
            await kubelet.wait(lambda: len(kubelet.capacity()) == 2)
            assert "wait until the labels of this Node are read" in caplog.text
            assert "left out" not in caplog.text
            cluster.label("m", gpu="off")
            await until(lambda: "resources for other Nodes are not served here" in caplog.text)


def test_a_label_that_cannot_be_is_a_mistake_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"f:5:\d+: error: resources\[1\].nodeSelector.* is not a value"):
        load(FILE.replace('"on"', '"NVIDIA *"'), "f")


async def test_nobody_who_hangs_delays_the_end(short_dir: Path) -> None:
    """API server, kubelet and PodResources let us in and say nothing; a page is half asked for."""
    folder = short_dir / "device-plugins"
    folder.mkdir()
    with ExitStack() as stack:
        deaf = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
        for one, name in zip(deaf, ("device-plugins/kubelet.sock", "pod-resources.sock"), strict=True):
            one.bind(str(short_dir / name))
        deaf.append(stack.enter_context(socket.create_server(("127.0.0.1", 0))))
        for one in deaf:
            one.listen(100)
        write_kubeconfig(short_dir / "kubeconfig", deaf[-1].getsockname()[1])
        async with serve_config(
            load(FILE, "f"),
            plugin_dir=folder,
            pod_resources=short_dir / "pod-resources.sock",
            listen=f"unix:{short_dir}/pages.sock",
            kube_events=True,
        ):
            await until((short_dir / "pages.sock").exists)
            asking = stack.enter_context(socket.socket(socket.AF_UNIX))
            asking.connect(f"{short_dir}/pages.sock")
            asking.send(b"GET /status HT")
            await passes(4)
            began = now()
        assert now() - began < 0.5
