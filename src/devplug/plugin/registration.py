"""The registration of a plugin with the kubelet: what both ways share, and calls at `kubelet.sock`. Pure.

The way by `plugins_registry` is in `watcher_registration`. In each way events move an immutable state along a
table, and a function of that state and the facts says what to do. No step depends on an event that was seen,
so a lost event costs at most one level check.

A plugin that calls Register has two states: our call, and the ListAndWatch stream that the last call brings.
Their tables, `CALLS` and `STREAMS`, share their events. All transitions are there; an event that a state's
row does not have cannot happen in that state.

1. We call when a kubelet.sock is there that we are not registered with (`SocketRegistration.next_step`). The
   call is sent over a connection that is made first, after one more look (`may_send`).
2. A kubelet opens its stream some time after it has accepted a call, or for a call whose answer was lost. A
   stream does not say whose it is, so a kubelet gets a socket's name only when no stream of an earlier call
   is open there or may still come (`has_leftovers`). The first one after that is the call's own.
3. The kubelet never opens a stream again: one that has ended, or does not come, means another call. Streams
   of earlier calls are left behind by a new name for our socket.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from devplug.backoff import backoff_seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from devplug.errors import RemoteError
    from devplug.wire.values import SocketIdentity


LEVEL_CHECK_SECONDS: Final = 5.0
"""How often the folder and both sockets are looked at without an event."""

STREAM_DEADLINE_SECONDS: Final = 15.0
"""How long a ListAndWatch stream may take to come after a registration; the kubelet never tries twice."""

CUT_WAIT_SECONDS: Final = 0.25
"""How long to wait after a lost stream. In 1.36 the end of an old stream closes the newest connection of the
same resource name (handler.go runClient), so registering at once would race with the kubelet's clean-up."""

LAST_CUT_WAIT_SECONDS: Final = 0.5
QUICK_CUT_SECONDS: Final = 1.0
"""A stream that lived shorter than this may have been cut by a rival, so the next wait is longer."""


CUTS: Final = 3
CUTS_SECONDS: Final = 600.0
"""How many lost streams within this time are a sign of another plugin, if their kubelet lives on. A kubelet
ends one where the stream of our predecessor ends late (1.36, handler.go runClient), and never three."""


class RegistrationMode(enum.StrEnum):
    """How a kubelet comes to know a plugin. Never both: the end of one stream would end the other."""

    SOCKET = "socket"
    """The plugin calls Register at `kubelet.sock`."""
    WATCHER = "watcher"
    """The kubelet finds the plugin's socket in `plugins_registry`, and asks."""


def chosen_mode(asked: str, *, has_plugin_dir: bool, has_registry: bool) -> RegistrationMode:
    """Return the mode for a program's life. `auto` is `socket`, also where no kubelet has been yet."""
    if asked == "auto":
        return RegistrationMode.WATCHER if has_registry and not has_plugin_dir else RegistrationMode.SOCKET
    return RegistrationMode(asked)


class Folder(enum.Enum):
    """The state of the folder with our socket."""

    PRESENT = enum.auto()
    ABSENT = enum.auto()
    LOST = enum.auto()
    """The folder was deleted under a mount: nothing can be created in it any more."""


class Step(enum.Enum):
    """What to do next."""

    GIVE_UP = enum.auto()
    LOCK = enum.auto()
    """Take the owner's lock of the resource name."""
    BIND = enum.auto()
    """Make our socket, or make it again."""
    REGISTER = enum.auto()
    LEAVE = enum.auto()
    """Give up the call in flight: whoever it goes to is not the kubelet that is there now."""
    RENEW = enum.auto()
    """Make our socket anew although it is there, so that the kubelet sees one made."""
    MOVE = enum.auto()
    """Close our socket with all that came by it; the next one gets another name."""
    WAIT = enum.auto()


class RegistrationFacts(Struct, frozen=True):
    """The facts of this moment; those with a default are for calls at `kubelet.sock`. Times are seconds."""

    now: float
    folder: Folder
    has_list: bool
    """Whether there is a first device list: registering earlier would advertise a false 0 (kubelet.md
    4.12)."""
    has_lock: bool
    is_bound: bool
    lock_not_before: float
    bind_not_before: float
    kubelet: SocketIdentity | None = None
    """The kubelet.sock that exists now."""
    has_leftovers: bool = False
    """Whether a stream of an earlier call is open at our socket, or may still come there."""


