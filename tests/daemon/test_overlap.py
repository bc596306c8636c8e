"""Hardware that two resources find: its holder has it, then the first in the file, unless both share it."""

from __future__ import annotations

import pytest

from devplug.daemon.sources.device import HostDevice, HostDeviceNode
from tests.daemon.overlaps import Table, found


@pytest.fixture
def overlaps() -> Table:
    """Two resources that do not share."""
    return Table(a=False, b=False)


def test_what_only_one_resource_finds_belongs_to_it(overlaps: Table) -> None:
    assert overlaps.claim("a", [found("x", "/sys/devices/x")]) == {}
    assert overlaps.claim("b", [found("y", "/sys/devices/y")]) == {}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (found("x", "/sys/devices/x"), found("also-x", "/sys/devices/x")),
        (found("usb", "/sys/devices/usb1/1-2", 0), found("ttyUSB0", "", 0)),
    ],
    ids=["the same hardware", "the same node"],
)
def test_the_first_in_the_file_has_what_two_resources_find(
    overlaps: Table, one: HostDevice, other: HostDevice
) -> None:
    assert overlaps.claim("a", [one]) == {}
    assert overlaps.claim("b", [other]) == {other.name: "a"}


def test_the_order_of_the_looks_does_not_matter_and_who_loses_is_woken(overlaps: Table) -> None:
    assert overlaps.claim("b", [found("x", "h")]) == {}
    assert overlaps.claim("a", [found("x", "h")]) == {}
    assert overlaps.woken == ["b"]
    assert overlaps.claim("b", [found("x", "h")]) == {"x": "a"}


def test_what_the_first_one_loses_the_second_one_gets(overlaps: Table) -> None:
    overlaps.claim("a", [found("x", "h")])
    overlaps.claim("b", [found("x", "h")])
    overlaps.leave("a")
    assert overlaps.woken == ["b"]
    assert overlaps.claim("b", [found("x", "h")]) == {}


def test_two_that_both_share_have_it_both() -> None:
    overlaps = Table(a=True, b=True)
    assert overlaps.claim("a", [found("x", "h")]) == {}
    assert overlaps.claim("b", [found("x", "h")]) == {}


@pytest.mark.parametrize("shares", [(True, False), (False, True)])
def test_it_takes_two_to_share(shares: tuple[bool, bool]) -> None:
    overlaps = Table(a=shares[0], b=shares[1])
    overlaps.claim("a", [found("x", "h")])
    assert overlaps.claim("b", [found("x", "h")]) == {"x": "a"}


def test_what_is_refused_to_one_keeps_no_other_from_having_it() -> None:
    """The second one gets nothing of its USB device because the first has a node of it; the other is free."""
    overlaps = Table(a=False, b=False, c=False)
    overlaps.claim("a", [found("tty", "", 0)])
    usb_device = HostDevice("usb", (HostDeviceNode("/dev/t", (188, 0)), HostDeviceNode("/dev/v", (81, 0))))
    assert overlaps.claim("b", [usb_device]) == {"usb": "a"}
    assert overlaps.claim("c", [found("video", "", 0, 81)]) == {}


def test_the_null_device_is_no_hardware(overlaps: Table) -> None:
    overlaps.claim("a", [found("x", "", 3, 1)])
    assert overlaps.claim("b", [found("y", "", 3, 1)]) == {}


def test_nodes_that_a_driver_shares_out_belong_to_nobody(overlaps: Table) -> None:
    control = HostDeviceNode("/dev/nvidiactl", (195, 255), is_shared=True)
    overlaps.claim("a", [HostDevice("x", (control,))])
    assert overlaps.claim("b", [HostDevice("y", (control,))]) == {}


def test_another_order_in_the_file_moves_the_device(overlaps: Table) -> None:
    overlaps.claim("a", [found("x", "h")])
    overlaps.claim("b", [found("x", "h")])
    overlaps.reorder(["b", "a"])
    assert sorted(overlaps.woken) == ["a", "b"]
    assert overlaps.claim("a", [found("x", "h")]) == {"x": "b"}
    assert overlaps.claim("b", [found("x", "h")]) == {}


# ── what a container holds ──


def test_what_is_held_stays_with_its_resource_when_an_earlier_one_finds_it(overlaps: Table) -> None:
    overlaps.claim("b", [found("x", "h")], {"x"})
    assert overlaps.claim("a", [found("y", "h")]) == {"y": "b"}
    assert overlaps.claim("b", [found("x", "h")], {"x"}) == {}
    assert overlaps.woken == []


def test_what_is_let_go_goes_to_the_first_in_the_file(overlaps: Table) -> None:
    overlaps.claim("b", [found("x", "h")], {"x"})
    overlaps.claim("a", [found("y", "h")])
    assert overlaps.claim("b", [found("x", "h")]) == {"x": "a"}
    assert overlaps.woken == ["a"]
    assert overlaps.claim("a", [found("y", "h")]) == {}


def test_what_was_pulled_out_stays_taken_until_it_is_let_go(overlaps: Table) -> None:
    overlaps.claim("b", [found("x", "h", 0)], {"x"})
    overlaps.claim("b", [], {"x"})
    assert overlaps.claim("a", [found("y", "h"), found("z", "", 0)]) == {"y": "b", "z": "b"}
    overlaps.claim("b", [])
    assert overlaps.woken == ["a"]
    assert overlaps.claim("a", [found("y", "h"), found("z", "", 0)]) == {}


