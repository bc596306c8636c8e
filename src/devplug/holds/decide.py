"""The decision which resource offers which hardware, under which name. Pure.

`decide` knows what the resources have found and what containers hold. Hardware that a container holds is
offered by no other resource and under no other name; else the first resource of the configuration that finds
hardware offers it. Nothing is remembered between two decisions, so that no order of events can matter.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from msgspec import Struct, field

from devplug.devices import stable_id
from devplug.holds.hardware import REPLICA_MARK, marks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from devplug.holds.hardware import Hardware, Key, Use

Names: TypeAlias = "Mapping[str, str]"

BELONGS: Final = "belongs to"
"""How the reason begins for which a resource does not offer hardware that another one offers."""


# ── values ──


class Face(NamedTuple):
    """One way in which a resource is served. One that moves has two until its last device is released."""

    resource_name: str
    driver: str = ""
    """The DRA driver, for claims; empty for the device plugin."""


class Found(Struct, frozen=True):
    """A device that a resource has found."""

    name: str
    """Its name by the source: a device ID, or what the IDs of its replicas begin with."""
    hardware: Hardware | None = None
    keys: tuple[Key, ...] = ()
    """Its folder below /sys/devices and its device numbers, without those that drivers share out."""


class Listing(Struct, frozen=True):
    """What one resource has found."""

    resource_name: str
    found: Sequence[Found] = ()
    is_shared: bool = False
    """Whether it shares hardware with other resources that do: `overlap: shared`."""
    driver: str = ""
    """The DRA driver that serves it; empty for the device plugin."""

    @property
    def face(self) -> Face:
        """The resource, and how it is served."""
        return Face(self.resource_name, self.driver)


class Hold(Struct, frozen=True):
    """The hold of one device: from its Allocate until it is released, and cleaned if need be."""

    resource_name: str
    name: str
    """The name of the device that a container has; the replicas of a device have its name."""
    use: Use | None = None
    """None if nothing is known but the name: an older version has recorded it."""
    leads_to: tuple[Key, ...] = ()
    """The device numbers to which the host paths of the answer lead now."""
    holder: str = ""
    """Who has it, for people: `default/pod`. Empty where that is not known."""
    is_over: bool = False
    """Whether no container has it any more, and it only has to be cleaned."""
    driver: str = ""
    """The DRA driver by which a claim has it; empty for the device plugin."""

    @property
    def face(self) -> Face:
        """The resource, and how it was given out."""
        return Face(self.resource_name, self.driver)

    @property
    def keys(self) -> set[Key]:
        """The device numbers that the container got, and to which its paths lead now."""
        return {*(self.use.numbers if self.use else ()), *self.leads_to}

    def __str__(self) -> str:
        """Return the form that stands in reasons."""
        return f"{self.resource_name} {self.name}" + (f" by {self.holder}" if self.holder else "")


class Withheld(Struct, frozen=True):
    """Why a resource does not offer a device that it has found."""

    reason: str
    owner: str = ""
    """The resource that has the hardware."""
    listed_as: str = ""
    """The name under which it stays listed, because it is still to be cleaned; else empty."""


_NONE_WITHHELD: Mapping[str, Withheld] = MappingProxyType({})


class Decision(Struct, frozen=True):
    """What all resources offer."""

    names: Mapping[Face, Names] = field(default_factory=dict)
    """By face: the name under which a device is held, by the source's name, where they differ."""
    withheld: Mapping[Face, Mapping[str, Withheld]] = field(default_factory=dict)
    """By face and by the source's name of the device."""
    holds_of: dict[Key, list[tuple[Hold, bool]]] = field(default_factory=dict)
    """By key: the holds that share it, and whether each of them may share the hardware."""
    other_way: Mapping[tuple[Face, str], Hold] = field(default_factory=dict)
    """By face and name: the hold of a device without keys that its resource gave out in another way."""
    elsewhere: frozenset[tuple[Face, str]] = frozenset()
    """The holds whose hardware only other faces find: face and name of each."""
    unfound: tuple[Hold, ...] = ()
    """The holds whose hardware no resource finds."""

    def names_of(self, face: Face) -> Names:
        """Return `names` of one face."""
        return self.names.get(face, {})

    def withheld_of(self, face: Face) -> Mapping[str, Withheld]:
        """Return `withheld` of one face."""
        return self.withheld.get(face, _NONE_WITHHELD)

    def differs(self, other: Decision, face: Face) -> bool:
        """Whether a face lists something else by the other decision."""
        return self._listed(face) != other._listed(face)

    def _listed(self, face: Face) -> object:
        elsewhere = {name for other, name in self.elsewhere if other == face}
        return self.names_of(face), self.withheld_of(face), elsewhere

    def add(self, hold: Hold) -> None:
        """Add a hold that changes no offer; see `Findings.is_found_elsewhere`."""
        may_share = hold.use is not None and hold.use.is_shared
        for key in hold.keys:
            self.holds_of.setdefault(key, []).append((hold, may_share))

    def is_in_use(self, face: Face, name: str, keys: Iterable[Key]) -> bool:
        """Whether a container has the hardware with these keys in another way than by this name."""
        return any(
            not hold.is_over and (hold.face, hold.name) != (face, name)
            for key in keys
            for hold, _ in self.holds_of.get(key, ())
        )

    def conflict(
        self, face: Face, names: Collection[str], keys: Iterable[Key], *, is_shared: bool
    ) -> Hold | None:
        """Return a hold of the hardware with these keys whose name is not in `names`, if there is one."""
        for name in names if self.other_way else ():
            if hold := self.other_way.get((face, name)):
                return hold
        for key in keys:
            for hold, may_share in self.holds_of.get(key, ()):
                is_own = hold.name in names and hold.face == face
                if not is_own and not (may_share and is_shared):
                    return hold
        return None


