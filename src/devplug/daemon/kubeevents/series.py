"""How notices become Events: what repeats itself is counted, and a flood is cut, as client-go does it. Pure.

client-go tools/record/events_cache.go: EventAggregator, EventSourceObjectSpamFilter.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.daemon.kubeevents.values import Event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devplug.daemon.kubeevents.values import Notice

__all__ = ["BURST", "REFILL_SECONDS", "SAME_SECONDS", "Ledger", "next_event"]

SAME_SECONDS: Final = 600.0
"""How long after the last one a notice counts as the same event (defaultAggregateIntervalInSeconds)."""

BURST: Final = 25
"""Events at once (defaultSpamBurst)."""

REFILL_SECONDS: Final = 300.0
"""How long until one more may be written (defaultSpamQPS)."""

_Key: TypeAlias = tuple[str, str]
_NONE: Mapping[_Key, Event] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Ledger:
    """What was told lately, by reason and subject; `is_new` of one says that it was never written."""

    events: Mapping[_Key, Event] = field(default_factory=lambda: _NONE)
    left: float = float(BURST)
    """How many more may be written at once, as of `left_at`."""
    left_at: float = 0.0
    serial: int = 0


def next_event(ledger: Ledger, notice: Notice, now: float) -> tuple[Ledger, Event | None]:
    """Take note of a notice; return the event to write for it, or None if there were too many.

    What is not written is counted, and told with the next one of its kind that is.
    """
    key = (notice.reason, notice.subject)
    events = {one: event for one, event in ledger.events.items() if _is_recent(event, now)}
    old = events.get(key)
    serial = ledger.serial
    if old is None:
        serial += 1
        # As kubelets name theirs, but for the serial: two may come at the same time.
        event = Event(f"{int(now * 1e9) + serial:x}", notice, 1, now, now, is_new=True)
    else:
        event = replace(old, notice=notice, count=old.count + 1, last_at=now)
    passed = max(0.0, now - ledger.left_at)
    left = min(float(BURST), ledger.left + passed / REFILL_SECONDS)
    is_written = left >= 1
    events[key] = replace(event, is_new=event.is_new and not is_written)
    after = Ledger(MappingProxyType(events), left - is_written, now, serial)
    return after, event if is_written else None


def _is_recent(event: Event, now: float) -> bool:
    return abs(now - event.last_at) < SAME_SECONDS
