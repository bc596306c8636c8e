"""The plan of a schedule, drawn before it begins: two to six faults, when, and for how long; and its chance.

Chance says how long each message and each event takes, and which are lost.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

QUICK_SECONDS: Final = 0.001
BUSY_SECONDS: Final = 0.05
SLOW_SECONDS: Final = 1.0

LONGEST: Final = (0.0, 0.01, 0.3, 3.0, 20.0)
"""Times are drawn up to one of these: what comes within one breath is as likely as what comes much later."""


# ── chance ──


class Chance:
    """Draws delays from one source of chance. Lives as long as its schedule, whose faults turn its knobs."""

    def __init__(self, source: random.Random) -> None:
        self._draw = source.random
        self.busy = self._draw() * 0.3
        """How many of all messages take up to 50 ms, and not 1 ms as on an idle machine."""
        self.slow = self._draw() ** 4 * 0.2
        """How many of all messages take up to a second."""
        self.stalled = 0.0
        """How many of all calls and answers take up to `stall_seconds`."""
        self.stall_seconds = 20.0
        self.deaf = 0.0
        """How many of all file events are lost."""

    def calm(self) -> None:
        """End all that makes messages late or loses events: from now on the machine is at rest."""
        self.busy = self.slow = self.stalled = self.deaf = 0.0

    def message(self) -> float:
        """Return how many seconds a message takes."""
        if self.stalled and self._draw() < self.stalled:
            return self._draw() * self.stall_seconds
        return self._short()

    def event(self) -> float | None:
        """Return how many seconds a file event takes; None if it is lost."""
        if self.deaf and self._draw() < self.deaf:
            return None
        return self._short()

    def work(self) -> float:
        """Return how many seconds something takes that needs several turns of a real loop."""
        return self._short()

    def _short(self) -> float:
        which = self._draw()
        if which < self.slow:
            return self._draw() * SLOW_SECONDS
        if which < self.slow + self.busy:
            return self._draw() * BUSY_SECONDS
        return self._draw() * QUICK_SECONDS


# ── faults ──


class Kind(enum.Enum):
    """What may happen. `seconds` is how long it lasts, `number` which of several ways it happens in."""

    KUBELET_KILLED = enum.auto()
    """It ends at once, its socket stays and refuses; the next one starts after `seconds`."""
    KUBELET_RESTARTED = enum.auto()
    """It closes all in order and removes its socket."""
    STREAM_CUT = enum.auto()
    """The kubelet closes the connection of whoever serves the name."""
    CONNECTION_LOST = enum.auto()
    """Connection `number` of all that are open is lost in the middle."""
    SOCKET_REMOVED = enum.auto()
    """Somebody removes the plugin's socket."""
    SOCKET_REPLACED = enum.auto()
    """Somebody puts a file in its place, or a dead socket."""
    KUBELET_SOCKET_LOST = enum.auto()
    """kubelet.sock is removed or replaced, until a kubelet starts after `seconds`."""
    LOCK_REMOVED = enum.auto()
    """Somebody removes the plugin's lock file."""
    DEVICES_CHANGED = enum.auto()
    """Devices come, go, get ill or well: `number` changes, spread over `seconds`."""
    PLUGIN_RESTARTED = enum.auto()
    """It ends in order; its successor starts after `seconds`."""
    PLUGIN_KILLED = enum.auto()
    """It ends at once; its successor starts after `seconds`."""
    PLUGIN_REPLACED = enum.auto()
    """Its successor starts while it lives; it ends after `seconds`."""
    RIVAL = enum.auto()
    """A plugin without our lock registers the same name, lives for `seconds`, and dies."""
    POD = enum.auto()
    """A pod wants `number` devices, and ends after `seconds`."""
    REFUSING = enum.auto()
    """For `seconds` the kubelet refuses every registration, as one of another mind does."""
    STALLED = enum.auto()
    """For `seconds` many messages take up to 20 s."""
    DEAF = enum.auto()
    """For `seconds` file events are lost."""


_EVERYWHERE: Final = (
    Kind.KUBELET_KILLED,
    Kind.KUBELET_RESTARTED,
    Kind.STREAM_CUT,
    Kind.CONNECTION_LOST,
    Kind.SOCKET_REMOVED,
    Kind.SOCKET_REPLACED,
    Kind.KUBELET_SOCKET_LOST,
    Kind.DEVICES_CHANGED,
    Kind.POD,
    Kind.REFUSING,
    Kind.STALLED,
    Kind.DEAF,
)


class Family(enum.Enum):
    """Which faults a plan is drawn from; those that stand there more often come more often."""

    KUBELET = (*_EVERYWHERE, Kind.KUBELET_KILLED)
    DEVICES = (*_EVERYWHERE, *(Kind.POD, Kind.DEVICES_CHANGED) * 6)
    """Many pods, and devices that change meanwhile."""
    OWNERS = (
        *_EVERYWHERE,
        Kind.LOCK_REMOVED,
        Kind.PLUGIN_RESTARTED,
        Kind.PLUGIN_KILLED,
        *(Kind.PLUGIN_REPLACED,) * 2,
        *(Kind.RIVAL,) * 3,
    )
    """Several that want to serve one name."""
    ALL = tuple(Kind)
    """Everything, each as often as any other."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens, `after` seconds after the one before began."""

    kind: Kind
    after: float
    seconds: float
    number: int

    def __str__(self) -> str:
        return f"+{self.after:.3f} {self.kind.name} seconds={self.seconds:.3f} number={self.number}"


@dataclass(frozen=True, slots=True)
class Plan:
    """One schedule."""

    compat: bool
    """Whether the kubelet has the flaws of 1.36."""
    is_blind: bool
    """Whether the plugin has no file events at all."""
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        words = f"{'1.36' if self.compat else 'mended'} kubelet, {'blind' if self.is_blind else 'seeing'}"
        return f"{words}: " + "; ".join(map(str, self.faults))


def drawn_plan(source: random.Random, family: Family) -> Plan:
    """Draw a plan."""
    return Plan(
        compat=source.random() < 0.8,
        is_blind=source.random() < 0.05,
        faults=tuple(
            Fault(
                source.choice(family.value),
                source.random() * source.choice(LONGEST),
                source.random() * source.choice(LONGEST),
                source.randrange(1, 8),
            )
            for _ in range(source.randint(2, 6))
        ),
    )
