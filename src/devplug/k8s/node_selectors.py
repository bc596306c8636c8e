"""Node selectors: conditions on labels and the name of a node (component-helpers nodeaffinity). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NAME_FIELD: Final = "metadata.name"
"""The one field of a node that a term may match."""

_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_LARGEST: Final = 2**63


@dataclass(frozen=True, slots=True)
class Node:
    """A node, as far as terms look at it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on a label, or on a field, of a node."""

    key: str
    operator: str
    """`In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`."""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """Conditions that hold together; a term without any matches no node."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


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


def term_of(found: Mapping[str, Any]) -> Term:
    """Read one entry of `nodeSelectorTerms`."""
    return Term(_requirements(found.get("matchExpressions")), _requirements(found.get("matchFields")))


def meets(term: Term, node: Node) -> bool:
    """Whether a node meets all conditions of a term."""
    if not term.expressions and not term.fields:
        return False
    return all(_holds(one, node.labels) for one in term.expressions) and all(
        _field_holds(one, node.name) for one in term.fields
    )


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


def _requirements(found: Iterable[Mapping[str, Any]] | None) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(one.get("key", ""), one.get("operator", ""), tuple(one.get("values") or ()))
        for one in found or ()
    )


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


def _field_holds(requirement: Requirement, name: str) -> bool:
    if len(requirement.values) != 1 or requirement.operator not in {"In", "NotIn"}:
        return False
    value = name if requirement.key == NAME_FIELD else ""
    return (value == requirement.values[0]) is (requirement.operator == "In")


def _number(text: str) -> int | None:
    """Read a number as Go's ParseInt does: 64 bits, no spaces, no underscores."""
    if not _WHOLE.fullmatch(text) or len(text) > 4096:
        return None
    number = int(text)
    return number if -_LARGEST <= number < _LARGEST else None


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return (
        one["key"] == other["key"]
        and one["operator"] == other["operator"]
        and set(one.get("values") or ()) == set(other.get("values") or ())
    )
