"""What becomes of a device that is gone: it stays listed for a while, so that its ID can come back. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devplug.daemon.sources.found import Found

__all__ = ["Known", "after_look"]


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
) -> dict[str, Known]:
    """Return what is known after a look: all that it saw, and what went less than `keep_seconds` ago."""
    known = {found.name: Known(found) for found in looked}
    for name, old in before.items():
        gone_at = now if old.gone_at is None else old.gone_at
        if name not in known and now - gone_at < keep_seconds:
            known[name] = Known(old.found, gone_at)
    return known
