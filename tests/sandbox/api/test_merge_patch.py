"""JSON Merge Patch: the laws of RFC 7386, and the door that chooses a form of patch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given

from devplug.sandbox.api.mergepatch import merge_patched
from devplug.sandbox.api.objects import same, without_nulls
from devplug.sandbox.api.patching import MERGE_PATCH, STRATEGIC_PATCH, patched
from devplug.sandbox.api.statuses import StatusError
from tests.sandbox.jsons import MAPS

NO_MAP = "json: cannot unmarshal array into Go value of type map[string]interface {}"


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that makes `after`, which has no nulls, of `before`."""
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        held = before.get(key)
        if isinstance(held, dict) and isinstance(value, dict):
            patch[key] = difference(held, value)
        elif key not in before or not same(held, value):
            patch[key] = value
    return patch


def plain(one: dict[str, Any]) -> dict[str, Any]:
    without = without_nulls(one)
    assert isinstance(without, dict)
    return without


@given(MAPS, MAPS)
def test_a_difference_leads_from_one_object_to_the_other(before: Any, after: Any) -> None:
    before, after = plain(before), plain(after)
    assert same(merge_patched(before, difference(before, after)), after)


@given(MAPS, MAPS)
def test_a_second_time_changes_nothing_and_no_input_is_changed(before: Any, patch: Any) -> None:
    untouched = copy.deepcopy([before, patch])
    once = merge_patched(before, patch)
    assert same(merge_patched(once, patch), once)
    assert same(untouched, [before, patch])


@given(MAPS, MAPS)
def test_what_a_patch_does_not_name_stays_and_what_it_names_null_goes(before: Any, patch: Any) -> None:
    merged = merge_patched(before, patch)
    assert all(same(merged[key], before[key]) for key in before.keys() - patch.keys())
    assert not any(key in merged for key, value in patch.items() if value is None)


@given(MAPS)
def test_a_patch_of_nothing_is_what_it_says_without_its_nulls(patch: Any) -> None:
    assert same(merge_patched({}, patch), plain(patch))


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        # RFC 7386, appendix A, as far as targets and patches are maps
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_the_rfc_hold(before: Any, patch: Any, after: Any) -> None:
    assert merge_patched(before, patch) == after
    assert patched(before, f"{MERGE_PATCH}; charset=utf-8", patch, "Pod") == after


@pytest.mark.parametrize(
    ("media_type", "told"),
    [
        (
            MERGE_PATCH,
            f"error decoding patch: {NO_MAP}",
        ),
        (STRATEGIC_PATCH, NO_MAP),
    ],
)
def test_a_patch_that_is_no_map_is_a_bad_request(media_type: str, told: str) -> None:
    with pytest.raises(StatusError) as refused:
        patched({}, media_type, [], "Pod")
    assert (refused.value.code, str(refused.value)) == (400, told)


def test_a_form_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(StatusError) as refused:
        patched({}, "application/apply-patch+yaml", {}, "Pod")
    assert refused.value.code == 415
    assert str(refused.value) == (
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json"
    )
