"""A storm of events from a process of its own: files that come and go, or events of the kernel's devices.

python -m torture.event_storm RATE LEAST PATH...: so many a second, one path after the other, until standard
input is closed and there were LEAST, for a busy machine makes them late. A path named `uevent` is one of
sysfs, which is asked to tell of a change; any other is made and removed.
"""

from __future__ import annotations

import asyncio
import itertools
import select
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

PORTION: Final = 100
"""How many follow each other without a pause."""


@asynccontextmanager
async def storm(paths: Sequence[Path], *, per_second: int, least: int) -> AsyncIterator[None]:
    """Have a storm for a block, of at least so many events; entered once it has begun."""
    words = (sys.executable, "-m", "torture.event_storm", str(per_second), str(least), *map(str, paths))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        yield
    finally:
        await process.communicate(b"\n")


def main(per_second: int, least: int, paths: list[Path]) -> None:
    """Storm until standard input ends, and there were at least so many events."""
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    began = time.monotonic()
    for number, path in enumerate(itertools.cycle(paths), 1):
        if path.name == "uevent":
            path.write_text("change")
        else:
            path.touch()
            path.unlink(missing_ok=True)
        if number % PORTION == 0:
            ahead = max(0.0, began + number / per_second - time.monotonic())
            is_over = bool(select.select([sys.stdin], [], [], ahead)[0])
            if is_over and number >= least:
                break


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), [Path(path) for path in sys.argv[3:]])
