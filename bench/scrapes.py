"""The time of a scrape of our daemon, and its number of series, with 8 and with 10,000 devices."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from bench.report import Bound, Figure, Report, by_row, percentile, spread
from bench.subjects import Subject, started
from devplug.linux.inotify import shared_watcher
from devplug.metrics.catalogue import DEVICE_SERIES_LIMIT
from devplug.status import STATUS_SOCKETS
from devplug.web.addresses import UnixAddress
from devplug.web.client import get

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from devplug.web.addresses import Address

FEW, MANY = 8, 10_000

SCRAPES = 50

LIMIT_SECONDS = 0.2
"""A scrape of many devices, 99 of 100 times."""

SERIES_EACH = 4
"""Most series that one device has of its own, but for those of further holders."""

SERIES_BESIDE = 200
"""More than all series that are not about one device: of one resource, and of the process."""

PAGES = {"metrics": "/metrics", "status": "/status", "readiness": "/readyz"}


def file_of(devices: int) -> str:
    """Return a configuration with so many devices that are a device each, with a node and attributes."""
    ids = ", ".join(f"device-{number:05}" for number in range(devices))
    return f"""\
version: 1
resources:
  - name: bench.devplug.io/many
    discover:
      static:
        ids: [{ids}]
"""


async def measure_scraping(command: tuple[str, ...], scrapes: int = SCRAPES) -> Report:
    """Measure a daemon with few devices, and one with many."""
    columns, bounds = [], []
    for devices in (FEW, MANY):
        async with started(Subject("devplug", command, file_of(devices), devices)) as plugin:
            address = UnixAddress(str(await status_socket(plugin.folder)))
            before, _ = plugin.process.memory_bytes()
            samples = {name: await timed(address, path, scrapes) for name, path in PAGES.items()}
            after, _ = plugin.process.memory_bytes()
            series = len(
                [line for line in (await get(address, "/metrics")).body.split(b"\n") if line[:1] not in b"#"]
            )
        columns.append(
            [
                *(figure for name, seconds in samples.items() for figure in spread(name, seconds, scrapes)),
                Figure("series", "", series),
                Figure("memory, before any", "MB", before / 1_000_000),
                Figure("memory, after all", "MB", after / 1_000_000),
            ]
        )
        bounds += _bounds(devices, samples["metrics"], series)
    return Report(
        [f"{FEW} devices", f"{MANY:,} devices"],
        by_row(columns),
        heading="a daemon that is looked at",
        bounds=bounds,
    )


def _bounds(devices: int, seconds: Sequence[float], series: int) -> list[Bound]:
    if devices == FEW:
        return []
    most = SERIES_EACH * DEVICE_SERIES_LIMIT + SERIES_BESIDE
    return [
        Bound(
            f"a scrape of {devices:,} devices, p99, of {LIMIT_SECONDS * 1000:.0f} ms",
            percentile(seconds, 99) / LIMIT_SECONDS,
            1,
        ),
        Bound(f"series of {devices:,} devices, of {most:,}", series / most, 1),
    ]


async def status_socket(folder: Path) -> Path:
    """Return the daemon's status socket, once there is one."""
    async with shared_watcher() as watcher:
        made = asyncio.Event()
        with watcher.subscribe(made.set) as subscription:
            while True:
                made.clear()
                subscription.arm([str(folder / STATUS_SOCKETS)])
                if found := sorted(folder.glob(STATUS_SOCKETS)):
                    return found[0]
                await made.wait()


async def timed(address: Address, path: str, times: int) -> list[float]:
    """Return how long each of so many answers took, in seconds, connection and all."""
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        answer = await get(address, path, timeout_seconds=60)
        seconds.append(time.perf_counter() - begin)
        assert answer.status == 200
    return seconds
