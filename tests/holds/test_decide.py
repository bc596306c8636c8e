"""Which resource offers which hardware: its holder's, else the first that finds it, and never two."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.holds.decide import Face, Findings, Found, Hold, Listing, decide
from devplug.holds.hardware import Hardware, Use

A = Hardware("0403:6001@1", "0403:6001:A", is_whole=True)
B = Hardware("0403:6001@2", "0403:6001:B", is_whole=True)
A_AT_2 = Hardware("0403:6001@2", "0403:6001:A", is_whole=True)


def use(name: str, hardware: Hardware | None, *numbers: str, is_shared: bool = False) -> Use:
    return Use(name, hardware, numbers, is_shared=is_shared)


def reasons(
    *listings: Listing, holds: tuple[Hold, ...] = (), twins: tuple[str, ...] = ()
) -> dict[str, dict[str, str]]:
    decision = decide(Findings(listings), holds, twins)
    return {
        face.resource_name: {name: one.reason for name, one in withheld.items()}
        for face, withheld in decision.withheld.items()
    }


def test_the_first_resource_of_the_configuration_offers_hardware() -> None:
    found = reasons(Listing("p", [Found("x", A, ("n1",))]), Listing("q", [Found("y", None, ("n1",))]))
    assert found == {"q": {"y": "belongs to p"}}


def test_resources_that_both_share_offer_the_same_hardware() -> None:
    both = [Listing(name, [Found("x", A, ("n1",))], is_shared=True) for name in "pq"]
    assert reasons(*both) == {}


def test_a_held_device_is_withheld_by_every_other_resource() -> None:
    hold = Hold("q", "y", use("y", A, "n1"), holder="default/pod")
    found = reasons(
        Listing("p", [Found("x", A, ("n1",))]), Listing("q", [Found("y", A, ("n1",))]), holds=(hold,)
    )
    assert found == {"p": {"x": "held as q y by default/pod"}}


def test_a_hold_of_a_resource_that_is_gone_counts() -> None:
    hold = Hold("old", "y", use("y", A))
    assert reasons(Listing("p", [Found("x", A, ("n7",))]), holds=(hold,)) == {"p": {"x": "held as old y"}}


def test_a_renamed_device_keeps_the_name_under_which_it_is_held() -> None:
    decision = decide(Findings([Listing("p", [Found("new", A)])]), [Hold("p", "old", use("old", A))])
    assert (decision.names, decision.withheld) == ({Face("p"): {"new": "old"}}, {})


def test_other_hardware_with_a_held_name_has_its_place_in_its_name() -> None:
    decision = decide(Findings([Listing("p", [Found("x", B)])]), [Hold("p", "x", use("x", A))])
    assert decision.names == {Face("p"): {"x": f"x@{B.place}"}}
    assert decision.withheld == {}


@pytest.mark.parametrize("name", [A.serial, A.place, f"{A.serial}::1", "other"])
def test_default_id_of_a_hold_without_hardware_is_known_in_another_resource(name: str) -> None:
    holds = (Hold("gone", name),)
    listings = [Listing("gone"), Listing("p", [Found("other", A, ("n1",))])]
    assert reasons(*listings, holds=holds) == {"p": {"other": f"held as gone {name}"}}


def test_moved_hardware_with_a_serial_number_keeps_its_hold() -> None:
    decision = decide(Findings([Listing("p", [Found("new", A_AT_2)])]), [Hold("p", "old", use("old", A))])
    assert decision.names == {Face("p"): {"new": "old"}}


def test_a_twin_at_another_place_is_other_hardware() -> None:
    twins = (A.serial,)
    decision = decide(
        Findings([Listing("p", [Found("new", A_AT_2)])]), [Hold("p", "old", use("old", A))], twins
    )
    assert (decision.names, decision.withheld) == ({}, {})


def test_a_device_number_that_a_container_may_open_is_withheld() -> None:
    found = reasons(
        Listing("p", [Found("b", B, ("char 188:0",))]), holds=(Hold("p", "a", use("a", A, "char 188:0")),)
    )
    assert found == {"p": {"b": "held as p a"}}


def test_a_number_to_which_a_held_path_leads_is_withheld() -> None:
    hold = Hold("p", "a", use("a", None), leads_to=("char 188:5",))
    assert reasons(Listing("p", [Found("b", B, ("char 188:5",))]), holds=(hold,)) == {
        "p": {"b": "held as p a"}
    }


def test_a_part_of_held_hardware_is_withheld() -> None:
    tty = Hardware(f"{A.place}.ttyUSB0", f"{A.serial}.ttyUSB0")
    whole = Hold("p", "a", use("a", A, "char 188:0"))
    found = reasons(
        Listing("p", [Found("a", A, ("char 188:3",))]),
        Listing("q", [Found("t", tty, ("char 188:3",))]),
        holds=(whole,),
    )
    assert found == {"q": {"t": "held as p a"}}
    gone = reasons(Listing("q", [Found("t", tty)]), holds=(Hold("q", "t", use("t", tty)), whole))
    assert gone == {}


def test_what_two_devices_of_a_resource_share_belongs_to_neither() -> None:
    both = [Found("a", A, ("control", "n1")), Found("b", B, ("control", "n2"))]
    hold = Hold("p", "a", use("a", A, "n1"))
    assert reasons(Listing("p", both), Listing("q", [Found("c", None, ("control",))]), holds=(hold,)) == {}


# ── every situation, against what the rules say of pieces of hardware ──

PIECES = [Hardware(f"port{number}", f"serial{number}") for number in range(4)]
Situation: TypeAlias = "tuple[dict[str, tuple[bool, dict[int, str]]], dict[int, tuple[str, str, bool]]]"
"""What each resource finds: the names of pieces; and who holds a piece: resource, name, whether shared."""

NAMES = st.sampled_from(["a", "b", "c", "d"])
FOUND = st.dictionaries(st.integers(0, 3), NAMES, max_size=4).map(
    lambda names: {
        piece: name
        for piece, name in names.items()
        if list(names.values()).index(name) == list(names).index(piece)
    }
)
RESOURCES = st.fixed_dictionaries({name: st.tuples(st.booleans(), FOUND) for name in "pqr"})
HOLDS = st.dictionaries(
    st.integers(0, 3), st.tuples(st.sampled_from(["p", "q", "r", "gone"]), NAMES, st.booleans()), max_size=4
)


@given(RESOURCES, HOLDS)
def test_each_piece_of_hardware_has_one_offer_or_one_holder(
    resources: dict[str, tuple[bool, dict[int, str]]], holds: dict[int, tuple[str, str, bool]]
) -> None:
    listings = [
        Listing(
            name, [Found(called, PIECES[piece], (f"n{piece}",)) for piece, called in found.items()], is_shared
        )
        for name, (is_shared, found) in resources.items()
    ]
    once = {(resource, name): piece for piece, (resource, name, _) in holds.items()}
    holds = {piece: hold for piece, hold in holds.items() if once[hold[:2]] == piece}
    decision = decide(
        Findings(listings),
        [
            Hold(resource, name, use(name, PIECES[piece], f"n{piece}", is_shared=is_shared))
            for piece, (resource, name, is_shared) in holds.items()
        ],
    )
    for piece in range(len(PIECES)):
        offers = []
        for name, (is_shared, found) in resources.items():
            if piece in found and found[piece] not in decision.withheld_of(Face(name)):
                offers.append(
                    (name, is_shared, decision.names_of(Face(name)).get(found[piece], found[piece]))
                )
        if piece in holds:
            resource, held_name, may_share = holds[piece]
            for name, is_shared, called in offers:
                assert (name, called) == (resource, held_name) or (is_shared and may_share)
            if resource in resources and piece in resources[resource][1]:
                assert (resource, resources[resource][0], held_name) in offers
        else:
            assert len(offers) <= 1 or all(is_shared for _, is_shared, _ in offers)
            finders = [name for name, (_, found) in resources.items() if piece in found]
            # A name may be held for hardware that only other resources find.
            held_pieces = {(resource, name): one for one, (resource, name, _) in holds.items()}
            elsewhere = {
                name
                for name in finders
                if (held := held_pieces.get((name, resources[name][1][piece]))) is not None
                and held not in resources[name][1]
                and any(held in found for _, found in resources.values())
            }
            free = [name for name in finders if name not in elsewhere]
            assert bool(offers) == bool(free)
            if free:
                assert offers[0][0] == free[0]
    for name, (_, found) in resources.items():
        renamed, withheld = decision.names_of(Face(name)), decision.withheld_of(Face(name))
        names = [renamed.get(one, one) for one in found.values() if one not in withheld]
        assert len(names) == len(set(names))
