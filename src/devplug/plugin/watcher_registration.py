"""The registration of a plugin that the plugin watcher finds: what its socket has gone through. Pure.

The kubelet asks at a socket when it sees it made, and at its own start. It asks again after a refusal, but
never after a lost stream: to the watcher the plugin stays registered until its socket is removed or made
again (reconciler.go). So a lost stream means a new socket. The path stays the same, as then the kubelet first
disconnects the old plugin and then takes the new one on; of two paths the old one might take the new one down
(handler.go DeRegisterPlugin).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from devplug.backoff import backoff_seconds
from devplug.plugin.socket_registration import (
    LEVEL_CHECK_SECONDS,
    QUICK_CUT_SECONDS,
    STREAM_DEADLINE_SECONDS,
    Step,
    cut_wait_seconds,
    preparing_step,
    step_when,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from devplug.plugin.socket_registration import RegistrationFacts

__all__ = ["SocketHistory", "Standing", "next_watched_step", "patience_seconds"]

LAST_PATIENCE_SECONDS: Final = 120.0
"""The slowest pace at which a socket is made anew that no kubelet asks at: there may be none."""

REFUSED_PATIENCE_SECONDS: Final = 150.0
"""How long to wait for the next question after a refusal. The kubelet asks again by itself after 122 s at the
most, its own second and a dial (exponentialbackoff.go); a new socket would not make it faster, as its wait
belongs to the path."""


class Standing(enum.Enum):
    """What has last happened to our socket."""

    UNMADE = enum.auto()
    UNASKED = enum.auto()
    """It was made, and no kubelet has asked at it yet."""
    ASKED = enum.auto()
    """A kubelet has asked who we are, and has still to open its stream."""
    REFUSED = enum.auto()
    """A kubelet has said that it does not register us."""
    LISTENED = enum.auto()
    """A kubelet listens to our list."""
    CUT = enum.auto()
    """The stream has ended; this kubelet does not ask at this socket again."""


@dataclass(frozen=True, slots=True)
class SocketHistory:
    """What our socket has gone through; each method returns the history after one more event.

    Times are seconds on one monotonic clock, streams are numbered from 1 in the order in which they were
    opened, and `jitter` is from 0 to 1.
    """

    standing: Standing = Standing.UNMADE
    since: float = 0.0
    wait_seconds: float = 0.0
    """How long this standing may last before the socket is made anew; without a meaning while listened to."""
    is_accepted: bool = False
    """Whether the kubelet has said that it registered us, after its last question."""
    stream: int = 0
    """The stream that is listened to, or was last."""
    awaited_stream: int = 0
    """The number that the stream will have which belongs to the last question; 0 if none is awaited."""
    asked_at: float = 0.0
    is_made_since: bool = False
    """Whether the socket was made again during the stream: then the kubelet will cut it, and ask."""
    fruitless: int = 0
    """How many sockets in a row have used up their time without a stream."""
    quick_cuts: int = 0

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet has accepted us and listens to our list."""
        return self.is_accepted and self.standing is Standing.LISTENED

    def made(self, now: float, jitter: float) -> SocketHistory:
        """Note that the socket was made, for whatever reason."""
        if self.standing is Standing.LISTENED:
            return replace(self, is_made_since=True)
        is_known = self.standing not in {Standing.UNMADE, Standing.CUT}
        fruitless = self.fruitless + (is_known and now >= self.since + self.wait_seconds)
        history = replace(self, fruitless=fruitless, awaited_stream=0)
        return _put(history, Standing.UNASKED, now, patience_seconds(fruitless, jitter))

    def asked(self, now: float, streams_opened: int, jitter: float) -> SocketHistory:
        """Note a question, which anybody may ask: a stream that is listened to is followed until it ends."""
        history = replace(self, awaited_stream=streams_opened + 1, asked_at=now)
        if self.standing is Standing.LISTENED:
            return history
        history = replace(history, is_accepted=False)
        return _put(history, Standing.ASKED, now, patience_seconds(self.fruitless, jitter))

    def accepted(self) -> SocketHistory:
        """Note that the kubelet has registered us; it may say so before or after it opens its stream."""
        return replace(self, is_accepted=True)

    def refused(self, now: float, jitter: float) -> SocketHistory:
        """Note that the kubelet has not registered us, and asks again by itself."""
        if self.standing is Standing.LISTENED:
            return self
        history = replace(self, awaited_stream=0)
        return _put(history, Standing.REFUSED, now, _jittered(REFUSED_PATIENCE_SECONDS, jitter))

    def streamed(self, now: float, streams: Collection[int], jitter: float) -> SocketHistory:
        """Note that streams were opened or ended; `streams` are the ones that are open now."""
        if self.awaited_stream and self.awaited_stream in streams:
            history = replace(
                self, stream=self.awaited_stream, awaited_stream=0, is_made_since=False, fruitless=0
            )
            return _put(history, Standing.LISTENED, now, 0.0)
        if self.standing is not Standing.LISTENED or self.stream in streams:
            return self
        history = replace(self, quick_cuts=self.quick_cuts + 1 if now - self.since < QUICK_CUT_SECONDS else 0)
        if self.awaited_stream and now - self.asked_at < STREAM_DEADLINE_SECONDS:
            # The next kubelet has been quicker than the end of the old one's stream.
            return _put(history, Standing.ASKED, self.asked_at, patience_seconds(0, jitter))
        history = replace(history, is_accepted=False)
        if self.is_made_since:
            return _put(history, Standing.UNASKED, now, patience_seconds(0, jitter))
        return _put(history, Standing.CUT, now, cut_wait_seconds(max(0, history.quick_cuts - 1), jitter))


def next_watched_step(seen: RegistrationFacts, history: SocketHistory) -> tuple[Step, float]:
    """Return what to do now, and after how many seconds to look again if no event comes before."""
    if first := preparing_step(seen):
        return first
    if history.standing is Standing.LISTENED:
        return Step.WAIT, LEVEL_CHECK_SECONDS
    due = history.since + history.wait_seconds
    return step_when(Step.RENEW, max(due, seen.bind_not_before), seen.now)


def patience_seconds(fruitless: int, jitter: float) -> float:
    """Return how long a kubelet may take to ask at a socket, and then to open its stream.

    After `fruitless` sockets in a row without a stream it is longer: making them anew did not help.
    """
    wait = backoff_seconds(fruitless + 1, STREAM_DEADLINE_SECONDS, LAST_PATIENCE_SECONDS)
    return _jittered(wait, jitter)


def _jittered(seconds: float, jitter: float) -> float:
    return seconds * (1 + 0.2 * jitter)


def _put(history: SocketHistory, standing: Standing, since: float, wait_seconds: float) -> SocketHistory:
    return replace(history, standing=standing, since=since, wait_seconds=wait_seconds)
