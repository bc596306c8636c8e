"""Node selectors of slices, devices and allocations (component-helpers nodeaffinity). Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Node", "NodeSelector", "merged", "only_node"]

_NAME: Final = "metadata.name"


@dataclass(frozen=True, slots=True)
class Node:
    """A node, as far as claims look at it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, eq=False)
class NodeSelector:
    """The terms of which a node has to meet one; a term without requirements is met by none."""

    terms: tuple[Mapping[str, Any], ...]
    """As the API writes them."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> NodeSelector:
        """Read a `nodeSelector`."""
        return cls(tuple(found.get("nodeSelectorTerms") or ()))

    def matches(self, node: Node) -> bool:
        """Whether a node is one of those selected."""
        return any(_meets(term, node) for term in self.terms)


def only_node(name: str) -> dict[str, Any]:
    """Return the selector of one node, as the API writes it."""
    field_is = {"key": _NAME, "operator": "In", "values": [name]}
    return {"nodeSelectorTerms": [{"matchFields": [field_is]}]}


def merged(selectors: Sequence[NodeSelector]) -> dict[str, Any] | None:
    """Return one term with all requirements of all selectors, none twice; None if there are none (D87)."""
    term: dict[str, list[Mapping[str, Any]]] = {}
    for key in ("matchFields", "matchExpressions"):
        known: list[Mapping[str, Any]] = []
        for selector in selectors:
            for one in (selector.terms[0].get(key) or ()) if selector.terms else ():
                if not any(_same(one, other) for other in known):
                    known.append(one)
        if known:
            term[key] = known
    return {"nodeSelectorTerms": [term]} if term else None


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return (
        one["key"] == other["key"]
        and one["operator"] == other["operator"]
        and set(one.get("values") or ()) == set(other.get("values") or ())
    )


def _meets(term: Mapping[str, Any], node: Node) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_holds(one, node.labels) for one in expressions) and all(
        _holds(one, {_NAME: node.name}) for one in fields
    )


def _holds(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, wanted = labels.get(requirement["key"]), list(requirement.get("values") or ())
    match requirement["operator"]:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator if value is not None and len(wanted) == 1:
            try:
                left, right = int(value), int(wanted[0])
            except ValueError:
                return False
            return left > right if operator == "Gt" else left < right
        case _:
            return False
