"""The counters of a driver since its process began: the kubelet's calls about claims. Pure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct, field

from devplug.errors import outcome_of
from devplug.k8s.errors import ClusterError
from devplug.metrics.families import PREPARE_BOUNDS_SECONDS, Counts, Histogram

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Question = TypeVar("Question")
Answer = TypeVar("Answer")

FAILURES: Final = ("refused", "failed", "timed_out")


class ClaimCounters(Struct):
    """What the kubelet asked, and what came of it; lives as long as the driver."""

    prepares: Counts = field(default_factory=partial(Counts, "prepared", *FAILURES))
    """Claims that the kubelet asked to prepare, those that were prepared already included."""
    prepare_seconds: Histogram = field(default_factory=partial(Histogram, PREPARE_BOUNDS_SECONDS))
    """Of each of them, whatever came of it."""
    unprepares: Counts = field(default_factory=partial(Counts, "unprepared", *FAILURES))
    unprepare_seconds: Histogram = field(default_factory=partial(Histogram, PREPARE_BOUNDS_SECONDS))
    kubelet_api: str = ""
    """The version by which it called last, as in `v1.DRAPlugin`; empty before the first call."""

    def count_prepare(self, error: Exception | None, seconds: float) -> None:
        """Count a claim that was to be prepared; `error` is why it was not."""
        self.prepares.add("prepared" if error is None else _result_of(error))
        self.prepare_seconds.observe(seconds)

    def count_unprepare(self, error: Exception | None, seconds: float) -> None:
        """Count a claim that was to be unprepared; `error` is why it was not."""
        self.unprepares.add("unprepared" if error is None else _result_of(error))
        self.unprepare_seconds.observe(seconds)

    def noting(
        self, version: str, call: Callable[[Question], Awaitable[Answer]]
    ) -> Callable[[Question], Awaitable[Answer]]:
        """Return a call that is noted as one of this version."""

        async def noted(question: Question) -> Answer:
            self.kubelet_api = version
            return await call(question)

        return noted


def _result_of(error: Exception) -> str:
    # The API server's own refusals are none of these: what is left stayed away until the deadline.
    return "timed_out" if isinstance(error, ClusterError) else outcome_of(error)