# ── the decision ──


class Findings:
    """All that resources have found, with indexes. `listings` are in the order of the configuration."""

    def __init__(self, listings: Iterable[Listing] = ()) -> None:
        self.listings = tuple(listings)
        self.common = {one.face: _common_keys(one) for one in self.listings}
        """By face: the keys that several of its devices have, which are keys of none."""
        self.keys_of = {one.face: _own_keys(one, self.common[one.face]) for one in self.listings}
        """By face and name: the keys of a device that no other device of the resource has."""
        self.named = {one.face: {found.name: found for found in one.found} for one in self.listings}
        """By face and name."""
        self.faces_of: dict[str, list[Face]] = {}
        """By resource."""
        for face in self.named:
            self.faces_of.setdefault(face.resource_name, []).append(face)
        self.with_key: dict[Key, list[tuple[Face, str]]] = {}
        """By key: face and name of the devices with it."""
        self.with_mark: dict[str, list[tuple[Face, Found]]] = {}
        """By mark of the hardware, or by key where that is not known: the devices with their faces."""
        for face, devices in self.keys_of.items():
            for device, keys in devices.items():
                for key in keys:
                    self.with_key.setdefault(key, []).append((face, device))
        for listing in self.listings:
            for found in listing.found:
                own_keys = self.keys_of[listing.face][found.name]
                for mark in marks(found.hardware) if found.hardware else own_keys:
                    self.with_mark.setdefault(mark, []).append((listing.face, found))
        self.contested = frozenset(one for found in self.with_key.values() if len(found) > 1 for one in found)
        """Face and name of the devices that several resources find."""

    def is_found_elsewhere(self, hold: Hold) -> bool:
        """Whether another face than the hold's finds hardware with a key of the hold."""
        return any(face != hold.face for key in hold.keys for face, _ in self.with_key.get(key, ()))


def decide(findings: Findings, holds: Sequence[Hold], twins: Collection[str] = ()) -> Decision:
    """Decide what each resource offers. `twins` are serial numbers that several devices had in this boot."""
    matches = [_matches(findings, hold, twins) for hold in holds]
    holds_of: dict[Key, list[tuple[Hold, bool]]] = {}
    for hold, found in zip(holds, matches, strict=True):
        may_share = hold.use is not None and hold.use.is_shared
        own_keys = (key for name, one in found for key in findings.keys_of[name][one.name])
        for key in hold.keys.union(own_keys):
            holds_of.setdefault(key, []).append((hold, may_share))
    names, displaced = _held_names(findings, holds, matches)
    other_way = {
        (face, one.name): hold
        for hold, found in zip(holds, matches, strict=True)
        for face, one in found
        if face != hold.face and face.resource_name == hold.resource_name and not one.keys
    }
    decision = Decision(names, {}, holds_of, other_way)
    held = {(hold.face, hold.name): hold.is_over for hold in holds}
    withheld = _withheld(findings, decision, displaced, held)
    elsewhere = frozenset(
        (hold.face, hold.name)
        for hold, found in zip(holds, matches, strict=True)
        if found and all(name != hold.face for name, _ in found)
    )
    unfound = tuple(hold for hold, found in zip(holds, matches, strict=True) if not found)
    return Decision(names, withheld, holds_of, other_way, elsewhere, unfound)


def _common_keys(listing: Listing) -> frozenset[Key]:
    counted = Counter(key for one in listing.found for key in one.keys)
    return frozenset(key for key, count in counted.items() if count > 1)


def _own_keys(listing: Listing, common: frozenset[Key]) -> dict[str, tuple[Key, ...]]:
    return {
        one.name: tuple(key for key in one.keys if key not in common) if common else one.keys
        for one in listing.found
    }


def _matches(findings: Findings, hold: Hold, twins: Collection[str]) -> list[tuple[Face, Found]]:
    """Return the present devices that are the hardware of a hold, with their resources.

    Where the hardware of the hold, or of a device, is not known, the name tells within the resource, or a
    device number to which the hold's path still leads.
    """
    own, hardware = hold.face, hold.use.hardware if hold.use else None
    same = {
        (name, one.name): one
        for mark in marks(hardware)
        for name, one in findings.with_mark.get(mark, ())
        if hardware is not None and one.hardware is not None and hardware.is_same(one.hardware, twins)
    }
    for face in findings.faces_of.get(hold.resource_name, ()):
        named = findings.named[face].get(hold.name)
        if named is not None and (hardware is None or named.hardware is None):
            same[face, hold.name] = named
    if hold.use is None and (own, hold.name) not in same and own in findings.named:
        # An older version has recorded the ID alone, which an edit has changed since.
        same.update(((name, one.name), one) for name, one in _usually_called(hold.name, findings.listings))
    still = set(hold.leads_to).intersection(hold.use.numbers if hold.use else ())
    same.update(
        ((name, one.name), one)
        for key in still
        for name, one in findings.with_mark.get(key, ())
        if name == own
    )
    return [(name, found) for (name, _), found in same.items()]


