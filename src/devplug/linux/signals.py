"""The signals that stop a program."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def interrupt_on_stop() -> None:
    """Make SIGTERM and SIGHUP end this process as Ctrl-C does: by KeyboardInterrupt, with its clean-up.

    For commands that start programs or make devices: by default both signals end Python at once, and leave
    these behind. SIGINT counts even in a background job of a shell, where it is ignored. What else is ignored
    stays so: SIGHUP under `nohup`.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))


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
