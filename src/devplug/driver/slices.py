"""The ResourceSlices of a node's pool: which writes make the stored ones say what there is. Pure.

A consumer takes the slices of the highest generation, and takes none while they are not as many as they say
(dra.md D51, D77, D78). So it never sees a wrong pool, whatever write is the last one before a crash:

- In place: slices keep their generation and their number, and no device moves from one to another. Each
  write alone is a change that could have come alone. Slices that somebody deleted are made again; until the
  last of them is there, the pool is incomplete.
  Slices with counter sets have no devices (D41), and are changed anew only.
- Anew: all slices are written with the next generation, and those that are too many are deleted last. What
  was begun so is gone on with, as long as it is still what is wanted.

Of the two the one with fewer writes is taken, and in place if both need as many.

In both, creations and replacements may be made in any order, so also side by side: the new generation, or the
one that lacks slices, is incomplete until the last of them is there, and of a complete one each is a change
by itself. Deletions keep their places before and after them.
"""

from __future__ import annotations

from itertools import chain, count, groupby
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from devplug.dra.versions import from_v1, to_v1
from devplug.driver.device_entries import RESOURCE_ATTRIBUTE, resource_value, slice_name
from devplug.k8s.objects import Object, fields, maps, text, whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

DEVICES_LIMIT: Final = 128
TAINTED_LIMIT: Final = 64
"""The most devices of a slice, and of one with a device that is tainted or takes of counters (D42)."""

COUNTER_SETS_LIMIT: Final = 8
"""The most counter sets of a slice (D42)."""

SPARE_FACTOR: Final = 2
"""A pool has at most so many times the slices that it needs: those that lose their devices stay, empty."""

Devices: TypeAlias = "tuple[Object, ...]"
Content: TypeAlias = "tuple[Devices, Devices]"
"""Devices or counter sets of a slice, of which it has one kind."""


class Pool(Struct, frozen=True):
    """Whose slices they are: those of one driver on one node. The pool has the name of the node."""

    driver: str
    node_name: str
    node_uid: str
    """Of the Node, which owns them: they are deleted with it."""


class StoredSlice(Struct, frozen=True):
    """A ResourceSlice as the API server has it, its devices in the form of v1."""

    name: str
    uid: str
    version: str
    """The `resourceVersion`."""
    owner_uid: str
    pool_name: str
    generation: int
    count: int
    """How many slices the pool has, as this one says."""
    devices: Devices
    counter_sets: Devices = ()
    is_strange: bool = False
    """Whether it has what this driver never writes."""

    @classmethod
    def of(cls, found: Object, version: str) -> StoredSlice:
        """Read a ResourceSlice of a version."""
        spec = fields(to_v1("ResourceSlice", found, version), "spec")
        return cls(
            text(found, "metadata", "name"),
            text(found, "metadata", "uid"),
            text(found, "metadata", "resourceVersion"),
            next((text(one, "uid") for one in maps(found, "metadata", "ownerReferences")), ""),
            text(spec, "pool", "name"),
            whole(spec, "pool", "generation"),
            whole(spec, "pool", "resourceSliceCount"),
            tuple(maps(spec, "devices")),
            tuple(maps(spec, "sharedCounters")),
            bool(spec.get("perDeviceNodeSelection")),
        )


class Write(Struct, frozen=True):
    """One call that changes a slice."""

    verb: Literal["create", "replace", "delete"]
    name: str
    generation: int = 0
    count: int = 0
    devices: Devices = ()
    counter_sets: Devices = ()
    version: str = ""
    """The `resourceVersion` of the slice that is replaced."""


def writes(
    pool: Pool,
    wanted: Sequence[Object],
    stored: Iterable[StoredSlice],
    counter_sets: Sequence[Object] = (),
) -> list[Write]:
    """Return the fewest writes, in their order, after which the slices have exactly these devices.

    `wanted` are entries of v1 with different names, whose taints have a time, and `counter_sets` what they
    take of. `stored` are all slices of the driver on the node. After a write that fails, ask again with what
    is stored then.
    """
    known = sorted(stored, key=lambda one: (one.generation, one.name))
    strange = [one for one in known if one.is_strange or one.pool_name != pool.node_name]
    ours = [one for one in known if one not in strange] if strange else known
    # Of another pool first: it would have the same hardware a second time.
    first = [_deletion(one) for one in strange]
    if not wanted:
        return [*first, *(_deletion(one) for one in ours)]  # the older generations first: none comes back
    target = _packed(wanted, counter_sets)
    anew = _anew(pool, target, ours)
    is_too_wide = bool(ours) and ours[-1].count > SPARE_FACTOR * len(target)
    in_place = None if is_too_wide else _in_place(pool, wanted, counter_sets, ours)
    if in_place is not None and len(in_place) <= len(anew):
        return [*first, *in_place]
    return [*first, *anew]


