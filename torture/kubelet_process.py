"""A kubelet in a process of its own, so that what it takes to read a list holds up no plugin of the case.

python -m torture.kubelet_process FOLDER RESOURCE: reads lines with two numbers, of devices and of healthy
ones, and writes a line when it has so many: its memory in bytes.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devplug.kubelet.kubelet import Kubelet
from torture.footprint import resident_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

READY: Final = "ready\n"


@dataclass(frozen=True, slots=True)
class FarKubelet:
    """Its end in this process; lives as long as the process."""

    process: asyncio.subprocess.Process

    async def until_listed(self, count: int, healthy: int) -> int:
        """Wait until it has so many devices, so many of them healthy; return how much memory it takes."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{count} {healthy}\n".encode())
        return int(await self.process.stdout.readline())


@asynccontextmanager
async def far_kubelet(folder: Path, resource_name: str) -> AsyncIterator[FarKubelet]:
    """Have one run for a block; entered once plugins can register."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "torture.kubelet_process", str(folder), resource_name),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        yield FarKubelet(process)
    finally:
        process.kill()
        await process.wait()


async def main(folder: Path, resource_name: str) -> None:
    """Play the kubelet until standard input ends."""
    kubelet = Kubelet(folder)
    async with kubelet.running():
        sys.stdout.write(READY)
        sys.stdout.flush()
        while line := await asyncio.to_thread(sys.stdin.readline):
            count, healthy = map(int, line.split())
            await kubelet.wait(lambda wanted=(count, healthy): _listed(kubelet, resource_name) == wanted)  # type: ignore[misc]
            sys.stdout.write(f"{resident_bytes()}\n")
            sys.stdout.flush()


def _listed(kubelet: Kubelet, resource_name: str) -> tuple[int, int]:
    return kubelet.capacity().get(resource_name, 0), kubelet.allocatable().get(resource_name, 0)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
