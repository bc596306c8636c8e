"""JSON Patch and JSON Merge Patch: the RFCs, the API server's own ways, and the choice of a form of patch."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.objects import same, without_nulls
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.patch import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    json_patched,
    merge_patched,
    patched,
)
from tests.sandbox.jsons import MAPS, VALUES


def difference(before: Any, after: Any, path: str = "") -> list[dict[str, Any]]:
    """The operations that make `after` of `before`: fields and elements one by one, and all else replaced."""
    if isinstance(before, dict) and isinstance(after, dict):
        operations = []
        for key in before.keys() | after.keys():
            place = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in after:
                operations.append({"op": "remove", "path": place})
            elif key not in before:
                operations.append({"op": "add", "path": place, "value": after[key]})
            else:
                operations += difference(before[key], after[key], place)
        return operations
    if isinstance(before, list) and isinstance(after, list):
        operations = [
            operation
            for place, (old, new) in enumerate(zip(before, after, strict=False))
            for operation in difference(old, new, f"{path}/{place}")
        ]
        operations += [{"op": "remove", "path": f"{path}/-1"}] * (len(before) - len(after))
        return operations + [{"op": "add", "path": f"{path}/-", "value": one} for one in after[len(before) :]]
    if same(before, after):
        return []
    return [{"op": "replace", "path": path, "value": after}]


@given(MAPS, MAPS)
def test_a_difference_leads_from_one_object_to_the_other_and_back(before: Any, after: Any) -> None:
    untouched = copy.deepcopy((before, after))
    assert same(json_patched(before, difference(before, after)), after)
    assert same(json_patched(after, difference(after, before)), before)
    assert same(list(untouched), [before, after])


@given(st.lists(VALUES, max_size=4), VALUES, st.data())
def test_what_is_added_to_a_list_stands_there_and_its_removal_undoes_it(
    before: list[Any], value: Any, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(before)))
    step = data.draw(st.sampled_from([str(place)] + (["-", "-1"] if place == len(before) else [])))
    added: Any = json_patched({"l": before}, [{"op": "add", "path": f"/l/{step}", "value": value}])
    assert same(added["l"], [*before[:place], value, *before[place:]])
    taken = json_patched(added, [{"op": "remove", "path": f"/l/{place}"}])
    assert same(taken, {"l": before})


@given(MAPS)
def test_a_move_there_and_back_changes_nothing_and_a_copy_leaves_the_original(one: Any) -> None:
    held = {"here": one}
    there = {"op": "move", "from": "/here", "path": "/there"}
    back = {"op": "move", "from": "/there", "path": "/here"}
    assert same(json_patched(held, [there]), {"there": one})
    assert same(json_patched(held, [there, back]), held)
    assert same(
        json_patched(held, [{"op": "copy", "from": "/here", "path": "/there"}]), {**held, "there": one}
    )


@given(MAPS, VALUES, VALUES)
def test_a_test_passes_just_when_the_values_are_equal_as_json(
    one: dict[str, Any], held: Any, asked: Any
) -> None:
    operation = {"op": "test", "path": "/held", "value": asked}
    document = {**one, "held": held}
    if same(held, asked):
        assert same(json_patched(document, [operation]), document)
    else:
        with pytest.raises(StatusError) as refused:
            json_patched(document, [operation])
        assert refused.value.why == "test operation does not apply: testing value /held failed: test failed"


def test_the_patch_of_the_recorded_widget_session_adds_and_removes_the_resource() -> None:
    node: Any = {"kind": "Node", "status": {"capacity": {"cpu": "2"}}}
    path = "/status/capacity/kkloud.io~1widget"
    with_widget = patched(node, JSON_PATCH, [{"op": "add", "path": path, "value": "2"}], "Node")
    assert with_widget["status"] == {"capacity": {"cpu": "2", "kkloud.io/widget": "2"}}
    assert patched(with_widget, JSON_PATCH, [{"op": "remove", "path": path}], "Node") == node


def test_a_replace_makes_the_field_that_is_not_there() -> None:
    assert json_patched({}, [{"op": "replace", "path": "/a", "value": 1}]) == {"a": 1}


def test_a_value_is_moved_from_deep_inside() -> None:
    operation = {"op": "move", "from": "/l/1/x", "path": "/y"}
    assert json_patched({"l": [0, {"x": 7}]}, [operation]) == {"l": [0, {}], "y": 7}


def test_a_patch_that_leaves_no_object_is_refused() -> None:
    with pytest.raises(StatusError) as refused:
        patched({"a": 1}, JSON_PATCH, [{"op": "replace", "path": "", "value": [1]}], "Pod")
    assert refused.value.code == 422


def test_a_replace_of_everything_takes_a_map_or_a_list_only() -> None:
    assert json_patched({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}]) == {"b": 2}
    with pytest.raises(StatusError):
        json_patched({"a": 1}, [{"op": "replace", "path": "", "value": 2}])


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ({"op": "remove", "path": "/x"}, "Unable to remove nonexistent key: x: missing value"),
        ({"op": "add", "path": "/x/y", "value": 1}, "doc is missing x: missing value"),
        ({"op": "add", "path": "/s/y", "value": 1}, "doc is missing s: missing value"),
        ({"op": "add", "path": "", "value": 1}, 'doc is missing path: "": missing value'),
        ({"op": "add", "value": 1}, "operation missing path field: missing value"),
        (
            {"op": "add", "path": "/l/3", "value": 1},
            "Unable to access invalid index: 3: invalid index referenced",
        ),
        (
            {"op": "add", "path": "/l/-4", "value": 1},
            "Unable to access invalid index: -4: invalid index referenced",
        ),
        ({"op": "remove", "path": "/l/2"}, "Unable to access invalid index: 2: invalid index referenced"),
        ({"op": "replace", "path": "/l/-", "value": 1}, "value was not a proper array index: '-'"),
        ({"op": "add", "path": "/l/٣", "value": 1}, "value was not a proper array index: '٣'"),
        ({"op": "move", "from": "/x", "path": "/y"}, "Unable to remove nonexistent key: x: missing value"),
        ({"op": "remove", "path": "/s/y"}, "doc is missing s: missing value"),
        ({"op": "copy", "from": "/s/y", "path": "/z"}, "doc is missing y: missing value"),
        ({"op": "move", "path": "/y"}, "operation missing from field: missing value"),
    ],
)
def test_what_does_not_fit_is_refused_and_only_the_log_learns_why(
    operation: dict[str, Any], why: str
) -> None:
    document = {"l": [1, 2], "s": "text"}
    with pytest.raises(StatusError) as refused:
        json_patched(document, [{"op": "add", "path": "/done", "value": 1}, operation])
    assert refused.value.status["code"] == 422
    assert refused.value.status["reason"] == "Invalid"
    assert str(refused.value) == "the server rejected our request due to an error in our request"
    assert refused.value.why == f"{operation['op']} operation does not apply: {why}"
    assert document == {"l": [1, 2], "s": "text"}


def test_an_operation_that_is_none_is_refused() -> None:
    with pytest.raises(StatusError) as refused:
        json_patched({}, [{"op": "jump", "path": "/a"}])
    assert refused.value.why == "Unexpected kind: jump"


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        ({"op": "add"}, "cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        ("x", "cannot unmarshal string into Go value of type []handlers.jsonPatchOp"),
        ([1], "cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
        (
            [{"op": "add", "path": 1}],
            "cannot unmarshal number into Go struct field jsonPatchOp.path of type string",
        ),
    ],
)
def test_what_is_no_list_of_operations_is_a_bad_request(patch: Any, told: str) -> None:
    with pytest.raises(StatusError) as refused:
        json_patched({}, patch)
    assert refused.value.code == 400
    assert str(refused.value) == f"error decoding patch: json: {told}"


def test_more_operations_than_the_server_takes_are_refused_by_number() -> None:
    with pytest.raises(StatusError) as refused:
        json_patched({}, [{"op": "add", "path": "/a", "value": 1}] * 10_001)
    assert refused.value.code == 413
    assert str(refused.value) == (
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    )


def test_copies_of_a_map_into_itself_are_bounded() -> None:
    """Each copy doubles the map; the API server limits copies to 3 MiB (AccumulatedCopySizeLimit)."""
    annotations = {"op": "add", "path": "/annotations", "value": {"a": "x" * 10}}
    copies = [{"op": "copy", "from": "/annotations", "path": f"/annotations/k{one}"} for one in range(64)]
    with pytest.raises(StatusError) as refused:
        json_patched({}, [annotations, *copies])
    assert refused.value.code == 422
    assert re.fullmatch(
        "Unable to complete the copy, the accumulated size increase of copy is [0-9]{7,8}, "
        "exceeding the limit 3145728",
        refused.value.why,
    )


@given(MAPS, st.integers(1, 8))
def test_copies_below_the_limit_are_whole(one: Any, count: int) -> None:
    copies = [{"op": "copy", "from": "/here", "path": f"/c{place}"} for place in range(count)]
    expected = {"here": one} | {f"c{place}": one for place in range(count)}
    assert same(json_patched({"here": one}, copies), expected)


def test_a_change_of_a_copy_leaves_the_original() -> None:
    operations = [
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/b/x", "value": 1},
        {"op": "add", "path": "/a/y", "value": 2},
    ]
    assert json_patched({"a": {}}, operations) == {"a": {"y": 2}, "b": {"x": 1}}


def test_a_patch_of_many_operations_on_a_large_list_is_quick() -> None:
    """A copy of the list at each operation would take a minute."""
    original = {"l": ["x"] * 200_000}
    operations = [{"op": "replace", "path": "/l/7", "value": one} for one in range(10_000)]
    result: Any = json_patched(original, operations)
    assert (result["l"][7], original["l"][7]) == (9_999, "x")


@pytest.mark.parametrize("media_type", [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH])
def test_patches_make_no_object_of_more_elements_than_a_body(media_type: str) -> None:
    more: Any = ["x"] * 200_000
    patch = [{"op": "add", "path": "/m", "value": more}] if media_type == JSON_PATCH else {"m": more}
    with pytest.raises(StatusError) as refused:
        patched({"l": more}, media_type, patch, "Pod")
    assert refused.value.code == 413


def test_moves_make_no_object_deeper_than_a_body() -> None:
    operations = []
    for name in map(str, range(20)):
        deep: Any = {}
        for _ in range(150):
            deep = {"a": deep}
        operations += [
            {"op": "add", "path": f"/{name}", "value": deep},
            {"op": "move", "from": "/last", "path": f"/{name}{'/a' * 150}/a"},
            {"op": "move", "from": f"/{name}", "path": "/last"},
        ]
    with pytest.raises(StatusError) as refused:
        patched({"last": {}}, JSON_PATCH, operations, "Pod")
    assert refused.value.why == "exceeded max depth"


NO_MAP = "json: cannot unmarshal array into Go value of type map[string]interface {}"


def merge_patch_between(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that makes `after`, which has no nulls, of `before`."""
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        held = before.get(key)
        if isinstance(held, dict) and isinstance(value, dict):
            patch[key] = merge_patch_between(held, value)
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
    assert same(merge_patched(before, merge_patch_between(before, after)), after)


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
    ("media_type", "told"), [(MERGE_PATCH, f"error decoding patch: {NO_MAP}"), (STRATEGIC_PATCH, NO_MAP)]
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
