"""The scores of a node for a pod: by resources, by balance, and in comparison with all nodes. Pure.

Whole numbers as in Go, whose division goes towards 0, but for the balance, which is a float there too.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from devplug.sandbox.scheduler.types import CPU, EPHEMERAL_STORAGE, MEMORY

if TYPE_CHECKING:
    from devplug.sandbox.scheduler.types import Shape

_Whole: TypeAlias = Sequence[int]
_Points: TypeAlias = Sequence[tuple[int, int]]

Scorer: TypeAlias = Callable[[_Whole, _Whole, _Whole, _Whole], int]
"""Returns the score for the weights of resources, what the pod adds, what is used, and allocatable.

What weighs 0 or has nothing allocatable does not count.
"""

MOST: Final = 100
"""The best score that one plugin gives."""

_TAINTS_WEIGHT: Final = 3
_AFFINITY_WEIGHT: Final = 2
"""The weights of these; resources and balance weigh 1 (apis/config/v1/default_plugins.go)."""

_SHAPE_MOST: Final = 10
"""The best score in the points of `RequestedToCapacityRatio`."""


class Strategy(enum.Enum):
    """The scoring strategy: prefer nodes with much left, with little left, or by points."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringSettings:
    """The settings by which nodes are scored; the defaults are the real scheduler's."""

    strategy: Strategy = Strategy.LEAST_ALLOCATED
    resources: tuple[tuple[str, int], ...] = ((CPU, 1), (MEMORY, 1))
    """Resource names with their weights, 1 to 100."""
    points: tuple[tuple[int, int], ...] = ((0, 0), (100, 10))
    """Utilisation in percent, rising, with its score of at most 10: for `RequestedToCapacityRatio` alone."""
    balanced: tuple[str, ...] = (CPU, MEMORY)
    """The resources that pods should use in equal parts."""


def is_scalar(name: str) -> bool:
    """Whether a resource only counts for pods that request it (scheduler/util IsScalarResourceName)."""
    return name not in {CPU, MEMORY, EPHEMERAL_STORAGE}


def scored_requests(shape: Shape) -> dict[str, int]:
    """Return what a pod requests, cpu and memory with the defaults of what requests none."""
    return {**dict(shape.requests), CPU: shape.scored_cpu, MEMORY: shape.scored_memory}


# ── resources ──


def scorer_of(settings: ScoringSettings) -> Scorer:
    """Return the strategy as a function."""
    match settings.strategy:
        case Strategy.LEAST_ALLOCATED:
            return _least_allocated
        case Strategy.MOST_ALLOCATED:
            return _most_allocated
        case Strategy.REQUESTED_TO_CAPACITY_RATIO:
            return partial(_capacity_ratio, settings.points)


def _least_allocated(weights: _Whole, added: _Whole, used: _Whole, wholes: _Whole) -> int:
    total = count = 0
    for weight, add, use, whole in zip(weights, added, used, wholes, strict=True):
        if weight and whole:
            count += weight
            left = whole - use - add
            if left > 0:
                total += weight * (left * MOST // whole)
    return total // count if count else 0


def _most_allocated(weights: _Whole, added: _Whole, used: _Whole, wholes: _Whole) -> int:
    total = count = 0
    for weight, add, use, whole in zip(weights, added, used, wholes, strict=True):
        if weight and whole:
            count += weight
            total += weight * (min(use + add, whole) * MOST // whole)
    return total // count if count else 0


def _capacity_ratio(points: _Points, weights: _Whole, added: _Whole, used: _Whole, wholes: _Whole) -> int:
    total = count = 0
    for weight, add, use, whole in zip(weights, added, used, wholes, strict=True):
        if weight and whole:
            part = MOST if use + add > whole else (use + add) * MOST // whole
            if score := _on_points(points, part):
                total += weight * score
                count += weight
    return (2 * total + count) // (2 * count) if count else 0  # math.Round, of what is never negative


def _on_points(points: _Points, utilisation: int) -> int:
    """Return the score at a utilisation, on straight lines between the points (helper/shape_score.go)."""
    factor = MOST // _SHAPE_MOST
    before = None
    for at, score in points:
        if utilisation <= at:
            if before is None:
                return score * factor
            rise, run = (score - before[1]) * factor * (utilisation - before[0]), at - before[0]
            return before[1] * factor + (rise // run if rise >= 0 else -(-rise // run))
        before = (at, score)
    return points[-1][1] * factor


# ── balance ──


def balance(added: _Whole, used: _Whole, wholes: _Whole) -> int:
    """Return how equal the parts are that will be used of each resource: 50 to 100."""
    parts = [
        (use + add) / whole if use + add < whole else 1.0
        for add, use, whole in zip(added, used, wholes, strict=True)
        if whole
    ]
    count = len(parts)
    if count < 2:
        return MOST
    if count == 2:
        return int((1 - abs((parts[0] - parts[1]) / 2)) * MOST)
    total = squares = 0.0
    for part in parts:  # not sum(), which rounds better than Go's addition
        total += part
    for part in parts:
        squares += (part - total / count) * (part - total / count)
    return int((1 - math.sqrt(squares / count)) * MOST)


def balance_gain(with_pod: int, without_pod: int) -> int:
    """Return the score for what a pod does to a node's balance (balanced_allocation.go)."""
    return MOST // 2 + (MOST // 2 + with_pod - without_pod) // 2


# ── what is normalised ──


def normalised_taints(count: int, most: int) -> int:
    """Return the weighted score for unwanted taints, where the worst node that fits has so many."""
    return _TAINTS_WEIGHT * (MOST - MOST * count // most if most else MOST)


def normalised_affinity(weight: int, most: int) -> int:
    """Return the weighted score for preferences met, where the best node that fits has so much weight."""
    return _AFFINITY_WEIGHT * (MOST * weight // most if most else 0)
