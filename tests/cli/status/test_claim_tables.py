"""What `devplug status` prints of claims and of the DRA driver, from statuses that are made up."""

from __future__ import annotations

import csv
import io

import pytest
from msgspec.structs import replace

from devplug.cli.status.views.tables import csv_text, node_lines
from devplug.cli.status.views.text import plain
from devplug.status import DeviceClaim, DriverStatus, Holder, NodeStatus
from tests.cli.status.made import MINUTE, NOW, READER, daemon, healthy, node, resource, unhealthy


def table(one: NodeStatus, *, wide: bool = False) -> list[str]:
    return [plain(line) for line in node_lines(one, NOW, "/plugins", width=None, wide=wide)]


DRIVER = DriverStatus(
    name="d.example.com",
    is_registered=True,
    kubelet_api="v1.DRAPlugin",
    slices=1,
    devices=2,
    generation=3,
    claims=1,
)
CLAIM = DeviceClaim(namespace="lab", name="port", request="r", device="a-1", since=NOW - 5 * MINUTE)


def claimed(*holders: Holder, driver: DriverStatus = DRIVER) -> NodeStatus:
    taken = resource(healthy("a", *holders, claims=(CLAIM,), is_held=True), healthy("b"), driver=driver.name)
    return node(taken, processes=(daemon(taken, drivers=(driver,)),))


def test_a_claim_stands_below_its_device_and_the_driver_below_the_daemon() -> None:
    assert table(claimed(READER)) == [
        "RESOURCE            CAPACITY  ALLOCATABLE  HELD  KUBELET",
        "example.com/serial  2         2            1     registered 3d ago, for claims on d.example.com",
        "DEVICE  NODE  NUMA  HEALTH   AGE  HELD BY",
        "a       -     -     Healthy  3d   lab/meter-0 (reader)",
        "    claim lab/port, request r, device a-1, for 5m",
        "b       -     -     Healthy  3d   -",
        "daemon ready; config read 2h ago, 0 errors",
        "DRA driver d.example.com registered (v1.DRAPlugin); 2 devices in 1 slice, generation 3; 1 claim",
    ]


def test_while_the_kubelet_names_no_container_the_claim_itself_holds_the_device() -> None:
    assert "a       -     -     Healthy  3d   claim lab/port" in table(claimed())


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({"stale_since": NOW - 9}, "generation 3; 1 claim"),
        ({"stale_since": NOW - 41}, "generation 3, STALE for 41s; 1 claim"),
        (
            {"stale_since": NOW - 41, "fault": "it is away"},
            "STALE for 41s; 1 claim: it is away",
        ),
        (
            {"is_registered": False},
            "NOT registered; 2 devices in 1 slice, generation 3; 1 claim",
        ),
    ],
)
def test_a_driver_says_since_when_its_slices_are_stale_and_what_is_wrong(
    about: dict[str, object], text: str
) -> None:
    assert table(claimed(driver=replace(DRIVER, **about)))[-1].endswith(text)


def test_of_many_claims_of_a_device_the_first_few_are_told() -> None:
    many = tuple(replace(CLAIM, name=f"c{n}", has_admin_access=n == 0) for n in range(5))
    lines = table(node(resource(healthy("a", claims=many, is_held=True))))
    assert lines[4:8] == [
        "    claim lab/c0, request r, device a-1, for 5m, with admin access",
        "    claim lab/c1, request r, device a-1, for 5m",
        "    claim lab/c2, request r, device a-1, for 5m",
        "    2 more claims",
    ]


def test_a_taint_is_told_with_the_reason() -> None:
    sick = unhealthy("a", "unplugged", READER, claims=(CLAIM,), taint="NoSchedule")
    assert "    unplugged; tainted NoSchedule" in table(node(resource(sick)))


def test_a_device_of_another_driver_has_the_claim_that_the_kubelet_names() -> None:
    other = DeviceClaim(namespace="lab", name="gpu", device="gpu-0")
    known = healthy("gpu-0", READER, claims=(other,), health="Unknown", since=None)
    lines = table(node(resource(known, name="gpu.example.org", driver="gpu.example.org", is_registered=None)))
    assert lines[1].endswith("of another driver")
    assert lines[4] == "    claim lab/gpu"


def test_claims_are_in_csv_and_in_the_wide_table() -> None:
    (row, _) = csv.DictReader(io.StringIO(csv_text([claimed(READER)])))
    assert (row["claims"], row["taint"]) == ("lab/port/r", "")
    assert "claim lab/port, request r, device a-1, for 5m" in table(claimed(READER), wide=True)[3]
