"""How much work without worth a connection may make: what floods are made of, and what wears them off.

Each single frame of such a flood is allowed; that there are very many is the attack (10.5): requests that are
reset at once, PING and SETTINGS that want answers, frames without content.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Patience"]

STRIKES_LIMIT: Final = 1000
FORGIVEN_PER_SECOND: Final = 100.0
"""More than any right caller makes over a long time: a frame that is answered every ten milliseconds."""


class Patience:
    """Counts strikes, which wear off with time and with calls that were brought to their end."""

    __slots__ = ("_since", "_strikes")

    def __init__(self) -> None:
        self._strikes = 0.0
        self._since = 0.0

    def strike(self, now: float) -> bool:
        """Note one frame of no worth, at a time in seconds; tell whether it can be borne."""
        forgiven = (now - self._since) * FORGIVEN_PER_SECOND
        self._since = now
        self._strikes = max(0.0, self._strikes - forgiven) + 1
        return self._strikes <= STRIKES_LIMIT

    def reward(self, worth: float = 1.0) -> None:
        """Note something of worth: gRPC's clients ask with a PING for each answer that they get."""
        self._strikes = max(0.0, self._strikes - worth)
