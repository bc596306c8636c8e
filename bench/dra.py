"""What claims cost: calls of the driver, the publication of its devices, and the memory that it takes.

The kubelet's end, the scheduler and the API server are played here, in the process that measures.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.measures import MEGABYTE
from bench.report import Figure, Report, by_row, median, spread
from bench.subjects import COMMAND, NODES_FILE, MissingError, Subject, plug, running, started
from devplug.conformance.dra.claims import claim_object, result_of
from devplug.conformance.dra.scripted_kubelet import scripted_dra_kubelet
from devplug.conformance.dra.slice_rules import count_faults, devices_of
from devplug.k8s.objects import entries, text
from devplug.sandbox.scripted_api_server import NAMESPACE, scripted_api_server
from devplug.wire.dra import PREPARE, UNPREPARE, ClaimName
from devplug.wire.sockets import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from bench.subjects import Process
    from devplug.conformance.dra.scripted_kubelet import ScriptedDraKubelet
    from devplug.conformance.dra.slice_rules import Device
    from devplug.sandbox.scripted_api_server import ScriptedApiServer

DRIVER: Final = "bench.devplug.io"
NODE: Final = "bench-node"
FEW: Final = 8
COUNTS: Final = (8, 128, 1_000, 10_000)
"""Numbers of devices that are published."""

MEMORY: Final = Path("/dev/shm")
WAIT_SECONDS: Final = 120.0
LOG_LENGTH: Final = 1000
"""Changes that the API server remembers: a real one takes more room while they are young (watch_cache.go)."""

PAUSE_SECONDS: Final = 2.0
"""Longer than the pace at which slices are written makes anybody wait."""

DISK_COLUMN, MEMORY_COLUMN = "state on disk", "all in memory"
WITH, WITHOUT = "with claims", "device plugin"
PREPARED: Final = "prepare, beyond the API's answer"
MORE_MEMORY: Final = "resident (RSS), more than without claims"
MORE_MEMORY_LIMIT_MB: Final = 15.0
BACK: Final = "all slices removed → all published, median"
REGISTERED: Final = "process start → driver registered, median"

DRA_FILE: Final = """\
version: 1
driver: {driver}
resources:
  - name: bench.devplug.io/node
    serve: dra
    discover:
      path: "{devices}/*"
