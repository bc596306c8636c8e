"""What `devplug top` draws for a view of a node, and what each key makes of the view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from devplug.cli.status.top import Key, keys_in
from devplug.cli.status.views.screen import Sort, View, after_key, page_rows, screen_lines, shown_groups
from devplug.cli.status.views.tables import DeviceGroup
from devplug.cli.status.views.text import plain
from devplug.monitor.history import Change, ChangeKind
from devplug.status import DeviceClaim, NodeStatus
from tests.cli.status.made import DAY, LAB, NOW, READER, healthy, node, resource, unhealthy


def crowd(count: int) -> NodeStatus:
    return node(
        resource(*(healthy(f"d{number:05}") for number in range(count)), name="example.com/many"),
        resource(unhealthy("worn", "worn out", READER), healthy("held", READER), name="example.com/few"),
    )


MANY = crowd(500)
CHANGES = [
    Change(NOW + number, ChangeKind.HELD, "example.com/few", f"held{number}", "lab/meter-0/reader")
    for number in range(10)
]


def screen(
    one: NodeStatus, view: View | None = None, *, width: int = 80, height: int = 24, nodes: int = 1
) -> list[str]:
    view = view or View()
    lines = screen_lines(
        one, view, shown_groups(one, view), CHANGES, NOW, width=width, height=height, nodes=nodes
    )
    return [plain(line) for line in lines]


def order(view: View, one: NodeStatus = MANY) -> list[str]:
    return [group.name for group in shown_groups(one, view)]


def key(view: View, name: str, rows: int = 100) -> View:
    after = after_key(view, name, resources=["example.com/a", "example.com/b"], rows=rows, page=12, nodes=2)
    assert after is not None
    return after


def test_the_chosen_device_has_its_claim_in_the_details() -> None:
    using = DeviceClaim(namespace="lab", name="port", request="r", device="a-1", since=NOW - DAY)
    taken = healthy("a", READER, claims=(using,))
    shown = screen(node(resource(taken, driver="devices.example.com")))
    assert "a       -     -     Healthy  3d   lab/meter-0 (reader)" in shown
    assert "healthy; lab/meter-0 (reader); claim lab/port, request r, device a-1, for 1d" in shown


def test_the_screen_has_the_node_the_devices_and_the_last_changes() -> None:
    shown = screen(LAB)
    assert len(shown) == 24
    assert shown[0].startswith("worker-0  daemon ready  kubelet answers  ")
    assert shown[1] == "1 resource, 2 devices: 1 healthy, 1 not, 1 held; row 1 of 2"
    assert shown[2] == "nothing is wrong"
    assert shown[3:6] == [
        "DEVICE              NODE     NUMA  HEALTH     AGE  HELD BY",
        "0403:6001:A7004kxQ  -        -     Unhealthy  41s  -",
        "0403:6001:A6008isP  ttyUSB0  0     Healthy    3d   lab/meter-0 (reader)",
    ]
    assert "unplugged; leaves the list in 9m19s unless it comes back" in shown
    assert sum("held (lab/meter-0/reader)" in line for line in shown) == 4
    assert shown[-1] == ("q quit  u unhealthy only: off  h held only: off  s sort: state  r resource: all")


def test_what_is_wrong_stands_on_top() -> None:
    assert screen(MANY)[2] == "example.com/few worn is Unhealthy and held: lab/meter-0 (reader)"


@given(st.integers(20, 200), st.integers(1, 70), st.integers(0, 3), st.sampled_from([LAB, MANY, node()]))
def test_no_screen_is_larger_than_its_terminal(width: int, height: int, row: int, one: NodeStatus) -> None:
    shown = screen(one, View(row=row), width=width, height=height)
    assert len(shown) == height
    assert max(map(cell_len, shown)) <= width


@pytest.mark.parametrize(("height", "rows"), [(24, 12), (50, 32), (100, 82), (9, 1), (1, 1)])
def test_devices_have_most_of_a_terminal(height: int, rows: int) -> None:
    assert page_rows(height) == rows


def test_the_chosen_row_is_always_in_sight() -> None:
    names = order(View(sort=Sort.DEVICE))
    for row in (0, 5, 6, 11, 12, 250, 490, len(names) - 1):
        shown = "\n".join(screen(MANY, View(sort=Sort.DEVICE, row=row))[3:])
        assert names[row] in shown


def test_a_row_that_is_gone_is_the_last_one_that_is_there() -> None:
    assert screen(LAB, View(row=99))[1].endswith("row 2 of 2")
    assert screen(node(), View(row=99))[1].endswith("no row")


def test_unhealthy_devices_stand_first_then_held_ones_then_by_name() -> None:
    assert order(View())[:4] == ["worn", "held", "d00000", "d00001"]


def test_rows_can_be_sorted_by_device_by_age_and_by_holder() -> None:
    few = node(
        resource(healthy("b", since=NOW - 5), healthy("a", READER, since=NOW - DAY), unhealthy("c", "x"))
    )
    assert order(View(sort=Sort.DEVICE), few) == ["a", "b", "c"]
    assert order(View(sort=Sort.AGE), few) == ["b", "c", "a"]
    assert order(View(sort=Sort.HOLDER), few) == ["a", "b", "c"]


def test_rows_can_be_left_out() -> None:
    assert order(View(unhealthy=True)) == ["worn"]
    assert order(View(held=True)) == ["worn", "held"]
    assert order(View(resource="example.com/few", held=True, unhealthy=True)) == ["worn"]


def test_a_resource_is_named_in_its_rows_where_there_are_several() -> None:
    assert screen(MANY)[3].startswith("RESOURCE  DEVICE")
    assert screen(MANY)[4].startswith("few       worn")
    assert screen(MANY, View(resource="example.com/few"))[3].startswith("DEVICE")


def test_long_names_leave_room_for_the_holder() -> None:
    one = node(resource(healthy("x" * 63, READER, device_nodes=("/dev/" + "y" * 40,))))
    assert screen(one)[4].endswith("lab/meter-0 (reader)")
    assert "x" * 63 in screen(one, width=200)[4]


def test_keys_set_what_is_shown() -> None:
    view = View(row=7)
    assert key(view, "u") == View(unhealthy=True)
    assert key(key(view, "u"), "u") == View()
    assert key(view, "h") == View(held=True)
    assert key(view, "s") == View(sort=Sort.DEVICE)
    resources = [view := key(view, "r") for _ in range(3)]
    assert [one.resource for one in resources] == ["example.com/a", "example.com/b", ""]
    assert key(View(resource="gone"), "r").resource == ""
    assert key(View(resource="example.com/a"), "n") == View(node=1)
    assert key(View(node=1), "n") == View()
    assert after_key(view, "q", resources=[], rows=0, page=1) is None
    assert key(View(row=7), "x") == View(row=7)


@given(
    st.integers(0, 99),
    st.sampled_from(["UP", "DOWN", "PAGE_UP", "PAGE_DOWN", "HOME", "END", "j", "k", " "]),
    st.integers(0, 100),
)
def test_no_key_leads_off_the_rows(row: int, name: str, rows: int) -> None:
    assert 0 <= key(View(row=row), name, rows).row <= max(0, rows - 1)


@pytest.mark.parametrize(
    ("name", "row"), [("UP", 49), ("DOWN", 51), ("PAGE_UP", 38), ("PAGE_DOWN", 62), ("HOME", 0), ("END", 99)]
)
def test_arrows_and_page_keys_move(name: str, row: int) -> None:
    assert key(View(row=50), name).row == row


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("qu", ["q", "u"]),
        ("\x1b[A\x1bOB\x1b[5~\x1b[6~", [Key.UP, Key.DOWN, Key.PAGE_UP, Key.PAGE_DOWN]),
        ("\x1b[H\x1b[F\x1b[1~\x1b[4~", [Key.HOME, Key.END, Key.HOME, Key.END]),
        ("\x1b[1;5Cq", ["q"]),
        ("\x1bq", ["q"]),
    ],
)
def test_what_a_terminal_sends_is_keys(text: str, keys: list[Key | str]) -> None:
    assert keys_in(text) == (keys, "")


@given(st.data())
def test_a_key_may_come_in_two_pieces(data: st.DataObject) -> None:
    text = "".join(
        data.draw(
            st.lists(st.sampled_from(["\x1b[A", "\x1bOB", "\x1b[5~", "q", "u", "\x1b[1;5C"]), max_size=6)
        )
    )
    cut = data.draw(st.integers(0, len(text)))
    first, kept = keys_in(text[:cut])
    second, rest = keys_in(kept + text[cut:])
    assert ([*first, *second], rest) == keys_in(text)


class Counted(list["DeviceGroup"]):
    """Takes note of how many are looked at."""

    seen = 0

    def __getitem__(self, index: Any) -> Any:
        self.seen += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[DeviceGroup]:
        self.seen += len(self)
        return super().__iter__()


def test_for_a_key_each_of_ten_thousand_devices_is_looked_at_once_at_most() -> None:
    huge = crowd(10_000)
    shown = Counted(shown_groups(huge, View()))
    screen_lines(huge, View(row=5000), shown, CHANGES, NOW, width=120, height=50)
    assert 0 < shown.seen <= len(shown) + 100
