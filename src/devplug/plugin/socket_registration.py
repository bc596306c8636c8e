"""The registration of a plugin with the kubelet: states, facts and the step that follows from them. Pure.

One function decides when to register, bind or wait, on what can be seen right now. Nothing depends on having
seen an event, so a lost one costs at most one level check. Here we call the kubelet; `watcher_registration`
decides where it comes to us.

A kubelet opens its stream some time after it has accepted a call, or for a call whose answer was lost. A
stream does not say whose it is, so a kubelet gets a socket's name only when no stream of an earlier call is
open there or may still come. The first one after that is the call's own.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from devplug.backoff import backoff_seconds
from devplug.plugin.takeover import KEPT_TIMES

if TYPE_CHECKING:
    from collections.abc import Collection

    from devplug.wire.values import SocketIdentity

__all__ = [
    "LEVEL_CHECK_SECONDS",
    "QUICK_CUT_SECONDS",
    "STREAM_DEADLINE_SECONDS",
    "CallHistory",
    "Folder",
    "RegistrationFacts",
    "RegistrationMode",
    "Step",
    "StreamState",
    "chosen_mode",
    "cut_wait_seconds",
    "may_bring_stream",
    "may_send",
    "next_step",
    "preparing_step",
    "retry_wait_seconds",
    "step_when",
    "streams_owed",
]

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

FIRST_RETRY_SECONDS: Final = 0.01
UNREACHABLE_RETRY_SECONDS: Final = 5.0
"""The slowest pace while kubelet.sock refuses connections: its kubelet is dead, or does not listen yet."""

REFUSED_RETRY_SECONDS: Final = 30.0


class RegistrationMode(enum.StrEnum):
    """How a kubelet comes to know a plugin. Never both: the end of one stream would end the other."""

    SOCKET = "socket"
    """The plugin calls Register at `kubelet.sock`."""
    WATCHER = "watcher"
    """The kubelet finds the plugin's socket in `plugins_registry`, and asks."""


def chosen_mode(asked: str, *, has_plugin_dir: bool, has_registry: bool) -> RegistrationMode:
    """Return the mode of a program that was asked for `socket`, `watcher` or `auto`; it stays for its life.

    `auto` is `socket`, also where no kubelet has been yet: the plugin folder is the first that it makes. Only
    a program that is given `plugins_registry` and no plugin folder has to be found there.
    """
    if asked == "auto":
        return RegistrationMode.WATCHER if has_registry and not has_plugin_dir else RegistrationMode.SOCKET
    return RegistrationMode(asked)


class Folder(enum.Enum):
    """The state of the folder with our socket."""

    PRESENT = enum.auto()
    ABSENT = enum.auto()
    LOST = enum.auto()
    """Deleted under a mount: it is still here, and nothing can be created in it any more."""


class StreamState(enum.Enum):
    """The ListAndWatch stream that belongs to our last registration."""

    AWAITED = enum.auto()
    OPEN = enum.auto()
    ENDED = enum.auto()


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


@dataclass(frozen=True, slots=True)
class RegistrationFacts:
    """All that the decisions depend on, as it is now. Times are seconds on one monotonic clock.

    Those with a default count only where we call the kubelet.
    """

    now: float
    folder: Folder
    has_list: bool
    """Whether there are devices to show: registering earlier would advertise a false 0 (kubelet.md 4.12)."""
    has_lock: bool
    is_bound: bool
    lock_not_before: float
    bind_not_before: float
    kubelet: SocketIdentity | None = None
    """The kubelet.sock that stands there now."""
    registered_with: SocketIdentity | None = None
    """The kubelet.sock of our last good registration."""
    registered_at: float = 0.0
    is_registering: bool = False
    stream: StreamState = StreamState.AWAITED
    cut_at: float = 0.0
    """When the stream ended, if it did."""
    cut_wait_seconds: float = 0.0
    has_leftovers: bool = False
    """Whether a stream of an earlier call is open at our socket, or may still come there."""
    register_not_before: float = 0.0
    """When the last failed attempt may be repeated."""
    failed_with: SocketIdentity | None = None
    """The kubelet.sock that the last failed attempt went to; a new one may be tried at once."""
    calling: SocketIdentity | None = None
    """The kubelet.sock that the call in flight goes to; None if no call is on its way."""


def preparing_step(seen: RegistrationFacts) -> tuple[Step, float] | None:
    """Return what is to be done before there can be a registration, or None; as `next_step` does."""
    if seen.folder is Folder.LOST:
        return Step.GIVE_UP, 0.0
    if seen.folder is Folder.ABSENT or not seen.has_list:
        return Step.WAIT, LEVEL_CHECK_SECONDS
    if not seen.has_lock:
        return step_when(Step.LOCK, seen.lock_not_before, seen.now)
    if not seen.is_bound:
        return step_when(Step.BIND, seen.bind_not_before, seen.now)
    return None


