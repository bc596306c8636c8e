"""IDs of devices: what they say of themselves, their places where that is said twice, and never a change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.config.templates import parse_template
from devplug.daemon.sources.device import Names, Wanted, wanted_name
from devplug.devices import device_id_fault


def stick(place: str, serial: str = "S") -> Wanted:
    return Wanted(f"/sys/{place}", f"v:p:{serial}", f"v:p@{place}")


def test_a_device_is_called_what_it_says_of_itself() -> None:
    assert Names().assign([stick("1")]) == {"/sys/1": "v:p:S"}


def test_two_that_say_the_same_are_called_by_their_places() -> None:
    names = Names()
    assert names.assign([stick("1"), stick("2")]) == {"/sys/1": "v:p@1", "/sys/2": "v:p@2"}
    assert names.is_ambiguous("v:p:S")
    assert not names.is_ambiguous("v:p:T")


def test_one_that_was_alone_keeps_its_name_when_a_twin_comes() -> None:
    names = Names()
    names.assign([stick("2")])
    assert names.assign([stick("1"), stick("2")]) == {"/sys/1": "v:p@1", "/sys/2": "v:p:S"}


def test_the_one_that_was_alone_has_its_name_again_after_a_re_plug_beside_its_twin() -> None:
    names = Names()
    names.assign([stick("2")])
    names.assign([stick("1"), stick("2")])
    names.assign([stick("1")])
    assert names.assign([stick("1"), stick("2")])["/sys/2"] == "v:p:S"


def test_twins_stay_called_by_their_places_when_one_is_unplugged() -> None:
    names = Names()
    names.assign([stick("1"), stick("2")])
    assert names.assign([stick("1")]) == {"/sys/1": "v:p@1"}


def test_a_device_keeps_its_name_in_another_place() -> None:
    names = Names()
    names.assign([stick("1")])
    assert names.assign([stick("7")]) == {"/sys/7": "v:p:S"}


def test_another_device_in_the_same_place_has_a_name_of_its_own() -> None:
    names = Names()
    names.assign([stick("1", "S")])
    assert names.assign([stick("1", "T")]) == {"/sys/1": "v:p:T"}


def test_a_name_that_another_was_given_meanwhile_is_not_given_twice() -> None:
    names = Names()
    names.assign([stick("1")])
    names.assign([stick("2")])
    assert names.assign([stick("1"), stick("2")]) == {"/sys/1": "v:p@1", "/sys/2": "v:p:S"}


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