def stages(planned: Iterable[Write]) -> list[list[Write]]:
    """Return planned writes by stages: those of one may be made in any order, after all of the one before."""
    return [
        stage
        for is_deletion, found in groupby(planned, key=lambda one: one.verb == "delete")
        for stage in ([[one] for one in found] if is_deletion else [[*found]])
    ]


def is_urgent(wanted: Sequence[Object], stored: Iterable[StoredSlice]) -> bool:
    """Whether pods may suffer until the writes are done: their devices are gone or unhealthy, or slices are.

    `stored` are some slices, else all are missing.
    """
    known = sorted(stored, key=lambda one: one.generation)
    if wanted and (not known or len(_latest(known)) < known[-1].count):
        return True
    now = {text(one, "name"): one for one in wanted}
    for device in (device for one in known for device in one.devices):
        listed = now.get(text(device, "name"))
        if listed is None or _is_tainted(listed) > _is_tainted(device):
            return True
    return False


def content_of(write: Write, pool: Pool, version: str) -> Object:
    """Return the object of a write in this version of the API."""
    metadata: Object = {"name": write.name}
    if write.version:
        metadata["resourceVersion"] = write.version
    metadata["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": pool.node_name, "uid": pool.node_uid, "controller": True}
    ]
    numbers = {"generation": write.generation, "resourceSliceCount": write.count}
    spec: Object = {
        "driver": pool.driver,
        "nodeName": pool.node_name,
        "pool": {"name": pool.node_name, **numbers},
    }
    if write.counter_sets:
        spec["sharedCounters"] = list(write.counter_sets)
    else:
        spec["devices"] = list(write.devices)
    return from_v1("ResourceSlice", {"metadata": metadata, "spec": spec}, version)


def lost_fields(written: Sequence[Object], stored: Sequence[Object]) -> set[str]:
    """Return the fields of devices that the API server did not keep, as those that it does not know (D49)."""
    return {name for wrote, kept in zip(written, stored, strict=False) for name in wrote if name not in kept}


def _latest(ours: Sequence[StoredSlice]) -> Sequence[StoredSlice]:
    """Return the slices of the highest generation."""
    return [one for one in ours if one.generation == ours[-1].generation]


def _in_place(
    pool: Pool, wanted: Sequence[Object], counter_sets: Sequence[Object], ours: Sequence[StoredSlice]
) -> list[Write] | None:
    """Return the writes that change no generation, or None if there is no such way."""
    if not ours:
        return None
    latest = _latest(ours)
    slices = latest[0].count
    missing = slices - len(latest)
    if missing < 0 or any(one.count != slices for one in latest):
        return None
    if _by_name(chain.from_iterable(one.counter_sets for one in latest)) != _by_name(counter_sets):
        return None
    names = _new_names(pool, missing, {one.name for one in ours})
    placed = _placed(wanted, [one for one in latest if not one.counter_sets], names)
    if placed is None:
        return None
    placed |= dict.fromkeys((one.name for one in latest if one.counter_sets), ())
    changed = [
        _replacement(one, one.generation, slices, (placed[one.name], one.counter_sets))
        for one in latest
        if one.owner_uid != pool.node_uid or one.devices != placed[one.name]
    ]
    made = [Write("create", name, latest[0].generation, slices, placed[name]) for name in names]
    return [*changed, *made, *(_deletion(one) for one in ours[: -len(latest)])]


def _new_names(pool: Pool, missing: int, taken: Collection[str]) -> list[str]:
    """Return names that no slice has."""
    numbered = (slice_name(pool.driver, pool.node_name, number) for number in count())
    free = (name for name in numbered if name not in taken)
    return [next(free) for _ in range(missing)]


def _placed(
    wanted: Sequence[Object], latest: Sequence[StoredSlice], names: Sequence[str]
) -> dict[str, Devices] | None:
    """Return the devices of each slice: a device stays where it is, and others come to where room is.

    None if they do not fit.
    """
    left = {text(one, "name"): one for one in wanted}
    placed: dict[str, list[Object]] = {
        one.name: [left.pop(name) for device in one.devices if (name := text(device, "name")) in left]
        for one in latest
    }
    if any(len(devices) > TAINTED_LIMIT and any(map(_is_narrow, devices)) for devices in placed.values()):
        return None
    placed.update((name, []) for name in names)
    homeless = [*left.values()]
    if homeless and not _house(homeless, placed, latest):
        return None
    return {name: tuple(devices) for name, devices in placed.items()}


def _house(
    homeless: Sequence[Object], placed: dict[str, list[Object]], latest: Sequence[StoredSlice]
) -> bool:
    """Put devices where room is, into as few slices as can be; return whether all found a place."""
    is_wide = len(placed) == 1 and not any(map(_is_narrow, chain(homeless, *placed.values())))
    limit = DEVICES_LIMIT if is_wide else TAINTED_LIMIT
    same = {one.name for one in latest if one.devices == tuple(placed[one.name])}
    left = list(homeless)
    # First what is written anyway, then what has the most room.
    for name in sorted(placed, key=lambda name: (name in same, len(placed[name]), name)):
        room = max(limit - len(placed[name]), 0)
        placed[name] += left[:room]
        del left[:room]
    return not left


