"""How long looks take, told to whoever counts them."""

from __future__ import annotations

import time
from functools import wraps
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from devplug.daemon.sources.found import Found
    from devplug.daemon.sources.host import Host

__all__ = ["timed"]


class _OnHost(Protocol):
    @property
    def host(self) -> Host:
        """The machine that is looked at."""


Source = TypeVar("Source", bound=_OnHost)


def timed(look: Callable[[Source], tuple[Found, ...]]) -> Callable[[Source], tuple[Found, ...]]:
    """Return a source's `look` that tells its host how long it took, whatever came of it."""

    @wraps(look)
    def timed_look(source: Source) -> tuple[Found, ...]:
        started = time.perf_counter()
        try:
            return look(source)
        finally:
            source.host.on_look(time.perf_counter() - started)

    return timed_look