def next_step(seen: RegistrationFacts) -> tuple[Step, float]:
    """Return what to do now, and after how many seconds to look again if no event comes before.

    A socket's name is never given to a kubelet as long as a stream of an earlier call may come there: that
    stream would be taken for the new one, and we for registered when we are not, or two would stay open.
    """
    if first := preparing_step(seen):
        return first
    if seen.kubelet is not None and seen.calling is not None and seen.kubelet != seen.calling:
        return Step.LEAVE, 0.0
    if seen.kubelet is None or seen.is_registering:
        return Step.WAIT, LEVEL_CHECK_SECONDS
    due = 0.0
    if seen.kubelet == seen.registered_with:
        if seen.stream is StreamState.OPEN:
            return Step.WAIT, LEVEL_CHECK_SECONDS
        if seen.stream is StreamState.ENDED:
            due = seen.cut_at + seen.cut_wait_seconds
        else:
            due = seen.registered_at + STREAM_DEADLINE_SECONDS
    if seen.kubelet == seen.failed_with:
        due = max(due, seen.register_not_before)
    if seen.has_leftovers and (seen.stream is StreamState.ENDED or seen.now >= due):
        return Step.MOVE, 0.0
    return step_when(Step.REGISTER, due, seen.now)


def may_send(seen: RegistrationFacts) -> bool:
    """Whether Register may be sent over a connection that was made to the kubelet.sock `calling` just now.

    A kubelet removes every socket of the folder, and then listens (manager.go Start). So whoever has accepted
    the connection removes nothing any more; but ours may be gone since the call was decided, and a kubelet
    that dials in vain takes a second before it dials again (grpc-go).
    """
    return preparing_step(seen) is None and seen.calling is not None and seen.kubelet == seen.calling


def step_when(step: Step, due: float, now: float) -> tuple[Step, float]:
    """Return `step` if its time has come, else the wait for it, cut to the level check."""
    if now >= due:
        return step, 0.0
    return Step.WAIT, min(due - now, LEVEL_CHECK_SECONDS)


def cut_wait_seconds(quick_cuts: int, jitter: float) -> float:
    """Return the wait after a lost stream; `quick_cuts` streams in a row were lost within a second.

    `jitter` is from 0 to 1. Two plugins that fight for one name cut each other for ever, at this pace.
    """
    return backoff_seconds(quick_cuts + 1, CUT_WAIT_SECONDS, LAST_CUT_WAIT_SECONDS) * (1 + 0.2 * jitter)


def retry_wait_seconds(failures: int, *, is_unreachable: bool, is_final: bool, jitter: float) -> float:
    """Return the wait after the `failures`-th failed registration in a row.

    `is_final` is a refusal that no repetition can change; it is repeated at the slowest pace only, in case
    another kubelet takes over the socket.
    """
    cap = UNREACHABLE_RETRY_SECONDS if is_unreachable else REFUSED_RETRY_SECONDS
    wait = cap if is_final else backoff_seconds(failures, FIRST_RETRY_SECONDS, cap)
    return wait * (1 + 0.2 * jitter)


# ── what our calls have brought ──


@dataclass(frozen=True, slots=True)
class CallHistory:
    """What our calls have brought; each method returns the history after one more event.

    Times are seconds on one monotonic clock, streams are numbered from 1 in the order in which they were
    opened, and `jitter` is from 0 to 1.
    """

    is_registering: bool = False
    """Whether a call is on its way."""
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
    """When the kubelet ended our stream, as long as nobody knows whether it lives on."""
    cuts: tuple[float, ...] = ()
    """When the kubelet that is there now has ended streams of ours, the last few times; it lives on."""
    reached: SocketIdentity | None = None
    """The kubelet.sock that has accepted a connection of ours last."""
    failed_with: SocketIdentity | None = None
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

    def connected(self, kubelet: SocketIdentity | None) -> CallHistory:
        """Note that this kubelet.sock has accepted the connection for a call."""
        return replace(self, reached=kubelet)

    def withdrawn(self) -> CallHistory:
        """Note that the call was not sent: what it was decided on is no longer so."""
        return replace(self, is_registering=False, registered_with=None)

    def accepted(self, now: float, kubelet: SocketIdentity | None) -> CallHistory:
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
        self,
        now: float,
        kubelet: SocketIdentity | None,
        status: str,
        text: str,
        *,
        is_unsent: bool,
        jitter: float,
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
    history = replace(history, stream=StreamState.ENDED, our_stream=0)
    return replace(history, stream_since=now, cut_wait_seconds=wait_seconds)


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