# ── anew ──


def _packed(wanted: Sequence[Object], counter_sets: Sequence[Object]) -> list[Content]:
    """Return the devices and the counter sets by slices.

    In a pool of several, each has room for taints: one that comes moves no device then.
    """
    is_wide = len(wanted) <= DEVICES_LIMIT and not any(map(_is_narrow, wanted))
    devices = [tuple(wanted)] if is_wide else [*_batched(wanted, TAINTED_LIMIT)]
    sets = _batched(counter_sets, COUNTER_SETS_LIMIT)
    return [*((one, ()) for one in devices), *(((), one) for one in sets)]


def _batched(whole: Sequence[Object], limit: int) -> Iterator[Devices]:
    return (tuple(whole[at : at + limit]) for at in range(0, len(whole), limit))


def _anew(pool: Pool, packed: Sequence[Content], ours: Sequence[StoredSlice]) -> list[Write]:
    """Return the writes of a new generation, or the rest of those if some are done."""
    slices = len(packed)
    target = {
        slice_name(pool.driver, pool.node_name, number): content for number, content in enumerate(packed)
    }
    latest = _latest(ours) if ours else []
    is_begun = bool(latest) and all(
        one.count == slices
        and one.owner_uid == pool.node_uid
        and (one.devices, one.counter_sets) == target.get(one.name)
        for one in latest
    )
    generation = (ours[-1].generation if ours else 0) + (not is_begun)
    done = {one.name for one in latest} if is_begun else set()
    stored = {one.name: one for one in ours}
    written = [
        _replacement(stored[name], generation, slices, content)
        if name in stored
        else Write("create", name, generation, slices, *content)
        for name, content in target.items()
        if name not in done
    ]
    return [*written, *(_deletion(one) for one in ours if one.name not in target)]


# ── writes ──


def _replacement(old: StoredSlice, generation: int, slices: int, content: Content) -> Write:
    return Write("replace", old.name, generation, slices, *content, old.version)


def _deletion(old: StoredSlice) -> Write:
    return Write("delete", old.name)


# ── devices ──


def _is_tainted(device: Object) -> bool:
    return "taints" in device


def _is_narrow(device: Object) -> bool:
    """Whether a slice has fewer devices because of it."""
    return "taints" in device or "consumesCounters" in device


def _by_name(sets: Iterable[Object]) -> dict[str, Object]:
    return {text(one, "name"): one for one in sets}


# ── what the API server has ──


class StoredSlices:
    """What the API server has, by what was heard of it: lists, changes, and answers to writes, in any order.

    A slice that was written has the devices that were written, whatever the API server kept of them.
    """

    def __init__(self) -> None:
        self._known: dict[str, StoredSlice] = {}
        self._gone: dict[str, str] = {}
        """The version at which a slice was deleted, by its name: an answer may come after that."""

    def __len__(self) -> int:
        return len(self._known)

    def all(self) -> Collection[StoredSlice]:
        """Return the slices."""
        return self._known.values()

    def names_of(self, resource_name: str) -> frozenset[str]:
        """Return the names of the devices of a resource."""
        value = resource_value(resource_name)
        return frozenset(
            text(one, "name")
            for stored in self._known.values()
            for one in stored.devices
            if text(one, "attributes", RESOURCE_ATTRIBUTE, "string") == value
        )

    def take_list(self, found: Iterable[StoredSlice]) -> None:
        """Take all that there are."""
        known, self._known, self._gone = self._known, {}, {}
        for one in found:
            old = known.get(one.name)
            is_same = old is not None and (old.uid, old.version) == (one.uid, one.version)
            self._known[one.name] = old if old is not None and is_same else one

    def take_change(self, one: StoredSlice, *, is_deleted: bool) -> bool:
        """Take one that was changed or deleted; return whether it was news."""
        known = self._known.get(one.name)
        if known is not None and not _is_newer(one.version, known.version):
            return False
        if not is_deleted:
            self._known[one.name] = one
            return True
        self._gone[one.name] = one.version
        return self._known.pop(one.name, None) is not None

    def take_written(self, one: StoredSlice) -> None:
        """Take the answer to a write."""
        known = self._known.get(one.name)
        heard = self._gone.get(one.name) if known is None else known.version
        if heard is None or _is_newer(one.version, heard) or not _is_newer(heard, one.version):
            self._known[one.name] = one

    def take_absence(self, name: str) -> None:
        """Record that no slice has this name."""
        self._known.pop(name, None)


def _is_newer(version: str, known: str) -> bool:
    """Whether one `resourceVersion` comes after another; both are numbers on all servers that there are."""
    if version.isdecimal() and known.isdecimal():
        return int(version) > int(known)
    return version != known
