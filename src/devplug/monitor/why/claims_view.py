"""The claims of a pod without a node: what is wrong with them, or which devices they cannot have. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from devplug.k8s.objects import Object, fields, maps, text, texts
from devplug.monitor.why.device_taints import rule_facts, tainted_slices
from devplug.monitor.why.evidence import nearest, some, why_unfit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from devplug.dra.changes import Question
    from devplug.dra.explanation import Explanation
    from devplug.dra.objects import Claim
    from devplug.k8s.node_selectors import Node
    from devplug.monitor.why.evidence import ClaimObjects, Evidence

CLAIM_COLUMNS = ("CLAIM", "REQUEST", "DEVICES", "EXCLUDED BECAUSE", "FOR EXAMPLE")

_MOST_EXAMPLES = 2
_MOST_CHANGES = 5


@dataclass(frozen=True, slots=True)
class ClaimsView:
    """What is found about the claims of a pod, in sentences without a full stop."""

    because: str
    """Empty if nothing keeps them from being allocated."""
    facts: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    explanation: Explanation | None = None
    """None if the devices were not looked at."""
    resources: frozenset[str] = frozenset()
    """The extended resources among them: a DeviceClass serves them, so no node counts them."""

    def rows(self) -> list[tuple[str, ...]]:
        """Return the rows of the table `CLAIM_COLUMNS`: one for each request and reason."""
        return [
            (
                view.claim,
                f"{view.request}: {view.asks}",
                str(len(group.devices)),
                "; ".join(
                    reason.text + (f": {some(names)}" if names else "")
                    for reason, names in zip(group.reasons, group.names, strict=True)
                )
                or "usable by itself",
                some([str(one) for one in group.devices], _MOST_EXAMPLES),
            )
            for view in (self.explanation.requests if self.explanation else ())
            for group in view.groups
        ]

    def value(self) -> dict[str, object]:
        """Return the devices and the changes in values that JSON and YAML have."""
        if self.explanation is None:
            return {"requests": [], "changes": []}
        return {
            "requests": [
                {
                    "claim": view.claim,
                    "request": view.request,
                    "asks": view.asks,
                    "devices": [
                        {
                            "devices": [str(one) for one in group.devices],
                            "excluded_by": [
                                {"cause": str(reason.cause), "text": reason.text, "names": list(names)}
                                for reason, names in zip(group.reasons, group.names, strict=True)
                            ],
                        }
                        for group in view.groups
                    ],
                }
                for view in self.explanation.requests
            ],
            "changes": [one.text for one in self.explanation.changes],
            "needs_all_changes": self.explanation.needs_all,
            "stopped_looking": self.explanation.stopped,
        }


def claims_view(evidence: Evidence, pod: Object, found: ClaimObjects) -> ClaimsView:
    """Say what keeps the claims of a pod without a node."""
    from devplug.dra.objects import Claim
    from devplug.dra.scheduling import claim_names, held_back
    from devplug.dra.selectors import MissingCelError

    if found.claims is None:
        return ClaimsView("")
    known = {
        text(one, "metadata", "name"): Claim.of(one)
        for one in found.claims
        if text(one, "metadata", "namespace") == evidence.namespace
    }
    absent = list(_absent(pod, claim_names(pod), known, found))
    if absent:
        return ClaimsView(
            "; ".join(one for one, _ in absent),
            ("until all its claims are there, the scheduler does not look at it, and writes no event",),
            tuple(step for _, step in absent),
        )
    if held_back(pod, known):
        leaving = [one for one in claim_names(pod).values() if one and known[one].is_deleted]
        return ClaimsView(
            f"its claim {some(leaving)} is being deleted",
            advice=("delete the pods that use the claim, and create it again when it is gone",),
        )
    mine = [known[name] for name in claim_names(pod).values() if name is not None]
    resources, extended = _extended(evidence, pod, found)
    mine += extended
    elsewhere = tuple(_elsewhere(evidence, pod, mine))
    if all(one.allocation is not None for one in mine):
        advice = ("delete the pods that use the claim there, or let the pod go to that node",)
        return ClaimsView("; ".join(elsewhere), advice=advice if elsewhere else ())
    if found.classes is None or found.slices is None or evidence.nodes is None:
        return ClaimsView("; ".join(elsewhere))
    try:
        return replace(_devices_view(evidence, pod, mine, found, elsewhere), resources=resources)
    except MissingCelError as error:
        because = "its claims have no devices yet, and which they could have cannot be told here"
        return ClaimsView("; ".join((because, *elsewhere)), advice=(str(error),))


def _extended(evidence: Evidence, pod: Object, found: ClaimObjects) -> tuple[frozenset[str], list[Claim]]:
    """Return the extended resources that a class serves and no node counts, and their claim (D91)."""
    from devplug.dra.extended_resources import IN_MEMORY, ExtendedClasses, extended_claim, extended_requests
    from devplug.dra.objects import Claim, DeviceClass

    classes = ExtendedClasses(map(DeviceClass.of, found.classes or ()))
    counted = {
        name
        for node in evidence.nodes or ()
        for name, amount in texts(node, "status", "allocatable").items()
        if amount != "0"
    }
    names = frozenset(classes.asked(fields(pod, "spec")).keys() - counted)
    if not names:
        return names, []
    made = extended_claim(pod, extended_requests(fields(pod, "spec"), names, classes).requests)
    made["metadata"] |= {"name": IN_MEMORY, "namespace": evidence.namespace}
    return names, [Claim.of(made)]


def _absent(
    pod: Object, names: dict[str, str | None], known: dict[str, Claim], found: ClaimObjects
) -> Iterator[tuple[str, str]]:
    """Yield what is missing of the claims, with what to do (D61, D62)."""
    templates = {
        text(one, "name"): text(one, "resourceClaimTemplateName")
        for one in maps(pod, "spec", "resourceClaims")
    }
    for name, claim in names.items():
        if claim is not None and claim not in known:
            meant = nearest(claim, known)
            hint = f"; did you mean {meant}?" if meant else ""
            yield f"there is no ResourceClaim {claim}{hint}", f"create the ResourceClaim {claim}"
        elif claim is None and found.templates is not None and templates[name] not in found.templates:
            meant = nearest(templates[name], found.templates)
            hint = f"; did you mean {meant}?" if meant else ""
            because = f"there is no ResourceClaimTemplate {templates[name]}{hint}"
            yield because, f"create the ResourceClaimTemplate {templates[name]}"
        elif claim is None:
            because = f"its claim {name} has not been made from ResourceClaimTemplate {templates[name]} yet"
            yield because, "see whether the resourceclaim controller of kube-controller-manager runs"


def _elsewhere(evidence: Evidence, pod: Object, claims: Sequence[Claim]) -> Iterator[str]:
    """Yield the claims whose devices can be reached from no node that the pod may go to."""
    from devplug.k8s.node_selectors import NodeSelector

    for one in claims:
        selector = (one.allocation or {}).get("nodeSelector")
        if selector is None or evidence.nodes is None:
            continue
        there = [node for node in evidence.nodes if NodeSelector.of(selector).matches(_node(node))]
        if not there:
            yield f"its claim {one.name} is allocated on a node that no Node of the cluster matches any more"
        elif all(why_unfit(pod, node) for node in there):
            where = some([f"{text(node, 'metadata', 'name')} ({why_unfit(pod, node)})" for node in there])
            yield f"its claim {one.name} is allocated where the pod may not go: {where}"


def _devices_view(
    evidence: Evidence, pod: Object, mine: Sequence[Claim], found: ClaimObjects, elsewhere: tuple[str, ...]
) -> ClaimsView:
    from devplug.dra.explanation import explanation, outcome

    question = _question(evidence, pod, mine, found, is_open=True)
    explained = explanation(question)
    if explained.fits:
        return ClaimsView("; ".join(elsewhere), explanation=explained)
    facts = [*explained.problems, *rule_facts(found)]
    closed = {text(one, "metadata", "name"): why_unfit(pod, one) for one in evidence.nodes or ()}
    shut = outcome(_question(evidence, pod, mine, found, is_open=False))[0]
    facts += [f"{name} has devices for all its claims, but {closed[name]}" for name in shut]
    open_nodes = len(question.nodes)
    because = f"none of the {open_nodes} nodes that it may go to has devices for all its claims"
    if open_nodes == 1:
        because = f"{question.nodes[0].name}, the only node that it may go to, lacks devices for its claims"
    elif not open_nodes:
        return _closed(closed, elsewhere, facts)
    wanted = {what.device_class for one in mine for r in one.requests for what in r.alternatives}
    advice = _advice(explained, sorted(wanted - question.classes.keys()), question.classes)
    return ClaimsView("; ".join((because, *elsewhere)), tuple(facts), tuple(advice), explained)


def _closed(closed: dict[str, str], elsewhere: tuple[str, ...], facts: list[str]) -> ClaimsView:
    """Say why the pod may go to no node; of its devices nothing is known then."""
    kept = [f"{name} is closed to it: {why}" for name, why in closed.items() if why]
    because = "no node is open to it" if kept or not closed else "no open node can reach its allocated claims"
    advice = ("change the pod's nodeSelector or tolerations, or the labels and taints of a node",)
    return ClaimsView("; ".join((because, *elsewhere)), tuple(dict.fromkeys((*facts, *kept))), advice)


def _advice(explained: Explanation, not_there: Sequence[str], there: Iterable[str]) -> Iterator[str]:
    """Yield the changes that are enough; where not everything was tried, no more is said than was seen."""
    changes, stopped = [one.text for one in explained.changes], explained.stopped
    if not changes and not_there:
        hint = f", or name another one: {some(sorted(there), _MOST_CHANGES)}" if there else ""
        yield f"create the DeviceClass {some(not_there)}{hint}"
    elif not changes:
        nothing = f"{stopped}, and found no change in its claims that is enough" if stopped else ""
        nothing = nothing or "nothing that can be changed in its claims is enough"
        yield f"{nothing}: add devices, or see what their driver publishes (kubectl get resourceslices)"
    elif explained.needs_all:
        seen = (
            "these changes together are enough"
            if stopped
            else "no single change is enough, but these together"
        )
        yield f"{seen}: " + "; ".join(changes)
    else:
        yield from (f"{one} (tried: then the devices are enough)" for one in changes[:_MOST_CHANGES])
        if len(changes) > _MOST_CHANGES:
            yield f"{len(changes) - _MOST_CHANGES} other single changes are enough; -o json has all"
    if changes and stopped:
        yield f"{stopped}: fewer or other changes may be enough"


def _question(
    evidence: Evidence, pod: Object, mine: Sequence[Claim], found: ClaimObjects, *, is_open: bool
) -> Question:
    """Return what is to be allocated, on the nodes that are open to the pod or on the others."""
    from devplug.dra.changes import Question
    from devplug.dra.objects import Claim, DeviceClass, Slice
    from devplug.dra.pools import Inventory
    from devplug.dra.selectors import CelSelectors
    from devplug.k8s.node_selectors import NodeSelector

    slices = tuple(map(Slice.of, tainted_slices(found)))
    bound = [
        NodeSelector.of(selector)
        for one in mine
        if (selector := (one.allocation or {}).get("nodeSelector")) is not None
    ]
    nodes = [_node(one) for one in evidence.nodes or () if bool(why_unfit(pod, one)) != is_open]
    return Question(
        claims=tuple(one for one in mine if one.allocation is None),
        others=tuple(one for one in map(Claim.of, found.claims or ()) if one.allocation is not None),
        slices=slices,
        inventory=Inventory(slices),
        classes={one.name: one for one in map(DeviceClass.of, found.classes or ())},
        nodes=tuple(node for node in nodes if all(one.matches(node) for one in bound)),
        selectors=CelSelectors(),
    )


def _node(found: Object) -> Node:
    from devplug.k8s.node_selectors import Node

    return Node(text(found, "metadata", "name"), texts(found, "metadata", "labels"))
