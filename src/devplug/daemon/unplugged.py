"""What becomes of a device that is gone: it stays listed for a while, so that its ID can come back. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devplug.daemon.sources.found import Found

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

__all__ = ["Known", "after_look", "next_drop_at"]


@dataclass(frozen=True, slots=True)
class Known:
    """A device that is present, or was: `gone_at` is when it was first missed, in seconds."""

    found: Found
    gone_at: float | None = None

    @property
    def is_present(self) -> bool:
        """Whether the last look saw it."""
        return self.gone_at is None


def after_look(
    before: Mapping[str, Known],
    looked: Iterable[Found],
    *,
    now: float,
    keep_seconds: float,
    held: Collection[str] = (),
) -> dict[str, Known]:
    """Return what is known after a look: what it saw, what went less than `keep_seconds` ago, what is held.

    `held` are names that a container may hold. They stay for as long as that lasts, because a kubelet that
    looks up one that has left the list may crash; also those that nobody has seen since the daemon started.
    """
    known = {found.name: Known(found) for found in looked}
    for name, old in before.items():
        gone_at = now if old.gone_at is None else old.gone_at
        if name not in known and (now - gone_at < keep_seconds or name in held):
            known[name] = Known(old.found, gone_at)
    for name in held:
        if name not in known:
            known[name] = Known(Found(name), now)
    return known


def next_drop_at(known: Mapping[str, Known], keep_seconds: float, held: Collection[str] = ()) -> float | None:
    """Return when the next device that is gone was kept for long enough, or None if none will be dropped.

    One that is held goes when that ends, which no clock knows.
    """
    if math.isinf(keep_seconds):
        return None
    gone = [one.gone_at for name, one in known.items() if one.gone_at is not None and name not in held]
    return min(gone) + keep_seconds if gone else None
