"""What every test of the wire may ask for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.wire.pairings import pairing

__all__ = ["pairing"]


class _LoopWithGrpcio(asyncio.SelectorEventLoop):
    """A loop that bears grpcio's news of loops that are closed.

    grpcio has one queue for the whole process: each loop takes from it what became of calls that earlier
    loops began, and cannot tell those (completion_queue.pyx.pxi, `_handle_events`).
    """

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if "PollerCompletionQueue" not in repr(context.get("handle")):
            super().call_exception_handler(context)


@pytest.fixture(scope="module")
def anyio_backend() -> object:
    """What async tests run on."""
    return "asyncio", {"loop_factory": _LoopWithGrpcio}
