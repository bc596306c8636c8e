"""The objects of DRA in the older versions of resource.k8s.io: the shapes, and that nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.dra.versions import API_VERSIONS, from_v1, to_v1
from devplug.k8s.objects import Object, with_part

PLACES = {
    "DeviceClass": ("spec", "config"),
    "ResourceClaim": ("spec", "devices", "requests"),
    "ResourceClaimTemplate": ("spec", "spec", "devices", "requests"),
    "ResourceSlice": ("spec", "devices"),
}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda one: st.lists(one, max_size=2)
)
maps = st.dictionaries(
    st.sampled_from(["basic", "exactly", "taints", "count", "nodeName"]), values, max_size=3
)
devices = maps.map(lambda one: {**one, "name": "a"}) | maps
choices = st.lists(maps, min_size=1, max_size=2)
requests = st.fixed_dictionaries({"name": st.text(), "exactly": maps}) | st.fixed_dictionaries(
    {"name": st.text(), "firstAvailable": choices}
)


@st.composite
def objects(draw: st.DrawFn) -> tuple[str, Object]:
    """Return a kind and an object of v1, whole or, as a bookmark or what was given wrongly, not."""
    kind = draw(st.sampled_from([*PLACES]))
    entries = devices if kind == "ResourceSlice" else requests
    one: Object = {}
    if draw(st.booleans()):
        one |= {"apiVersion": "resource.k8s.io/v1", "kind": kind}
    one["metadata"] = draw(maps)
    if draw(st.booleans()):
        inner = draw(st.lists(entries | st.integers(), max_size=3) | values)
        one = with_part(one, inner, *PLACES[kind])
    if draw(st.booleans()):
        one = with_part(one, draw(maps), "status")
    return kind, one


@given(objects(), st.sampled_from(API_VERSIONS))
def test_there_and_back_is_the_same_object(made: tuple[str, Object], version: str) -> None:
    kind, one = made
    old = from_v1(kind, one, version)
    assert to_v1(kind, old, version) == one
    if "apiVersion" in one:
        assert old["apiVersion"] == f"resource.k8s.io/{version}"


@given(
    objects(),
    st.sampled_from(["Pod", "Event", "DeviceTaintRule", "ResourceSliceList", ""]),
    st.sampled_from([*API_VERSIONS, "v1alpha3"]),
)
def test_objects_of_other_kinds_stay_as_they_are(made: tuple[str, Object], kind: str, version: str) -> None:
    assert from_v1(kind, made[1], version) is made[1]
    assert to_v1(kind, made[1], version) is made[1]


@pytest.mark.parametrize(
    ("kind", "v1", "v1beta1"),
    [
        (
            "ResourceSlice",
            {"name": "a", "attributes": {"index": {"int": 1}}, "allNodes": True},
            {"name": "a", "basic": {"attributes": {"index": {"int": 1}}, "allNodes": True}},
        ),
        ("ResourceSlice", {"name": "a"}, {"name": "a", "basic": {}}),
        (
            "ResourceClaim",
            {"name": "r", "exactly": {"deviceClassName": "c", "count": 2}},
            {"name": "r", "deviceClassName": "c", "count": 2},
        ),
        (
            "ResourceClaimTemplate",
            {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "c"}]},
            {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "c"}]},
        ),
    ],
)
def test_v1beta1_has_devices_one_level_deeper_and_requests_one_level_higher(
    kind: str, v1: Object, v1beta1: Object
) -> None:
    one, old = (with_part({}, [entry], *PLACES[kind]) for entry in (v1, v1beta1))
    assert from_v1(kind, one, "v1beta1") == old
    assert to_v1(kind, old, "v1beta1") == one
    assert from_v1(kind, one, "v1beta2") == one


def test_a_field_that_v1beta1_does_not_know_of_a_device_is_gone() -> None:
    written = with_part({}, [{"name": "a", "attributes": {}, "basic": {"allNodes": True}}], "spec", "devices")
    assert to_v1("ResourceSlice", written, "v1beta1") == {
        "spec": {"devices": [{"name": "a", "allNodes": True}]}
    }
