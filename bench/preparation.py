"""The time of a prepare and an unprepare of one claim, over our driver's socket, with its state on the disk.

The API server answers at once, and the CDI folder is in memory where the machine has one, as /var/run/cdi.
What a line costs that is synced to the same disk is measured in turns with it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.report import Bound, Report, Row, percentile, spread
from devplug.cdi.spec import CdiOwner
from devplug.devices import ContainerResponse, Device
from devplug.driver.driver import DraDriver
from devplug.driver.offer import OfferedDevice
from devplug.driver.parameters import decoded
from devplug.linux.inotify import until_present
from devplug.wire.dra import PREPARE, UNPREPARE, ClaimName
from devplug.wire.sockets import connected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.k8s.objects import Object

DRIVER, NODE, RESOURCE, DEVICE = "bench.devplug.io", "worker-0", "bench.devplug.io/node", "zero"
MEMORY: Final = Path("/dev/shm")
DISK: Final = Path("/var/tmp")
"""What outlives the machine's next start by the Filesystem Hierarchy Standard (5.15)."""
ROUNDS = 200
LIMIT_SECONDS = 0.005
LINE: Final = b"x" * 300 + b"\n"
"""As long as what is noted of a claim with one device."""


class _Resource:
    resource_name = RESOURCE
    node_owner = CdiOwner()

    async def prepare(self, requests: Sequence[Sequence[str]]) -> Sequence[Sequence[ContainerResponse]]:
        return [[ContainerResponse(device_nodes=["/dev/zero"]) for _ in ids] for ids in requests]

    async def current(
        self, requests: Sequence[Sequence[str]]
    ) -> Sequence[Sequence[ContainerResponse | None]]:
        return await self.prepare(requests)

    async def release(self, device_ids: Sequence[str]) -> None:
        pass


class _Claims:
    async def get_claim(self, namespace: str, name: str) -> Object:
        result = {"request": "r", "driver": DRIVER, "pool": NODE, "device": DEVICE}
        return {
            "metadata": {"namespace": namespace, "name": name, "uid": name},
            "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"uid": "p"}]},
        }


async def measure_preparation(rounds: int = ROUNDS) -> Report:
    """Measure on the machine's disk."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as cdi:
        return preparation_report(await _timed(rounds, Path(cdi)), rounds)


async def _timed(rounds: int, cdi: Path) -> Mapping[str, Sequence[float]]:
    with tempfile.TemporaryDirectory(dir=DISK, prefix="dp-") as folder:
        root = Path(folder)
        (root / "plugins_registry").mkdir()
        resources = {RESOURCE: _Resource()}
        driver = DraDriver(DRIVER, NODE, resources, _Claims(), decoded, kubelet_root=root, cdi_folder=cdi)
        driver.offer.replace({DEVICE: OfferedDevice(RESOURCE, Device(DEVICE))})
        async with asyncio.TaskGroup() as tasks:
            life = tasks.create_task(driver.run())
            await until_present(root / "plugins_registry" / f"{DRIVER}-reg.sock")
            seconds = await _calls(rounds, root / "plugins" / DRIVER / "dra.sock", root / "lines")
            life.cancel()
    return seconds


async def _calls(rounds: int, socket: Path, lines: Path) -> Mapping[str, Sequence[float]]:
    seconds: dict[str, list[float]] = {"a synced line": [], "prepare": [], "unprepare": []}
    async with connected(socket) as peer:
        for number in range(rounds):
            claim = ClaimName("default", f"claim-{number}", f"claim-{number}")
            begin = time.perf_counter()
            _write_line(lines)
            written = time.perf_counter()
            answer = await peer.call(PREPARE["v1.DRAPlugin"], [claim])
            prepared = time.perf_counter()
            await peer.call(UNPREPARE["v1.DRAPlugin"], [claim])
            seconds["unprepare"].append(time.perf_counter() - prepared)
            seconds["prepare"].append(prepared - written)
            seconds["a synced line"].append(written - begin)
            assert not answer[claim.uid].error
    return seconds


def _write_line(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(LINE)
        os.fdatasync(file.fileno())


def preparation_report(samples: Mapping[str, Sequence[float]], rounds: int) -> Report:
    """Return the report: beyond a line on the disk, a typical prepare keeps the bound."""
    beyond = [whole - line for whole, line in zip(samples["prepare"], samples["a synced line"], strict=True)]
    return Report(
        ["devplug"],
        [Row((figure,)) for name, seconds in samples.items() for figure in spread(name, seconds, rounds)],
        heading="claims of one device, with the state on the disk",
        bounds=[
            Bound(
                f"prepare beyond one synced line, of {LIMIT_SECONDS * 1000:.0f} ms",
                percentile(beyond, 50) / LIMIT_SECONDS if beyond else None,
                1,
            )
        ],
    )
