"""What a file finds on a machine: resources without faults are looked for, and each device has one owner."""

from __future__ import annotations

from devplug.daemon.config.loader import read
from devplug.daemon.inspection.matches import Inspected, inspected, sound_resources
from devplug.daemon.sources.device import HostDevice, HostDeviceNode
from devplug.devices import Health
from tests.daemon.hosts import reading


def found(name: str, minor: int = 0, health: Health | None = None) -> HostDevice:
    node = HostDeviceNode(f"/dev/{name}", (240, minor))
    facts = {"file": name, "hostPath": f"/dev/{name}"}
    return HostDevice(name, (node,), facts=facts, health=health or Health.healthy())


def one(resource: str, *looked: HostDevice) -> Inspected:
    (row,) = inspected(reading(resource), {0: looked})
    return row


def test_a_resource_with_a_fault_is_not_looked_for_and_the_others_are() -> None:
    file = reading(
        """
        - {name: example.com/a, discover: {path: /dev/a}}
        - {name: example.com/b, discover: {usb: {vendor: 0403}}}
        - {name: example.com/c, discover: {path: /dev/c}}
        """
    )
    assert sound_resources(file) == [0, 2]
    rows = inspected(file, {0: [found("a")], 2: []})
    assert [row.name for row in rows] == ["example.com/a", "example.com/b", "example.com/c"]
    assert [row.capacity for row in rows] == [1, None, 0]
    assert [row.problem and row.problem.line for row in rows] == [None, 4, None]


def test_a_fault_of_the_file_as_a_whole_is_no_fault_of_its_resources() -> None:
    assert sound_resources(read("resources: [{name: a.b/c, discover: {path: /dev/x}}]")) == [0]


def test_the_second_of_two_that_claim_one_path_is_not_looked_for() -> None:
    file = reading(
        """
        - {name: example.com/a, discover: {path: /dev/x}}
        - {name: example.com/b, discover: {path: /dev/x}}
        """
    )
    assert sound_resources(file) == [0]


def test_a_file_that_is_no_yaml_has_no_resources() -> None:
    file = read("a: 'x")
    assert (sound_resources(file), inspected(file, {}), len(file.problems)) == ([], (), 1)


def test_a_device_shows_what_a_container_would_get_that_has_only_this_one() -> None:
    row = one(
        '- {name: a.b/c, discover: {path: "/dev/x*"}, expose: {containerPath: "/dev/y{index}"}}',
        found("x1", 1),
        found("x2", 2),
    )
    assert [
        [(node.host_path, node.container_path) for node in match.nodes] for match in row.matches or ()
    ] == [[("/dev/x1", "/dev/y0")], [("/dev/x2", "/dev/y0")]]


def test_replicas_are_in_the_capacity_and_not_in_the_names() -> None:
    row = one("- {name: a.b/c, discover: {path: /dev/x}, share: {replicas: 100}}", found("x"))
    assert row.capacity == 100
    assert [match.found.name for match in row.matches or ()] == ["x"]
    assert [device.id for device in row.devices][::99] == ["x::0", "x::99"]


def test_what_two_resources_find_belongs_to_the_first_and_counts_once() -> None:
    file = reading(
        """
        - {name: example.com/a, discover: {path: "/dev/x*"}}
        - {name: example.com/b, discover: {sysfs: {subsystem: x}}}
        """
    )
    rows = inspected(file, {0: [found("x1", 1)], 1: [found("same", 1), found("other", 2)]})
    assert [row.capacity for row in rows] == [1, 1]
    assert [match.owner for match in rows[1].matches or ()] == ["example.com/a", ""]
    assert [device.id for device in rows[1].devices] == ["other"]


def test_two_that_share_have_it_both() -> None:
    file = reading(
        """
        - {name: example.com/a, discover: {path: "/dev/x*"}, overlap: shared}
        - {name: example.com/b, discover: {sysfs: {subsystem: x}}, overlap: shared}
        """
    )
    rows = inspected(file, {0: [found("x1", 1)], 1: [found("same", 1)]})
    assert [row.capacity for row in rows] == [1, 1]


def test_a_device_that_nobody_can_get_is_counted_and_says_why() -> None:
    row = one('- {name: a.b/c, discover: {usb: {vendor: "0403"}}, expose: {deviceNodes: [tty]}}', found("x"))
    assert row.capacity == 1
    (match,) = row.matches or ()
    assert (match.nodes, match.health) == ((), Health.unhealthy("it has no tty node"))


def test_the_health_that_a_source_knows_is_told() -> None:
    row = one('- {name: a.b/c, discover: {path: "/dev/x"}}', found("x", health=Health.unknown("no answer")))
    assert [match.health for match in row.matches or ()] == [Health.unknown("no answer")]


def test_resources_of_other_machines_are_told_apart_from_those_that_find_nothing() -> None:
    file = reading("- {name: a.b/c, discover: {path: /dev/x}, nodeNames: [other]}")
    (row,) = inspected(file, {}, elsewhere=[0])
    assert (row.is_elsewhere, row.matches, row.capacity) == (True, None, None)
