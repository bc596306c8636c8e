"""What a pod is told that no node can take: the scheduler's sentence, to the letter (types.go FitError).

It is the text of the pod's condition `PodScheduled` and of the event `FailedScheduling`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from devplug.sandbox.scheduling.filtering import Plugin, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ABSENT", "CONFLICT", "Diagnosis"]

ABSENT: Final = Refusal(Plugin.NODE_AFFINITY, ("node(s) didn't satisfy plugin(s) [NodeAffinity]",))
"""Of nodes that were not looked at, because the pod's affinity names others."""

CONFLICT: Final = "pod affinity terms conflict"

_NO_NODES: Final = "no nodes available to schedule pods"
_NO_CLAIMS: Final = "no new claims to deallocate"
_NO_VICTIMS: Final = "No preemption victims found for incoming pod"
_NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
_NEVER: Final = "not eligible due to preemptionPolicy=Never."


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a pod has no node: how many nodes refused it, and for what."""

    nodes: int
    refusals: Mapping[Refusal, int] = field(default_factory=dict, hash=False)
    is_conflict: bool = False
    """Whether the pod's affinity contradicts itself, so that no node was looked at."""

    @property
    def plugins(self) -> frozenset[Plugin]:
        """Who refused: a change that none of them cares about does not help the pod."""
        conflict = {Plugin.NODE_AFFINITY} if self.is_conflict else set()
        return frozenset({refusal.plugin for refusal in self.refusals} | conflict)

    def message(self, *, may_preempt: bool = True) -> str:
        """Return the whole sentence.

        Preemption never helps here: where the real scheduler would look for victims, there are none.
        """
        if not self.nodes:
            return _NO_NODES
        if self.is_conflict:
            reasons = CONFLICT
        else:
            counts: Counter[str] = Counter()
            for refusal, count in self.refusals.items():
                for reason in refusal.reasons:
                    counts[reason] += count
            reasons = _histogram(counts)
        return (
            f"{_available(self.nodes)} {reasons}. {_NO_CLAIMS}, preemption: {self._preemption(may_preempt)}"
        )

    def _preemption(self, may_preempt: bool) -> str:  # noqa: FBT001
        if not may_preempt:
            return _NEVER
        resolvable = sum(count for refusal, count in self.refusals.items() if refusal.is_resolvable)
        counts = Counter({_NO_VICTIMS: resolvable, _NOT_HELPFUL: self.nodes - resolvable})
        return f"{_available(self.nodes)} {_histogram(counts)}."


def _available(nodes: int) -> str:
    return f"0/{nodes} nodes are available:"


def _histogram(counts: Mapping[str, int]) -> str:
    """Return reasons with their counts, sorted as texts: `10 …` stands before `2 …`."""
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items() if count))
