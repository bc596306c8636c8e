"""What every test of the wire may ask for."""

from __future__ import annotations

import pytest

from tests.wire.fakes import LoopWithGrpcio
from tests.wire.pairings import pairing

__all__ = ["pairing"]


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    """What async tests run on."""
    return "asyncio", {"loop_factory": LoopWithGrpcio}
