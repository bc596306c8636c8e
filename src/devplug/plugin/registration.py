"""When to register, when to bind, when to wait: decided by one pure function on what can be seen right now.

Nothing here depends on having seen an event: the same facts always give the same step, so a lost event costs
at most one level check. The kubelet's habits behind the rules are cited where they are used. Here it is us
who call the kubelet; `watched` decides where it comes to us.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = [
    "CUT_WAIT_SECONDS",
    "LEVEL_CHECK_SECONDS",
    "QUICK_CUT_SECONDS",
    "STREAM_DEADLINE_SECONDS",
    "Folder",
    "Grounds",
    "Identity",
    "Situation",
    "Step",
    "StreamState",
    "Way",
    "chosen_way",
    "cut_wait_seconds",
    "may_send",
    "next_step",
    "preparing_step",
    "retry_wait_seconds",
    "step_when",
]

Identity: TypeAlias = tuple[int, int, int]
"""What tells one file from another under the same name; see `wire.sockets.socket_identity`."""

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


class Way(enum.StrEnum):
    """How a kubelet comes to know a plugin. Never both: the end of one stream would end the other."""

    SOCKET = "socket"
    """The plugin calls Register at `kubelet.sock`."""
    WATCHER = "watcher"
    """The kubelet finds the plugin's socket in `plugins_registry`, and asks."""


def chosen_way(asked: str, *, has_plugin_dir: bool, has_registry: bool) -> Way:
    """Return the way of a program that was asked for `socket`, `watcher` or `auto`; it stays for its life.

    `auto` is `socket`, also where no kubelet has been yet: the plugin folder is the first that it makes. Only
    a program that is given `plugins_registry` and no plugin folder has to be found there.
    """
    if asked == "auto":
        return Way.WATCHER if has_registry and not has_plugin_dir else Way.SOCKET
    return Way(asked)


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
    CLAIM = enum.auto()
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
class Grounds:
    """What every registration needs. Times are seconds on one monotonic clock."""

    now: float
    folder: Folder
    has_list: bool
    """Whether there are devices to show: registering earlier would advertise a false 0 (kubelet.md 4.12)."""
    has_claim: bool
    is_bound: bool
    claim_not_before: float
    bind_not_before: float


@dataclass(frozen=True, slots=True)
class Situation(Grounds):
    """All that the decision depends on where we call the kubelet."""

    kubelet: Identity | None
    """The kubelet.sock that stands there now."""
    registered_with: Identity | None
    """The kubelet.sock of our last good registration."""
    registered_at: float
    is_registering: bool
    stream: StreamState
    cut_at: float
    """When the stream ended, if it did."""
    cut_wait_seconds: float
    has_leftovers: bool
    """Whether a stream of an earlier call is open at our socket, or may still come there."""
    register_not_before: float
    """When the last failed attempt may be repeated."""
    failed_with: Identity | None
    """The kubelet.sock that the last failed attempt went to; a new one may be tried at once."""
    calling: Identity | None = None
    """The kubelet.sock that the call in flight goes to; None if no call is on its way."""


def preparing_step(seen: Grounds) -> tuple[Step, float] | None:
    """Return what is to be done before there can be a registration, or None; as `next_step` does."""
    if seen.folder is Folder.LOST:
        return Step.GIVE_UP, 0.0
    if seen.folder is Folder.ABSENT or not seen.has_list:
        return Step.WAIT, LEVEL_CHECK_SECONDS
    if not seen.has_claim:
        return step_when(Step.CLAIM, seen.claim_not_before, seen.now)
    if not seen.is_bound:
        return step_when(Step.BIND, seen.bind_not_before, seen.now)
    return None


def next_step(seen: Situation) -> tuple[Step, float]:
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


def may_send(seen: Situation) -> bool:
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
    return float(
        min(CUT_WAIT_SECONDS * 2.0 ** min(quick_cuts, 8), LAST_CUT_WAIT_SECONDS) * (1 + 0.2 * jitter)
    )


def retry_wait_seconds(failures: int, *, is_unreachable: bool, is_final: bool, jitter: float) -> float:
    """Return the wait after the `failures`-th failed registration in a row.

    `is_final` is a refusal that no repetition can change; it is repeated at the slowest pace only, in case
    another kubelet takes over the socket.
    """
    cap = UNREACHABLE_RETRY_SECONDS if is_unreachable else REFUSED_RETRY_SECONDS
    wait = cap if is_final else min(FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 16), cap)
    return float(wait * (1 + 0.2 * jitter))
