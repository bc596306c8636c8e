"""The server of the page: the page and its files, the state as JSON, and the state as events.

It keeps the history of the nodes while somebody may want to see it.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from importlib import resources
from typing import TYPE_CHECKING, Final, Protocol

from devplug.linux.notifier import Notifier, within
from devplug.monitor.history import History
from devplug.monitor.page.markup import page
from devplug.monitor.page.view import details, state
from devplug.web.messages import Page, Stream, not_found

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from devplug.monitor.page.state import Details, State
    from devplug.status import NodeStatus
    from devplug.web.messages import Answer, Request


_FIRST_SECONDS: Final = 3.0
"""How long a node's first status may take; what comes later is a change."""

_SETTLE_SECONDS: Final = 0.1
"""A burst of changes is one look."""

_FRESH_SECONDS: Final = 1.0
_MADE_LIMIT: Final = 16

_DIRECTIONS: Final = re.compile(r"((?<!\\)(?:\\\\)*)\\u(061c|200[ef]|202[a-e]|206[6-9])")
"""Marks that change the direction of text, as JSON writes them: a browser shows their codes instead."""

_JSON: Final = "application/json"
_MEDIA_TYPES: Final = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "changes.js": "text/javascript; charset=utf-8",
    "draw.js": "text/javascript; charset=utf-8",
    "dom.js": "text/javascript; charset=utf-8",
    "details.js": "text/javascript; charset=utf-8",
    "keys.js": "text/javascript; charset=utf-8",
    "tiles.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""The files beside the page that are served, each at the root."""

_FILTER_LIMIT: Final = 100
_PACE_SECONDS: Final = 0.2
"""Between two events: faster, nobody can read."""

_LEVEL_SECONDS: Final = 15.0
"""An event without a change: ages and strips go on, and the reader knows that we are there."""

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
"""Nothing comes from elsewhere, nothing runs that is not a file of ours, and nobody frames or embeds it."""


# ── history ───────────────────────────────────────────────────────────────────────────────────────


class Source(Protocol):
    """The source of a node's status: a `Collector`."""

    node_name: str
    notifier: Notifier

    def status(self) -> NodeStatus:
        """Return the status of the node."""

    async def run(self) -> None:
        """Keep the status up to date until cancelled."""

    async def wait_first(self) -> None:
        """Wait until `run` has asked every socket once."""


class Follower:
    """The statuses of the nodes and their last hour, kept while `run` lasts.

    `notifier` tells when there is something new to see.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.notifier = Notifier()
        self._sources = sources
        self._history = History()
        self._began_at = time.time()
        self._made: dict[str, tuple[History, State]] = {}
        """What was returned last, by filter: many readers ask for the same."""

    async def run(self) -> None:
        """Follow all nodes until cancelled."""
        async with asyncio.TaskGroup() as group:
            for source in self._sources:
                group.create_task(source.run())
                group.create_task(self._follow(source))

    async def _follow(self, source: Source) -> None:
        # Of who is late, what is known so far is shown, and says what is missing.
        await within(_FIRST_SECONDS, source.wait_first())
        while True:
            changed = source.notifier.next
            self._history = self._history.after(source.status())
            self.notifier.notify()
            await changed.wait()
            await asyncio.sleep(_SETTLE_SECONDS)

    def state(self, wanted: str = "") -> State:
        """Return what the page shows now; with `wanted`, only tiles in which that stands."""
        now = time.time()
        made = self._made.get(wanted)
        if made is None or made[0] is not self._history or now - made[1]["at"] > _FRESH_SECONDS:
            names = [source.node_name for source in self._sources]
            made = self._history, state(names, self._history, now, began_at=self._began_at, wanted=wanted)
            if len(self._made) >= _MADE_LIMIT:
                self._made.clear()
            self._made[wanted] = made
        return made[1]

    def details(self, node: str, resource: str, found: str) -> Details | None:
        """Return all that is known of one device, or None."""
        return details(self._history, node, resource, found)


# ── pages ─────────────────────────────────────────────────────────────────────────────────────────


class Pages:
    """The handler of the page's server; lives as long as that."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        static = resources.files("devplug.monitor.page").joinpath("static")
        self._frame = static.joinpath("page.html").read_text(encoding="utf-8")
        self._files = {
            f"/{name}": Page(static.joinpath(name).read_bytes(), media_type, headers=_HEADERS)
            for name, media_type in _MEDIA_TYPES.items()
        }

    async def answer(self, request: Request) -> Answer:
        """Answer one request."""
        wanted = request.query.get("filter", "")[:_FILTER_LIMIT]
        match request.path:
            case "/":
                content = page(self._frame, self._follower.state())
                return Page(content, "text/html; charset=utf-8", headers=_HEADERS)
            case "/state.json":
                return _json_page(self._follower.state(wanted))
            case "/device.json":
                return self._details(request)
            case "/events":
                return Stream(self._events(wanted), "text/event-stream; charset=utf-8", _HEADERS)
        return self._files.get(request.path) or not_found()

    def _details(self, request: Request) -> Page:
        node, resource, found = (request.query.get(name, "") for name in ("node", "resource", "id"))
        known = self._follower.details(node, resource, found)
        return not_found() if known is None else _json_page(known)

    async def _events(self, wanted: str) -> AsyncIterator[bytes]:
        """Yield the whole state, now and after each change; a reader that comes back has missed nothing."""
        yield b"retry: 1000\n\n"
        while True:
            changed = self._follower.notifier.next
            yield b"event: state\ndata: " + _json(self._follower.state(wanted)) + b"\n\n"
            await asyncio.sleep(_PACE_SECONDS)
            await within(_LEVEL_SECONDS, changed.wait())


def _json_page(value: object) -> Page:
    return Page(_json(value), _JSON, headers=_HEADERS)


def _json(value: object) -> bytes:
    """Return a value on one line: JSON escapes the ends of lines in texts."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return _DIRECTIONS.sub(r"\1\\\\u\2", text).encode()
