"""ResourceSlices: what the API server takes, refuses and stores of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.k8s.objects import with_part
from devplug.k8s.quantity import Quantity
from devplug.sandbox.api.errors import StatusError
from tests.sandbox.resource.writes import SLICES, Cluster, devices_of_node, refusals, update_refusals

DEVICE = "spec.devices[0]"
MANY = st.integers(0, 200)


def of_device(**fields: Any) -> list[tuple[str, str]]:
    return refusals(SLICES, devices_of_node([{"name": "d0", **fields}]))


def named(count: int) -> list[dict[str, Any]]:
    return [{"name": f"d{number}"} for number in range(count)]


@pytest.mark.parametrize(
    ("choice", "fields"),
    [
        ({"nodeName": "n1"}, []),
        ({"nodeName": None, "allNodes": True}, []),
        ({"nodeName": None}, ["spec"]),
        ({"nodeName": ""}, ["spec.nodeName", "spec"]),
        ({"allNodes": True}, ["spec"]),
        ({"allNodes": False}, ["spec.allNodes"]),
        (
            {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": []}},
            ["spec.nodeSelector.nodeSelectorTerms"] * 2,
        ),
    ],
)
def test_a_slice_says_in_one_way_which_nodes_can_use_it(choice: Any, fields: list[str]) -> None:
    """D41."""
    assert [field for field, _ in refusals(SLICES, devices_of_node(**choice))] == fields


def test_a_slice_has_devices_or_counters() -> None:
    """D41."""
    counters = [{"name": "set", "counters": {"memory": {"value": "1Gi"}}}]
    both = devices_of_node(sharedCounters=counters)
    assert refusals(SLICES, both) == [
        ("spec", 'Invalid value: "": only one of `sharedCounters` or `devices` is allowed')
    ]
    assert refusals(SLICES, devices_of_node(sharedCounters=[])) != []
    del both["spec"]["devices"]
    assert refusals(SLICES, both) == []


@pytest.mark.parametrize(
    ("path", "value"), [(("driver",), "other.example.com"), (("pool", "name"), "n2"), (("nodeName",), "n2")]
)
def test_the_driver_the_pool_and_the_node_of_a_slice_stay(path: tuple[str, ...], value: str) -> None:
    """D41."""
    found = update_refusals(SLICES, devices_of_node(), value, "spec", *path)
    assert found == [(".".join(("spec", *path)), f'Invalid value: "{value}": field is immutable')]


def test_the_pools_own_generation_may_go_down_while_the_slices_counts_changes() -> None:
    """D41, D50."""
    cluster = Cluster()
    stored = cluster.create(SLICES, devices_of_node())
    assert stored["metadata"]["generation"] == 1
    lower = with_part(stored, 0, "spec", "pool", "generation")
    assert cluster.update(SLICES, lower)["metadata"]["generation"] == 2


@given(
    MANY,
    st.sampled_from([{}, {"taints": [{"key": "a", "effect": "None"}]}, {"allowMultipleAllocations": True}]),
)
def test_a_slice_has_at_most_so_many_devices(count: int, extra: dict[str, Any]) -> None:
    """D42."""
    devices = named(count)
    if devices:
        devices[-1] |= extra
    limit = 64 if "taints" in extra else 128
    found = refusals(SLICES, devices_of_node(devices))
    told = f"Too many: {count}: must have at most {limit} items"
    assert found == ([("spec.devices", told)] if count > limit else [])


@given(st.integers(0, 40), st.integers(0, 40))
def test_attributes_and_capacities_are_counted_together(attributes: int, capacities: int) -> None:
    """D42."""
    found = of_device(
        attributes={f"a{number}": {"int": 1} for number in range(attributes)},
        capacity={f"c{number}": {"value": "1"} for number in range(capacities)},
    )
    count = attributes + capacities
    told = f"Invalid value: {count}: the total number of attributes and capacities must not exceed 32"
    assert found == ([(DEVICE, told)] if count > 32 else [])


@pytest.mark.parametrize(
    ("fields", "place", "limit"),
    [
        ({"taints": [{"key": "a", "effect": "None"}] * 17}, "taints", 16),
        (
            {"consumesCounters": [{"counterSet": name, "counters": {"c": {"value": "1"}}} for name in "abc"]},
            "consumesCounters",
            2,
        ),
        ({"bindingConditions": list("abcde"), "bindingFailureConditions": ["f"]}, "bindingConditions", 4),
    ],
)
def test_the_lists_of_a_device_have_limits(fields: Any, place: str, limit: int) -> None:
    """D42."""
    told = f"Too many: {limit + 1}: must have at most {limit} items"
    assert of_device(**fields) == [(f"{DEVICE}.{place}", told)]


NAMES = st.text("aB0-_./", max_size=5) | st.sampled_from(["a" * 63, "a" * 64, "a" * 32 + "b"])
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@given(NAMES)
def test_the_names_of_drivers_pools_and_devices_follow_their_rules(name: str) -> None:
    """D43."""
    is_domain = bool(SUBDOMAIN.fullmatch(name.lower())) and len(name) <= 63
    assert (refusals(SLICES, devices_of_node(driver=name)) == []) is is_domain
    is_path = all(SUBDOMAIN.fullmatch(step) for step in name.split("/"))
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    assert (refusals(SLICES, devices_of_node(pool=pool)) == []) is is_path
    assert (refusals(SLICES, devices_of_node([{"name": name}])) == []) is bool(LABEL.fullmatch(name))


@given(NAMES)
def test_an_attribute_is_called_by_an_identifier_with_a_domain_or_without(name: str) -> None:
    """D43, D44."""
    steps = name.split("/")
    is_right = len(steps) > 2 or bool(re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,31}", steps[-1]))
    if len(steps) == 2:
        is_right &= bool(SUBDOMAIN.fullmatch(steps[0].lower())) and len(steps[0]) <= 63
    assert (of_device(attributes={name: {"int": 1}}) == []) is is_right


@given(
    st.fixed_dictionaries(
        {}, optional={"int": st.integers(-5, 5), "bool": st.booleans(), "string": st.sampled_from(["", "x"])}
    )
)
def test_an_attribute_has_exactly_one_value_which_may_be_zero(attribute: dict[str, Any]) -> None:
    """D45."""
    found = of_device(attributes={"a": attribute})
    assert [message.endswith("exactly one value must be specified") for _, message in found] == (
        [] if len(attribute) == 1 else [True]
    )


VERSIONS = st.from_regex(r"[0-9]{1,2}(\.[0-9]{1,2}){1,3}(-[a-z0-9.]{0,4})?(\+[a-z.]{0,3})?", fullmatch=True)
STRICT = re.compile(
    r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}"
    r"(-(0|[1-9]\d*|\d*[a-z-][0-9a-z-]*)(\.(0|[1-9]\d*|\d*[a-z-][0-9a-z-]*))*)?(\+[0-9a-z-]+(\.[0-9a-z-]+)*)?"
)


@given(VERSIONS)
def test_a_version_is_strict(version: str) -> None:
    """D45."""
    assert (of_device(attributes={"a": {"version": version}}) == []) is bool(STRICT.fullmatch(version))


def test_a_list_of_values_is_dropped_and_leaves_no_value() -> None:
    """D49."""
    assert of_device(attributes={"a": {"strings": ["x"]}}) == [
        (f"{DEVICE}.attributes[a]", 'Invalid value: "": exactly one value must be specified')
    ]


SIZES = st.integers(0, 12)


@given(SIZES, SIZES, st.none() | SIZES, st.none() | st.integers(1, 5), SIZES)
def test_a_range_of_requests_lies_in_the_capacity_and_on_its_grid(
    low: int, default: int, high: int | None, step: int | None, whole: int
) -> None:
    """D47."""
    limits = {"min": low, "max": high, "step": step}
    policy = {
        "default": f"{default}Gi",
        "validRange": {word: f"{value}Gi" for word, value in limits.items() if value is not None},
    }
    found = of_device(
        allowMultipleAllocations=True, capacity={"m": {"value": f"{whole}Gi", "requestPolicy": policy}}
    )
    top = whole if high is None else high
    is_right = low <= default <= top <= whole if high is not None else low <= default and low <= whole
    if step is not None:
        on_grid = [(one - low) % step == 0 for one in (default, high) if one is not None]
        is_right = is_right and all(on_grid) and low + step <= whole
    assert (found == []) is is_right


@given(st.lists(SIZES, min_size=1, max_size=12), SIZES, SIZES)
def test_the_values_for_requests_ascend_fit_and_hold_the_default(
    values: list[int], default: int, whole: int
) -> None:
    """D47."""
    policy = {"default": str(default), "validValues": [str(one) for one in values]}
    found = of_device(
        allowMultipleAllocations=True, capacity={"m": {"value": str(whole), "requestPolicy": policy}}
    )
    is_right = (
        values == sorted(set(values)) and values[-1] <= whole and default in values and len(values) <= 10
    )
    assert (found == []) is is_right


def test_a_policy_is_for_devices_that_are_shared() -> None:
    """D47."""
    found = of_device(capacity={"m": {"value": "1", "requestPolicy": {"default": "1"}}})
    assert found == [
        (f"{DEVICE}.capacity[m].requestPolicy", "Forbidden: allowMultipleAllocations must be true")
    ]


@given(st.sampled_from(["1", "1.5", "1024Mi", "1e3", "0.1", "-1", ""]))
def test_a_capacity_is_stored_in_its_one_form(written: str) -> None:
    """D47."""
    given_ = {"value": written} if written else {}
    stored = Cluster().create(SLICES, devices_of_node([{"name": "d0", "capacity": {"m": given_}}]))
    kept = stored["spec"]["devices"][0]["capacity"]["m"]["value"]
    assert Quantity.parse(kept).number == Quantity.parse(written or "0").number
    assert kept not in {"1.5", "1024Mi", "0.1"}


def test_all_faults_are_told_together_and_an_unknown_field_alone() -> None:
    """D48."""
    cluster = Cluster()
    one = devices_of_node([{"name": "D"}], driver="", nodeName=None)
    with pytest.raises(StatusError) as several:
        cluster.create(SLICES, one)
    assert several.value.message.startswith(
        'ResourceSlice.resource.k8s.io "s" is invalid: [spec.driver: Required value, spec: Required value: '
    )
    one["spec"]["foo"] = 1
    with pytest.raises(StatusError) as unknown:
        cluster.create(SLICES, one)
    assert unknown.value.code == 400
    assert unknown.value.message == (
        'ResourceSlice in version "v1" cannot be handled as a ResourceSlice: strict decoding error: '
        'unknown field "spec.foo"'
    )


def test_a_taint_without_a_time_gets_one_at_each_write() -> None:
    """D80."""
    taints = [{"key": "a", "effect": "NoExecute"}]
    stored = Cluster().create(SLICES, devices_of_node([{"name": "d0", "taints": taints}]))
    assert stored["spec"]["devices"][0]["taints"][0]["timeAdded"] == "2026-01-02T03:04:05Z"


def test_binding_conditions_need_failure_conditions_of_other_names() -> None:
    """D42."""
    found = of_device(bindingConditions=["a", "a"], bindingFailureConditions=["a"])
    assert found == [
        (f"{DEVICE}.bindingConditions[1]", 'Duplicate value: "a"'),
        (
            f"{DEVICE}.bindingFailureConditions[0]",
            'Invalid value: "a": bindingFailureConditions must not overlap with bindingConditions',
        ),
    ]
    assert of_device(bindingConditions=["a"]) == [
        (
            f"{DEVICE}.bindingFailureConditions",
            "Invalid value: null: bindingFailureConditions are required to use bindingConditions",
        )
    ]


def test_the_slices_of_a_node_and_a_driver_can_be_deleted_together() -> None:
    """D11, D53."""
    cluster = Cluster()
    for name, spec in (("a", {}), ("b", {"nodeName": "n2"}), ("c", {"driver": "nic.example.com"})):
        cluster.create(SLICES, {**devices_of_node(**spec), "metadata": {"name": name}})
    cluster.delete_many(SLICES, "spec.nodeName=n1,spec.driver=gpu.example.com")
    assert [one["metadata"]["name"] for one in cluster.registry.all(SLICES)] == ["b", "c"]  # type: ignore[index]
