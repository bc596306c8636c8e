"""Which nodes a pod may be on by name, label and taint (nodeaffinity.go, toleration.go). Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from devplug.sandbox.scheduling.values import NAME_FIELD, NO_SCHEDULE, PREFER_NO_SCHEDULE, Taint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from devplug.sandbox.scheduling.values import Node, Requirement, Shape, Term, Toleration

__all__ = [
    "label_keys",
    "matches_affinity",
    "named_nodes",
    "preferred_weight",
    "tolerates",
    "tolerates_cordon",
    "tolerates_taints",
    "unwanted_taints",
]

_CORDON: Final = Taint("node.kubernetes.io/unschedulable")

_REPELLING: Final = (NO_SCHEDULE, "NoExecute")
"""Effects that keep a pod from being scheduled; `PreferNoSchedule` only counts against the node."""

_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_LARGEST: Final = 2**63


# ── taints ──


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint (ToleratesTaint; `Lt` and `Gt` are off by default)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and toleration.value == taint.value


def _tolerated(shape: Shape, taint: Taint) -> bool:
    return any(tolerates(one, taint) for one in shape.tolerations)


def tolerates_taints(shape: Shape, taints: Collection[Taint]) -> bool:
    """Whether none of a node's taints keeps the pod off it."""
    return all(_tolerated(shape, one) for one in taints if one.effect in _REPELLING)


def tolerates_cordon(shape: Shape) -> bool:
    """Whether the pod goes to nodes that are marked unschedulable."""
    return _tolerated(shape, _CORDON)


def unwanted_taints(shape: Shape, taints: Collection[Taint]) -> int:
    """Return how many of a node's taints count against it."""
    return sum(1 for one in taints if one.effect == PREFER_NO_SCHEDULE and not _tolerated(shape, one))


# ── selectors and affinity ──


def matches_affinity(shape: Shape, node: Node) -> bool:
    """Whether a node is what the pod's node selector and its required affinity ask for."""
    if any(node.labels.get(key) != value for key, value in shape.node_selector):
        return False
    return shape.required is None or any(_matches(term, node) for term in shape.required)


def preferred_weight(shape: Shape, node: Node) -> int:
    """Return the sum of the weights of the preferences that a node meets."""
    return sum(one.weight for one in shape.preferred if _matches(one.term, node))


def named_nodes(shape: Shape) -> frozenset[str] | None:
    """Return the names of the only nodes that required affinity leaves, or None if it names none.

    Empty if it contradicts itself (node_affinity.go PreFilter).
    """
    if not shape.required:
        return None
    names: set[str] = set()
    for term in shape.required:
        sets = [set(one.values) for one in term.fields if one.key == NAME_FIELD and one.operator == "In"]
        if not sets:
            return None
        names |= set.intersection(*sets)
    return frozenset(names)


@lru_cache(4096)
def label_keys(shape: Shape) -> frozenset[str]:
    """Return the labels that the pod looks at; `metadata.name` stands for the name of the node."""
    terms = [*(shape.required or ()), *(one.term for one in shape.preferred)]
    keys = {key for key, _ in shape.node_selector}
    keys.update(one.key for term in terms for one in term.expressions)
    if shape.node_name or any(term.fields for term in terms):
        keys.add(NAME_FIELD)
    return frozenset(keys)


def _matches(term: Term, node: Node) -> bool:
    if not term.expressions and not term.fields:
        return False
    return all(_holds(one, node.labels) for one in term.expressions) and all(_field_holds(term, node))


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether labels meet one condition; one that the API would not take is met by none."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" if value is not None and len(requirement.values) == 1:
            left, right = _number(value), _number(requirement.values[0])
            if left is None or right is None:
                return False
            return left > right if requirement.operator == "Gt" else left < right
    return False


def _field_holds(term: Term, node: Node) -> Iterator[bool]:
    for one in term.fields:
        value = node.name if one.key == NAME_FIELD else ""
        if len(one.values) != 1 or one.operator not in {"In", "NotIn"}:
            yield False
        else:
            yield (value == one.values[0]) is (one.operator == "In")


def _number(text: str) -> int | None:
    """Read a number as Go's ParseInt does: 64 bits, no spaces, no underscores."""
    if not _WHOLE.fullmatch(text) or len(text) > 4096:
        return None
    number = int(text)
    return number if -_LARGEST <= number < _LARGEST else None
