"""The registration of a plugin with the kubelet: the modes, and the facts, steps and waits of both. Pure.

Each mode is a table in a file of its own, `socket_registration` and `watcher_registration`: events move an
immutable state along it, and a function of that state and the facts says what to do. Nothing depends on
having seen an event of the machine, so a lost one costs at most one level check.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from devplug.backoff import backoff_seconds

if TYPE_CHECKING:
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
    """The facts of this moment. Times are seconds on one monotonic clock.

    Fields with a default are used only where the plugin calls the kubelet.
    """

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
    """Return the wait after a lost stream; `quick_cuts` streams in a row were lost within a second.

    `jitter` is from 0 to 1. Two plugins that fight for one name cut each other for ever, at this pace.
    """
    return jittered(backoff_seconds(quick_cuts + 1, CUT_WAIT_SECONDS, LAST_CUT_WAIT_SECONDS), jitter)


def jittered(seconds: float, jitter: float) -> float:
    """Return a wait that is longer by up to a fifth, as `jitter` says, which is from 0 to 1."""
    return seconds * (1 + 0.2 * jitter)
