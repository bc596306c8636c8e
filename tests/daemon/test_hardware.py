"""Two resources that find the same hardware: the first in the file has it, unless both share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.hardware import Overlaps
from devplug.daemon.sources.found import Found, FoundNode


def found(name: str, hardware: str = "", minor: int | None = None, major: int = 188) -> Found:
    nodes = () if minor is None else (FoundNode(f"/dev/{name}", (major, minor)),)
    return Found(name, nodes, hardware=hardware)


def table(*resources: tuple[str, bool]) -> tuple[Overlaps, list[str]]:
    """Return a table with these resources in file order, and who was woken."""
    overlaps, woken = Overlaps(), list[str]()
    for rank, (name, is_shared) in enumerate(resources):
        overlaps.enter(name, rank, is_shared=is_shared, on_change=lambda name=name: woken.append(name))  # type: ignore[misc]
    return overlaps, woken


def test_what_only_one_resource_finds_belongs_to_it() -> None:
    overlaps, _ = table(("a", False), ("b", False))
    assert overlaps.claim("a", [found("x", "/sys/devices/x")]) == {}
    assert overlaps.claim("b", [found("y", "/sys/devices/y")]) == {}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (found("x", "/sys/devices/x"), found("also-x", "/sys/devices/x")),
        (found("gadget", "/sys/devices/usb1/1-2", 0), found("ttyUSB0", "", 0)),
    ],
    ids=["the same hardware", "the same node"],
)
def test_the_first_in_the_file_has_what_two_resources_find(one: Found, other: Found) -> None:
    overlaps, _ = table(("a", False), ("b", False))
    assert overlaps.claim("a", [one]) == {}
    assert overlaps.claim("b", [other]) == {other.name: "a"}


def test_the_order_of_the_looks_does_not_matter_and_who_loses_is_woken() -> None:
    overlaps, woken = table(("a", False), ("b", False))
    assert overlaps.claim("b", [found("x", "h")]) == {}
    assert overlaps.claim("a", [found("x", "h")]) == {}
    assert woken == ["b"]
    assert overlaps.claim("b", [found("x", "h")]) == {"x": "a"}


def test_what_the_first_one_loses_the_second_one_gets() -> None:
    overlaps, woken = table(("a", False), ("b", False))
    overlaps.claim("a", [found("x", "h")])
    overlaps.claim("b", [found("x", "h")])
    overlaps.leave("a")
    assert woken == ["b"]
    assert overlaps.claim("b", [found("x", "h")]) == {}


def test_two_that_both_share_have_it_both() -> None:
    overlaps, _ = table(("a", True), ("b", True))
    assert overlaps.claim("a", [found("x", "h")]) == {}
    assert overlaps.claim("b", [found("x", "h")]) == {}


@pytest.mark.parametrize("shares", [(True, False), (False, True)])
def test_it_takes_two_to_share(shares: tuple[bool, bool]) -> None:
    overlaps, _ = table(("a", shares[0]), ("b", shares[1]))
    overlaps.claim("a", [found("x", "h")])
    assert overlaps.claim("b", [found("x", "h")]) == {"x": "a"}


def test_what_is_refused_to_one_keeps_no_other_from_having_it() -> None:
    """The second one gets nothing of its gadget because the first has a node of it; the other is free."""
    overlaps, _ = table(("a", False), ("b", False), ("c", False))
    overlaps.claim("a", [found("tty", "", 0)])
    gadget = Found("gadget", (FoundNode("/dev/t", (188, 0)), FoundNode("/dev/v", (81, 0))))
    assert overlaps.claim("b", [gadget]) == {"gadget": "a"}
    assert overlaps.claim("c", [found("video", "", 0, 81)]) == {}


def test_the_null_device_is_no_hardware() -> None:
    overlaps, _ = table(("a", False), ("b", False))
    overlaps.claim("a", [found("x", "", 3, 1)])
    assert overlaps.claim("b", [found("y", "", 3, 1)]) == {}


def test_nodes_that_a_driver_shares_out_belong_to_nobody() -> None:
    overlaps, _ = table(("a", False), ("b", False))
    control = FoundNode("/dev/nvidiactl", (195, 255), is_shared=True)
    overlaps.claim("a", [Found("x", (control,))])
    assert overlaps.claim("b", [Found("y", (control,))]) == {}


def test_another_order_in_the_file_moves_the_device() -> None:
    overlaps, woken = table(("a", False), ("b", False))
    overlaps.claim("a", [found("x", "h")])
    overlaps.claim("b", [found("x", "h")])
    overlaps.reorder({"b": 0, "a": 1})
    assert sorted(woken) == ["a", "b"]
    assert overlaps.claim("a", [found("x", "h")]) == {"x": "b"}
    assert overlaps.claim("b", [found("x", "h")]) == {}


# ── what is held ──────────────────────────────────────────────────────────────────────────────────


def test_what_a_container_holds_stays_with_its_resource_wherever_that_stands() -> None:
    overlaps, woken = table(("a", False), ("b", False))
    assert overlaps.claim("b", [found("x", "h")], held={"x"}) == {}
    assert overlaps.claim("a", [found("x", "h")]) == {"x": "b"}
    overlaps.claim("b", [found("x", "h")])
    assert woken == ["a"]
    assert overlaps.claim("a", [found("x", "h")]) == {}
    assert overlaps.claim("b", [found("x", "h")]) == {"x": "a"}


def test_what_is_held_and_pulled_out_is_nobody_elses_meanwhile() -> None:
    overlaps, _ = table(("a", False), ("b", False))
    overlaps.claim("b", [found("x", "h")], held={"x"})
    overlaps.claim("b", [], held={"x"})
    assert overlaps.claim("a", [found("x", "h")]) == {"x": "b"}


def test_a_removed_resource_keeps_what_is_held_until_it_is_free() -> None:
    overlaps, woken = table(("a", False), ("b", False))
    overlaps.claim("b", [found("x", "h"), found("y", "i")], held={"x"})
    overlaps.retire("b", {"x"})
    assert overlaps.claim("a", [found("x", "h"), found("y", "i")]) == {"x": "b"}
    overlaps.retire("b", set())
    assert woken == ["a"]
    overlaps.leave("b")
    assert overlaps.claim("a", [found("x", "h"), found("y", "i")]) == {}


def test_a_resource_that_is_changed_keeps_its_hardware_until_its_next_look() -> None:
    overlaps, _ = table(("a", False), ("b", False))
    overlaps.claim("a", [found("x", "h")])
    overlaps.enter("a", 0, is_shared=False, on_change=lambda: None)
    assert overlaps.claim("b", [found("x", "h")]) == {"x": "a"}


def test_a_change_to_sharing_is_a_change_for_the_others() -> None:
    overlaps, woken = table(("a", False), ("b", True))
    overlaps.claim("a", [found("x", "h")])
    overlaps.claim("b", [found("x", "h")])
    overlaps.enter("a", 0, is_shared=True, on_change=lambda: None)
    assert woken == ["b"]
    assert overlaps.claim("b", [found("x", "h")]) == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from("pqr"), st.sets(st.integers(0, 3)), st.sets(st.integers(0, 3)), st.booleans()
        ),
        max_size=14,
    )
)
def test_what_is_held_never_changes_hands(steps: list[tuple[str, set[int], set[int], bool]]) -> None:
    """Only what a resource has may be given out by it, so only that is ever held."""
    overlaps, _ = table(*((name, False) for name in "pqr"))
    holder: dict[int, str] = {}
    for name, places, given_out, is_reversed in steps:
        devices = [found(str(one), f"h{one}") for one in sorted(places)]
        held = {str(one) for one, owner in holder.items() if owner == name}
        refused = overlaps.claim(name, devices, held)
        assert not {int(one) for one in refused} & {one for one, owner in holder.items() if owner == name}
        mine = {one for one in places if str(one) not in refused}
        assert not {one for one in mine if holder.get(one, name) != name}
        holder.update(dict.fromkeys(mine & given_out, name))
        overlaps.claim(name, devices, {str(one) for one, owner in holder.items() if owner == name})
        if is_reversed:
            overlaps.reorder({"p": 2, "q": 1, "r": 0})


FINDS = st.dictionaries(st.sampled_from("pqrs"), st.sets(st.integers(0, 5)), max_size=4)


@given(st.lists(st.tuples(st.sampled_from("pqrs"), st.sets(st.integers(0, 5))), max_size=12), FINDS)
def test_nothing_has_two_owners_whatever_the_order(
    steps: list[tuple[str, set[int]]], last: dict[str, set[int]]
) -> None:
    overlaps, _ = table(*((name, False) for name in "pqrs"))
    final: dict[str, set[int]] = {}
    for name, hardware in [*steps, *last.items()]:
        final[name] = hardware
        overlaps.claim(name, [found(str(one), f"h{one}") for one in sorted(hardware)])
    owners: dict[str, str] = {}
    for name, places in final.items():
        devices = [found(str(one), f"h{one}") for one in sorted(places)]
        refused = overlaps.claim(name, devices)
        for device in devices:
            if device.name not in refused:
                assert owners.setdefault(device.name, name) == name
    for place, owner in owners.items():
        assert owner == min(name for name, places in final.items() if int(place) in places)
