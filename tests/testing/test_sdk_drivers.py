"""A test serves an SDK plugin by claims: in its own process, and as a program of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from devplug import ContainerResponse, Device, DevicePlugin
from devplug.errors import KubeletError
from devplug.kubelet.pods import PodPhase
from devplug.testing import SyncKubelet

DRIVER = "gpu.example.com"
SCRIPT = f"""
import devplug

class Gpu(devplug.DevicePlugin):
    resource_name = "example.com/gpu"

    def devices(self):
        return [devplug.Device("gpu-0", device_nodes=["/dev/null"])]

devplug.run(Gpu(), dra="{DRIVER}")
"""


class Gpu(DevicePlugin):
    resource_name = "example.com/gpu"

    def __init__(self) -> None:
        self.released: list[str] = []

    def devices(self) -> list[Device]:
        return [Device(name, device_nodes=["/dev/null"]) for name in ("gpu-0", "gpu-1")]

    async def allocate(self, devices: object, /) -> ContainerResponse:
        return ContainerResponse(envs={"GPU": "yes"})

    def release(self, devices: object, /) -> None:
        self.released += [device.id for device in devices]  # type: ignore[attr-defined]


def pod(claim: str) -> dict[str, object]:
    container = {"name": "main", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}], "containers": [container]}
    return {"metadata": {"name": "trainer"}, "spec": spec}


def test_a_claim_gets_a_device_of_an_sdk_plugin_by_its_id(kubelet: SyncKubelet) -> None:
    plugin = Gpu()
    kubelet.start(plugin, dra=DRIVER)
    (published,) = kubelet.slices
    assert len(published["spec"]["devices"]) == 2
    kubelet.claims.allocate("mine", DRIVER, "gpu-1")
    trainer = kubelet.admit(pod("mine"))
    assert trainer.phase is PodPhase.RUNNING
    assert trainer.container.cdi_devices
    (file,) = kubelet.cdi_dir.iterdir()
    assert '"GPU=yes"' in file.read_text()
    trainer.delete()
    assert plugin.released == ["gpu-1"]
    assert not list(kubelet.cdi_dir.iterdir())


class CleanGpu(Gpu):
    def __init__(self) -> None:
        super().__init__()
        self.cleaned: list[str] = []
        self.fault = ""

    def clean_up(self, device: Device, /) -> None:
        if self.fault:
            raise RuntimeError(self.fault)
        self.cleaned.append(device.id)


def test_device_of_a_claim_is_cleaned_up_before_the_claim_is_released(kubelet: SyncKubelet) -> None:
    plugin = CleanGpu()
    kubelet.start(plugin, dra=DRIVER)
    kubelet.claims.allocate("mine", DRIVER, "gpu-1")
    trainer = kubelet.admit(pod("mine"))
    plugin.fault = "the GPU is hung"
    with pytest.raises(KubeletError, match="the GPU is hung"):
        trainer.delete()
    plugin.fault = ""
    trainer.delete()
    assert (plugin.released[-1], plugin.cleaned) == ("gpu-1", ["gpu-1"])


def test_a_script_that_runs_a_driver_finds_the_kubelet_and_the_api(
    kubelet: SyncKubelet, tmp_path: Path
) -> None:
    script = tmp_path / "driver.py"
    script.write_text(SCRIPT)
    kubelet.run([sys.executable, str(script)], drivers=[DRIVER])
    kubelet.wait(lambda: kubelet.slices)
    kubelet.claims.allocate("mine", DRIVER, "gpu-0")
    assert kubelet.admit(pod("mine")).phase is PodPhase.RUNNING


def test_a_driver_that_is_started_after_its_claim_can_read_it(kubelet: SyncKubelet) -> None:
    claim = kubelet.claims.allocate("mine", DRIVER, "unknown")
    kubelet.start(Gpu(), dra=DRIVER)
    assert claim["metadata"]["uid"]
    pending = kubelet.admit(pod("mine"))
    assert pending.phase is PodPhase.PENDING
    assert "unknown" in kubelet.events[0].message
    with pytest.raises(KeyError):
        kubelet.claims.delete("another")
