"""Strategic merge patch: lists merged by their keys, the directives, and the words for a wrong patch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.objects import same, without_nulls
from devplug.sandbox.api.errors import StatusError
from devplug.sandbox.api.patch import STRATEGIC_PATCH, merge_patched, patched
from devplug.sandbox.api.strategicpatch import RULES, rule_of, strategic_patched
from tests.sandbox.jsons import MAPS

NAMES = st.sampled_from("abcdef")
ELEMENTS = st.dictionaries(NAMES, st.fixed_dictionaries({}, optional={"image": st.sampled_from("xyz")}))


def pod(*containers: Any, **meta: Any) -> dict[str, Any]:
    return {"metadata": meta, "spec": {"containers": list(containers)}}


def named(elements: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, **rest} for name, rest in elements.items()]


def containers_of(one: Any) -> list[Any]:
    found = one["spec"]["containers"]
    assert isinstance(found, list)
    return found


@given(ELEMENTS, ELEMENTS)
def test_elements_of_one_name_are_merged_and_the_others_stay(before: Any, change: Any) -> None:
    merged = containers_of(strategic_patched(pod(*named(before)), pod(*named(change)), "Pod"))
    assert {one["name"]: one for one in merged} == {
        name: {"name": name, **before.get(name, {}), **change.get(name, {})} for name in {**before, **change}
    }
    assert len(merged) == len({**before, **change})
    order = [one["name"] for one in merged]
    for row in (list(change), [name for name in before if name not in change]):
        assert [name for name in order if name in row] == row


@given(ELEMENTS, ELEMENTS, st.permutations("abcdef"), st.lists(NAMES, unique=True))
def test_a_second_time_changes_nothing_and_no_input_is_changed(
    before: Any, change: Any, row: Any, deleted: Any
) -> None:
    original = pod(*named(before), finalizers=[*row[:3]])
    kept = {name: rest for name, rest in change.items() if name not in deleted}
    patch: dict[str, Any] = {
        "metadata": {"finalizers": [*row[2:5]], "$deleteFromPrimitiveList/finalizers": [row[5]]},
        "spec": {
            "$setElementOrder/containers": [{"name": name} for name in row],
            "containers": [
                *({"name": name, "$patch": "delete"} for name in deleted),
                *({"name": name, **kept[name]} for name in row if name in kept),
            ],
        },
    }
    untouched = copy.deepcopy([original, patch])
    once = strategic_patched(original, patch, "Pod")
    assert same(strategic_patched(once, patch, "Pod"), once)
    assert same(untouched, [original, patch])
    names = [one["name"] for one in containers_of(once)]
    assert names == [name for name in row if name in (before.keys() | kept.keys()) - set(deleted)] + [
        name for name in before if name not in row
    ]


@given(MAPS, MAPS)
def test_without_rules_and_directives_it_is_a_merge_patch(before: Any, patch: Any) -> None:
    before = without_nulls(before)
    expected = merge_patched(before, patch)
    assert same(without_nulls(strategic_patched(before, patch, "")), expected)


def test_what_kubectl_apply_sends_for_a_changed_container_keeps_what_others_set() -> None:
    held = pod({"name": "c", "image": "old", "terminationMessagePath": "/dev/termination-log"})
    patch: Any = {
        "spec": {
            "$setElementOrder/containers": [{"name": "c"}],
            "containers": [{"name": "c", "image": "new"}],
        }
    }
    assert containers_of(strategic_patched(held, patch, "Pod")) == [
        {"name": "c", "image": "new", "terminationMessagePath": "/dev/termination-log"}
    ]


def test_rules_hold_inside_a_template_as_well() -> None:
    held: Any = {"spec": {"template": pod({"name": "c", "env": [{"name": "A", "value": "1"}]})}}
    patch: Any = {"spec": {"template": pod({"name": "c", "env": [{"name": "B", "value": "2"}]})}}
    merged: Any = strategic_patched(held, patch, "DaemonSet")
    assert containers_of(merged["spec"]["template"])[0]["env"] == [
        {"name": "B", "value": "2"},
        {"name": "A", "value": "1"},
    ]


def test_a_list_without_a_rule_is_replaced() -> None:
    held: Any = {"spec": {"tolerations": [{"key": "a"}, {"key": "b"}]}}
    patch: Any = {"spec": {"tolerations": [{"key": "c"}]}}
    assert strategic_patched(held, patch, "Pod") == patch


def test_metadata_has_its_rules_in_kinds_that_have_no_others() -> None:
    held: Any = {"metadata": {"finalizers": ["a/b"]}}
    merged = strategic_patched(held, {"metadata": {"finalizers": ["c/d"]}}, "ConfigMap")
    assert sorted(merged["metadata"]["finalizers"]) == ["a/b", "c/d"]  # type: ignore[index]


def test_a_condition_is_replaced_by_its_type() -> None:
    held: Any = {"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "PIDPressure"}]}}
    patch: Any = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    assert strategic_patched(held, patch, "Node") == {
        "status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "PIDPressure"}]}
    }


@pytest.mark.parametrize(
    ("patch", "after"),
    [
        ({"labels": {"$patch": "replace", "b": "2"}}, {"labels": {"b": "2"}}),
        ({"labels": {"$patch": "delete"}}, {"labels": {}}),
        ({"labels": None}, {}),
        ({"annotations": {"$patch": "delete"}}, {"labels": {"a": "1"}}),
        ({"$patch": "replace", "name": "n"}, {"name": "n"}),
        ({"$retainKeys": ["name"], "name": "n"}, {"name": "n"}),
    ],
)
def test_directives_for_maps_do_what_they_say(patch: Any, after: Any) -> None:
    held: Any = {"metadata": {"labels": {"a": "1"}}}
    assert strategic_patched(held, {"metadata": patch}, "Pod") == {"metadata": after}


@pytest.mark.parametrize(
    ("held", "patch", "after"),
    [
        ({}, {"$setElementOrder/containers": [{"name": "a"}]}, {}),
        (
            {"containers": [{"name": "a"}, {"name": "b"}]},
            {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]},
            {"containers": [{"name": "b"}, {"name": "a"}]},
        ),
        (
            {},
            {
                "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [
                    {"name": "b", "image": None},
                    {"name": "c", "$patch": "delete"},
                    {"name": "a"},
                ],
            },
            {"containers": [{"name": "b"}, {"name": "a"}]},
        ),
        ({"podCIDRs": ["a"]}, {"$deleteFromPrimitiveList/podCIDRs": None}, {}),
        ({"podCIDRs": ["a", "b"]}, {"$deleteFromPrimitiveList/podCIDRs": ["a", "c"]}, {"podCIDRs": ["b"]}),
    ],
)
def test_an_order_and_a_deletion_are_for_what_is_there(held: Any, patch: Any, after: Any) -> None:
    assert strategic_patched({"spec": held}, {"spec": patch}, "Pod") == {"spec": after}
    assert patched({"spec": held}, STRATEGIC_PATCH, {"spec": patch}, "Pod") == {"spec": after}


def test_a_directive_can_replace_a_merged_list() -> None:
    merged = strategic_patched(pod({"name": "a"}), pod({"$patch": "replace"}, {"name": "b"}), "Pod")
    assert containers_of(merged) == [{"name": "b"}]


def test_retained_keys_let_a_volume_change_its_source() -> None:
    held: Any = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    change = {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/dev"}}
    merged = strategic_patched(held, {"spec": {"volumes": [change]}}, "Pod")
    assert merged == {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/dev"}}]}}


@pytest.mark.parametrize(
    ("patch", "code", "told"),
    [
        (pod({"image": "x"}), 500, "map: map[image:x] does not contain declared merge key: name"),
        (
            {"spec": {"nodeSelector": {"$patch": "jump", "a": True}}},
            500,
            "unknown patch type: jump in map: map[$patch:jump a:true]",
        ),
        (pod({"name": "a", "$patch": "merge"}), 500, "merging lists cannot yet be specified in the patch"),
        (
            pod({"name": "a", "$patch": None}),
            500,
            "unknown patch type: <nil> in map: map[$patch:<nil> name:a]",
        ),
        (
            {"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": "a"}},
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            {"spec": {"$setElementOrder/containers": ["a"], "containers": [{"name": "a"}]}},
            500,
            "expected a map[string]interface {}, but received a string",
        ),
        ({"spec": {"$retainKeys": ["a"], "b": 1}}, 400, "invalid patch format of retainKeys"),
        ({"spec": {"$retainKeys": "a"}}, 400, "invalid patch format of retainKeys"),
        ({"spec": {"$setElementOrder": []}}, 400, "invalid patch format of setElementOrder list"),
        ({"spec": {"$deleteFromPrimitiveListX": []}}, 400, "invalid patch format of primitive list"),
        (
            {"spec": {"$setElementOrder/containers": 1}},
            500,
            "expected a []interface {}, but received a int64",
        ),
        ({"metadata": {"finalizers": [1, "a"]}}, 500, "list element types are not identical: [[f 1 a]]"),
        (
            {"metadata": {"finalizers": [[]]}},
            422,
            "the server rejected our request due to an error in our request",
        ),
        (
            {"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}},
            500,
            "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
        ),
    ],
)
def test_a_wrong_patch_is_refused_in_the_server_s_words(patch: Any, code: int, told: str) -> None:
    held: dict[str, Any] = {**pod({"name": "a"}, finalizers=["f"])}
    held["spec"]["nodeSelector"] = {}
    with pytest.raises(StatusError) as refused:
        strategic_patched(held, patch, "Pod")
    assert (refused.value.code, str(refused.value)) == (code, told)


def test_maps_in_a_list_of_plain_values_cannot_be_merged() -> None:
    held: Any = {"spec": {"podCIDRs": []}}
    with pytest.raises(StatusError) as refused:
        strategic_patched(held, {"spec": {"podCIDRs": [{}]}}, "Node")
    assert str(refused.value) == "cannot merge lists without merge key for it"


def test_each_type_that_a_rule_names_is_in_the_table_or_has_no_rules() -> None:
    named_types = {rule.type for rules in RULES.values() for rule in rules.values()} - {""}
    assert named_types <= RULES.keys()
    assert rule_of("ConfigMap", "metadata").type == "ObjectMeta"
    assert rule_of("", "metadata").type == ""


def test_a_merge_of_large_lists_takes_no_quadratic_time() -> None:
    """A comparison of each element with each other would take an hour."""
    before = [f"a{one}" for one in range(60_000)]
    change = [f"b{one}" for one in range(60_000)]
    result: Any = strategic_patched({"finalizers": before}, {"finalizers": change}, "ObjectMeta")
    assert sorted(result["finalizers"]) == sorted(before + change)
    named: Any = [{"name": f"v{one}"} for one in range(60_000)]
    result = strategic_patched({"volumes": named}, {"volumes": named[::-1]}, "PodSpec")
    assert result["volumes"] == named[::-1]
