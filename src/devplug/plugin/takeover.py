"""The takeover of a resource name by another plugin, or the fight for it: decided on what can be seen. Pure.

The kubelet does not report that a name was taken. The plugin that registers a name last gets its calls; the
plugin before it keeps its stream, and each list of either of them replaces the other's (handler.go,
manager.go). So there are only signs. Times are seconds on one clock that never goes back.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from devplug.errors import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = [
    "KEPT_TIMES",
    "LASTS_SECONDS",
    "NEVER_COMPARED",
    "Comparison",
    "Listed",
    "Seen",
    "Sign",
    "Suspicion",
    "given_is_proof",
    "suspicion_of",
]

LASTS_SECONDS: Final = 600.0
"""How long a sign counts after it was last seen: long enough for a scrape, and for somebody to look."""

CUTS: Final = 3
"""How many lost streams within `LASTS_SECONDS` are a sign, if their kubelet lives on. It ends one by itself
where the stream of our predecessor ends late (1.36, handler.go runClient), and never three."""

STRANGE_CALLS: Final = 2
"""How many calls for devices that we never listed are a sign. One may be for a device that has just left."""

KEPT_TIMES: Final = max(CUTS, STRANGE_CALLS)
"""How many times of one kind of event have to be remembered."""

CONFIRMED_SECONDS: Final = 2.0
"""The least time between two answers that both differ from our list: the kubelet may not have the
latest list yet."""

VACANT_SECONDS: Final = 5.0
"""How long the kubelet has to have none of our devices before we register again: one that has much to do may
take a while to read our list."""

GIVEN_AFTER_SECONDS: Final = 300.0
"""How long we have to be registered before a device that is held without our Allocate is a sign: a kubelet
that has just started lists its pods late."""

NAMED_IDS: Final = 20
"""How many device IDs a suspicion names."""


class Sign(enum.StrEnum):
    """A sign of another plugin with our resource name."""

    LISTED = "listed"
    """The kubelet lists devices under our name that we never listed: the last list was another plugin's."""
    GIVEN = "given"
    """A container holds a device of ours, and we were never asked to allocate it."""
    ASKED = "asked"
    """The kubelet asks us for devices that we never listed."""
    CUT = "cut"
    """The kubelet ends our stream again and again, and lives on."""


class Listed(Struct, frozen=True):
    """The IDs of a list: all, and those of healthy devices. The kubelet reports the latter only."""

    ids: frozenset[str] = frozenset()
    healthy: frozenset[str] = frozenset()


class Comparison(Struct, frozen=True):
    """How the kubelet's lists differ from ours, over several answers.

    A difference counts once two answers that are far enough apart had it.
    """

    strangers: frozenset[str] = frozenset()
    """The IDs that the kubelet lists and we do not."""
    strangers_since: float = 0.0
    is_vacant: bool = False
    """Whether the kubelet lists nothing, though we have healthy devices. So did some before 1.23 with devices
    without NUMA nodes, if they answered the call at all."""
    vacant_since: float = 0.0
    at: float = 0.0
    """When the last answer was asked for."""
    last_strangers: frozenset[str] = frozenset()
    """The strangers that were certain last."""
    last_strangers_at: float = 0.0

    def answered(self, asked_at: float, before: Listed, after: Listed, listed: Collection[str]) -> Comparison:
        """Return the comparison after one more answer; `before` and `after` are our lists around it,
        `listed` the kubelet's.
        """
        strangers = frozenset(listed) - before.ids - after.ids
        lasting = self.strangers & strangers
        is_vacant = not listed and bool(before.healthy & after.healthy)
        compared = replace(
            self,
            strangers=lasting or strangers,
            strangers_since=self.strangers_since if lasting else asked_at,
            is_vacant=is_vacant,
            vacant_since=self.vacant_since if self.is_vacant else asked_at,
            at=asked_at,
        )
        if certain := compared.confirmed:
            return replace(compared, last_strangers=certain, last_strangers_at=asked_at)
        return compared

    def anew(self) -> Comparison:
        """Return the empty comparison for the next registration; only the last strangers are kept."""
        return Comparison(last_strangers=self.last_strangers, last_strangers_at=self.last_strangers_at)

    @property
    def confirmed(self) -> frozenset[str]:
        """The strangers that are certain."""
        is_certain = self.at >= self.strangers_since + CONFIRMED_SECONDS
        return self.strangers if is_certain else frozenset()

    @property
    def is_abandoned(self) -> bool:
        """Whether it is certain that the kubelet has none of our devices, and nobody else's."""
        return self.is_vacant and self.at >= self.vacant_since + VACANT_SECONDS

    @property
    def is_in_doubt(self) -> bool:
        """Whether the kubelet has to be asked again soon, to make a difference certain."""
        return (self.is_vacant and not self.is_abandoned) or self.strangers != self.confirmed