def preparing_step(seen: RegistrationFacts) -> tuple[Step, float] | None:
    """Return the step that must come before a registration, as `next_step` does; None if there is none."""
    if seen.folder is Folder.LOST:
        return Step.GIVE_UP, 0.0
    if seen.folder is Folder.ABSENT or not seen.has_list:
        return Step.WAIT, LEVEL_CHECK_SECONDS
    if not seen.has_lock:
        return step_when(Step.LOCK, seen.lock_not_before, seen.now)
    if not seen.is_bound:
        return step_when(Step.BIND, seen.bind_not_before, seen.now)
    return None


def step_when(step: Step, due: float, now: float) -> tuple[Step, float]:
    """Return `step` if it is due, else the wait for it, at most until the next level check."""
    if now >= due:
        return step, 0.0
    return Step.WAIT, min(due - now, LEVEL_CHECK_SECONDS)


def cut_wait_seconds(quick_cuts: int, jitter: float) -> float:
    """Return the wait after `quick_cuts` streams in a row that were lost soon; `jitter` is from 0 to 1."""
    return jittered(backoff_seconds(quick_cuts + 1, CUT_WAIT_SECONDS, LAST_CUT_WAIT_SECONDS), jitter)


def jittered(seconds: float, jitter: float) -> float:
    """Return a wait that is longer by up to a fifth, as `jitter` says, which is from 0 to 1."""
    return seconds * (1 + 0.2 * jitter)


# ── states, events, tables ──


class CallState(enum.StrEnum):
    """Our call of Register."""

    UNCALLED = "uncalled"
    """There was none, or the last one was not sent."""
    CALLING = "calling"
    ACCEPTED = "accepted"
    FAILED = "failed"


class StreamState(enum.StrEnum):
    """The ListAndWatch stream that belongs to our last call."""

    AWAITED = "awaited"
    OPEN = "open"
    ENDED = "ended"


class CallEvent(enum.StrEnum):
    """What happens to our call and its stream."""

    CALLED = "the plugin calls Register"
    WITHDRAWN = "the call is not sent after all"
    ACCEPTED = "the kubelet accepts the call"
    FAILED = "the call fails or is cancelled"
    OPENED = "the call's stream opens"
    ENDED = "the call's stream ends"
    MOVED = "the plugin's socket gets another name"


CALLS: Final[Mapping[CallState, Mapping[CallEvent, CallState]]] = {
    CallState.UNCALLED: {CallEvent.CALLED: CallState.CALLING},
    CallState.CALLING: {
        CallEvent.WITHDRAWN: CallState.UNCALLED,
        CallEvent.ACCEPTED: CallState.ACCEPTED,
        CallEvent.FAILED: CallState.FAILED,
    },
    CallState.ACCEPTED: {CallEvent.CALLED: CallState.CALLING},
    CallState.FAILED: {CallEvent.CALLED: CallState.CALLING},
}

STREAMS: Final[Mapping[StreamState, Mapping[CallEvent, StreamState]]] = {
    StreamState.AWAITED: {
        CallEvent.CALLED: StreamState.AWAITED,
        CallEvent.OPENED: StreamState.OPEN,
        CallEvent.MOVED: StreamState.ENDED,
    },
    StreamState.OPEN: {CallEvent.ENDED: StreamState.ENDED, CallEvent.MOVED: StreamState.ENDED},
    StreamState.ENDED: {CallEvent.CALLED: StreamState.AWAITED, CallEvent.MOVED: StreamState.ENDED},
}

# ── the waits ──

FIRST_RETRY_SECONDS: Final = 0.01
UNREACHABLE_RETRY_SECONDS: Final = 5.0
"""The slowest pace while kubelet.sock refuses connections: its kubelet is dead, or does not listen yet."""

REFUSED_RETRY_SECONDS: Final = 30.0


def retry_wait_seconds(failures: int, *, is_unreachable: bool, is_final: bool, jitter: float) -> float:
    """Return the wait after the `failures`-th failed registration in a row.

    If no repetition can change the refusal it `is_final`: another kubelet may take over the socket.
    """
    cap = UNREACHABLE_RETRY_SECONDS if is_unreachable else REFUSED_RETRY_SECONDS
    wait = cap if is_final else backoff_seconds(failures, FIRST_RETRY_SECONDS, cap)
    return jittered(wait, jitter)


# ── the state of one plugin ──