def _usually_called(name: str, listings: Iterable[Listing]) -> Iterator[tuple[Face, Found]]:
    """Yield the devices, with their resources, that have an ID by default or in any resource."""
    names = {name, name.rpartition(REPLICA_MARK)[0] or name}
    for listing in listings:
        for one in listing.found:
            if names & {one.name, *marks(one.hardware)}:
                yield listing.face, one


def _held_names(
    findings: Findings, holds: Sequence[Hold], matches: Sequence[Sequence[tuple[Face, Found]]]
) -> tuple[dict[Face, dict[str, str]], dict[Face, dict[str, Hold]]]:
    """Return the names of devices that their sources call otherwise, and devices that can have no name.

    A held device has the name under which it is held. A device whose name is held for other hardware has its
    place in its name meanwhile; it has no name while the hold's paths may lead to it at any time, as where
    links swap.
    """
    names: dict[Face, dict[str, str]] = {}
    displaced: dict[Face, dict[str, Hold]] = {}
    owners: dict[tuple[Face, str], tuple[Hold, str, bool]] = {}
    for hold, found in zip(holds, matches, strict=True):
        own = sorted({one.name for name, one in found if name == hold.face})
        here = hold.name if hold.name in own else own[0] if own else ""
        owner = hold, here, bool(here) or not (found or hold.leads_to)
        owners.setdefault((hold.face, hold.name), owner)
        if here and here != hold.name:
            names.setdefault(hold.face, {}).setdefault(here, hold.name)
    for (face, name), (hold, here, is_settled) in owners.items():
        one = findings.named.get(face, {}).get(name)
        if one is None or here == name or name in names.get(face, {}):
            continue
        if is_settled and one.hardware is not None:
            alias = stable_id(f"{name}@{one.hardware.place}")
            names.setdefault(face, {})[name] = alias
        else:
            displaced.setdefault(face, {})[name] = hold
    return names, displaced


def _withheld(
    findings: Findings,
    decision: Decision,
    displaced: Mapping[Face, Mapping[str, Hold]],
    held: Mapping[tuple[Face, str], bool],
) -> dict[Face, dict[str, Withheld]]:
    doubtful: dict[Face, set[str]] = {face: set(devices) for face, devices in displaced.items()}
    on_held_keys = (one for key in decision.holds_of for one in findings.with_key.get(key, ()))
    for face, device in (*findings.contested, *on_held_keys, *decision.other_way):
        doubtful.setdefault(face, set()).add(device)
    owners: dict[Key, tuple[str, bool]] = {}
    withheld: dict[Face, dict[str, Withheld]] = {}
    for listing in findings.listings:
        face, name, is_shared = listing.face, listing.resource_name, listing.is_shared
        renamed, keys_of = decision.names_of(face), findings.keys_of[face]
        mine = {
            device: Withheld(f"its ID is held for other hardware, as {hold}", name)
            for device, hold in displaced.get(face, {}).items()
        }
        for device in sorted(doubtful.get(face, ())):
            called = renamed.get(device, device)
            # What only has to be cleaned stays with its resource, but a container may open it by its number.
            is_own, is_over = (face, called) in held, held.get((face, called), False)
            if device in mine or (is_own and not is_over):
                continue
            if hold := decision.conflict(face, (called,), keys_of[device], is_shared=is_shared):
                mine[device] = Withheld(f"held as {hold}", hold.resource_name, called if is_own else "")
            elif not is_own and (owner := _owner(keys_of[device], owners, is_shared=is_shared)):
                mine[device] = Withheld(f"{BELONGS} {owner}", owner)
        for device in doubtful.get(face, set()) - mine.keys():
            for key in keys_of[device]:
                owners.setdefault(key, (name, is_shared))
        if mine:
            withheld[face] = mine
    return withheld


def _owner(keys: Iterable[Key], owners: Mapping[Key, tuple[str, bool]], *, is_shared: bool) -> str:
    """Return the first resource that offers hardware with one of these keys; empty if none does."""
    for key in keys:
        owner, may_share = owners.get(key, ("", True))
        if owner and not (may_share and is_shared):
            return owner
    return ""


# ── the steering away from devices that a container may still have ──


def steered(
    available: Iterable[str], must_include: Collection[str], size: int, doubtful: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return the IDs to choose `size` from, and those that have to be chosen: doubtful IDs come last."""
    others = [one for one in available if one not in must_include]
    certain = [*must_include, *(one for one in others if one not in doubtful)]
    if len(certain) >= size:
        return certain, [*must_include]
    return [*certain, *(one for one in others if one in doubtful)], certain
