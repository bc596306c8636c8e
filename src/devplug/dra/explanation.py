"""The explanation of claims that cannot be allocated: what excludes each device, and what would help. Pure.

Nothing is guessed: a change is proposed only if the allocator finds devices once it is made.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

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
    from devplug.dra.objects import Attribute, Claim, Device, DeviceClass, SubRequest
    from devplug.k8s.node_selectors import Node

_MOST_TRIALS: Final = 10_000
"""How many times a node is tried after changes; those that would take more are not proposed."""

_MOST_STEPS: Final = 20_000
"""How many devices are tried in one search, so that no trial takes longer than a tenth of a second."""

_MOST_POOLS: Final = 3
_MOST_VALUES: Final = 5

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
    """Whether no single change is enough, but these together; if all was tried, none can be left out."""
    stopped: str = ""
    """If not everything was tried, after how much it stopped: a sentence without a full stop."""


# ── trials ──


class Outcome(NamedTuple):
    """What the allocator answers on all nodes."""

    fits: tuple[str, ...]
    """The nodes that have devices for all claims."""
    error: str = ""
    """What ends the whole attempt (D75); then no node fits."""
    cut: int = 0
    """On how many nodes the search ended before it had tried everything."""


class _Budget:
    """How many nodes may still be tried, and what was not tried for that."""

    def __init__(self, most_trials: int, first: Outcome) -> None:
        self.is_anywhere = bool(first.error)
        """Whether each change is tried on all nodes, since an error on any of them ends the attempt."""
        self._most = most_trials
        self._made = 0
        self._cut = first.cut
        self._is_used_up = False

    def allows(self, count: int) -> bool:
        """Whether so many nodes may be tried; if so, they are counted."""
        if self._made + count > self._most:
            self._is_used_up = True
            return False
        self._made += count
        return True

    def fits(self, question: Question) -> bool:
        """Whether some node has devices, as far as the search went."""
        found = outcome(question)
        self._cut += 0 if found.fits else found.cut
        return bool(found.fits)

    @property
    def stopped(self) -> str:
        """After how much it stopped looking, if it did."""
        if self._is_used_up:
            return f"it stopped looking after {self._made} trials of a node"
        if self._cut:
            return f"in {self._cut} trials of a node it stopped looking after {_MOST_STEPS} devices"
        return ""


def outcome(question: Question) -> Outcome:
    """Return the nodes that have devices for all claims, or the error that ends the whole attempt."""
    allocations = Allocations(one.allocation for one in question.others if one.allocation is not None)
    allocator = Allocator(
        question.classes,
        question.inventory,
        allocations,
        question.selectors,
        question.like,
        _MOST_STEPS,
    )
    fits, cut = [], 0
    for node in question.nodes:
        try:
            found = allocator.allocate(node, question.claims)
        except AttemptError as error:
            return Outcome((), str(error), cut)
        if found.allocations is not None:
            fits.append(node.name)
        cut += found.is_cut
    return Outcome(tuple(fits), cut=cut)


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
    return budget.fits(question)


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


def explanation(question: Question, most_trials: int = _MOST_TRIALS) -> Explanation:
    """Say what excludes each device from each request, and which smallest change lets the pod have them.

    When nodes were tried `most_trials` times it stops, and says so.
    """
    views, problems = _considered(question)
    wanted = {what.device_class for one in question.claims for r in one.requests for what in r.alternatives}
    if not wanted <= question.classes.keys():
        return Explanation((), tuple(views), tuple(dict.fromkeys(problems)))
    first = outcome(question)
    if first.fits:
        return Explanation(first.fits, tuple(views))
    if first.error:
        problems.append(f"the whole attempt ends, though another node might do: {first.error}")
    budget = _Budget(most_trials, first)
    tried = list(candidates(question, views))
    changes = [one for one in tried if _helps(question, [one], budget)]
    needs_all = not changes and _helps(question, tried, budget)
    if needs_all:
        changes = _irreducible(question, tried, budget)
    return Explanation(
        (), tuple(views), tuple(dict.fromkeys(problems)), tuple(changes), needs_all, budget.stopped
    )


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
                yield f"driver {driver} has published no ResourceSlice"
    if not known:
        yield "the cluster has no ResourceSlice: no driver of devices has listed any"


def _shared_values(claim: Claim, usable: Mapping[tuple[str, int], list[Device]]) -> Iterator[str]:
    """Yield for each constraint which values the devices have that could be chosen, by pool (D81, D82).

    Devices without the attribute are none of those, and say so; without any of them there is no sentence.
    """
    for one in claim.constraints:
        found: dict[DeviceID, Attribute] = {}
        for request in claim.requests:
            for index, what in enumerate(request.alternatives):
                if concerns(one, request.name, what.name if request.is_list else ""):
                    for device in usable.get((request.name, index), ()):
                        if (value := device.attribute(one.attribute)) is not None:
                            found[device.id] = value
        pools: defaultdict[str, Counter[Attribute]] = defaultdict(Counter)
        for device_id, value in found.items():
            pools[f"{device_id.driver}/{device_id.pool}"][value] += 1
        kinds = Counter(map(_text, set(found.values())))
        parts = [f"{pool} has {_counts(values, kinds)}" for pool, values in sorted(pools.items())]
        if parts:
            word = "distinctAttribute" if one.is_distinct else "matchAttribute"
            more = f", and {len(parts) - _MOST_POOLS} other pools" if len(parts) > _MOST_POOLS else ""
            told = "; ".join(parts[:_MOST_POOLS]) + more
            yield f"{word} {one.attribute}: of the devices that are usable by themselves {told}"


def _counts(values: Counter[Attribute], kinds: Mapping[str, int]) -> str:
    """Return how many devices have which value, with its type where values of two types read alike."""
    most = values.most_common(_MOST_VALUES)
    texts = [
        f"{count} with {_text(one)}" + (f" ({one.kind})" if kinds[_text(one)] > 1 else "")
        for one, count in most
    ]
    more = f" and {len(values) - len(most)} other values" if len(values) > len(most) else ""
    return ", ".join(texts) + more


def _text(value: Attribute) -> str:
    return str(value.value).lower() if value.kind == "bool" else str(value.value)
