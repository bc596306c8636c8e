"""The tables that `devplug status` prints, from statuses that are made up."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from devplug.cli.status.views.tables import CSV_COLUMNS, chosen, csv_text, groups, node_lines
from devplug.cli.status.views.text import Cell, Row, age, files, laid_out, left, plain
from devplug.monitor.node_view import UNANSWERED
from devplug.status import Holder, NodeStatus, PodResourcesStatus
from tests.cli.status.made import (
    DAY,
    HOUR,
    LAB,
    MINUTE,
    NOW,
    READER,
    SERIAL,
    TAKEOVER,
    daemon,
    healthy,
    node,
    resource,
    unhealthy,
)

FOLDER = "/var/lib/kubelet/device-plugins"


def table(
    one: NodeStatus, *, width: int | None = None, wide: bool = False, only_unhealthy: bool = False
) -> list[str]:
    lines = node_lines(one, NOW, FOLDER, width=width, wide=wide, unhealthy=only_unhealthy)
    return [plain(line) for line in lines]


def kubelet_cell(**rest: object) -> str:
    return table(node(resource(**rest)))[1].split("0  ", 3)[-1].strip()  # type: ignore[arg-type]


def test_the_node_of_the_manual_looks_as_in_the_manual() -> None:
    assert table(LAB) == [
        "RESOURCE            CAPACITY  ALLOCATABLE  HELD  KUBELET",
        "example.com/serial  2         1            1     registered 3d ago, listening",
        "DEVICE              NODE     NUMA  HEALTH     AGE  HELD BY",
        "0403:6001:A6008isP  ttyUSB0  0     Healthy    3d   lab/meter-0 (reader)",
        "0403:6001:A7004kxQ  -        -     Unhealthy  41s  -",
        "    unplugged; leaves the list in 9m19s unless it comes back",
        "daemon ready; config read 2h ago, 0 errors",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (41, "41s"), (59.9, "59s"), (9 * MINUTE, "9m"), (3 * HOUR, "3h"), (3 * DAY, "3d")],
)
def test_an_age_is_told_in_its_largest_unit(seconds: float, text: str) -> None:
    assert age(NOW, NOW - seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (19, "19s"), (559, "9m19s"), (540, "9m"), (2 * HOUR + 300, "2h5m"), (DAY, "1d")],
)
def test_what_is_left_is_told_in_two_units(seconds: float, text: str) -> None:
    assert left(seconds) == text


def test_device_nodes_are_told_by_name_and_mere_numbers_by_path() -> None:
    assert files(["/dev/ttyUSB0", "/dev/pts/7"]) == "ttyUSB0, pts/7"
    assert files([f"/dev/video{number}" for number in range(6)]) == "video0, video1, video2, video3, 2 more"
    assert files([]) == "-"


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({}, "registered 3d ago, listening"),
        (
            {"is_registered": False, "fault": "no kubelet is connected"},
            "NOT REGISTERED: no kubelet is connected",
        ),
        ({"fault": "devices() failed: x"}, "registered, but devices() failed: x"),
        ({"takeover": TAKEOVER}, "registered, but another plugin registers this name"),
        ({"takeover": TAKEOVER, "fault": "x failed"}, "registered, but x failed"),
        ({"is_registered": False}, "waits for its first device"),
        ({"is_registered": None}, "of another plugin"),
        ({"is_registered": None, "fault": UNANSWERED}, UNANSWERED),
        (
            {"is_retired": True},
            "registered 3d ago, listening; not served this way any more, kept for its holders",
        ),
    ],
)
def test_how_a_resource_stands_with_the_kubelet_is_said(told: dict[str, object], text: str) -> None:
    assert kubelet_cell(**told) == text


def test_of_a_resource_of_which_only_the_kubelet_tells_the_capacity_is_a_lower_bound() -> None:
    told = resource(healthy("a", READER), name="example.com/kvm", is_registered=None)
    assert table(node(told))[1].split()[:4] == ["example.com/kvm", "1+", "1", "1"]
    assert table(node(told), wide=True)[1].split()[1] == "1+"


def test_replicas_are_one_row_and_are_counted_beside_the_capacity() -> None:
    replicas = [
        *(healthy(f"fuse::{number}", READER, device_nodes=("/dev/fuse",)) for number in range(3)),
        *(healthy(f"fuse::{number}", device_nodes=("/dev/fuse",)) for number in range(3, 100)),
    ]
    shown = table(node(resource(*replicas, name="example.com/fuse", replicas=100)))
    assert shown[1].startswith("example.com/fuse  100 (1 x 100 replicas)  100          3     registered")
    assert shown[3] == ("fuse x 100 replicas  fuse  -     Healthy  3d   held 3 of 100: lab/meter-0 (reader)")
    assert len(shown) == 5


def test_replicas_that_differ_in_health_are_counted() -> None:
    shown = table(node(resource(healthy("a::0"), unhealthy("a::1", "worn"), replicas=2)))
    assert shown[3:5] == ["a x 2 replicas  -     -     1 of 2 Unhealthy  41s  -", "    worn"]


def test_a_device_has_its_resource_above_it_where_there_are_several() -> None:
    shown = table(node(resource(healthy("a"), name="x.y/a"), resource(healthy("b"), name="x.y/b")))
    assert [line.split("  ")[0] for line in shown[3:]] == [
        "DEVICE",
        "x.y/a:",
        "a",
        "x.y/b:",
        "b",
        "daemon ready; config read 2h ago, 0 errors",
    ]


def test_several_holders_are_all_named_up_to_a_limit() -> None:
    holders = [Holder("lab", f"p{number}", "c") for number in range(5)]
    assert table(node(resource(healthy("a", *holders[:2]))))[3].endswith("lab/p0 (c), lab/p1 (c)")
    assert table(node(resource(healthy("a", *holders))))[3].endswith("lab/p2 (c), 2 more")
    assert "lab/p4 (c)" in "\n".join(table(node(resource(healthy("a", *holders))), wide=True))


def test_a_device_that_nobody_is_named_for_may_be_held() -> None:
    assert table(node(resource(healthy("a", is_held=True))))[3].endswith("may be held")


def test_a_holder_of_what_is_outdated_has_to_restart() -> None:
    shown = table(node(resource(healthy("a", READER, is_outdated=True))))
    assert shown[3].endswith("lab/meter-0 (reader); restart to refresh")


def test_only_unhealthy_devices_are_listed_on_demand_and_the_counts_stay() -> None:
    shown = table(LAB, only_unhealthy=True)
    assert shown[1].startswith("example.com/serial  2         1            1 ")
    assert [line.split()[0] for line in shown[3:5]] == ["0403:6001:A7004kxQ", "unplugged;"]
    assert "A6008isP" not in "\n".join(shown)


def test_the_wide_table_has_a_row_for_each_device_with_all_there_is() -> None:
    shown = table(
        node(
            resource(
                healthy("a::0", READER, device_nodes=("/dev/pts/7", "/dev/x"), attributes={"k": "v"}),
                unhealthy("a::1", "worn"),
                replicas=2,
            )
        ),
        wide=True,
    )
    assert shown[0].split() == [
        "RESOURCE",
        "CAPACITY",
        "ALLOCATABLE",
        "HELD",
        "REPLICAS",
        "PROCESS",
        "KUBELET",
    ]
    assert shown[1].split()[1:6] == ["2", "1", "1", "2", "7"]
    assert shown[3].split() == (
        [
            "example.com/serial",
            "a::0",
            "/dev/pts/7,/dev/x",
            "-",
            "Healthy",
            "3d",
            "2027-01-12T08:00:00Z",
            "-",
            "lab/meter-0",
            "(reader)",
            "-",
            "k=v",
        ]
    )
    assert "worn" in shown[4]


@pytest.mark.parametrize(
    ("one", "last"),
    [
        (
            node(processes=()),
            [
                "no plugin has listed a resource here",
                (
                    f"no daemon answers in {FOLDER}; on a machine with its config: devplug run -c FILE; "
                    "in a cluster, look at the log of its pod"
                ),
            ],
        ),
        (
            node(processes=(daemon(resource(fault="no kubelet is connected", is_registered=False)),)),
            ["daemon NOT ready: example.com/serial: no kubelet is connected; config read 2h ago, 0 errors"],
        ),
        (
            node(processes=(daemon(problems=("/etc/devplug/config.yaml:3:1: error: bad", "x/y: no")),)),
            [
                "daemon ready; config read 2h ago, 2 errors",
                "    /etc/devplug/config.yaml:3:1: error: bad",
                "    /etc/devplug/config.yaml: x/y: no",
            ],
        ),
        (node(processes=(daemon(config=None),)), ["plugin ready; up 1d, without a config file"]),
        (
            node(processes=(daemon(), daemon(process=8, config=None))),
            ["daemon 7 ready; config read 2h ago, 0 errors", "plugin 8 ready; up 1d, without a config file"],
        ),
        (
            node(
                pod_resources=PodResourcesStatus(trouble="there is no socket"),
                problems=("status-1.sock: no right to connect",),
            ),
            [
                "the kubelet does not tell who holds what: there is no socket",
                "status-1.sock: no right to connect",
            ],
        ),
    ],
)
def test_the_last_lines_say_how_the_daemon_and_the_kubelet_are(one: NodeStatus, last: list[str]) -> None:
    assert table(one)[-len(last) :] == last


def test_a_narrow_terminal_folds_the_last_column_and_the_sentences() -> None:
    holders = [Holder("laboratory", f"meter-{number}", "reader") for number in range(3)]
    long = unhealthy("a", "it was pulled out of the machine by a person who was in a hurry", *holders)
    shown = table(node(resource(long)), width=62)
    assert max(map(len, shown)) <= 62
    assert shown[:9] == [
        "RESOURCE            CAPACITY  ALLOCATABLE  HELD  KUBELET",
        "example.com/serial  1         0            1     registered 3d",
        "                                                 ago,",
        "                                                 listening",
        "DEVICE  NODE  NUMA  HEALTH     AGE  HELD BY",
        "a       -     -     Unhealthy  41s  laboratory/meter-0",
        "                                    (reader),",
        "                                    laboratory/meter-1",
        "                                    (reader),",
    ]
    assert shown[11:13] == ["    it was pulled out of the machine by a person who was in a", "        hurry"]


def test_what_cannot_be_folded_is_left_to_the_terminal() -> None:
    assert table(LAB, width=40)[3] == table(LAB)[3]


def test_foreign_names_cannot_move_the_cursor() -> None:
    bad = "\x1b[2J\x07dev"
    for wide in (False, True):
        shown = table(node(resource(healthy(bad, Holder(bad, bad, bad)), name=bad)), wide=wide)
        assert "\x1b" not in "".join(shown)
        assert "\\x1b[2J\\x07dev" in "".join(shown)


@given(st.text())
def test_whatever_is_printed_is_printable(text: str) -> None:
    assert Cell(text).text.replace("\n", "").isprintable()


WORD = st.text(st.sampled_from("ab-:/.é漢"), min_size=1, max_size=30)


@given(st.lists(st.tuples(WORD, WORD, st.booleans()), max_size=5), st.none() | st.integers(60, 200))
def test_every_device_is_in_the_table_and_columns_line_up(
    made: list[tuple[str, str, bool]], width: int | None
) -> None:
    devices = [
        healthy(name, Holder("n", reason, "c")) if is_well else unhealthy(name, reason)
        for name, reason, is_well in made
    ]
    shown = table(node(resource(*devices)), width=width)
    rows = [line for line in shown if " Healthy " in line or " Unhealthy " in line]
    assert len(rows) == len(devices)
    places = {cell_len(line[: line.index("ealthy") - 2 - line.count(" Unhealthy")]) for line in rows}
    assert len(places) <= 1 or {line.count(" Unhealthy") for line in rows} == {0, 1}


@pytest.mark.parametrize(
    ("globs", "names"),
    [
        ((), ["example.com/gpu", "example.com/gpu-b", "x.y/tty"]),
        (("example.com/gpu",), ["example.com/gpu"]),
        (("gpu*",), ["example.com/gpu", "example.com/gpu-b"]),
        (("tty", "gpu"), ["example.com/gpu", "x.y/tty"]),
        (("example.com/*",), ["example.com/gpu", "example.com/gpu-b"]),
        (("GPU",), []),
    ],
)
def test_resources_are_chosen_by_name_or_kind(globs: tuple[str, ...], names: list[str]) -> None:
    all_of_them = [resource(name=name) for name in ("example.com/gpu", "example.com/gpu-b", "x.y/tty")]
    assert [one.name for one in chosen(node(*all_of_them), globs).resources] == names


@given(st.integers(1, 5), st.integers(1, 5))
def test_there_is_a_row_for_each_device_that_was_found(found: int, replicas: int) -> None:
    ids = [f"d{one}::{two}" for one in range(found) for two in range(replicas)]
    if replicas == 1:
        ids = [one.removesuffix("::0") for one in ids]
    rows = groups(resource(*map(healthy, ids), replicas=replicas))
    assert [row.name for row in rows] == [f"d{one}" for one in range(found)]
    assert {len(row.devices) for row in rows} == {replicas}


def test_csv_is_one_line_per_device_and_quotes_what_it_must() -> None:
    worn = unhealthy("b", 'worn, "badly"\nindeed', READER, Holder("n", "p", "c"), leaves_at=NOW)
    text = csv_text([node(resource(healthy("a", attributes={"k": "v w"}), worn))])
    assert text.count("\r\n") == text.count("\n") == 3
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert (rows[0]["node"], rows[0]["resource"], rows[0]["held"]) == ("worker-0", SERIAL, "false")
    assert rows[0]["attributes"] == "k=v w"
    assert rows[1]["reason"] == 'worn, "badly" indeed'
    assert rows[1]["holders"] == "lab/meter-0/reader n/p/c"
    assert rows[1]["leaves_at"] == "2027-01-15T08:00:00Z"


def test_csv_can_leave_out_what_is_healthy() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text([LAB], unhealthy=True))))
    assert [row["device"] for row in rows] == ["0403:6001:A7004kxQ"]


def test_a_last_cell_of_several_lines_goes_on_below_itself() -> None:
    rows = [Row((Cell("x"), Cell("one\ntwo")))]
    assert [plain(line) for line in laid_out(("A", "B"), rows, None)] == ["A  B", "x  one", "   two"]
