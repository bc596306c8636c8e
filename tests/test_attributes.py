"""The attributes of devices: what an author may write, and what a version is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug import Device, PluginError, Version
from devplug.attribute_rules import attribute_text
from devplug.sandbox.api.resource.devices import device_errors


@pytest.mark.parametrize("text", ["1.2.3", "0.0.0", "1.2.3-rc.1", "1.2.3+b.01", "1.0.0-x-y.7+z"])
def test_a_version_is_its_text(text: str) -> None:
    assert Version(text) == text
    assert isinstance(Version(text), str)


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", " 1.2.3", "1.2.²"]
)
def test_what_is_no_version_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(PluginError, match=r'is none by semver\.org, as "1\.2\.3" is'):
        Version(text)


@given(
    st.one_of(st.text("0123456789.-+ab", max_size=12), st.integers(50, 80).map(lambda n: f"1.2.{'3' * n}"))
)
def test_a_version_is_what_the_api_server_takes(text: str) -> None:
    """D45: strict semver 2.0.0 of at most 64 bytes."""
    device = {"name": "a", "attributes": {"a": {"version": text}}}
    is_taken = not [*device_errors(device, "d", None, names_nodes=False)]
    try:
        Version(text)
    except PluginError:
        assert not is_taken
    else:
        assert is_taken


@pytest.mark.parametrize(
    ("attributes", "fault"),
    [
        ({"a": 1.5}, 'attribute "a" is 1.5; it must be a bool, int, str or devplug.Version'),
        ({"a": None}, 'attribute "a" is None'),
        ({"a": 2**63}, "an integer of 64 bits fits"),
        ({1: "a"}, "the attribute name 1 is not a string"),
    ],
)
def test_a_device_refuses_what_is_no_attribute(attributes: Any, fault: str) -> None:
    with pytest.raises(PluginError, match=fault):
        Device("x", attributes=attributes)


@pytest.mark.parametrize(
    ("capacity", "fault"),
    [
        ({"a": -1}, 'capacity "a" is -1; it must be a whole number from 0 on, of 64 bits'),
        ({"a": 2**63}, "of 64 bits"),
        ({"a": True}, 'capacity "a" is True'),
        ({"a": "1Gi"}, "it must be a whole number"),
        ({1: 1}, "the capacity name 1 is not a string"),
    ],
)
def test_a_device_refuses_what_is_no_capacity(capacity: Any, fault: str) -> None:
    with pytest.raises(PluginError, match=fault):
        Device("x", capacity=capacity)


def test_devices_with_other_attributes_are_other_devices() -> None:
    assert Device("a", attributes={"k": 1}) == Device("a", attributes={"k": 1})
    assert Device("a", attributes={"k": 1}) != Device("a", attributes={"k": 2})


def test_people_read_attributes_as_yaml_has_them() -> None:
    assert [attribute_text(one) for one in (True, False, 7, "x", Version("1.2.3"))] == [
        "true",
        "false",
        "7",
        "x",
        "1.2.3",
    ]
