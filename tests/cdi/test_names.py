"""The names of CDI kinds, devices and files, for every resource and device."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.cdi.spec import (
    CdiDevice,
    device_name,
    faults,
    kind_faults,
    kind_of,
    minimum_version,
    qualified_name,
)
from devplug.devices import ContainerResponse, stable_id
from devplug.k8s.resource_names import resource_name_fault
from tests.cdi.specs import KIND, STICK, device_ids, resource_names, spec


@pytest.mark.parametrize(
    ("resource_name", "kind"),
    [
        ("example.com/fpga", "devplug.example.com/fpga"),
        ("3d.example.com/usb_stick-A", "devplug.3d.example.com/usb_stick-A"),
        ("example.com/3d", "devplug.example.com/x3d-da0568a25209c765"),
        ("example.com/a", "devplug.example.com/a-ca978112ca1bbdca"),
        ("example.com/gpu.shared", "devplug.example.com/gpu_shared-2afd0da4579a53b2"),
    ],
)
def test_a_kind_says_the_resource_name_after_our_own_prefix(resource_name: str, kind: str) -> None:
    assert kind_of(resource_name) == kind


@given(resource_names)
def test_every_resource_name_has_a_valid_kind_that_keeps_the_version_low(name: str) -> None:
    kind = kind_of(name)
    assert list(kind_faults(kind)) == []
    assert minimum_version(spec(CdiDevice("aa", envs={"A": "b"}), kind=kind)) == "0.3.0"


def test_the_longest_resource_name_has_a_valid_kind() -> None:
    longest = ".".join(["a" * 60] * 4) + "/" + "1" * 63
    assert resource_name_fault(longest) is None
    assert list(kind_faults(kind_of(longest))) == []


@given(st.lists(resource_names, min_size=2, max_size=6, unique=True))
def test_two_resources_never_share_a_kind(names: list[str]) -> None:
    assert len({kind_of(name) for name in names}) == len(names)


@given(resource_names)
def test_nobody_takes_a_kind_by_calling_a_resource_as_it_was_hashed(name: str) -> None:
    kind = kind_of(name)
    again = kind.removeprefix("devplug.")
    assert again == name or kind_of(again) != kind


@pytest.mark.parametrize("device_id", ["1-2.3:1.0", "00", "FTDI_A50285BI", "0000:65:00.0", "ttyUSB0::3"])
def test_an_id_that_fits_is_its_own_name(device_id: str) -> None:
    assert device_name(device_id) == device_id


@given(device_ids)
def test_every_device_id_has_a_valid_name(device_id: str) -> None:
    assert faults(spec(replace(STICK, name=device_name(device_id)))) == []
    qualified = qualified_name(KIND, device_name(device_id))
    assert ContainerResponse(cdi_devices=[qualified]).cdi_devices == (qualified,)


@given(st.lists(device_ids, min_size=2, max_size=8, unique=True))
def test_two_devices_never_share_a_name(different: list[str]) -> None:
    assert len({device_name(one) for one in different}) == len(different)


@given(device_ids)
def test_no_id_takes_the_name_that_another_got_by_its_hash(device_id: str) -> None:
    name = device_name(device_id)
    assert name == device_id or device_name(name) != name


@given(st.text())
def test_any_text_has_a_valid_name(anything: str) -> None:
    assert faults(spec(replace(STICK, name=device_name(anything)))) == []


def test_ids_that_differ_in_one_unfit_character_have_different_names() -> None:
    assert len({device_name(stable_id(f"stick{mark}1")) for mark in "@+_! #"}) == 6


def test_an_id_that_does_not_fit_is_readable_and_has_a_hash() -> None:
    assert device_name("stick@1-2") == "stick_1-2-a3d936c4753da314"
    assert device_name("0") == "0-5feceb66ffc86f38"


@given(resource_names, device_ids)
def test_no_name_has_one_character_which_would_crash_the_runtime(resource_name: str, device_id: str) -> None:
    assert len(kind_of(resource_name).partition("/")[2]) > 1
    assert len(device_name(device_id)) > 1
