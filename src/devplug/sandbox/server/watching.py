"""One watcher's stream of events: what changes, and now and then a bookmark when nothing does.

It knows nothing of HTTP; whoever reads it ends it.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final

from devplug.sandbox.api.changes import ChangeType, bookmark
from devplug.sandbox.server.acting import kept_resource

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from devplug.sandbox.api.changes import WatchEvent
    from devplug.sandbox.registry import Registry
    from devplug.sandbox.requests.options import ListOptions
    from devplug.sandbox.requests.routes import Request

__all__ = ["BEAT_SECONDS", "watched"]

BEAT_SECONDS: Final = 60.0
"""How long a watcher that asked for bookmarks is left without a word (cacher.go's bookmark timer)."""


async def watched(
    registry: Registry, request: Request, options: ListOptions, beat_seconds: float = BEAT_SECONDS
) -> AsyncGenerator[list[WatchEvent], None]:
    """Yield what is sent at once, perhaps nothing, and then what changes, for ever; raises `StatusError`.

    A bookmark tells the version up to which this very watcher has been sent everything: the registry is asked
    anew from there, and what it has not yet told comes before the bookmark.
    """
    resource = kept_resource(request.resource)
    selection = options.selection(request.namespace, request.name)
    lines = registry.watch(resource, selection, options.version, sends_list=options.sends_list)
    beat = beat_seconds if options.bookmarks else None
    ends_quiet = False
    while True:
        async with aclosing(lines):
            events = await anext(lines)
            reached = registry.version
            if ends_quiet:
                events = [*events, bookmark(resource, reached)]
            yield _asked(events, options)
            with suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(beat):
                        events = await anext(lines)
                    reached = registry.version
                    yield _asked(events, options)
        ends_quiet = True
        lines = registry.watch(resource, selection, str(reached), sends_list=False)


def _asked(events: list[WatchEvent], options: ListOptions) -> list[WatchEvent]:
    if options.bookmarks:
        return events
    return [event for event in events if event.type is not ChangeType.BOOKMARK]
