"""Node selectors of slices, devices and allocations. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from devplug.k8s.node_selectors import NAME_FIELD, Node, Term, meets, term_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Node", "NodeSelector", "merged", "only_node"]


@dataclass(frozen=True, slots=True, eq=False)
class NodeSelector:
    """The terms of which a node has to meet one; a term without requirements is met by none."""

    terms: tuple[Mapping[str, Any], ...]
    """As the API writes them."""
    parsed: tuple[Term, ...]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> NodeSelector:
        """Read a `nodeSelector`."""
        terms = tuple(found.get("nodeSelectorTerms") or ())
        return cls(terms, tuple(term_of(one) for one in terms))

    def matches(self, node: Node) -> bool:
        """Whether a node is one of those selected."""
        return any(meets(term, node) for term in self.parsed)


def only_node(name: str) -> dict[str, Any]:
    """Return the selector of one node, as the API writes it."""
    field_is = {"key": NAME_FIELD, "operator": "In", "values": [name]}
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
