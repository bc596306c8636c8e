"""Machines with NVIDIA GPUs: a folder for /sys, /proc and /dev, and a stand-in for the driver's library."""

from __future__ import annotations

import ctypes.util
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.hosts import link, tree

HERE = Path(__file__).parent
LIBRARY = "libnvidia-ml.so.1"
COMPILER = shutil.which("cc") or shutil.which("gcc")

needs_standin = pytest.mark.skipif(
    COMPILER is None or importlib.util.find_spec("pynvml") is None,
    reason="the stand-in for NVML needs a C compiler (cc) and nvidia-ml-py",
)
needs_no_driver = pytest.mark.skipif(
    ctypes.util.find_library("nvidia-ml") is not None,
    reason="this machine has an NVIDIA driver, so its library cannot be missing",
)

NO_KEYS: Mapping[str, object] = {}
IS_LOST, NOT_LOADED, MISMATCH, UNKNOWN = 15, 9, 18, 999
XID, DOUBLE_BIT, MIG_CHANGED = 8, 2, 0x100
NOBODY = 0xFFFFFFFF


def build(folder: Path, *flags: str) -> Path:
    """Compile the stand-in into a folder, which is then a loader path."""
    assert COMPILER is not None
    folder.mkdir(parents=True, exist_ok=True)
    source = HERE / "nvml" / "standin.c"
    command = [
        COMPILER,
        "-shared",
        "-fPIC",
        "-O1",
        *flags,
        "-o",
        str(folder / LIBRARY),
        str(source),
        "-lpthread",
    ]
    subprocess.run(command, check=True, timeout=30)
    return folder


class Follower:
    """A process that follows a source; each answer is what it printed next."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.logs: list[str] = []
        """The messages with their reasons, so far."""
        self.devices: dict[str, dict[str, Any]] = {}
        """What was found last, by name."""

    def look(self) -> dict[str, dict[str, Any]]:
        """Let the program look once more, if it was asked to do that at a line."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._next()

    def next(self) -> dict[str, dict[str, Any]]:
        """Return the next list of devices that is not the one before."""
        return self._next()

    def until(self, fits: Callable[[dict[str, dict[str, Any]]], object]) -> dict[str, dict[str, Any]]:
        """Return the first list from here on that fits."""
        while not fits(self._next()):
            pass
        return self.devices

    def until_log(self, text: str) -> str:
        """Return the first message with its reason, of those so far or to come, that has this text."""
        while not any(text in one for one in self.logs):
            self._read()
        return next(one for one in self.logs if text in one)

    def _next(self) -> dict[str, dict[str, Any]]:
        while not self._read():
            pass
        return self.devices

    def _read(self) -> bool:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the program has ended after {self.logs}"
        said = json.loads(line)
        if "log" in said:
            self.logs.append(f"{said['log']}: {said['reason']}")
            return False
        self.devices = {device["name"]: device for device in said["devices"]}
        return True


@dataclass
class GpuMachine:
    """GPUs below a folder, and what NVML says of them, by the keys that `standin.c` reads."""

    root: Path
    library_folder: Path
    keys: dict[str, object] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    _events: int = 0

    def set(self, keys: Mapping[str, object] = NO_KEYS, *gone: str) -> None:
        """Change what NVML says; `gone` are keys that it no longer knows."""
        self.keys = {key: value for key, value in {**self.keys, **keys}.items() if key not in gone}
        self.root.mkdir(parents=True, exist_ok=True)
        fresh = self.root / "nvml.new"
        fresh.write_text("".join(f"{key} {value}\n" for key, value in self.keys.items()))
        fresh.replace(self.root / "nvml")

    def event(self, gpu: int, data: int, kind: int = XID, gi: int = NOBODY, ci: int = NOBODY) -> None:
        """Let the driver tell of something unasked."""
        self._events += 1
        self.set({"event": f"{self._events} {gpu} {kind} {data} {gi} {ci}"})

    def add_gpu(self, index: int, keys: Mapping[str, object] = NO_KEYS, *, numa_node: int = -1) -> str:
        """Plug a GPU in and return its UUID."""
        uuid = f"GPU-{index:08d}-aaaa-bbbb-cccc-0123456789ab"
        bus = f"0000:{0x10 + index:02x}:00.0"
        said: dict[str, object] = {
            "uuid": uuid,
            "name": "NVIDIA A100-SXM4-80GB",
            "bus": f"0000{bus.upper()}",
            "minor": index,
            "serial": f"15651200{index:02d}",
            "mig": 0,
            "events": XID | DOUBLE_BIT | MIG_CHANGED,
            "action": 0,
            "remapping_failed": 0,
        }
        folder = f"sys/devices/pci0000:00/{bus}"
        tree(
            self.root,
            {
                f"{folder}/numa_node": f"{numa_node}\n",
                f"{folder}/local_cpulist": "0-3\n",
                f"sys/bus/pci/devices/{bus}": f"-> ../../../../{folder}",
            },
        )
        link(self.root / f"dev/nvidia{index}")
        self.set({"count": index + 1, **{f"{index}.{key}": value for key, value in {**said, **keys}.items()}})
        return uuid

    def add_instance(self, gpu: int, slot: int, gi: int, profile: str, numbers: tuple[int, int]) -> str:
        """Make a MIG instance, with the two minors of its capabilities, and return its UUID."""
        uuid = f"MIG-{gpu:04d}{slot:04d}-aaaa-bbbb-cccc-0123456789ab"
        keys = {"uuid": uuid, "name": f"NVIDIA A100-SXM4-80GB MIG {profile}", "gi": gi, "ci": 0}
        folder = f"proc/driver/nvidia/capabilities/gpu{gpu}/mig/gi{gi}"
        content = "DeviceFileMinor: {}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
        tree(
            self.root,
            {
                f"{folder}/access": content.format(numbers[0]),
                f"{folder}/ci0/access": content.format(numbers[1]),
            },
        )
        for number in numbers:
            link(self.root / f"dev/nvidia-caps/nvidia-cap{number}")
        self.set({f"{gpu}.mig": 1, **{f"{gpu}.mig.{slot}.{key}": value for key, value in keys.items()}})
        return uuid

    @contextmanager
    def followed(self, *resources: list[dict[str, Any]], **asked: Any) -> Iterator[Follower]:
        """Run a program that follows one source per list of selectors, all GPUs if there is none."""
        options = {"resync_seconds": 0.1, **asked.pop("options", {})}
        told = {
            "root": str(self.root),
            "resources": resources or [[{}]],
            "options": options,
            "follows": True,
            **asked,
        }
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.library_folder),
            "STANDIN_NVML": str(self.root / "nvml"),
            **self.environment,
        }
        command = [sys.executable, str(HERE / "nvml" / "follow.py"), json.dumps(told)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
            try:
                yield Follower(process)
            finally:
                process.kill()


def linked_machine(root: Path, library_folder: Path) -> GpuMachine:
    """Eight GPUs on two NUMA nodes, each with two links to each of six switches."""
    machine = GpuMachine(root, library_folder)
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        link(root / "dev" / name)
    ends = {f"link.{number}": f"00000000:{0xC0 + number // 2:02X}:00.0" for number in range(12)}
    for index in range(8):
        machine.add_gpu(index, {"links": 12, **ends}, numa_node=index // 4)
    return machine
