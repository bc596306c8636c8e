"""The GPU plugin lists what NVML knows, over a stand-in for the driver's library."""

from __future__ import annotations

from pathlib import Path

import pytest

from devplug.devices import HEALTHY, UNHEALTHY
from devplug.testing import SyncKubelet
from devplug.testing.programs import Program
from tests.daemon.gpumachines import IS_LOST, NOT_LOADED, GpuMachine, build, linked_machine, needs_standin
from tests.examples.beds import EXAMPLES, command

pytest.importorskip("pynvml", reason="gpu.py needs nvidia-ml-py")

NAME = "example.com/gpu"
BRISK = (
    "import examples.gpu as gpu, sys, devplug; gpu.Gpu.poll_seconds = 0.05; devplug.run(gpu.Gpu(sys.argv[1]))"
)
FIRST = "GPU-00000000-aaaa-bbbb-cccc-0123456789ab"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(tmp_path: Path, library: Path) -> GpuMachine:
    return linked_machine(tmp_path, library)


def started(kubelet: SyncKubelet, machine: GpuMachine, *, brisk: bool = True) -> Program:
    """Run the example over the machine's library; the loader's path is a process's from its start on."""
    page = command("gpu.py", machine.root)
    environment = {
        "LD_LIBRARY_PATH": str(machine.library_folder),
        "STANDIN_NVML": str(machine.root / "nvml"),
        "PYTHONPATH": str(EXAMPLES.parent),
    }
    return kubelet.run(
        [page[0], "-c", BRISK, page[2]] if brisk else page, environment=environment, resources=[NAME]
    )


def health(kubelet: SyncKubelet) -> dict[str, str]:
    return {device.id: device.health for device in kubelet.devices(NAME)}


@needs_standin
def test_gpus_are_listed_by_uuid_with_their_numa_nodes(kubelet: SyncKubelet, machine: GpuMachine) -> None:
    program = started(kubelet, machine, brisk=False)
    listed = kubelet.devices(NAME)
    assert [device.id[:12] for device in listed] == [f"GPU-0000000{index}" for index in range(8)]
    assert [device.numa_nodes for device in listed] == [(0,)] * 4 + [(1,)] * 4
    container = kubelet.admit({NAME: 1}).container
    assert container.envs == {"NVIDIA_VISIBLE_DEVICES": FIRST}
    assert [node.host_path for node in container.device_nodes] == [
        str(machine.root / "dev" / name)
        for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    ]
    assert program.stop() == 0


@needs_standin
def test_a_gpu_with_broken_memory_is_unhealthy(kubelet: SyncKubelet, machine: GpuMachine) -> None:
    started(kubelet, machine)
    machine.set({"0.remapping_failed": 1})
    kubelet.wait(lambda: health(kubelet)[FIRST] == UNHEALTHY)
    assert kubelet.allocatable[NAME] == 7


@needs_standin
def test_a_gpu_that_cannot_tell_of_its_memory_is_healthy(kubelet: SyncKubelet, machine: GpuMachine) -> None:
    machine.set({}, "0.remapping_failed")
    started(kubelet, machine)
    assert health(kubelet)[FIRST] == HEALTHY


@needs_standin
def test_a_lost_gpu_stays_listed_for_the_pod_that_has_it_and_comes_back(
    kubelet: SyncKubelet, machine: GpuMachine
) -> None:
    started(kubelet, machine)
    assert kubelet.admit({NAME: 1}).container.device_ids == (FIRST,)
    machine.set({"0.fails": IS_LOST})
    kubelet.wait(lambda: health(kubelet)[FIRST] == UNHEALTHY)
    assert kubelet.allocatable[NAME] == 7
    machine.set({}, "0.fails")
    kubelet.wait(lambda: kubelet.allocatable[NAME] == 8)


@needs_standin
def test_gpus_appear_when_the_driver_does(kubelet: SyncKubelet, machine: GpuMachine) -> None:
    machine.set({"init": NOT_LOADED})
    program = started(kubelet, machine)
    assert kubelet.capacity == {NAME: 0}
    assert program.output.count("there are no GPUs") == 1
    machine.set({}, "init")
    kubelet.wait(lambda: kubelet.allocatable[NAME] == 8)