"""


@dataclass(frozen=True, slots=True)
class DraCounts:
    """How often each thing is done."""

    calls: int = 500
    wipes: int = 5
    starts: int = 5
    devices: Sequence[int] = COUNTS


# ── a driver that runs ──


@dataclass(slots=True)
class Driver:
    """A daemon that serves claims, and what is around it; lives as long as its `driving` block."""

    process: Process
    kubelet: ScriptedDraKubelet
    api: ScriptedApiServer
    registered_seconds: float = 0.0
    """Since the start of the process."""
    published_seconds: float = 0.0
    """Since the registration."""
    _count: int = 0

    def devices(self) -> list[Device]:
        """Return the published devices."""
        return devices_of(self.api.slices())

    async def until(self, condition: Callable[[], bool], what: str) -> float:
        """Wait until something is so of the kubelet or the API server; return when. Raises `MissingError`."""
        child = self.process.child
        await self.kubelet.until(lambda: condition() or child.returncode is not None, WAIT_SECONDS)
        at = time.monotonic()
        if not condition():
            raise MissingError(f"no {what} within {WAIT_SECONDS:g} s: {self.process.last_words()}")
        return at

    async def until_published(self, count: int) -> float:
        """Wait until so many devices are published, in a whole pool; return when. Raises `MissingError`."""

        def is_so() -> bool:
            slices = self.api.slices()
            # To look at all of them takes as long as to write some, so they are counted first.
            return sum(len(entries(one, "spec", "devices")) for one in slices) == count and not count_faults(
                slices
            )

        return await self.until(is_so, f"publication of {count} devices")

    def wipe(self) -> float:
        """Remove all slices, as a kubelet does that starts; return when."""
        for one in self.api.slices():
            self.api.delete("ResourceSlice", text(one, "metadata", "name"))
        return time.monotonic()

    def allocate(self, device: Device) -> ClaimName:
        """Return a claim that has a device."""
        self._count += 1
        content = claim_object(f"claim-{self._count}", [result_of(device, DRIVER)], NODE)
        made = self.api.create("ResourceClaim", content)
        return ClaimName(NAMESPACE, text(made, "metadata", "uid"), text(made, "metadata", "name"))


@asynccontextmanager
async def driving(root: Path, memory: Path, count: int) -> AsyncIterator[Driver]:
    """Run a daemon with so many devices, its state below `root`; entered once all are published.

    The devices and the CDI files are below `memory`, where a node has them, too.

    Raises `MissingError`.
    """
    devices, kubelet_root = memory / "devices", root / "kubelet"
    for folder in (devices, kubelet_root / "plugins_registry", kubelet_root / "device-plugins"):
        folder.mkdir(parents=True)
    for number in range(count):
        plug(devices / f"node{number}")
    config = root / "config.yaml"
    config.write_text(DRA_FILE.format(driver=DRIVER, devices=devices))
    async with (
        scripted_dra_kubelet(kubelet_root / "plugins_registry", WAIT_SECONDS) as kubelet,
        scripted_api_server(NODE, kubelet.notify, LOG_LENGTH) as api,
    ):
        kubeconfig = root / "kubeconfig"
        kubeconfig.write_text(api.kubeconfig)
        words = [
            "env",
            f"KUBECONFIG={kubeconfig}",
            f"NODE_NAME={NODE}",
            COMMAND[0],
            "run",
            "--config",
            config,
        ]
        words += ["--kubelet-root", kubelet_root, "--cdi-dir", memory / "cdi"]
        await kubelet.start()
        async with running([str(word) for word in words], root / "output") as process:
            driver = Driver(process, kubelet, api)

            async def follow() -> None:
                await process.child.wait()
                kubelet.notify()

            kubelet.task_of(follow())
            await driver.until(lambda: bool(kubelet.live()), "registration")
            registered_at = kubelet.live()[-1].registered_at or 0.0
            driver.registered_seconds = registered_at - process.started_at
            driver.published_seconds = await driver.until_published(count) - registered_at
            yield driver


# ── calls ──


async def measure_calls(state: Path | None, counts: DraCounts) -> list[Figure]:
    """Time claims of one device each, whose state is below `state`, or in memory."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=state or MEMORY) as name,
        tempfile.TemporaryDirectory(prefix="bench-", dir=MEMORY) as memory,
    ):
        disk = _write_seconds(Path(name), counts.calls)
        async with driving(Path(name), Path(memory), FEW) as driver, _reader(driver.api) as read:
            (device, *_) = driver.devices()
            endpoint = driver.kubelet.live()[-1].endpoint
            prepared, beyond, gets, unprepared = [], [], [], []
            before = driver.process.processor_seconds()
            async with connected(endpoint) as peer:
                for _ in range(counts.calls):
                    claim = driver.allocate(device)
                    gets.append(await read(claim.name))
                    begun = time.perf_counter()
                    answers = await peer.call(PREPARE["v1.DRAPlugin"], [claim], timeout_seconds=60)
                    prepared.append(time.perf_counter() - begun)
                    beyond.append(prepared[-1] - gets[-1])
                    if error := answers[claim.uid].error:
                        raise MissingError(f"a claim was not prepared: {error}")
                    begun = time.perf_counter()
                    await peer.call(UNPREPARE["v1.DRAPlugin"], [claim], timeout_seconds=60)
                    unprepared.append(time.perf_counter() - begun)
                    driver.api.delete("ResourceClaim", claim.name)
            spent = driver.process.processor_seconds() - before
    return [
        *spread(PREPARED, beyond, counts.calls),
        *spread("prepare", prepared, counts.calls),
        *spread("a plain GET of the claim", gets, counts.calls),
        *spread("unprepare", unprepared, counts.calls),
        Figure("its processor time for both, each", "ms", spent / counts.calls * 1000),
        *spread("a write of 1 kB and its fsync", disk, counts.calls),
    ]


