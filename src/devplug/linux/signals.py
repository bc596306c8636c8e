"""The signals that stop a program."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["stop_signals"]


@asynccontextmanager
async def stop_signals(*, has_terminal: bool = False) -> AsyncIterator[asyncio.Event]:
    """Yield an event that SIGTERM and SIGINT set, once: the second signal ends the process at once.

    With `has_terminal` a second SIGINT raises KeyboardInterrupt, so that what was done to the terminal is
    undone. Raised in the middle of an end, that may be lost, and the end hang.
    """
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    both = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        stopped.set()
        for number in both:
            loop.remove_signal_handler(number)
        if not has_terminal:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    for number in both:
        loop.add_signal_handler(number, stop)
    try:
        yield stopped
    finally:
        for number in both:
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
