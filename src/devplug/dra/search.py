"""The search for devices at one node: depth first, over claims, requests and devices in order (D73). Pure.

What was chosen is taken back when it cannot go on (structured allocator_incubating.go).
"""

from __future__ import annotations

import enum
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from devplug.dra import capacity
from devplug.dra.constraints import ClaimConstraints
from devplug.dra.counters import Available, Counters
from devplug.dra.objects import ALL, DeviceID
from devplug.dra.pools import LIKE_1_36, reaches
from devplug.dra.results import Chosen, allocation_of
from devplug.dra.selectors import SelectorError
from devplug.dra.taints import is_kept_off
from devplug.errors import DevplugError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devplug.dra.allocations import Allocations
    from devplug.dra.objects import Claim, Device, DeviceClass, Json, SubRequest
    from devplug.dra.pools import Like, NodeView, Place
    from devplug.dra.selectors import Selectors
    from devplug.k8s.quantity import Quantity

MOST_DEVICES: Final = 32
"""How many devices one claim can have."""

INVALID_POOLS: Final = "invalid resource pools were encountered"
_NOBODY: Final = frozenset[int]()
MOST_STEPS: Final = 1_000_000
"""How many devices are tried on one node: stands for the 10 s that the real one takes at most (D92)."""


class AttemptError(DevplugError):
    """The attempt to place a pod ends, though another node might do (D75)."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the search at a node came to."""

    allocations: tuple[Json, ...] | None
    """One `status.allocation` for each claim, in their order; None if there is no solution."""
    alternatives: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """By number of the claim and of its request, the chosen alternative of each `firstAvailable`."""
    refusal: str = ""
    """Why there is no solution, if more is known than that."""
    bugs: tuple[str, ...] = ()
    """What decided that looks like a bug of the release, by the numbers of the reference: `D82`, `D85a`."""
    is_cut: bool = False
    """Whether the search ended before it had tried everything."""


class _Outcome(enum.Enum):
    DONE = enum.auto()
    NOTHING = enum.auto()
    TOO_MANY = enum.auto()
    """More devices than a claim can have, whatever devices the earlier requests get."""


class _Key(NamedTuple):
    claim: int
    request: int
    alternative: int


@dataclass(slots=True)
class _Request:
    """One alternative of one request, with what is known before the search."""

    what: SubRequest
    device_class: DeviceClass
    name: str
    """Of the request that the alternative belongs to."""
    alternative: str
    """Its own name; empty if the request has no list."""
    number: int = 0
    all_places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Supply:
    """What a search chooses by, besides the node and the claims."""

    classes: Mapping[str, DeviceClass]
    allocations: Allocations
    selectors: Selectors
    available: Available
    like: Like = LIKE_1_36
    most_steps: int = MOST_STEPS


