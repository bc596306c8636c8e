"""The probe pages of every devplug program: liveness, readiness, metrics and status.

Their content comes from their owner's functions; `web` serves them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from devplug.metrics.exposition import exposition, form_of
from devplug.web.messages import Page, Stream, not_found

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from devplug.linux.notifier import Event, Notifier
    from devplug.metrics.families import Family
    from devplug.web.messages import Answer, Request

LEAST_PAUSE_SECONDS: Final = 0.2
"""Between two documents of a followed status, so that a burst of changes is sent once or twice."""

FOLLOWERS_SHARE: Final = 0.05
"""How much of the loop's time all followers together may have: a status of 10,000 devices takes a tenth of a
second."""

PAGES_SHARE: Final = 0.1
"""How much of the loop's time all requests of metrics and status together may have, in the long run."""

PAGES_BURST_SECONDS: Final = 0.5
"""How much of that time may be taken at once. Beyond it a request gets the page that was made last."""

_INDEX: Final = """\
/healthz  is the process alive
/readyz   is every resource registered and listened to; says which is not
/metrics  counts, for Prometheus
/status   all there is to know, as JSON; ?watch=1 follows it (Unix sockets only)
"""


class Probes:
    """Answers `/healthz`, `/readyz`, `/metrics` and `/status`; lives as long as its owner.

    `status` returns the JSON of `/status`; `faults` says what keeps the owner from being ready, `notes` what
    else should be known; `families` are the metrics; `notifier` notifies when any may have changed.
    """

    def __init__(
        self,
        *,
        status: Callable[[], bytes],
        faults: Callable[[], Sequence[str]],
        notes: Callable[[], Sequence[str]] = tuple,
        families: Callable[[], Iterable[Family]],
        notifier: Notifier,
    ) -> None:
        self._status = status
        self._faults = faults
        self._notes = notes
        self._families = families
        self._notifier = notifier
        self._made = b""
        """The status that was sent to all followers last."""
        self._made_before: Event | None = None
        """What the next change after that sets."""
        self._make_not_before = 0.0
        self._pages: dict[object, bytes] = {}
        """The pages that were made last, by what they are."""
        self._budget_seconds = PAGES_BURST_SECONDS
        self._budget_at = 0.0
        """When the budget was right; a time of the loop."""

    async def answer(self, request: Request) -> Answer:
        """Answer one request. Only a Unix socket has `/status`, as its file says who may know of pods."""
        match request.path:
            case "/":
                return Page(_INDEX)
            case "/healthz" | "/livez":
                # That this is answered is the answer: all the work is done on this loop.
                return Page("ok\n")
            case "/readyz":
                return self._ready()
            case "/metrics":
                form = form_of(request.accept)
                return Page(self._page(form, lambda: exposition(self._families(), form)), form.value)
            case "/status" if request.is_local:
                if request.query.get("watch"):
                    return Stream(self._follow(), "application/jsonl")
                return Page(self._page("status", lambda: self._status() + b"\n"), "application/json")
        return not_found()

    def _page(self, kind: object, make: Callable[[], bytes]) -> bytes:
        """Return a page: a new one, or the last one while pages have taken too much of the loop's time.

        With thousands of devices one takes a tenth of a second, and anybody may ask for any number of them.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        earned = (started - self._budget_at) * PAGES_SHARE
        self._budget_seconds = min(PAGES_BURST_SECONDS, self._budget_seconds + earned)
        self._budget_at = started
        if kind not in self._pages or self._budget_seconds > 0:
            self._pages[kind] = make()
            self._budget_seconds -= loop.time() - started
        return self._pages[kind]

    def _ready(self) -> Page:
        faults = self._faults()
        lines = [*(f"not ready: {one}" for one in faults), *(f"note: {one}" for one in self._notes())]
        return Page("\n".join([*lines, "" if faults else "ready\n"]), status=503 if faults else 200)

    async def _follow(self) -> AsyncIterator[bytes]:
        """Yield the status now and after each change, as lines of JSON; never the same twice in a row.

        The first change is sent at once, those that come soon after it together, to all followers.
        """
        loop = asyncio.get_running_loop()
        last = b""
        while True:
            changed = self._notifier.next
            if self._made_before is not changed and (not last or loop.time() >= self._make_not_before):
                self._make()
            if self._made != last:
                last = self._made
                yield last + b"\n"
            if self._made_before is self._notifier.next:
                await self._notifier.next.wait()
            else:
                await asyncio.sleep(max(0.0, self._make_not_before - loop.time()))

    def _make(self) -> None:
        loop = asyncio.get_running_loop()
        self._made_before = self._notifier.next
        started = loop.time()
        self._made = self._status()
        ended = loop.time()
        self._make_not_before = ended + max(LEAST_PAUSE_SECONDS, (ended - started) / FOLLOWERS_SHARE)
