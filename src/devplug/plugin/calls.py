"""Calling the kubelet: what our calls have brought so far, and which stream belongs to the last one. Pure.

A kubelet opens its stream some time after it has accepted a call, now and then before its answer is here, and
also for a call whose answer was lost. A stream does not say whose it is. So a socket's name is given to a
kubelet only when no stream of an earlier call is open there, or may still come; the first one after that is
the call's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from devplug.plugin.registration import (
    CUT_WAIT_SECONDS,
    QUICK_CUT_SECONDS,
    StreamState,
    cut_wait_seconds,
    retry_wait_seconds,
)
from devplug.plugin.takeover import KEPT_TIMES

if TYPE_CHECKING:
    from collections.abc import Collection

    from devplug.plugin.registration import Identity

__all__ = ["CallHistory", "may_bring_stream", "streams_owed"]


@dataclass(frozen=True, slots=True)
class CallHistory:
    """What our calls have brought; each method returns the history after one more event.

    Times are seconds on one monotonic clock, streams are numbered from 1 in the order in which they were
    opened, and `jitter` is from 0 to 1.
    """

    is_registering: bool = False
    """Whether a call is on its way."""
    registered_with: Identity | None = None
    """The kubelet.sock of our last good call; None after one that failed."""
    registered_at: float = 0.0
    stream: StreamState = StreamState.AWAITED
    our_stream: int = 0
    """The number of the stream that the last call brings; 0 if none that comes would be it."""
    stream_since: float = 0.0
    """When our stream was opened, or has ended."""
    cut_wait_seconds: float = 0.0
    quick_cuts: int = 0
    lost_at: float | None = None
    """When the kubelet ended our stream, as long as nobody knows whether it lives on."""
    cuts: tuple[float, ...] = ()
    """When the kubelet that is there now has ended streams of ours, the last few times; it lives on."""
    reached: Identity | None = None
    """The kubelet.sock that has accepted a connection of ours last."""
    failed_with: Identity | None = None
    failures: int = 0
    """In a row, to the same kubelet.sock."""
    register_not_before: float = 0.0
    taken: int = 0
    """Calls that kubelets have accepted since our socket has its name, or may have."""
    told_before: int = 0
    """How often the options were told before that."""
    opened_before: int = 0
    """How many streams were opened before that."""

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet accepted us and listens to our list."""
        return self.stream is StreamState.OPEN and self.registered_with is not None

    def has_leftovers(self, streams: Collection[int], *, streams_opened: int, options_told: int) -> bool:
        """Whether a stream is open at our socket, or may still come there. `streams` are the open ones."""
        owed = streams_owed(
            taken=self.taken,
            introduced=options_told - self.told_before,
            opened=streams_opened - self.opened_before,
        )
        return owed > 0 or any(number > self.opened_before for number in streams)

    def called(self, streams_opened: int) -> CallHistory:
        """Note that a call begins."""
        return replace(self, is_registering=True, our_stream=streams_opened + 1, stream=StreamState.AWAITED)

    def connected(self, kubelet: Identity | None) -> CallHistory:
        """Note that this kubelet.sock has accepted the connection for a call."""
        return replace(self, reached=kubelet)

    def withdrawn(self) -> CallHistory:
        """Note that the call was not sent: what it was decided on is no longer so."""
        return replace(self, is_registering=False, registered_with=None)

    def accepted(self, now: float, kubelet: Identity | None) -> CallHistory:
        """Note that this kubelet.sock has accepted the call."""
        is_same = kubelet == self.registered_with
        lost = () if self.lost_at is None else (self.lost_at,)
        return replace(
            self,
            is_registering=False,
            registered_with=kubelet,
            registered_at=now,
            quick_cuts=self.quick_cuts if is_same else 0,
            lost_at=None,
            cuts=(*self.cuts, *lost)[-KEPT_TIMES:] if is_same else (),
            failed_with=None,
            failures=0,
            taken=self.taken + 1,
        )

    def failed(
        self, now: float, kubelet: Identity | None, status: str, text: str, *, is_unsent: bool, jitter: float
    ) -> CallHistory:
        """Note that the call to this kubelet.sock has failed with a gRPC status, or reached nobody.

        One that has let us in before and now does not belongs to a kubelet that is gone: only another one is
        worth a quick retry.
        """
        failures = self.failures + 1 if kubelet == self.failed_with else 1
        is_gone = is_unsent and kubelet is not None and kubelet == self.reached
        wait_seconds = retry_wait_seconds(
            failures,
            is_unreachable=status == "Unavailable",
            is_final=is_gone or (status == "Unknown" and "is not supported by kubelet" in text),
            jitter=jitter,
        )
        return replace(
            self,
            is_registering=False,
            # Or the next attempt would wait for the stream of a registration that there is not.
            registered_with=None,
            failed_with=kubelet,
            failures=failures,
            register_not_before=now + wait_seconds,
            taken=self.taken + may_bring_stream(status, is_unsent=is_unsent),
        )

    def streamed(
        self, now: float, streams: Collection[int], jitter: float, *, ended_by_us: int = 0
    ) -> CallHistory:
        """Note that streams were opened or ended.

        `streams` are the ones that are open now; we have ended those up to `ended_by_us` ourselves.
        """
        if self.our_stream in streams:
            if self.stream is StreamState.OPEN:
                return self
            return replace(self, stream=StreamState.OPEN, stream_since=now)
        if self.stream is not StreamState.OPEN:
            return self
        quick_cuts = self.quick_cuts + 1 if now - self.stream_since < QUICK_CUT_SECONDS else 0
        history = replace(
            self, quick_cuts=quick_cuts, lost_at=None if self.our_stream <= ended_by_us else now
        )
        return _without_stream(history, now, cut_wait_seconds(max(0, quick_cuts - 1), jitter))

    def moved(self, now: float, *, streams_opened: int, options_told: int) -> CallHistory:
        """Note that our socket was closed and gets another name: whatever was to come cannot come any more.

        The kubelet may see it later than our next call, and then close the new connection for the old.
        """
        history = replace(self, taken=0, told_before=options_told, opened_before=streams_opened)
        return _without_stream(history, now, CUT_WAIT_SECONDS)


def _without_stream(history: CallHistory, now: float, wait_seconds: float) -> CallHistory:
    return replace(
        history,
        stream=StreamState.ENDED,
        our_stream=0,
        stream_since=now,
        cut_wait_seconds=wait_seconds,
    )


def may_bring_stream(status: str, *, is_unsent: bool) -> bool:
    """Whether a call that failed with this gRPC status may still bring a stream: its answer was lost.

    A kubelet that refuses says `Unknown`, as all Go servers do with a plain error.
    """
    return not is_unsent and status != "Unknown"


def streams_owed(*, taken: int, introduced: int, opened: int) -> int:
    """Return how many streams kubelets may still open at a socket.

    A kubelet opens one for each call that it has accepted, some time after its answer. `taken` calls were
    accepted, or may have been. Before it opens one it asks for our options: `introduced` were told them.
    What somebody else has `opened` without a call makes it less at most.
    """
    return max(0, max(taken, introduced) - opened)
