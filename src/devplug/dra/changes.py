"""The changes of claims, and of what is in use, that may let claims be allocated. Pure.

Each is about something that excludes a device; whether it is enough, the allocator says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from devplug.dra.exclusions import Cause, Group
from devplug.dra.objects import ALL, DeviceID
from devplug.dra.pools import LIKE_1_36
from devplug.dra.search import MOST_DEVICES
from devplug.dra.taints import Toleration, untolerated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from devplug.dra.objects import Claim, Constraint, DeviceClass, Request, Slice, SubRequest
    from devplug.dra.pools import Inventory, Like
    from devplug.dra.selectors import Selectors
    from devplug.dra.taints import Taint
    from devplug.k8s.node_selectors import Node

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be allocated, and everything that decides about it."""

    claims: tuple[Claim, ...]
    """Those of the pod that have no devices, in its order."""
    others: tuple[Claim, ...]
    """All claims of the cluster that have devices."""
    slices: tuple[Slice, ...]
    inventory: Inventory
    """Of the same slices."""
    classes: Mapping[str, DeviceClass]
    nodes: tuple[Node, ...]
    """Those that the pod may go to."""
    selectors: Selectors
    like: Like = LIKE_1_36


@dataclass(frozen=True, slots=True)
class Change:
    """One change that lets the allocator find devices."""

    text: str
    """What to do, as a sentence without a full stop."""
    apply: Callable[[Question], Question]
    pools: frozenset[tuple[str, str]] = frozenset()
    """Driver and name of the pools that it is about; it changes nothing for nodes without. None: for all."""


class RequestView(Struct, frozen=True):
    """One request, or one alternative of it, with the devices that were considered."""

    claim: str
    request: str
    asks: str
    """As in `2 devices of class gpu.example.com`."""
    groups: tuple[Group, ...] = ()

    @property
    def usable(self) -> tuple[DeviceID, ...]:
        """The devices that nothing excludes when they are looked at alone."""
        return next((one.devices for one in self.groups if not one.reasons), ())


def candidates(question: Question, views: list[RequestView]) -> Iterator[Change]:
    """Yield what may help, the least first: free a claim, tolerate a taint, ask less, drop a condition.

    Selectors of a DeviceClass stay: they say which devices the class is, for all claims of the cluster.
    """
    by_name = {(one.claim, one.request): one for one in views}
    for other in _in_the_way(question, views):
        pools = frozenset((one.driver, one.pool) for one in devices_of(other))
        yield Change(f"free claim {other}: delete the pods that use it", _freed(other), pools)
    for claim in question.claims:
        for request in claim.requests:
            for index, what in enumerate(request.alternatives):
                view = by_name[str(claim), request.named(index)]
                where = f"request {view.request} of claim {claim}"
                for text, edit in _edits(question, view, what):
                    yield Change(f"{text} in {where}", _edited(claim, request.name, index, edit))
        for constraint in claim.constraints:
            word = "distinctAttribute" if constraint.is_distinct else "matchAttribute"
            text = f"drop the constraint {word} {constraint.attribute} of claim {claim}"
            yield Change(text, _unconstrained(claim, constraint))


def _edits(
    question: Question, view: RequestView, what: SubRequest
) -> Iterator[tuple[str, Callable[[SubRequest], SubRequest]]]:
    """Yield changes of one request that are about what excludes its devices."""
    reasons = [reason for group in view.groups for reason in group.reasons]
    causes = {one.cause for one in reasons}
    for taint in _taints(question, view, what) if Cause.TAINT in causes else ():
        yield f"tolerate the taint {taint}", _tolerating(taint)
    if what.mode != ALL and what.count > 1:
        less = min(what.count - 1, max(len(view.usable), 1), MOST_DEVICES)
        yield f"ask for {less} instead of {what.count}", lambda one: replace(one, count=less)
    for name in what.capacity if Cause.CAPACITY in causes else ():
        yield f"ask for no {name}", _without_capacity(name)
    for number in sorted({one.number for one in reasons if one.cause is Cause.SELECTOR}):
        expression = what.selectors[number]
        yield f"drop selector `{expression}`", _unselecting(expression)


def _in_the_way(question: Question, views: list[RequestView]) -> list[Claim]:
    """Return the claims that have what is missing: the devices, or a part of the same pool."""
    wanted: set[DeviceID] = set()
    pools: set[tuple[str, str]] = set()
    for view in views:
        for group in view.groups:
            causes = {one.cause for one in group.reasons}
            if causes & {Cause.IN_USE, Cause.CAPACITY}:
                wanted.update(group.devices)
            if Cause.COUNTER in causes:
                pools.update((one.driver, one.pool) for one in group.devices)
    return [
        claim
        for claim in question.others
        if any(one in wanted or (one.driver, one.pool) in pools for one in devices_of(claim))
    ]


def _taints(question: Question, view: RequestView, what: SubRequest) -> list[Taint]:
    """Return the taints that keep devices of the class from a request, each once."""
    tainted = {
        device
        for group in view.groups
        if any(one.cause is Cause.TAINT for one in group.reasons)
        for device in group.devices
    }
    return list(
        dict.fromkeys(
            taint
            for found in question.slices
            for device in found.devices
            if device.id in tainted
            for taint in untolerated(device.taints, what.tolerations)
        )
    )


def devices_of(claim: Claim) -> list[DeviceID]:
    """Return the devices that a claim keeps from others: not those that it has by admin access (D79)."""
    results = ((claim.allocation or {}).get("devices") or {}).get("results") or ()
    return [
        DeviceID(one["driver"], one["pool"], one["device"]) for one in results if not one.get("adminAccess")
    ]


def _freed(claim: Claim) -> Callable[[Question], Question]:
    return lambda question: replace(question, others=tuple(o for o in question.others if o is not claim))


def _edited(
    claim: Claim, name: str, index: int, edit: Callable[[SubRequest], SubRequest]
) -> Callable[[Question], Question]:
    def changed(request: Request) -> Request:
        if request.name != name:
            return request
        parts = enumerate(request.alternatives)
        return replace(request, alternatives=tuple(edit(one) if at == index else one for at, one in parts))

    return _with_claim(claim, lambda one: replace(one, requests=tuple(changed(r) for r in one.requests)))


def _unconstrained(claim: Claim, constraint: Constraint) -> Callable[[Question], Question]:
    return _with_claim(claim, lambda one: replace(one, constraints=_dropped(one.constraints, constraint)))


def _with_claim(claim: Claim, edit: Callable[[Claim], Claim]) -> Callable[[Question], Question]:
    def apply(question: Question) -> Question:
        claims = tuple(edit(one) if str(one) == str(claim) else one for one in question.claims)
        return replace(question, claims=claims)

    return apply


def _dropped(items: tuple[_T, ...], gone: _T) -> tuple[_T, ...]:
    """Return all but the first that equals `gone`."""
    at = items.index(gone)
    return (*items[:at], *items[at + 1 :])


def _tolerating(taint: Taint) -> Callable[[SubRequest], SubRequest]:
    more = Toleration(taint.key, "Equal", taint.value, taint.effect)
    return lambda what: replace(what, tolerations=(*what.tolerations, more))


def _without_capacity(name: str) -> Callable[[SubRequest], SubRequest]:
    def edit(what: SubRequest) -> SubRequest:
        return replace(what, capacity={key: one for key, one in what.capacity.items() if key != name})

    return edit


def _unselecting(expression: str) -> Callable[[SubRequest], SubRequest]:
    return lambda what: replace(what, selectors=_dropped(what.selectors, expression))