def test_a_resource_that_is_served_anew_is_woken_as_its_last_claim_says(overlaps: Table) -> None:
    anew = list[str]()
    overlaps.claim("b", [found("x", "h")])
    overlaps.overlaps.claim("b", [found("x", "h")], on_change=lambda: anew.append("b"))
    overlaps.claim("a", [found("x", "h")])
    assert (overlaps.woken, anew) == ([], ["b"])


def test_another_order_in_the_file_leaves_what_is_held_where_it_is(overlaps: Table) -> None:
    overlaps.claim("a", [found("x", "h")], {"x"})
    overlaps.claim("b", [found("x", "h")])
    overlaps.reorder(["b", "a"])
    assert overlaps.woken == []
    assert overlaps.claim("b", [found("x", "h")]) == {"x": "a"}


def test_a_renamed_resource_gets_its_devices_as_containers_of_the_old_name_end() -> None:
    overlaps = Table(old=False, new=False)
    devices = [found("x", "h"), found("y", "i"), found("z", "j")]
    overlaps.claim("old", devices, {"x", "y"})
    overlaps.claim("old", [], {"x", "y"})
    assert overlaps.claim("new", devices) == {"x": "old", "y": "old"}
    overlaps.claim("old", [], {"y"})
    assert overlaps.claim("new", devices) == {"y": "old"}
    overlaps.claim("old", [])
    assert overlaps.claim("new", devices) == {}
    assert overlaps.woken == ["new", "new"]


def test_a_resource_that_comes_back_still_has_what_it_held(overlaps: Table) -> None:
    overlaps.claim("b", [found("x", "h")], {"x"})
    overlaps.claim("b", [], {"x"})
    overlaps.claim("a", [found("x", "h")])
    assert overlaps.claim("b", [found("x", "h")], {"x"}) == {}


def test_a_resource_that_left_holds_nothing_and_may_leave_again(overlaps: Table) -> None:
    overlaps.claim("a", [found("x", "h")], {"x"})
    overlaps.leave("a")
    overlaps.leave("a")
    assert overlaps.claim("b", [found("x", "h")]) == {}
    assert overlaps.claim("a", [], {"x"}) == {}
    assert overlaps.claim("b", [found("x", "h")]) == {}


def test_what_is_held_of_a_refused_device_is_kept_from_others_too() -> None:
    """Its container has both nodes, whoever else has one of them."""
    overlaps = Table(a=True, b=True, c=False)
    usb_device = HostDevice("usb", (HostDeviceNode("/dev/t", (188, 0)), HostDeviceNode("/dev/v", (81, 0))))
    overlaps.claim("a", [found("tty", "", 0)], {"tty"})
    overlaps.claim("b", [usb_device], {"usb"})
    overlaps.shares["b"] = False
    assert overlaps.claim("b", [usb_device], {"usb"}) == {"usb": "a"}
    assert overlaps.claim("c", [found("video", "", 0, 81)]) == {"video": "b"}


def test_when_sharing_ends_the_first_in_the_file_has_it_and_the_other_holder_comes_next() -> None:
    overlaps = Table(a=True, b=True, c=False)
    for name in ("a", "b"):
        assert overlaps.claim(name, [found("x", "h")], {"x"}) == {}
    overlaps.shares = dict.fromkeys("abc", False)
    assert overlaps.claim("b", [found("x", "h")], {"x"}) == {"x": "a"}
    assert overlaps.claim("a", [found("x", "h")], {"x"}) == {}
    overlaps.reorder(["b", "c", "a"])
    assert overlaps.claim("a", [found("x", "h")], {"x"}) == {}
    assert overlaps.claim("c", [found("x", "h")]) == {"x": "a"}
    assert overlaps.claim("a", [found("x", "h")]) == {"x": "b"}
    assert overlaps.claim("b", [found("x", "h")], {"x"}) == {}


def test_a_held_device_that_was_plugged_in_elsewhere_frees_its_old_place_but_not_its_old_node(
    overlaps: Table,
) -> None:
    overlaps.claim("a", [found("x", "port1", 0)], {"x"})
    overlaps.claim("a", [found("x", "port2", 1)], {"x"})
    others = [found("p1", "port1"), found("p2", "port2"), found("n0", "", 0), found("n1", "", 1)]
    assert overlaps.claim("b", others) == {"p2": "a", "n0": "a", "n1": "a"}
    overlaps.claim("a", [found("x", "port2", 1)])
    assert overlaps.claim("b", others) == {"p2": "a", "n1": "a"}


def test_a_thousand_resources_that_find_the_same_start_and_stop_in_a_moment() -> None:
    devices = [found(str(n), f"h{n}", n) for n in range(10)]
    overlaps = Table(**{f"{n:04}": False for n in range(1000)})
    for n in range(1000):
        overlaps.claim(f"{n:04}", devices)
    assert overlaps.woken == []
    for n in range(1000):
        overlaps.leave(f"{n:04}")
    assert overlaps.woken == [f"{n:04}" for n in range(1, 1000)]