def _write_seconds(folder: Path, times: int) -> list[float]:
    """Return how long each of so many writes of a new file took, until the disk had it."""
    found = []
    for number in range(times):
        begun = time.perf_counter()
        file = os.open(folder / f"written-{number}", os.O_WRONLY | os.O_CREAT)
        os.write(file, bytes(1000))
        os.fsync(file)
        os.close(file)
        found.append(time.perf_counter() - begun)
    return found


@asynccontextmanager
async def _reader(api: ScriptedApiServer) -> AsyncIterator[Callable[[str], Awaitable[float]]]:
    """Have what reads a claim over one connection that stays, and returns how long the answer took."""
    (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)", api.kubeconfig)
    (token,) = re.findall(r'"?token"?:\s*"?([^\s"]+)', api.kubeconfig)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    path = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"

    async def read(name: str) -> float:
        begun = time.perf_counter()
        request = f"GET {path}/{name} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(request.encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        (length,) = re.findall(r"(?i)content-length:\s*(\d+)", head)
        await reader.readexactly(int(length))
        if " 200 " not in head.partition("\r\n")[0]:
            raise MissingError(f"the API server answers {head.splitlines()[0]}")
        return time.perf_counter() - begun

    try:
        yield read
    finally:
        writer.close()


# ── publication ──


async def measure_publication(count: int, counts: DraCounts) -> list[Figure]:
    """Time the publication of so many devices, the first and after all slices were removed."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=MEMORY) as name:
        async with driving(Path(name), Path(name), count) as driver:
            slices = len(driver.api.slices())
            before = driver.process.processor_seconds()
            back = []
            for _ in range(counts.wipes):
                await asyncio.sleep(PAUSE_SECONDS)
                wiped_at = driver.wipe()
                back.append(await driver.until_published(count) - wiped_at)
            spent = driver.process.processor_seconds() - before
            return [
                Figure("driver registered → all published", "ms", driver.published_seconds * 1000),
                median(BACK, back),
                Figure("its processor time for all again, each", "ms", spent / counts.wipes * 1000),
                Figure("slices", "", slices),
                Figure("resident (RSS)", "MB", driver.process.memory_bytes()[0] / MEGABYTE),
            ]


# ── memory and starts ──


async def measure_memory(counts: DraCounts) -> tuple[list[Figure], list[Figure]]:
    """Return how a daemon starts and what it has in memory, with claims and without, taken in turns."""
    ours, plain = [], []
    with_bytes, without_bytes = 0, 0
    for _ in range(counts.starts):
        with tempfile.TemporaryDirectory(prefix="bench-", dir=MEMORY) as name:
            async with driving(Path(name), Path(name), FEW) as driver:
                ours.append(driver.registered_seconds)
                with_bytes = driver.process.memory_bytes()[0]
        async with started(Subject("devplug", COMMAND, NODES_FILE)) as plugin:
            plain.append(plugin.started_to_registered)
            without_bytes = plugin.process.memory_bytes()[0]
    more = (with_bytes - without_bytes) / MEGABYTE
    return (
        [median(REGISTERED, ours), _memory(with_bytes), Figure(MORE_MEMORY, "MB", more)],
        [median(REGISTERED, plain), _memory(without_bytes), Figure(MORE_MEMORY, "MB", None)],
    )


def _memory(size_bytes: int) -> Figure:
    return Figure(f"resident (RSS), {FEW} devices", "MB", size_bytes / MEGABYTE)


# ── all of it ──


async def measure_dra(counts: DraCounts | None = None) -> list[Report]:
    """Measure all of it; what could not be measured is missing from its report."""
    counts = counts or DraCounts()
    places = {DISK_COLUMN: Path("/var/tmp"), MEMORY_COLUMN: None}
    calls = [await measure_calls(place, counts) for place in places.values()]
    published = [await measure_publication(count, counts) for count in counts.devices]
    memory = await measure_memory(counts)
    return [
        Report([*places], by_row(calls), heading="claims of one device, CDI files in memory"),
        Report([f"{count:,} devices" for count in counts.devices], by_row(published), heading="publication"),
        Report([WITH, WITHOUT], by_row(memory), heading="a daemon with 8 devices"),
    ]
