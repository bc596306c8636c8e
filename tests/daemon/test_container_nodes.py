"""Which of a USB device's nodes a container gets, and under which names: pure, without a host."""

from __future__ import annotations

import pytest

from devplug.daemon.container_response import (
    MissingNode,
    chosen_nodes,
    container_response,
    paths_of,
    shares_of,
)
from devplug.daemon.sources.device import HostDevice, HostDeviceNode
from devplug.devices import Device, DeviceNode
from devplug.errors import UnhealthyDeviceError
from tests.daemon.hosts import resource

TTY = HostDeviceNode("/dev/serial/by-id/x-port0", (188, 0), False, "tty", "/dev/ttyUSB0")
VIDEO = HostDeviceNode("/dev/video0", (81, 0), False, "video4linux")
VIDEO1 = HostDeviceNode("/dev/video1", (81, 1), False, "video4linux")
BUS = HostDeviceNode("/dev/bus/usb/001/004", (189, 3), False, "usb")
DONGLE = HostDevice("dongle", (TTY, VIDEO, VIDEO1, BUS))


def paths(found: HostDevice, expose: str = "", discover: str = 'usb: {vendor: "0403"}') -> list[str]:
    """Return where the nodes are in the container."""
    one = resource(f"discover: {{{discover}}}, expose: {{{expose}}}")
    given = container_response(shares_of([Device(found.name)], {found.name: found}, one), one)
    return [node.container_path for node in given.device_nodes]


def gap(found: HostDevice, expose: str) -> str:
    with pytest.raises(UnhealthyDeviceError) as refused:
        paths(found, expose)
    return refused.value.reason


def test_a_usb_device_gives_all_its_children_and_not_its_bus_node() -> None:
    assert paths(DONGLE) == ["/dev/ttyUSB0", "/dev/video0", "/dev/video1"]


def test_a_usb_device_without_children_gives_its_bus_node() -> None:
    assert paths(HostDevice("raw", (BUS,))) == ["/dev/bus/usb/001/004"]


def test_the_bus_node_is_given_with_the_children_to_who_asks_for_it() -> None:
    assert paths(DONGLE, "deviceNodes: [tty, usb]") == ["/dev/ttyUSB0", "/dev/bus/usb/001/004"]


def test_only_the_subsystem_that_is_asked_for_is_given() -> None:
    assert paths(DONGLE, "deviceNodes: [video4linux]") == ["/dev/video0", "/dev/video1"]


def test_a_file_is_compared_with_the_kernels_name_of_the_node() -> None:
    assert paths(DONGLE, 'deviceNodes: [{file: "ttyUSB*"}]') == ["/dev/ttyUSB0"]


def test_a_usb_device_without_a_node_that_is_asked_for_is_unhealthy_and_says_which() -> None:
    assert gap(DONGLE, 'deviceNodes: [tty, {subsystem: hidraw, file: "hidraw*"}]') == (
        "it has no hidraw hidraw* node"
    )


def test_an_optional_node_may_be_missing() -> None:
    assert paths(DONGLE, "deviceNodes: [tty, {subsystem: hidraw, optional: true}]") == ["/dev/ttyUSB0"]


def test_no_node_at_all_is_given_to_who_asks_for_none() -> None:
    assert paths(DONGLE, "deviceNodes: []") == []


def test_a_node_that_two_entries_ask_for_is_there_once_as_the_first_says() -> None:
    expose = (
        'deviceNodes: [{file: "video0", containerPath: /dev/camera}, '
        '{subsystem: video4linux, containerPath: "/dev/extra/"}]'
    )
    assert paths(DONGLE, expose) == ["/dev/camera", "/dev/extra/video1"]


def test_two_nodes_that_would_be_one_file_make_the_device_unhealthy() -> None:
    assert gap(DONGLE, "deviceNodes: [video4linux], containerPath: '/dev/camera{index}'") == (
        "two of its nodes would be /dev/camera0 in the container; let containerPath end in /, "
        "or give each of expose.deviceNodes one of its own"
    )


def test_each_node_of_a_bundle_has_its_name_in_templates() -> None:
    one = resource(
        "discover: {bundle: {paths: [{path: /dev/a0, name: data}, {path: /dev/a0-ctl, name: control}]}}, "
        "expose: {containerPath: /dev/dsp/, "
        'env: {"D_{index}": "{containerPath.data} {containerPath.control}"}}'
    )
    found = HostDevice(
        "a",
        (
            HostDeviceNode("/dev/a0", (9, 0), name="data"),
            HostDeviceNode("/dev/a0-ctl", (9, 1), name="control"),
        ),
    )
    given = container_response(shares_of([Device("a")], {"a": found}, one), one)
    assert given.envs == {"D_0": "/dev/dsp/a0 /dev/dsp/a0-ctl"}


def test_file_and_host_path_are_those_of_the_first_node_that_is_given() -> None:
    one = resource(
        'discover: {usb: {vendor: "0403"}}, '
        'expose: {deviceNodes: [video4linux], env: {"F_{index}": "{file} {hostPath}"}}'
    )
    found = HostDevice("d", (TTY, VIDEO), None, {"file": "ttyUSB0", "hostPath": TTY.host_path})
    given = container_response(shares_of([Device("d")], {"d": found}, one), one)
    assert given.envs == {"F_0": "video0 /dev/video0"}


def test_a_vfio_group_comes_with_the_node_that_all_groups_share_and_keeps_both_paths() -> None:
    group = HostDeviceNode("/dev/vfio/12", (240, 0), False, "vfio")
    shared = HostDeviceNode("/dev/vfio/vfio", (10, 196), False, "vfio", is_shared=True)
    found = HostDevice("0000:3b:00.0", (shared, group))
    assert paths(found, "", "pci: {driver: vfio-pci}") == ["/dev/vfio/12", "/dev/vfio/vfio"]


def test_permissions_may_be_each_nodes_own() -> None:
    one = resource(
        'discover: {usb: {vendor: "0403"}}, '
        "expose: {permissions: r, "
        "deviceNodes: [tty, {subsystem: video4linux, file: video0, permissions: rw}]}"
    )
    given = container_response(shares_of([Device("dongle")], {"dongle": DONGLE}, one), one)
    assert given.device_nodes == (
        DeviceNode(TTY.host_path, "/dev/ttyUSB0", permissions="r"),
        DeviceNode("/dev/video0"),
    )


def test_a_path_that_needs_what_the_device_lacks_is_a_gap() -> None:
    one = resource("discover: {usb: {vendor: '0403'}}, expose: {containerPath: '/dev/{serial}'}")
    chosen = chosen_nodes(HostDevice("x", (TTY,)), one.expose)
    assert not isinstance(chosen, MissingNode)
    assert paths_of(chosen, {}) == MissingNode("no value for {serial}")
