"""The exclusions of devices: for one request, all that keeps each device of a cluster from it. Pure.

The rules are the search's, asked of one device alone, and all of them, where the search ends at the first.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from devplug.dra import capacity
from devplug.dra.constraints import concerns
from devplug.dra.counters import Available
from devplug.dra.pools import LIKE_1_36, reaches
from devplug.dra.selectors import SelectorError
from devplug.dra.taints import untolerated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from devplug.dra.allocations import Allocations
    from devplug.dra.objects import Claim, Device, DeviceClass, DeviceID, Request, Slice
    from devplug.dra.pools import Inventory, Like, Place
    from devplug.dra.selectors import Selectors
    from devplug.k8s.node_selectors import Node


class Cause(enum.StrEnum):
    """What a reason is about; programs read the value."""

    NODE = "node"
    POOL = "pool"
    CLASS = "class"
    SELECTOR = "selector"
    IN_USE = "inUse"
    CAPACITY = "capacity"
    COUNTER = "counter"
    TAINT = "taint"
    CONSTRAINT = "constraint"


class Reason(Struct, frozen=True):
    """One reason why a request does not get a device."""

    cause: Cause
    text: str
    """The same for all devices that are kept away alike, without a full stop."""
    name: str = ""
    """What differs among them: who holds the device, the figures, the pool, the node."""
    number: int = 0
    """Of the selector or constraint, counted from 0."""


class Group(Struct, frozen=True):
    """Devices that are excluded for the same reasons."""

    reasons: tuple[Reason, ...]
    """Those of the first device; none if nothing keeps the devices from the request."""
    devices: tuple[DeviceID, ...]
    names: tuple[tuple[str, ...], ...]
    """For each reason the names that it has among the devices, each once."""


class _Seat(NamedTuple):
    """A device with its slice, and where it stands if any of the nodes sees it in a usable pool."""

    device: Device
    slice: Slice
    place: Place | None
    is_reached: bool


class Devices:
    """All devices that a cluster's slices list, as some nodes see them, and what is in use."""

    def __init__(
        self,
        inventory: Inventory,
        slices: Iterable[Slice],
        nodes: Sequence[Node],
        allocations: Allocations,
        selectors: Selectors,
        holders: Mapping[DeviceID, Sequence[str]],
        like: Like = LIKE_1_36,
    ) -> None:
        """`holders` has the names of the claims that have a device."""
        self._allocations = allocations
        self._selectors = selectors
        self._holders = holders
        self._like = like
        self._views = [inventory.view(one, like) for one in nodes]
        places = {id(place.device): place for view in self._views for place in view.places}
        listed = [one for one in slices if not one.counter_sets]
        latest: defaultdict[tuple[str, str], int] = defaultdict(int)
        for one in listed:
            latest[one.driver, one.pool] = max(latest[one.driver, one.pool], one.generation)
        self.seats = [
            _Seat(device, one, place, place is not None or any(_sees(node, one, device) for node in nodes))
            for one in listed
            for device in one.devices
            if (place := places.get(id(device))) is not None or one.generation == latest[one.driver, one.pool]
        ]

    def excluded(
        self, claim: Claim, request: Request, index: int, device_class: DeviceClass
    ) -> Iterator[tuple[Device, tuple[Reason, ...]]]:
        """Yield each device with what keeps it from one alternative of a request.

        Of a device that is not of the class nothing else is said.
        """
        for seat in self.seats:
            device = seat.device
            reasons = tuple(self._unselected(device_class.selectors, device, Cause.CLASS))
            if not reasons:
                reasons = (*self._unseen(seat), *self._unusable(seat, claim, request, index))
            yield device, reasons

    def _unseen(self, seat: _Seat) -> Iterator[Reason]:
        if not seat.is_reached:
            owner = seat.device if seat.slice.is_per_device else seat.slice
            where = owner.node_name and f"node {owner.node_name}"
            text = "on no node that the pod may go to"
            yield Reason(Cause.NODE, text, where or f"the node selector of slice {seat.slice.name}")
        elif seat.place is None:
            yield self._pool_reason(seat)

    def _pool_reason(self, seat: _Seat) -> Reason:
        identity = f"{seat.slice.driver}/{seat.slice.pool}"
        for view in self._views:
            for pool in view.pools:
                if str(pool.id) == identity and pool.invalid_reason:
                    return Reason(Cause.POOL, f"in an invalid pool ({pool.invalid_reason})", identity)
        count = f"{identity} should have {seat.slice.count}"
        return Reason(Cause.POOL, "in a pool of which not all slices are there, or too many", count)

    def _unusable(self, seat: _Seat, claim: Claim, request: Request, index: int) -> Iterator[Reason]:
        device, what = seat.device, request.alternatives[index]
        yield from self._unselected(what.selectors, device, Cause.SELECTOR)
        if not what.has_admin_access and self._allocations.is_in_use(device.id):
            yield Reason(Cause.IN_USE, "held", " and ".join(self._holders.get(device.id, ())) or "unknown")
        if device.is_shareable or what.capacity:
            used = self._allocations.consumed(device.id) if device.is_shareable else {}
            short = [f"{name}: {why}" for name, why in capacity.shortages(device, what.capacity, used)]
            if short:
                yield Reason(Cause.CAPACITY, "too little capacity", "; ".join(short))
        is_counted = not (device.is_shareable and self._allocations.is_shared(device.id))
        if device.consumes and is_counted and seat.place is not None:
            short = Available(self._allocations, self._like).shortages(seat.place)
            if short:
                yield Reason(Cause.COUNTER, "too little left of the counters", "; ".join(short))
        for taint in untolerated(device.taints, what.tolerations):
            yield Reason(Cause.TAINT, f"taint {taint} is not tolerated")
        alternative = what.name if request.is_list else ""
        for number, one in enumerate(claim.constraints):
            if concerns(one, request.name, alternative) and device.attribute(one.attribute) is None:
                word = "distinctAttribute" if one.is_distinct else "matchAttribute"
                text = f"has no attribute {one.attribute}, which {word} needs"
                yield Reason(Cause.CONSTRAINT, text, number=number)

    def _unselected(self, expressions: Sequence[str], device: Device, cause: Cause) -> Iterator[Reason]:
        owner = "class selector" if cause is Cause.CLASS else "selector"
        for number, expression in enumerate(expressions):
            try:
                if self._selectors.matches(expression, device):
                    continue
                verdict = "false"
            except SelectorError as error:
                verdict = f"an error: {error}"
            yield Reason(cause, f"{owner} `{expression}` is {verdict}", number=number)


def grouped(excluded: Iterable[tuple[Device, tuple[Reason, ...]]]) -> tuple[Group, ...]:
    """Return devices by their reasons: first those that nothing excludes, then the largest groups first."""
    groups: defaultdict[tuple[tuple[Cause, str], ...], list[tuple[Device, tuple[Reason, ...]]]]
    groups = defaultdict(list)
    for device, reasons in excluded:
        groups[tuple((one.cause, one.text) for one in reasons)].append((device, reasons))
    found = [
        Group(
            members[0][1],
            tuple(device.id for device, _ in members),
            tuple(
                tuple(dict.fromkeys(reasons[at].name for _, reasons in members if reasons[at].name))
                for at in range(len(key))
            ),
        )
        for key, members in groups.items()
    ]
    return tuple(sorted(found, key=lambda one: (bool(one.reasons), -len(one.devices))))


def _sees(node: Node, found: Slice, device: Device) -> bool:
    owner = device if found.is_per_device else found
    return reaches(node, owner.node_name, owner.node_selector, all_nodes=owner.all_nodes)
