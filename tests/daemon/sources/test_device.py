"""IDs of devices: what they say of themselves, their places where that is said twice, and never a change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.config.templates import parse_template
from devplug.daemon.sources.device import wanted_name
from devplug.devices import device_id_fault
from devplug.holds.names import Names, Wanted


def stick(place: str, serial: str = "S") -> Wanted:
    return Wanted(f"/sys/{place}", f"v:p:{serial}", f"v:p@{place}")


ALONE = [stick("1")], {"/sys/1": "v:p:S"}
TWINS = [stick("1"), stick("2")], {"/sys/1": "v:p@1", "/sys/2": "v:p@2"}
ONE_BEFORE_THE_OTHER = [stick("1"), stick("2")], {"/sys/1": "v:p@1", "/sys/2": "v:p:S"}


@pytest.mark.parametrize(
    "looks",
    [
        [ALONE],
        [TWINS, ([stick("1")], {"/sys/1": "v:p@1"})],
        [
            ([stick("2")], {"/sys/2": "v:p:S"}),
            ONE_BEFORE_THE_OTHER,
            ([stick("1")], {"/sys/1": "v:p@1"}),
            ONE_BEFORE_THE_OTHER,
        ],
        [ALONE, ([stick("7")], {"/sys/7": "v:p:S"})],
        [ALONE, ([stick("1", "T")], {"/sys/1": "v:p:T"})],
        [ALONE, ([stick("2")], {"/sys/2": "v:p:S"}), ONE_BEFORE_THE_OTHER],
    ],
    ids=[
        "what it says of itself",
        "by their places, if two say the same, and stay so when one is unplugged",
        "as before when a twin comes, and again after a re-plug beside it",
        "the same in another place",
        "otherwise if another is in the same place",
        "by its place if another was given its name meanwhile",
    ],
)
def test_a_device_is_called(looks: list[tuple[list[Wanted], dict[str, str]]]) -> None:
    names = Names()
    for seen, called in looks:
        assert names.assign(seen) == called


def test_a_device_that_imitates_anothers_place_does_not_get_its_name() -> None:
    names = Names()
    names.assign([Wanted("/sys/2", "v:p@2", "v:p@2")])
    found = names.assign([Wanted("/sys/1", "v:p@2", "v:p@1"), Wanted("/sys/2", "v:p@2", "v:p@2")])
    assert found == {"/sys/1": "v:p@1", "/sys/2": "v:p@2"}


def test_a_place_that_two_claim_is_told_apart_by_their_hardware() -> None:
    found = Names().assign([Wanted("/a", "same", "same"), Wanted("/b", "same", "same")])
    assert len(set(found.values())) == 2


def test_the_default_stands_in_for_a_template_that_lacks_a_fact() -> None:
    template = parse_template("{serial}-x")
    assert wanted_name(template, {"serial": "A1"}, "place") == "A1-x"
    assert wanted_name(template, {"serial": ""}, "place") == "place"
    assert wanted_name(None, {"serial": "A1"}, "place") == "place"


ANYTHING = st.text(max_size=4) | st.sampled_from(["a", "b", "a@b"])
LOOKS = st.lists(
    st.dictionaries(st.sampled_from("abcd"), st.tuples(ANYTHING, ANYTHING), max_size=4),
    min_size=1,
    max_size=8,
)


@given(LOOKS)
def test_ids_are_unique_and_valid_and_stay_whatever_devices_say(
    looks: list[dict[str, tuple[str, str]]],
) -> None:
    names = Names()
    before: dict[str, tuple[Wanted, str]] = {}
    for look in looks:
        wanted = {place: Wanted(place, said, where) for place, (said, where) in look.items()}
        found = names.assign(reversed(wanted.values()))
        assert found.keys() == wanted.keys()
        assert len(set(found.values())) == len(found)
        assert not [fault for name in found.values() if (fault := device_id_fault(name))]
        for place, (was_wanted, name) in before.items():
            if wanted.get(place) == was_wanted:
                assert found[place] == name
        before = {place: (wanted[place], name) for place, name in found.items()}