class SocketRegistration(Struct, frozen=True):
    """The state of our calls and their stream; each method named after an event returns the next state.

    Streams are numbered from 1 in the order of their opening; `jitter` is from 0 to 1.
    """

    call: CallState = CallState.UNCALLED
    calling: SocketIdentity | None = None
    """The kubelet.sock that the call in flight goes to; None before it is known, and once it was given up."""
    registered_with: SocketIdentity | None = None
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
    """When the kubelet ended our stream, until it is known whether that kubelet still runs."""
    cuts: tuple[float, ...] = ()
    """When the kubelet that runs now ended streams of ours: the last few times."""
    reached: SocketIdentity | None = None
    """The kubelet.sock that has accepted a connection of ours last."""
    failed_with: SocketIdentity | None = None
    """The kubelet.sock that the last call went to if it failed; a new one may be called at once."""
    failures: int = 0
    """In a row, to the same kubelet.sock."""
    register_not_before: float = 0.0
    """When the last failed call may be repeated."""
    taken: int = 0
    """Calls that kubelets accepted, or may have, since our socket has its name."""
    options_answered_before: int = 0
    """How often GetDevicePluginOptions was answered before that."""
    opened_before: int = 0
    """How many streams were opened before that."""

    @property
    def is_listened(self) -> bool:
        """Whether the stream of our last call is open."""
        return self.stream is StreamState.OPEN

    @property
    def is_registered(self) -> bool:
        """Whether a kubelet accepted us and listens to our list."""
        return self.is_listened and self.registered_with is not None

    @property
    def is_settled(self) -> bool:
        """Whether no kubelet may be between two calls."""
        return self.call is not CallState.CALLING and self.stream is not StreamState.AWAITED

    # ── what follows from it ──

    def next_step(self, seen: RegistrationFacts) -> tuple[Step, float]:
        """Return what to do now, and after how many seconds to check again if no event comes before.

        A socket's name is never given to a kubelet as long as a stream of an earlier call may come there:
        that stream would be taken for the new one, and we for registered when we are not, or two would stay
        open.
        """
        if first := preparing_step(seen):
            return first
        if seen.kubelet is not None and self.calling is not None and seen.kubelet != self.calling:
            return Step.LEAVE, 0.0
        if seen.kubelet is None or self.call is CallState.CALLING:
            return Step.WAIT, LEVEL_CHECK_SECONDS
        due = 0.0
        if seen.kubelet == self.registered_with:
            if self.stream is StreamState.OPEN:
                return Step.WAIT, LEVEL_CHECK_SECONDS
            if self.stream is StreamState.ENDED:
                due = self.stream_since + self.cut_wait_seconds
            else:
                due = self.registered_at + STREAM_DEADLINE_SECONDS
        if seen.kubelet == self.failed_with:
            due = max(due, self.register_not_before)
        if seen.has_leftovers and (self.stream is StreamState.ENDED or seen.now >= due):
            return Step.MOVE, 0.0
        return step_when(Step.REGISTER, due, seen.now)

    def may_send(self, seen: RegistrationFacts) -> bool:
        """Whether Register may be sent over the connection that was just made to `calling`.

        A kubelet removes every socket of the folder, and then listens (manager.go Start). So whoever has
        accepted the connection removes nothing any more; but ours may be gone since the call was decided, and
        a kubelet that dials in vain takes a second before it dials again (grpc-go).
        """
        return preparing_step(seen) is None and self.calling is not None and seen.kubelet == self.calling

    def has_leftovers(self, streams: Collection[int], *, streams_opened: int, options_answered: int) -> bool:
        """Whether a stream is open at our socket, or may still come there. `streams` are the open ones."""
        owed = streams_owed(
            taken=self.taken,
            introduced=options_answered - self.options_answered_before,
            opened=streams_opened - self.opened_before,
        )
        return owed > 0 or any(number > self.opened_before for number in streams)

    # ── what happens to our call ──

    def called(self, streams_opened: int) -> SocketRegistration:
        """Record that a call begins."""
        return replace(
            self,
            call=CALLS[self.call][CallEvent.CALLED],
            stream=STREAMS[self.stream][CallEvent.CALLED],
            our_stream=streams_opened + 1,
        )

    def dialled(self, kubelet: SocketIdentity | None) -> SocketRegistration:
        """Record which kubelet.sock the call goes to; None if the call was given up."""
        return replace(self, calling=kubelet)

    def connected(self, kubelet: SocketIdentity | None) -> SocketRegistration:
        """Record that this kubelet.sock has accepted the connection for a call."""
        return replace(self, reached=kubelet)

    def withdrawn(self) -> SocketRegistration:
        """Record that the call was not sent, because the facts have changed since it was decided."""
        call = CALLS[self.call][CallEvent.WITHDRAWN]
        return replace(self, call=call, calling=None, registered_with=None)

    def accepted(self, now: float, kubelet: SocketIdentity | None) -> SocketRegistration:
        """Record that this kubelet.sock has accepted the call."""
        is_same = kubelet == self.registered_with
        lost = () if self.lost_at is None else (self.lost_at,)
        return replace(
            self,
            call=CALLS[self.call][CallEvent.ACCEPTED],
            calling=None,
            registered_with=kubelet,
            registered_at=now,
            quick_cuts=self.quick_cuts if is_same else 0,
            lost_at=None,
            cuts=(*self.cuts, *lost)[-CUTS:] if is_same else (),
            failed_with=None,
            failures=0,
            taken=self.taken + 1,
        )

    def failed(
        self, now: float, kubelet: SocketIdentity | None, failure: RemoteError, jitter: float
    ) -> SocketRegistration:
        """Record that the call to this kubelet.sock has failed, or reached nobody.

        One that has let us in before and now does not belongs to a kubelet that is gone: only another one is
        worth a quick retry.
        """
        failures = self.failures + 1 if kubelet == self.failed_with else 1
        is_gone = failure.is_unsent and kubelet is not None and kubelet == self.reached
        is_unsupported = failure.status == "Unknown" and "is not supported by kubelet" in failure.text
        wait_seconds = retry_wait_seconds(
            failures,
            is_unreachable=failure.status == "Unavailable",
            is_final=is_gone or is_unsupported,
            jitter=jitter,
        )
        return replace(
            self,
            call=CALLS[self.call][CallEvent.FAILED],
            calling=None,
            # Or the next attempt would wait for the stream of a registration that there is not.
            registered_with=None,
            failed_with=kubelet,
            failures=failures,
            register_not_before=now + wait_seconds,
            taken=self.taken + may_bring_stream(failure.status, is_unsent=failure.is_unsent),
        )

    # ── what happens to its stream ──

    def streamed(
        self, now: float, streams: Collection[int], jitter: float, *, ended_by_us: int = 0
    ) -> SocketRegistration:
        """Record that streams were opened or ended.

        `streams` are the ones that are open now; we have ended those up to `ended_by_us` ourselves.
        """
        if self.our_stream in streams:
            if self.is_listened:
                return self
            return replace(self, stream=STREAMS[self.stream][CallEvent.OPENED], stream_since=now)
        if not self.is_listened:
            return self
        quick_cuts = self.quick_cuts + 1 if now - self.stream_since < QUICK_CUT_SECONDS else 0
        return replace(
            self,
            stream=STREAMS[self.stream][CallEvent.ENDED],
            our_stream=0,
            stream_since=now,
            quick_cuts=quick_cuts,
            cut_wait_seconds=cut_wait_seconds(max(0, quick_cuts - 1), jitter),
            lost_at=None if self.our_stream <= ended_by_us else now,
        )

    def moved(self, now: float, *, streams_opened: int, options_answered: int) -> SocketRegistration:
        """Record that our socket was closed and gets another name: no stream of an earlier call can open now.

        The kubelet may see it later than our next call, and then close the new connection for the old.
        """
        return replace(
            self,
            stream=STREAMS[self.stream][CallEvent.MOVED],
            our_stream=0,
            stream_since=now,
            cut_wait_seconds=CUT_WAIT_SECONDS,
            taken=0,
            options_answered_before=options_answered,
            opened_before=streams_opened,
        )


def may_bring_stream(status: str, *, is_unsent: bool) -> bool:
    """Whether a call that failed with this gRPC status may still bring a stream: its answer was lost.

    A kubelet that refuses says `Unknown`, as all Go servers do with a plain error.
    """
    return not is_unsent and status != "Unknown"


def streams_owed(*, taken: int, introduced: int, opened: int) -> int:
    """Return how many streams kubelets may still open at a socket.

    A kubelet opens one for each call that it has accepted, some time after its answer. `taken` calls were
    accepted, or may have been. Before it opens one it asks for our options, which `introduced` have done.
    Streams that others `opened` without a call can only make it less.
    """
    return max(0, max(taken, introduced) - opened)