NEVER_COMPARED: Final = Comparison()


def given_is_proof(now: float, registered_at: float | None) -> bool:
    """Whether a device that is held without our Allocate means that somebody else has allocated it."""
    return registered_at is not None and now >= registered_at + GIVEN_AFTER_SECONDS


class Seen(Struct, frozen=True):
    """The observations about one resource name. Of events, the last `KEPT_TIMES` times, the latest last."""

    now: float
    comparison: Comparison = NEVER_COMPARED
    given: Mapping[str, float] = field(default_factory=dict)
    """Devices that were held though we did not give them out: until when, infinity for one that still is."""
    strange_calls: Sequence[float] = ()
    cuts: Sequence[float] = ()


class Suspicion(Struct, frozen=True):
    """The suspicion that another plugin has a name of ours, or fights for it."""

    signs: tuple[Sign, ...]
    reason: str
    """The signs, as a sentence."""
    device_ids: tuple[str, ...]
    """The devices of the signs; at most 20."""
    is_lost: bool
    """Whether the kubelet has the other plugin's list at this moment."""


def suspicion_of(seen: Seen) -> Suspicion | None:
    """Return the suspicion that these observations give; None if there is no sign."""
    comparison = seen.comparison
    is_lost = bool(comparison.confirmed)
    is_recent = seen.now <= comparison.last_strangers_at + LASTS_SECONDS
    strangers = sorted(comparison.last_strangers) if is_lost or is_recent else []
    given = sorted(id_ for id_, at in seen.given.items() if seen.now <= at + LASTS_SECONDS)
    sentences: dict[Sign, str] = {}
    if strangers:
        sentences[Sign.LISTED] = (
            f"the kubelet {'lists' if is_lost else 'listed'} {_named(strangers)} under this name, "
            "which this plugin never listed"
        )
    if given:
        sentences[Sign.GIVEN] = (
            f"{_named(given)} {_is(given)} held, and this plugin was not asked to allocate {_it(given)}"
        )
    if _are_recent(seen.strange_calls, STRANGE_CALLS, seen.now):
        sentences[Sign.ASKED] = "the kubelet asks this plugin for devices that it never listed"
    if _are_recent(seen.cuts, CUTS, seen.now):
        sentences[Sign.CUT] = "the kubelet ends this plugin's stream again and again"
    if not sentences:
        return None
    return Suspicion(
        tuple(sentences),
        f"another plugin registers this name: {'; '.join(sentences.values())}",
        tuple([*strangers, *given][:NAMED_IDS]),
        is_lost=is_lost,
    )


def _are_recent(times: Sequence[float], count: int, now: float) -> bool:
    """Whether the last `count` of these times lie close together, and not long ago."""
    last = times[-count:]
    return len(last) == count and max(now - last[-1], last[-1] - last[0]) <= LASTS_SECONDS


def _named(ids: Sequence[str]) -> str:
    """Name one or two devices, and count the rest."""
    rest = len(ids) - 2
    parts = [*map(quoted, ids[:2]), *([f"{rest} more"] if rest > 0 else [])]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _is(ids: Sequence[str]) -> str:
    return "is" if len(ids) == 1 else "are"


def _it(ids: Sequence[str]) -> str:
    return "it" if len(ids) == 1 else "them"
