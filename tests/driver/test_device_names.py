"""The names that a driver gives."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from devplug.driver.device_entries import device_name, resource_value, slice_name

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")

RESOURCES = st.sampled_from(["example.com/serial", "example.com/gpu", f"{'a.' * 100}com/{'k' * 63}"])
IDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=63)
NODES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,200}[a-z0-9])?", fullmatch=True)
DRIVERS = st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9.-]{0,60}[a-zA-Z0-9])?", fullmatch=True)


@given(RESOURCES, IDS)
@example("example.com/a", "--")
@example("example.com/a", "x" * 63)
@example("example.com/a", f"{'x' * 53}-y")
def test_the_name_of_a_device_is_a_dns_label(resource: str, device_id: str) -> None:
    """D43: at most 63 characters."""
    assert LABEL.fullmatch(device_name(resource, device_id))


@given(st.lists(st.tuples(RESOURCES, IDS), unique=True))
@example([("example.com/a", "gpu"), ("example.com/b", "gpu"), ("example.com/a", "GPU")])
def test_no_two_devices_of_a_driver_have_one_name(devices: list[tuple[str, str]]) -> None:
    assert len({device_name(*one) for one in devices}) == len(devices)


def test_a_name_begins_with_what_people_know_and_stays_the_same_for_ever() -> None:
    assert device_name("example.com/serial", "FTDI_A50285BI.1") == "ftdi-a50285bi-1-9f0ddcb8"
    assert resource_value("example.com/serial") == "example.com/serial"
    assert slice_name("devices.example.com", "worker-0", 1) == "worker-0-devices.example.com-fab0743d-0001"


@given(RESOURCES)
def test_the_resource_is_told_in_an_attribute_however_long_its_name_is(resource: str) -> None:
    """D45: at most 64 bytes."""
    assert 0 < len(resource_value(resource)) <= 64


def test_long_resource_names_that_begin_alike_are_told_apart() -> None:
    long = f"{'a' * 63}.example.com/"
    assert resource_value(long + "x") != resource_value(long + "y")


@given(DRIVERS, NODES, st.integers(0, 2**16 - 1))
def test_the_name_of_a_slice_is_a_dns_subdomain(driver: str, node: str, number: int) -> None:
    assert SUBDOMAIN.fullmatch(slice_name(driver, node, number))


@given(DRIVERS, NODES, st.lists(st.integers(0, 2**16 - 1), unique=True))
def test_the_names_of_slices_sort_by_their_numbers(driver: str, node: str, numbers: list[int]) -> None:
    """D74: the order of slices is the order of their names as bytes."""
    names = [slice_name(driver, node, number) for number in sorted(numbers)]
    assert names == sorted(names)


def test_two_nodes_and_drivers_that_read_alike_together_have_other_slices() -> None:
    assert slice_name("c", "a-b", 0) != slice_name("b-c", "a", 0)
