"""The explanation of claims that cannot be allocated: what excludes each device, and what would help. Pure.

Nothing is guessed: a change is proposed only if the allocator finds devices once it is made.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from devplug.dra.allocations import Allocations
from devplug.dra.allocator import Allocator
from devplug.dra.changes import RequestView, candidates, devices_of
from devplug.dra.constraints import concerns
from devplug.dra.exclusions import Devices, Group, grouped
from devplug.dra.objects import ALL, DeviceID
from devplug.dra.search import AttemptError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devplug.dra.changes import Change, Question
    from devplug.dra.exclusions import Group
    from devplug.dra.objects import Claim, Device, DeviceClass, SubRequest
    from devplug.k8s.node_selectors import Node

__all__ = ["Explanation", "explanation", "outcome"]

_MOST_TRIALS: Final = 10_000
"""How many times a node is tried; what is left of the changes is then not proposed."""

_MOST_STEPS: Final = 20_000
"""How many devices are tried in one search, so that no trial takes longer than a tenth of a second."""

_DRIVER: Final = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']""")


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why no node has devices for some claims."""

    fits: tuple[str, ...]
    """The nodes that have devices for all; nothing below matters then but the requests."""
    requests: tuple[RequestView, ...] = ()
    problems: tuple[str, ...] = ()
    """What is not about single devices, as sentences without a full stop."""
    changes: tuple[Change, ...] = ()
    """Each by itself is enough, unless `needs_all`."""
    needs_all: bool = False
    """Whether no single change is enough, but these together; none of them can be left out."""


# ── trials ──


class _Budget:
    """How many nodes may still be tried."""

    def __init__(self, *, is_anywhere: bool) -> None:
        self.left = _MOST_TRIALS
        self.is_anywhere = is_anywhere
        """Whether each change is tried on all nodes, since an error on any of them ends the attempt."""

    def allows(self, count: int) -> bool:
        self.left -= count
        return self.left >= 0


def outcome(question: Question) -> tuple[tuple[str, ...], str]:
    """Return the nodes that have devices for all claims, and the error that ends the whole attempt (D75)."""
    allocations = Allocations(one.allocation for one in question.others if one.allocation is not None)
    allocator = Allocator(
        question.classes,
        question.inventory,
        allocations,
        question.selectors,
        question.like,
        _MOST_STEPS,
    )
    found = []
    for node in question.nodes:
        try:
            if allocator.allocate(node, question.claims).allocations is not None:
                found.append(node.name)
        except AttemptError as error:
            return (), str(error)
    return tuple(found), ""


def _helps(question: Question, changes: list[Change], budget: _Budget) -> bool:
    """Whether some node has devices after these changes, of which nothing is known if the budget is used up.

    A change that is about some pools is tried only where those are.
    """
    pools = frozenset[tuple[str, str]]().union(*(one.pools for one in changes))
    if pools and all(one.pools for one in changes) and not budget.is_anywhere:
        question = replace(question, nodes=tuple(one for one in question.nodes if _has(question, one, pools)))
    if not budget.allows(len(question.nodes)):
        return False
    for one in changes:
        question = one.apply(question)
    return bool(outcome(question)[0])


def _has(question: Question, node: Node, pools: frozenset[tuple[str, str]]) -> bool:
    return any(pool.id in pools for pool in question.inventory.view(node, question.like).pools)


# ── the explanation ──


def _considered(question: Question) -> tuple[list[RequestView], list[str]]:
    """Return each request with its devices, and what is wrong besides."""
    holders: defaultdict[DeviceID, list[str]] = defaultdict(list)
    for claim in question.others:
        for device in devices_of(claim):
            holders[device].append(str(claim))
    allocations = Allocations(one.allocation for one in question.others if one.allocation is not None)
    devices = Devices(
        question.inventory,
        question.slices,
        question.nodes,
        allocations,
        question.selectors,
        holders,
        question.like,
    )
    views: list[RequestView] = []
    problems: list[str] = []
    for claim in question.claims:
        usable: dict[tuple[str, int], list[Device]] = {}
        for request in claim.requests:
            for index, what in enumerate(request.alternatives):
                name = request.named(index)
                groups: tuple[Group, ...] = ()
                device_class = question.classes.get(what.device_class)
                if device_class is None:
                    problems.append(f"there is no DeviceClass {what.device_class}, which {name} names")
                else:
                    problems += _without_slices(question, device_class)
                    listed = list(devices.excluded(claim, request, index, device_class))
                    groups = grouped(listed)
                    usable[request.name, index] = [one for one, reasons in listed if not reasons]
                views.append(RequestView(str(claim), name, _asks(what), groups))
        problems += _shared_values(claim, usable)
    return views, problems


def explanation(question: Question) -> Explanation:
    """Say what excludes each device from each request, and which smallest change lets the pod have them."""
    views, problems = _considered(question)
    wanted = {what.device_class for one in question.claims for r in one.requests for what in r.alternatives}
    if not wanted <= question.classes.keys():
        return Explanation((), tuple(views), tuple(dict.fromkeys(problems)))
    fits, error = outcome(question)
    if fits:
        return Explanation(fits, tuple(views))
    if error:
        problems.append(f"the whole attempt ends, though another node might do: {error}")
    budget = _Budget(is_anywhere=bool(error))
    tried = list(candidates(question, views))
    single = [one for one in tried if _helps(question, [one], budget)]
    if single or not _helps(question, tried, budget):
        changes, needs_all = single, False
    else:
        changes, needs_all = _irreducible(question, tried, budget), True
    return Explanation((), tuple(views), tuple(dict.fromkeys(problems)), tuple(changes), needs_all)


def _irreducible(question: Question, changes: list[Change], budget: _Budget) -> list[Change]:
    """Leave out each change without which the others are enough."""
    for one in reversed(changes):
        rest = [other for other in changes if other is not one]
        if _helps(question, rest, budget):
            return _irreducible(question, rest, budget)
    return changes


def _asks(what: SubRequest) -> str:
    number = "all devices" if what.mode == ALL else f"{what.count} device{'s' if what.count != 1 else ''}"
    admin = ", with admin access" if what.has_admin_access else ""
    parts = ", ".join(f"{amount.text} of {name}" for name, amount in what.capacity.items())
    return f"{number} of class {what.device_class}{admin}" + (f", with {parts}" if parts else "")


def _without_slices(question: Question, device_class: DeviceClass) -> Iterator[str]:
    """Yield the drivers that a class names and that list no devices."""
    known = {one.driver for one in question.slices}
    for expression in device_class.selectors:
        for driver in _DRIVER.findall(expression):
            if driver not in known:
                yield f"driver {driver} has no ResourceSlice: it runs on no node, or finds no device there"
    if not known:
        yield "the cluster has no ResourceSlice: no driver of devices has listed any"


def _shared_values(claim: Claim, usable: Mapping[tuple[str, int], list[Device]]) -> Iterator[str]:
    """Yield for each constraint the values among the devices that could be chosen (D81, D82)."""
    for one in claim.constraints:
        values: Counter[str] = Counter()
        seen: set[DeviceID] = set()
        for request in claim.requests:
            for index, what in enumerate(request.alternatives):
                if concerns(one, request.name, what.name if request.is_list else ""):
                    for device in usable.get((request.name, index), ()):
                        found = device.attribute(one.attribute)
                        if found is not None and device.id not in seen:
                            seen.add(device.id)
                            values[str(found.value)] += 1
        word = "distinctAttribute" if one.is_distinct else "matchAttribute"
        most = values.most_common(5)
        counts = ", ".join(f"{count} with {value}" for value, count in most)
        more = f" and {len(values) - len(most)} other values" if len(values) > len(most) else ""
        yield f"{word} {one.attribute}: of the usable devices {counts or 'none has it'}{more}"