class Search:
    """The search at one node; it is made for one call of `found`."""

    def __init__(self, supply: Supply, view: NodeView, claims: Sequence[Claim]) -> None:
        self._supply = supply
        self._view = view
        self._claims = claims
        self._selectors = supply.selectors
        self._allocations = supply.allocations
        self._counters = Counters(supply.available)
        self._requests: dict[_Key, _Request] = {}
        self._constraints = [ClaimConstraints(one.constraints, supply.like) for one in claims]
        self._chosen: list[list[Chosen]] = [[] for _ in claims]
        self._users: defaultdict[DeviceID, set[int]] = defaultdict(set)
        """By device, the numbers of the claims that it is chosen for; shared ones have none."""
        self._consumed: dict[DeviceID, dict[str, Fraction]] = {}
        """What chosen shares consume."""
        self._shares: defaultdict[DeviceID, int] = defaultdict(int)
        self._alternatives: dict[tuple[int, int], int] = {}
        self._steps = 0

    # ── before the search ──

    def found(self) -> Found:
        """Return the first solution. Raises `AttemptError`."""
        for number, claim in enumerate(self._claims):
            self._prepare(number, claim)
        outcome = self._one(_Key(0, 0, 0), 0, 0, in_alternative=False)
        if outcome is not _Outcome.DONE:
            is_cut = self._steps > self._supply.most_steps
            return Found(None, refusal=self._refusal(), is_cut=is_cut)
        allocations = []
        for number, (claim, chosen) in enumerate(zip(self._claims, self._chosen, strict=True)):
            classes = [self._class(number, request) for request in range(len(claim.requests))]
            allocations.append(allocation_of(claim, chosen, classes, self._view.node.name))
        return Found(tuple(allocations), self._alternatives)

    def suspicions(self) -> frozenset[str]:
        """Return the bugs of the release that may have decided."""
        found = set(self._counters.suspicions)
        if any(one.is_broken for one in self._constraints):
            found.add("D82")
        if self._view.is_disputed:
            found.add("D78")
        return frozenset(found)

    def _refusal(self) -> str:
        if self._steps > self._supply.most_steps:
            return f"node {self._view.node.name}: timed out trying to allocate devices"
        return INVALID_POOLS if self._view.has_invalid else ""

    def _class(self, claim: int, request: int) -> tuple[int, DeviceClass]:
        """Return the number of the chosen alternative of a request, and its class."""
        index = self._alternatives.get((claim, request), 0)
        return index, self._requests[_Key(claim, request, index)].device_class

    def _prepare(self, number: int, claim: Claim) -> None:
        """Look at each request of a claim, and count how many devices it needs at least."""
        least = 0
        for at, listed in enumerate(claim.requests):
            numbers = []
            for index, what in enumerate(listed.alternatives):
                key = _Key(number, at, index)
                device_class = self._supply.classes.get(what.device_class)
                if device_class is None:
                    raise AttemptError(
                        f"claim {claim}, request {what.name}: could not retrieve device class "
                        f'{what.device_class}: deviceclass.resource.k8s.io "{what.device_class}" not found'
                    )
                request = self._requests[key] = _Request(
                    what, device_class, listed.name, what.name if listed.is_list else ""
                )
                if what.mode == ALL:
                    request.all_places = self._all_places(claim, request)
                    request.number = len(request.all_places)
                else:
                    request.number = what.count
                numbers.append(request.number)
            least += min(numbers)
        if least > MOST_DEVICES:
            raise AttemptError(
                f"claim {claim}: number of requested devices {least} "
                f"exceeds the claim limit of {MOST_DEVICES}"
            )

    def _all_places(self, claim: Claim, request: _Request) -> tuple[Place, ...]:
        """Return every device that a request for all is about."""
        where = f"claim {claim}, request {request.what.name}: asks for all devices, but resource pool"
        places: list[Place] = []
        by_pool: defaultdict[object, list[Place]] = defaultdict(list)
        for place in self._view.places:
            by_pool[place.pool.id].append(place)
        for pool in self._view.pools:
            if pool.is_incomplete:
                raise AttemptError(f"{where} {pool.id} is currently being updated")
            if pool.invalid_reason:
                raise AttemptError(f"{where} {pool.id} is currently invalid")
            places += [
                place
                for place in by_pool.get(pool.id, ())
                if self._is_selected(claim, request, place)
                and self._has_room(place.device, request.what.capacity)
            ]
        return tuple(places)

    # ── the search ──

    def _one(self, at: _Key, count: int, start: int, *, in_alternative: bool) -> _Outcome:
        """Choose the next device; `count` have been chosen for this request, up to place `start`."""
        if at.claim >= len(self._claims):
            return _Outcome.DONE
        claim = self._claims[at.claim]
        if at.request >= len(claim.requests):
            outcome = self._one(_Key(at.claim + 1, 0, 0), 0, 0, in_alternative=False)
            # Other devices for an earlier claim may let a list of this one end shorter.
            return _Outcome.NOTHING if outcome is _Outcome.TOO_MANY else outcome
        if not in_alternative and claim.requests[at.request].is_list:
            return self._first_available(at, claim)
        request = self._requests[at]
        if request.what.mode == ALL and not request.all_places:
            return _Outcome.NOTHING
        if count >= request.number:
            return self._one(_Key(at.claim, at.request + 1, 0), 0, 0, in_alternative=False)
        if len(self._chosen[at.claim]) + request.number - count > MOST_DEVICES:
            return _Outcome.TOO_MANY
        if request.what.mode == ALL:
            return self._next_of_all(at, claim, request, count, in_alternative=in_alternative)
        return self._any_place(at, claim, request, count, start, in_alternative=in_alternative)

    def _first_available(self, at: _Key, claim: Claim) -> _Outcome:
        """Try one alternative of a list after the other."""
        worst = _Outcome.TOO_MANY
        for index in range(len(claim.requests[at.request].alternatives)):
            outcome = self._one(_Key(at.claim, at.request, index), 0, 0, in_alternative=True)
            if outcome is _Outcome.DONE:
                self._alternatives[at.claim, at.request] = index
                return outcome
            if outcome is _Outcome.NOTHING:
                worst = outcome
        return worst

    def _next_of_all(
        self, at: _Key, claim: Claim, request: _Request, count: int, *, in_alternative: bool
    ) -> _Outcome:
        """Choose the next of all devices; there is no other choice."""
        place = request.all_places[count]
        if not self._choose(at, claim, request, place):
            return _Outcome.NOTHING
        outcome = self._one(at, count + 1, 0, in_alternative=in_alternative)
        if outcome is not _Outcome.DONE:
            self._take_back(at, request, place)
        return outcome

    def _any_place(
        self, at: _Key, claim: Claim, request: _Request, count: int, start: int, *, in_alternative: bool
    ) -> _Outcome:
        """Try one device after the other, from `start` on."""
        places, what = self._view.places, request.what
        for index in range(start, len(places)):
            self._steps += 1
            if self._steps > self._supply.most_steps:
                return _Outcome.NOTHING
            place = places[index]
            if (
                self._is_taken(at.claim, what, place.device.id)
                or not self._is_selected(claim, request, place)
                or not self._has_room(place.device, what.capacity)
                or not self._choose(at, claim, request, place)
            ):
                continue
            outcome = self._one(at, count + 1, index + 1, in_alternative=in_alternative)
            if outcome is _Outcome.DONE:
                return outcome
            self._take_back(at, request, place)
            if outcome is _Outcome.TOO_MANY:
                return outcome
        return _Outcome.NOTHING

    def _is_taken(self, claim: int, what: SubRequest, device: DeviceID) -> bool:
        """Whether a device is in use; admin access minds only what its own claim uses."""
        users = self._users.get(device, _NOBODY)
        if what.has_admin_access:
            return claim in users
        return bool(users) or self._allocations.is_in_use(device)

    def _is_selected(self, claim: Claim, request: _Request, place: Place) -> bool:
        """Whether the selectors of class and request match, in this order, and the node is the device's."""
        device, device_class = place.device, request.device_class
        if not self._matches(device_class.selectors, device, f"class {device_class.name}"):
            return False
        if not self._matches(request.what.selectors, device, f"claim {claim}"):
            return False
        return not place.slice.is_per_device or reaches(
            self._view.node, device.node_name, device.node_selector, all_nodes=device.all_nodes
        )

    def _matches(self, expressions: Sequence[str], device: Device, owner: str) -> bool:
        for number, expression in enumerate(expressions):
            try:
                if not self._selectors.matches(expression, device):
                    return False
            except SelectorError as error:
                raise AttemptError(f"{owner}: selector #{number}: {error}") from error
        return True

    def _has_room(self, device: Device, requests: Mapping[str, Quantity]) -> bool:
        if not device.is_shareable:
            return not requests or capacity.fits(device, requests)
        return capacity.fits(
            device, requests, self._allocations.consumed(device.id), self._consumed.get(device.id, {})
        )

    def _choose(self, at: _Key, claim: Claim, request: _Request, place: Place) -> bool:
        """Choose a device if it is free and nothing forbids it."""
        device, what = place.device, request.what
        if self._is_taken(at.claim, what, device.id):
            return False
        is_counted = self._is_counted(device)
        if is_counted and not self._counters.take(place):
            return False
        if is_kept_off(device.taints, what.tolerations) or not self._holds(at, claim, request, device):
            self._leak(place, is_counted=is_counted)
            return False
        # For all devices this was looked at before the search; other requests may have used it up since.
        if device.is_shareable and not self._has_room(device, what.capacity):
            self._leak(place, is_counted=is_counted)
            if self._supply.like != LIKE_1_36:
                self._constraints[at.claim].remove(request.name, request.alternative)
            return False
        self._record(at, request, place)
        return True

    def _is_counted(self, device: Device) -> bool:
        """Whether a device takes from counters: a shared one that is in use has done so."""
        return bool(device.consumes) and not (
            device.is_shareable and (self._allocations.is_shared(device.id) or self._shares[device.id])
        )

    def _leak(self, place: Place, *, is_counted: bool) -> None:
        """Leave the counters of a refused, or of a shared, device as they are, as 1.36 does (D85)."""
        if is_counted:
            if self._supply.like == LIKE_1_36:
                self._counters.has_leaked = True
            else:
                self._counters.give_back(place)

    def _holds(self, at: _Key, claim: Claim, request: _Request, device: Device) -> bool:
        """Whether the claim's constraints let a device be added; if so, it is."""
        is_added = self._constraints[at.claim].add(request.name, request.alternative, device)
        if not is_added and request.what.mode == ALL:
            raise AttemptError(
                f"claim {claim}, request {request.what.name}: cannot add device {device.id} "
                "because a claim constraint would not be satisfied"
            )
        return is_added

    def _record(self, at: _Key, request: _Request, place: Place) -> None:
        device, what = place.device, request.what
        consumed: dict[str, Quantity] = {}
        if device.is_shareable:
            consumed = capacity.consumed(device, what.capacity)
            used = self._consumed.setdefault(device.id, {})
            for name, amount in consumed.items():
                used[name] = used.get(name, Fraction()) + amount.number
            self._shares[device.id] += 1
        else:
            self._users[device.id].add(at.claim)
        name = f"{request.name}/{request.alternative}" if request.alternative else request.name
        self._chosen[at.claim].append(Chosen(name, place, what, consumed))

    def _take_back(self, at: _Key, request: _Request, place: Place) -> None:
        device = place.device
        self._constraints[at.claim].remove(request.name, request.alternative)
        chosen = self._chosen[at.claim].pop()
        if device.is_shareable:
            used = self._consumed[device.id]
            for name, amount in chosen.consumed.items():
                used[name] -= amount.number
            self._shares[device.id] -= 1
            self._leak(place, is_counted=self._is_counted(device))
            return
        self._users[device.id].discard(at.claim)
        if device.consumes:
            self._counters.give_back(place)
