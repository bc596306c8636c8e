"""What every test of the wire may ask for."""

from __future__ import annotations

from tests.wire.pairings import pairing

__all__ = ["pairing"]
