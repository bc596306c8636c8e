"""The registration of a plugin that the plugin watcher finds: its states, table and steps. Pure.

All transitions are in `TRANSITIONS` and nowhere else; an event that a state's row does not have cannot happen
in that state.

1. The kubelet asks at a socket when it sees it made, and at its own start. It asks again after a refusal, but
   never after a lost stream: to the watcher the plugin stays registered until its socket is removed or made
   again (reconciler.go).
2. So a lost stream means a new socket, and so does a socket at which nobody asks in time. The path stays the
   same, as then the kubelet first disconnects the old plugin and then takes the new one on; of two paths the
   old one might take the new one down (handler.go DeRegisterPlugin).
3. That the kubelet has registered us may be said before or after its stream, and so is no state: it is
   `is_accepted`. Both together are a registration.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from devplug.backoff import backoff_seconds
from devplug.plugin.registration import (
    LEVEL_CHECK_SECONDS,
    QUICK_CUT_SECONDS,
    STREAM_DEADLINE_SECONDS,
    Step,
    cut_wait_seconds,
    jittered,
    preparing_step,
    step_when,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from devplug.plugin.registration import RegistrationFacts


# ── states, events, the table ──


class WatcherState(enum.StrEnum):
    """What has last happened to our socket."""

    UNMADE = "unmade"
    UNASKED = "unasked"
    """It was made, and no kubelet has asked at it yet."""
    ASKED = "asked"
    """A kubelet has asked who we are, and has still to open its stream."""
    REFUSED = "refused"
    """A kubelet has said that it does not register us."""
    LISTENED = "listened"
    """A kubelet listens to our list."""
    CUT = "cut"
    """The stream has ended; this kubelet does not ask at this socket again."""


class WatcherEvent(enum.StrEnum):
    """What happens to our socket and its stream."""

    MADE = "the socket is made"
    ASKED = "a kubelet calls GetInfo"
    REFUSED = "the kubelet refuses the plugin"
    OPENED = "the stream after the last GetInfo opens"
    ENDED = "the stream ends"
    ENDED_ASKED = "the stream ends just after a GetInfo"
    ENDED_MADE = "the stream ends after the socket was made again"


_UNLISTENED: Final = {
    WatcherEvent.MADE: WatcherState.UNASKED,
    WatcherEvent.ASKED: WatcherState.ASKED,
    WatcherEvent.REFUSED: WatcherState.REFUSED,
}
_OPENED: Final = {WatcherEvent.OPENED: WatcherState.LISTENED}

TRANSITIONS: Final[Mapping[WatcherState, Mapping[WatcherEvent, WatcherState]]] = {
    WatcherState.UNMADE: {WatcherEvent.MADE: WatcherState.UNASKED},
    WatcherState.UNASKED: _UNLISTENED | _OPENED,
    WatcherState.ASKED: _UNLISTENED | _OPENED,
    WatcherState.REFUSED: _UNLISTENED,
    WatcherState.LISTENED: {
        # Anybody may ask: a stream that is listened to is followed until it ends.
        WatcherEvent.MADE: WatcherState.LISTENED,
        WatcherEvent.ASKED: WatcherState.LISTENED,
        WatcherEvent.REFUSED: WatcherState.LISTENED,
        WatcherEvent.OPENED: WatcherState.LISTENED,
        WatcherEvent.ENDED: WatcherState.CUT,
        # The next kubelet has been quicker than the end of the old one's stream.
        WatcherEvent.ENDED_ASKED: WatcherState.ASKED,
        # The kubelet has seen it made: it cuts the stream at its next look, and asks at the one after that.
        WatcherEvent.ENDED_MADE: WatcherState.UNASKED,
    },
    WatcherState.CUT: _UNLISTENED | _OPENED,
}

# ── the waits ──

LAST_PATIENCE_SECONDS: Final = 120.0
"""The longest time between two new sockets while no kubelet calls: there may be none."""

REFUSED_PATIENCE_SECONDS: Final = 150.0
"""How long to wait for the next question after a refusal. The kubelet asks again by itself after 122 s at the
most, its own second and a dial (exponentialbackoff.go); a new socket would not make it faster, as its wait
belongs to the path."""


def patience_seconds(fruitless: int, jitter: float) -> float:
    """Return how long a kubelet may take to ask, or to open a stream, after `fruitless` sockets."""
    return jittered(backoff_seconds(fruitless + 1, STREAM_DEADLINE_SECONDS, LAST_PATIENCE_SECONDS), jitter)


# ── the state of one plugin ──


class WatcherRegistration(Struct, frozen=True):
    """The state of our socket and its stream; each method named after an event returns the next state.

    Streams are numbered from 1 in the order of their opening; `jitter` is from 0 to 1.
    """

    state: WatcherState = WatcherState.UNMADE
    since: float = 0.0
    wait_seconds: float = 0.0
    """How long this state may last before the socket is made again; unused while a stream is open."""
    is_accepted: bool = False
    """Whether the kubelet has said that it registered us, after its last question."""
    stream: int = 0
    """The stream that is listened to, or was last."""
    awaited_stream: int = 0
    """The number of the stream that belongs to the last GetInfo; 0 if none is awaited."""
    asked_at: float = 0.0
    is_made_since: bool = False
    """Whether the socket was made again during the stream: then the kubelet will cut it, and ask."""
    fruitless: int = 0
    """How many sockets in a row got no stream in time."""
    quick_cuts: int = 0

    @property
    def is_listened(self) -> bool:
        """Whether a kubelet listens to our list."""
        return self.state is WatcherState.LISTENED

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet has accepted us and listens to our list."""
        return self.is_accepted and self.is_listened

    @property
    def is_settled(self) -> bool:
        """Whether no kubelet may be between two calls."""
        return self.is_listened and not self.awaited_stream

    @property
    def stream_since(self) -> float:
        """When the stream was opened, while it is."""
        return self.since

    @property
    def cuts(self) -> tuple[float, ...]:
        """Always empty: a kubelet that ends a stream looks the same as one that stops."""
        return ()

    def next_step(self, seen: RegistrationFacts) -> tuple[Step, float]:
        """Return what to do now, and after how many seconds to check again if no event comes before."""
        if first := preparing_step(seen):
            return first
        if self.is_listened:
            return Step.WAIT, LEVEL_CHECK_SECONDS
        due = self.since + self.wait_seconds
        return step_when(Step.RENEW, max(due, seen.bind_not_before), seen.now)

    # ── what happens to our socket ──

    def made(self, now: float, jitter: float) -> WatcherRegistration:
        """Record that the socket was made, for whatever reason."""
        if self.is_listened:
            return replace(self, state=self._after(WatcherEvent.MADE), is_made_since=True)
        is_known = self.state not in {WatcherState.UNMADE, WatcherState.CUT}
        fruitless = self.fruitless + (is_known and now >= self.since + self.wait_seconds)
        return replace(
            self,
            state=self._after(WatcherEvent.MADE),
            since=now,
            wait_seconds=patience_seconds(fruitless, jitter),
            fruitless=fruitless,
            awaited_stream=0,
        )

    def asked(self, now: float, streams_opened: int, jitter: float) -> WatcherRegistration:
        """Record a call of GetInfo, which need not be the kubelet's."""
        asked = replace(
            self, state=self._after(WatcherEvent.ASKED), awaited_stream=streams_opened + 1, asked_at=now
        )
        if self.is_listened:
            return asked
        wait_seconds = patience_seconds(self.fruitless, jitter)
        return replace(asked, since=now, wait_seconds=wait_seconds, is_accepted=False)

    def accepted(self) -> WatcherRegistration:
        """Record that the kubelet has registered us; it may say so before or after it opens its stream."""
        return replace(self, is_accepted=True)

    def refused(self, now: float, jitter: float) -> WatcherRegistration:
        """Record that the kubelet has not registered us, and asks again by itself."""
        refused = replace(self, state=self._after(WatcherEvent.REFUSED))
        if self.is_listened:
            return refused
        wait_seconds = jittered(REFUSED_PATIENCE_SECONDS, jitter)
        return replace(refused, since=now, wait_seconds=wait_seconds, awaited_stream=0)

    def streamed(self, now: float, streams: Collection[int], jitter: float) -> WatcherRegistration:
        """Record that streams were opened or ended; `streams` are the ones that are open now."""
        if self.awaited_stream and self.awaited_stream in streams:
            return replace(
                self,
                state=self._after(WatcherEvent.OPENED),
                since=now,
                wait_seconds=0.0,
                stream=self.awaited_stream,
                awaited_stream=0,
                is_made_since=False,
                fruitless=0,
            )
        if not self.is_listened or self.stream in streams:
            return self
        quick_cuts = self.quick_cuts + 1 if now - self.since < QUICK_CUT_SECONDS else 0
        since, wait_seconds, is_accepted = now, patience_seconds(0, jitter), False
        if self.awaited_stream and now - self.asked_at < STREAM_DEADLINE_SECONDS:
            event, since, is_accepted = WatcherEvent.ENDED_ASKED, self.asked_at, self.is_accepted
        elif self.is_made_since:
            event = WatcherEvent.ENDED_MADE
        else:
            event, wait_seconds = WatcherEvent.ENDED, cut_wait_seconds(max(0, quick_cuts - 1), jitter)
        return replace(
            self,
            state=self._after(event),
            since=since,
            wait_seconds=wait_seconds,
            is_accepted=is_accepted,
            quick_cuts=quick_cuts,
        )

    def _after(self, event: WatcherEvent) -> WatcherState:
        return TRANSITIONS[self.state][event]
