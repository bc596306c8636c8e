"""Supervision of tasks: an unexpected error ends one attempt, and neither the task nor its siblings."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from devplug.backoff import backoff_seconds
from devplug.linux.exhaustion import Shortage, is_exhausted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_CANNOT_GO_ON: Final = Shortage("cannot go on without resources of the system; trying again")

FIRST_RETRY_SECONDS: Final = 0.1
LAST_RETRY_SECONDS: Final = 60.0


async def kept_running(work: Callable[[], Awaitable[None]], failed: Callable[[Exception], None]) -> None:
    """Run `work` until it returns, and again after each error; the waits double from 0.1 s to 60 s.

    `failed` is called with each error, and may raise to end it all. Cancellation ends it as usual.
    """
    failures = 0
    while True:
        started = asyncio.get_running_loop().time()
        try:
            await work()
        except Exception as error:  # noqa: BLE001 -- what it may be is not known; `failed` reports it
            failed(error)
            is_new = asyncio.get_running_loop().time() - started > LAST_RETRY_SECONDS
            failures = 1 if is_new else failures + 1
            await asyncio.sleep(backoff_seconds(failures, FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS))
        else:
            return


async def borne(work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` until it returns, and again after each error of an exhausted resource; others are raised."""

    def failed(error: Exception) -> None:
        if not is_exhausted(error):
            raise error
        _CANNOT_GO_ON.report(error)

    await kept_running(work, failed)
