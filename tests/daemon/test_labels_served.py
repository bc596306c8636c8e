"""Resources with a nodeSelector, served as the labels of this machine say, with a kubelet on real sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from devplug.daemon.daemon import NODE_NAME_VARIABLE
from devplug.daemon.grammar.loading import load
from devplug.daemon.serving import serve_config
from devplug.errors import ConfigError
from devplug.kubelet.manager import Kubelet
from tests.daemon.apiserver import api_server
from tests.virtualtime import BACKEND
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    return BACKEND


pytest.importorskip("lightkube", reason="needs the extra [k8s]")

FILE = """
version: 1
resources:
- {name: example.com/all, discover: {static: {ids: [a0]}}}
- {name: example.com/gpu, discover: {static: {ids: [g0]}}, nodeSelector: {gpu: "on"}}
"""


async def test_a_resource_comes_and_goes_with_the_labels_of_its_machine(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(NODE_NAME_VARIABLE, "m")
    monkeypatch.setenv("KUBECONFIG", str(short_dir / "kubeconfig"))

    kubelet = Kubelet.under(short_dir)
    async with api_server(short_dir / "kubeconfig") as cluster, kubelet.running():
        cluster.label("m")
        cluster.classes["v1"] = ["example.com/all"]
        async with serve_config(load(FILE, "f"), plugin_dir=short_dir / "device-plugins"):
            await kubelet.wait(lambda: kubelet.capacity() == {"example.com/all": 1})
            await cluster.wait(lambda: cluster.watches)
            cluster.label("m", gpu="on")
            await kubelet.wait(lambda: kubelet.capacity() == {"example.com/all": 1, "example.com/gpu": 1})
            cluster.label("m", gpu="off")
            await kubelet.wait(lambda: kubelet.allocatable().get("example.com/gpu", 0) == 0)
            assert kubelet.allocatable()["example.com/all"] == 1
            await until(lambda: "a DRA DeviceClass claims this resource name too" in caplog.text)


def test_a_label_that_cannot_be_is_a_mistake_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"f:5:\d+: error: resources\[1\].nodeSelector.* is not a value"):
        load(FILE.replace('"on"', '"NVIDIA *"'), "f")
