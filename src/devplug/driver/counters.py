"""The counters of a driver since its process began: the kubelet's calls about claims. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["ClaimCounters"]

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class ClaimCounters(Struct):
    """What the kubelet asked, and what came of it; lives as long as the driver."""

    kubelet_api: str = ""
    """The version by which it called last, as in `v1.DRAPlugin`; empty before the first call."""

    def noting(
        self, version: str, call: Callable[[Question], Awaitable[Answer]]
    ) -> Callable[[Question], Awaitable[Answer]]:
        """Return a call that is noted as one of this version."""

        async def noted(question: Question) -> Answer:
            self.kubelet_api = version
            return await call(question)

        return noted
