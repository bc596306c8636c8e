"""The pools of devices that a node can see, gathered from slices (structured pools_incubating.go). Pure.

A pool is named by driver and pool name in the whole cluster, and of its slices only those of the highest
generation count (D51). What 1.36 does here otherwise is D78: it judges a pool by the slices that the node
sees, and looks further only if they are fewer or more than the pool should have.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from fractions import Fraction

    from devplug.dra.objects import Device, Slice
    from devplug.k8s.node_selectors import Node, NodeSelector

Like: TypeAlias = Literal["1.36", "documented"]
LIKE_1_36: Final = "1.36"
"""As the release does it, with what look like its bugs: D78, D82, D85."""
AS_DOCUMENTED: Final = "documented"
"""Without them: how results are told apart that a bug decided."""


class PoolID(NamedTuple):
    """What names a pool in the whole cluster; pools are ordered by it."""

    driver: str
    name: str

    def __str__(self) -> str:
        """Return the form that stands in messages."""
        return "/".join(self)


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """One pool as a node sees it; an incomplete or invalid one has no devices."""

    id: PoolID
    slices: tuple[Slice, ...] = ()
    """Those with devices for the node, by name."""
    elsewhere: tuple[Slice, ...] = ()
    """All others: the devices on other nodes take from the same counters."""
    counter_sets: Mapping[str, Mapping[str, Fraction]] | None = None
    is_incomplete: bool = False
    invalid_reason: str = ""
    is_disputed: bool = False
    """Whether 1.36 takes for complete what, seen from the whole cluster, is not (D78)."""

    @property
    def _order(self) -> tuple[bool, PoolID]:
        """The place of the pool in the search: those with any binding conditions come last (D74)."""
        return any(one.binding_conditions for found in self.slices for one in found.devices), self.id


class Place(NamedTuple):
    """A device where a node sees it."""

    device: Device
    slice: Slice
    pool: Pool


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """What one node sees: its pools and the devices of the usable ones, in the order of the search (D74)."""

    node: Node
    pools: tuple[Pool, ...]
    places: tuple[Place, ...]
    has_invalid: bool
    is_disputed: bool
    """Whether 1.36 sees other pools here than it should (D78)."""
    number: int
    """Tells it from every other view of its inventory, earlier ones of the node too."""
    pool_ids: tuple[PoolID, ...]
    shares_counters: bool
    """Whether other nodes see counters that 1.36 takes for those of its devices (D85)."""


def reaches(node: Node, node_name: str, selector: NodeSelector | None, *, all_nodes: bool) -> bool:
    """Whether a node is among those that a slice, or a device, is for."""
    if node_name:
        return node.name == node_name
    return all_nodes or (selector is not None and selector.matches(node))


class Inventory:
    """All slices of a cluster; it lives as long as the cluster does, and each change is told to it.

    What a node sees is gathered once and kept until a slice changes that it may see.
    """

    def __init__(self, slices: Iterable[Slice] = ()) -> None:
        self._slices: dict[str, Slice] = {}
        self._of_node: defaultdict[str, dict[str, Slice]] = defaultdict(dict)
        """By node and name; under the empty name what is for several nodes."""
        self._of_pool: defaultdict[str, dict[str, Slice]] = defaultdict(dict)
        """By name of the pool, of whatever driver."""
        self._views: dict[Like, dict[str, NodeView]] = {LIKE_1_36: {}, AS_DOCUMENTED: {}}
        """By name of the node."""
        self._seen_by: defaultdict[str, set[str]] = defaultdict(set)
        """By name of a pool, the nodes whose views looked at one."""
        self._numbers = count()
        for one in slices:
            self.put(one)

    def put(self, changed: Slice) -> None:
        """Take in a slice that is new, or that replaces the one of its name."""
        self.remove(changed.name)
        self._slices[changed.name] = changed
        self._of_node[changed.node_name][changed.name] = changed
        self._of_pool[changed.pool][changed.name] = changed
        self._forget(changed)

    def remove(self, name: str) -> None:
        """Forget the slice of this name, if there is one."""
        gone = self._slices.pop(name, None)
        if gone is not None:
            del self._of_node[gone.node_name][name]
            del self._of_pool[gone.pool][name]
            self._forget(gone)

    def view(self, node: Node, like: Like = LIKE_1_36) -> NodeView:
        """Return what a node sees."""
        views = self._views[like]
        known = views.get(node.name)
        if known is None or (known.node is not node and known.node.labels != node.labels):
            known = views[node.name] = self._gathered(node, like)
        return known

    def _forget(self, changed: Slice) -> None:
        names = {changed.node_name, *self._seen_by.pop(changed.pool, ())}
        for views in self._views.values():
            if not changed.node_name:
                views.clear()
            for name in names:
                views.pop(name, None)

    def _gathered(self, node: Node, like: Like) -> NodeView:
        seen: defaultdict[PoolID, list[Slice]] = defaultdict(list)
        for found in (self._of_node.get(node.name, {}), self._of_node.get("", {})):
            for one in found.values():
                if _is_seen(one, node):
                    seen[_pool_id(one)].append(one)
        pools = []
        for identity, slices in seen.items():
            self._seen_by[identity.name].add(node.name)
            latest = max(one.generation for one in slices)
            visible = sorted((one for one in slices if one.generation == latest), key=_name)
            pool = self._pool(identity, visible, like)
            if pool is not None:
                pools.append(pool)
        pools.sort(key=lambda pool: pool._order)  # noqa: SLF001 -- of this module
        places = [Place(device, one, pool) for pool in pools for one in pool.slices for device in one.devices]
        counting = {place.pool.id.name for place in places if place.device.consumes}
        return NodeView(
            node,
            tuple(pools),
            tuple(places),
            any(pool.invalid_reason for pool in pools),
            any(pool.is_disputed for pool in pools),
            next(self._numbers),
            tuple(pool.id for pool in pools),
            any(one.node_name != node.name for name in counting for one in self._of_pool[name].values()),
        )

    def _pool(self, identity: PoolID, visible: Sequence[Slice], like: Like) -> Pool | None:
        """Return a pool of which a node sees these slices; None if the node's are out of date."""
        first = visible[0]
        whole = [one for one in self._of_pool[identity.name].values() if one.driver == identity.driver]
        current = [one for one in whole if one.generation == first.generation]
        is_outdated = any(one.generation > first.generation for one in whole)
        if like == LIKE_1_36 and len(visible) == first.count:
            pool = _built(identity, visible, ())
            return replace(pool, is_disputed=is_outdated or len(current) != first.count)
        if is_outdated:
            return None
        if len(current) != first.count:
            return Pool(identity, is_incomplete=True)
        names = {one.name for one in visible}
        return _built(identity, visible, sorted((one for one in current if one.name not in names), key=_name))


