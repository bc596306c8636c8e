"""A storm of events from a process of its own: files that come and go, or events of the kernel's devices.

python -m torture.event_storm RATE PATH...: so many a second, one path after the other, until standard input
is closed; then it writes how many. A path named `uevent` is one of sysfs, which is asked to tell of a change;
any other is made and removed.
"""

from __future__ import annotations

import asyncio
import itertools
import select
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

__all__ = ["Storm", "storm"]

PORTION: Final = 100
"""How many follow each other without a pause."""


@dataclass(slots=True)
class Storm:
    """One storm; `events` is known when it is over."""

    events: int = 0


@asynccontextmanager
async def storm(paths: Sequence[Path], *, per_second: int) -> AsyncIterator[Storm]:
    """Have a storm for a block; entered once it has begun."""
    words = (sys.executable, "-m", "torture.event_storm", str(per_second), *map(str, paths))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    told = Storm()
    try:
        await process.stdout.readline()
        yield told
    finally:
        output, _ = await process.communicate(b"\n")
        told.events = int(output or 0)


def main(per_second: int, paths: list[Path]) -> None:
    """Storm until standard input ends."""
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    began, number = time.monotonic(), 0
    for path in itertools.cycle(paths):
        if path.name == "uevent":
            path.write_text("change")
        else:
            path.touch()
            path.unlink(missing_ok=True)
        number += 1
        if number % PORTION == 0:
            ahead = max(0.0, began + number / per_second - time.monotonic())
            if select.select([sys.stdin], [], [], ahead)[0]:
                break
    sys.stdout.write(f"{number}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), [Path(path) for path in sys.argv[2:]])
