"""Hardware that two resources find: its holder has it, then the first in the file, unless both share it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.overlap import Claim, DeviceOverlap, decide
from devplug.daemon.sources.device import HostDevice, HostDeviceNode


def found(name: str, hardware: str = "", minor: int | None = None, major: int = 188) -> HostDevice:
    nodes = () if minor is None else (HostDeviceNode(f"/dev/{name}", (major, minor)),)
    return HostDevice(name, nodes, hardware=hardware)


class Table:
    """Resources in file order, which of them share, and who was woken."""

    def __init__(self, **shares: bool) -> None:
        self.shares = shares
        self.woken: list[str] = []
        self.overlaps = DeviceOverlap()
        self.reorder, self.leave = self.overlaps.reorder, self.overlaps.leave
        self.reorder(shares)

    def claim(self, name: str, found: Iterable[HostDevice], held: Collection[str] = ()) -> Mapping[str, str]:
        return self.overlaps.claim(
            name, found, held, is_shared=self.shares[name], on_change=lambda: self.woken.append(name)
        )


NAMES = ("p", "q", "r", "s")


@dataclass
class Row:
    """What the model knows of one resource."""

    is_shared: bool
    devices: dict[str, frozenset[str]] = field(default_factory=dict)
    held: dict[str, frozenset[str]] = field(default_factory=dict)

    def holds(self, key: str) -> bool:
        return any(key in keys for keys in self.held.values())


class Model:
    """The same rules, decided on anew for everything at every step."""

    def __init__(self) -> None:
        self.order: list[str] = list(NAMES)
        self.rows: dict[str, Row] = {}
        self.keepers: dict[str, list[str]] = {}

    def line(self) -> list[str]:
        return [name for name in self.order if name in self.rows]

    def share(self, one: str, other: str) -> bool:
        return one == other or (self.rows[one].is_shared and self.rows[other].is_shared)

    def keep(self) -> None:
        """Decide for whom each key is held: for who had it, then for the others in file order."""
        before, self.keepers = self.keepers, {}
        for key in {key for row in self.rows.values() for keys in row.held.values() for key in keys}:
            line = sorted(self.line(), key=lambda name: name not in before.get(key, []))
            kept = self.keepers[key] = []
            for name in line:
                if self.rows[name].holds(key) and all(self.share(name, one) for one in kept):
                    kept.append(name)

    def refused(self) -> dict[str, dict[str, str]]:
        owners: dict[str, set[str]] = {}
        result: dict[str, dict[str, str]] = {name: {} for name in self.rows}
        for name in self.line():
            granted = []
            for device, keys in self.rows[name].devices.items():
                others = {
                    other
                    for key in keys
                    if name not in self.keepers.get(key, [])
                    for other in {*self.keepers.get(key, []), *owners.get(key, set())}
                    if not self.share(name, other)
                }
                if others:
                    result[name][device] = min(others, key=self.line().index)
                else:
                    granted.append(keys)
            for key in {key for keys in granted for key in keys}:
                owners.setdefault(key, set()).add(name)
        return result

    def claim(self, name: str, is_shared: bool, devices: dict[str, frozenset[str]], held: set[str]) -> None:
        row = self.rows.setdefault(name, Row(is_shared))
        row.is_shared = is_shared
        was = {**row.devices, **row.held}
        row.held = {one: _held_keys(devices.get(one), was.get(one, frozenset())) for one in held}
        row.held = {one: keys for one, keys in row.held.items() if keys}
        row.devices = devices
        self.keep()


def _held_keys(now: frozenset[str] | None, before: frozenset[str]) -> frozenset[str]:
    if now is None:
        return before
    has_place = any(key.startswith("h") for key in now)
    return now | {key for key in before if not (has_place and key.startswith("h"))}


def device(name: str, keys: frozenset[str]) -> HostDevice:
    """Return a device with these keys: at most one place `h`, and nodes `n`."""
    nodes = tuple(HostDeviceNode(f"/dev/{key}", (188, int(key[1]))) for key in sorted(keys) if key[0] == "n")
    return HostDevice(name, nodes, hardware=next((key for key in keys if key[0] == "h"), ""))


def claims(wanted: Wanted) -> list[Claim]:
    return [
        Claim(name).after([device(*one) for one in devices.items()], held, is_shared=is_shared)
        for name, (devices, held, is_shared) in wanted.items()
    ]


KEYS = st.builds(
    lambda place, nodes: frozenset(({place} if place else set()) | nodes),
    st.sampled_from(["", "h0", "h1", "h2"]),
    st.sets(st.sampled_from(["n0", "n1", "n2"]), max_size=2),
)

DEVICES = st.dictionaries(st.sampled_from(["1", "2", "3"]), KEYS, max_size=3)
HELD = st.sets(st.sampled_from(["1", "2", "3"]), max_size=2)
RESOURCE = st.sampled_from(NAMES)
Wanted: TypeAlias = "dict[str, tuple[dict[str, frozenset[str]], set[str], bool]]"
"""By resource, in file order: what it finds, what of that is held, and whether it shares."""

WANTED = st.fixed_dictionaries({name: st.tuples(DEVICES, HELD, st.booleans()) for name in NAMES})

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), RESOURCE, DEVICES, HELD),
        st.tuples(st.just("claim"), RESOURCE, DEVICES, HELD),
        st.tuples(st.just("hold"), RESOURCE, HELD),
        st.tuples(st.just("share"), RESOURCE, st.booleans()),
        st.tuples(st.just("reorder"), st.lists(RESOURCE, unique=True)),
        st.tuples(st.just("retire"), RESOURCE, HELD),
        st.tuples(st.just("leave"), RESOURCE),
    ),
    max_size=25,
)


class Both:
    """The table and the model, led through the same steps."""

    def __init__(self) -> None:
        self.table = Table(p=False, q=True, r=False, s=True)
        self.model = Model()

    def step(self, what: str, *values: Any) -> None:
        getattr(self, what)(*values)

    def claim(self, name: str, devices: dict[str, frozenset[str]], held: set[str]) -> None:
        self.model.claim(name, self.table.shares[name], devices, held)
        refused = self.table.claim(name, [device(*one) for one in devices.items()], held)
        assert refused == self.model.refused()[name]

    def hold(self, name: str, held: set[str]) -> None:
        self.claim(name, self.model.rows.get(name, Row(False)).devices, held)

    def share(self, name: str, is_shared: bool) -> None:
        self.table.shares[name] = is_shared
        row = self.model.rows.get(name, Row(is_shared))
        self.claim(name, row.devices, set(row.held))

    def reorder(self, line: list[str]) -> None:
        self.model.order = [*line, *(name for name in NAMES if name not in line)]
        self.table.reorder(line)

    def retire(self, name: str, held: set[str]) -> None:
        self.claim(name, {}, held)

    def leave(self, name: str) -> None:
        self.table.leave(name)
        self.model.rows.pop(name, None)
        self.model.keep()

    def refused(self) -> dict[str, dict[str, str]]:
        """Return what is refused to each, as the table says when all claim once more what they have."""
        return {
            name: dict(self.table.claim(name, [device(*one) for one in row.devices.items()], row.held.keys()))
            for name, row in self.model.rows.items()
        }


@given(STEPS)
def test_each_step_refuses_and_wakes_as_if_all_were_decided_on_anew(steps: list[tuple[Any, ...]]) -> None:
    both = Both()
    for what, *values in steps:
        before = both.model.refused()
        both.table.woken.clear()
        both.step(what, *values)
        after = both.model.refused()
        caller = values[0] if what != "reorder" else None
        assert sorted(both.table.woken) == sorted(
            name for name in after if name != caller and after[name].keys() != before[name].keys()
        )
        assert both.refused() == after


@given(STEPS)
def test_nothing_has_two_owners_unless_both_share(steps: list[tuple[Any, ...]]) -> None:
    both = Both()
    for what, *values in steps:
        both.step(what, *values)
        owners: dict[str, set[str]] = {}
        for name, refused in both.refused().items():
            for one, keys in both.model.rows[name].devices.items():
                for key in keys if one not in refused else ():
                    owners.setdefault(key, set()).add(name)
        for names in owners.values():
            assert len(names) == 1 or all(both.model.rows[name].is_shared for name in names)


@given(DEVICES, STEPS)
def test_what_is_held_never_changes_its_owner(
    devices: dict[str, frozenset[str]], steps: list[tuple[Any, ...]]
) -> None:
    """Whatever the others do, and this one: it is not found, moves in the file, is removed and comes back."""
    both = Both()
    both.table.shares["q"] = False
    both.claim("q", devices, set(devices))
    held = frozenset(key for keys in devices.values() for key in keys)
    for what, *values in steps:
        if what == "reorder" or values[0] != "q":
            both.step(what, *values)
        elif what == "retire":
            both.retire("q", set(devices))
        elif what == "claim":
            both.claim("q", {one: keys for one, keys in devices.items() if one in values[1]}, set(devices))
        for name, refused in both.refused().items():
            row = both.model.rows[name]
            lost = {one for one, keys in row.devices.items() if keys & held} if name != "q" else set()
            assert lost <= refused.keys()
            assert name != "q" or not refused


@given(WANTED, st.permutations(NAMES), st.permutations(NAMES))
def test_the_order_of_the_claims_does_not_matter(wanted: Wanted, one: list[str], other: list[str]) -> None:
    """As long as no two hold the same."""
    taken: dict[str, str] = {}
    for name, (devices, held, _) in wanted.items():
        for each in sorted(held):
            keys = devices.get(each, frozenset())
            if any(taken.setdefault(key, name) != name for key in keys):
                held.discard(each)
    results = []
    for line in (one, other):
        overlaps = Table(**{name: wanted[name][2] for name in NAMES})
        for name in (*line, *NAMES):
            devices, held, _ = wanted[name]
            refused = overlaps.claim(name, [device(*each) for each in devices.items()], held)
            results.append((name, refused))
    assert results[4:8] == results[12:]


@given(WANTED)
def test_what_is_refused_is_had_by_the_resource_that_is_named(wanted: Wanted) -> None:
    decisions = decide(claims(wanted))
    by_name = {one.claim.resource_name: one for one in decisions}
    for one in decisions:
        owners = one.owners(decisions)
        assert owners.keys() == one.refused
        for name, owner in owners.items():
            other = by_name[owner]
            assert (other.kept | other.owned) & one.taken & set(one.claim.found[name])
            assert not (one.claim.is_shared and other.claim.is_shared)


@given(WANTED)
def test_what_is_decided_once_stays_as_long_as_the_claims_do(wanted: Wanted) -> None:
    decisions = decide(claims(wanted))
    again = decide([one.claim for one in decisions], {one.claim.resource_name: one for one in decisions})
    assert all(one is other for one, other in zip(decisions, again, strict=True))


@given(WANTED, WANTED)
def test_without_containers_nothing_depends_on_what_was_decided_before(now: Wanted, before: Wanted) -> None:
    decided = {one.claim.resource_name: one for one in decide(claims(before))}
    wanted = claims({name: (devices, set[str](), is_shared) for name, (devices, _, is_shared) in now.items()})
    assert [one.refused for one in decide(wanted, decided)] == [one.refused for one in decide(wanted)]


@pytest.fixture
def overlaps() -> Table:
    """Two resources that do not share."""
    return Table(a=False, b=False)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (found("x", "/sys/devices/x"), found("also-x", "/sys/devices/x")),
        (found("usb", "/sys/devices/usb1/1-2", 0), found("ttyUSB0", "", 0)),
    ],
    ids=["the same hardware", "the same node"],
)
def test_the_first_in_the_file_has_what_two_resources_find(
    overlaps: Table, one: HostDevice, other: HostDevice
) -> None:
    assert overlaps.claim("a", [one]) == {}
    assert overlaps.claim("b", [other]) == {other.name: "a"}


def test_what_is_refused_to_one_keeps_no_other_from_having_it() -> None:
    """The second one gets nothing of its USB device because the first has a node of it; the other is free."""
    overlaps = Table(a=False, b=False, c=False)
    overlaps.claim("a", [found("tty", "", 0)])
    usb_device = HostDevice("usb", (HostDeviceNode("/dev/t", (188, 0)), HostDeviceNode("/dev/v", (81, 0))))
    assert overlaps.claim("b", [usb_device]) == {"usb": "a"}
    assert overlaps.claim("c", [found("video", "", 0, 81)]) == {}


def test_another_order_in_the_file_moves_the_device(overlaps: Table) -> None:
    overlaps.claim("a", [found("x", "h")])
    overlaps.claim("b", [found("x", "h")])
    overlaps.reorder(["b", "a"])
    assert sorted(overlaps.woken) == ["a", "b"]
    assert overlaps.claim("a", [found("x", "h")]) == {"x": "b"}
    assert overlaps.claim("b", [found("x", "h")]) == {}


def test_the_null_device_is_no_hardware(overlaps: Table) -> None:
    overlaps.claim("a", [found("x", "", 3, 1)])
    assert overlaps.claim("b", [found("y", "", 3, 1)]) == {}


def test_nodes_that_a_driver_shares_out_belong_to_nobody(overlaps: Table) -> None:
    control = HostDeviceNode("/dev/nvidiactl", (195, 255), is_shared=True)
    overlaps.claim("a", [HostDevice("x", (control,))])
    assert overlaps.claim("b", [HostDevice("y", (control,))]) == {}


# ── what a container holds ──


def test_a_resource_that_is_served_anew_is_woken_as_its_last_claim_says(overlaps: Table) -> None:
    anew = list[str]()
    overlaps.claim("b", [found("x", "h")])
    overlaps.overlaps.claim("b", [found("x", "h")], on_change=lambda: anew.append("b"))
    overlaps.claim("a", [found("x", "h")])
    assert (overlaps.woken, anew) == ([], ["b"])


def test_a_held_device_that_was_plugged_in_elsewhere_frees_its_old_place_but_not_its_old_node(
    overlaps: Table,
) -> None:
    overlaps.claim("a", [found("x", "port1", 0)], {"x"})
    overlaps.claim("a", [found("x", "port2", 1)], {"x"})
    others = [found("p1", "port1"), found("p2", "port2"), found("n0", "", 0), found("n1", "", 1)]
    assert overlaps.claim("b", others) == {"p2": "a", "n0": "a", "n1": "a"}
    overlaps.claim("a", [found("x", "port2", 1)])
    assert overlaps.claim("b", others) == {"p2": "a", "n1": "a"}


def test_a_thousand_resources_that_find_the_same_start_and_stop_in_a_moment() -> None:
    devices = [found(str(n), f"h{n}", n) for n in range(10)]
    overlaps = Table(**{f"{n:04}": False for n in range(1000)})
    for n in range(1000):
        overlaps.claim(f"{n:04}", devices)
    assert overlaps.woken == []
    for n in range(1000):
        overlaps.leave(f"{n:04}")
    assert overlaps.woken == [f"{n:04}" for n in range(1, 1000)]