def _name(found: Slice) -> str:
    return found.name


def _pool_id(found: Slice) -> PoolID:
    return PoolID(found.driver, found.pool)


def _is_seen(found: Slice, node: Node) -> bool:
    """Whether a slice counts for a node: counter sets always do, and what one of its devices does."""
    if found.counter_sets:
        return True
    if found.is_per_device:
        return any(
            reaches(node, one.node_name, one.node_selector, all_nodes=one.all_nodes) for one in found.devices
        )
    return reaches(node, found.node_name, found.node_selector, all_nodes=found.all_nodes)


def _built(identity: PoolID, visible: Sequence[Slice], elsewhere: Sequence[Slice]) -> Pool:
    """Return a complete pool, or say why it is invalid (D77)."""
    counter_sets: dict[str, Mapping[str, Fraction]] = {}
    reason = _duplicate(one.id.device for found in visible if not found.counter_sets for one in found.devices)
    if reason:
        return Pool(identity, invalid_reason=f"duplicate device name {reason}")
    for found in visible:
        for name, counters in found.counter_sets:
            if name in counter_sets:
                return Pool(identity, invalid_reason=f"duplicate counter set name {name}")
            counter_sets[name] = counters
    for found in (*visible, *elsewhere):
        for device in found.devices:
            for use in device.consumes:
                if use.counter_set not in counter_sets:
                    return Pool(identity, invalid_reason=f"counter set {use.counter_set} not found")
                for name in use.counters.keys() - counter_sets[use.counter_set].keys():
                    reason = f"counter {name} not found in counter set {use.counter_set}"
                    return Pool(identity, invalid_reason=reason)
    slices = tuple(found for found in visible if not found.counter_sets)
    return Pool(identity, slices, tuple(elsewhere), counter_sets)


def _duplicate(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""
