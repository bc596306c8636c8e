"""The memory that the C library keeps for this process."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

_M_MMAP_THRESHOLD: Final = -3
_LARGE_BYTES: Final = 128 * 1024
"""glibc's own threshold at first; it raises it to the largest block that was freed (mallopt(3))."""


@cache
def keep_large_blocks_apart() -> None:
    """Have the kernel get large blocks back as soon as they are freed. Does nothing where that is unknown.

    asyncio reads into blocks of 256 KiB, of which it keeps what came. In the heap, small blocks that stay
    would tear up the room of the next large one: a process that reads for years would grow for years.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
