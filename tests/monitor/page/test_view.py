"""From statuses to what the page shows: boards, tiles, order, bounds, and nothing that is not so."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.monitor.history import History
from devplug.monitor.node_view import UNANSWERED
from devplug.monitor.page.state import State, Tile
from devplug.monitor.page.view import details, natural, state
from devplug.status import (
    ConfigStatus,
    DeviceClaim,
    DriverStatus,
    Holder,
    NodeStatus,
    PodResourcesStatus,
    ProcessStatus,
    Takeover,
)
from tests.monitor.page.nodes import NOW, RESOURCE, device, held, node, resource, sick

EVENT_LIMIT_BYTES = 512 * 1024


def shown(*nodes: NodeStatus, **about: Any) -> State:
    history = History()
    for one in nodes:
        history = history.after(one)
    names = [one.name for one in nodes]
    return state(names, history, NOW, **({"began_at": NOW} | about))


def tiles(seen: State) -> list[Tile]:
    return [
        tile
        for one in seen["nodes"]
        for board in one["boards"]
        for group in board["groups"]
        for tile in group["tiles"]
    ]


def titles(seen: State) -> list[str]:
    return [board["title"] for one in seen["nodes"] for board in one["boards"]]


def test_each_numa_node_has_its_board_and_devices_without_one_come_last() -> None:
    devices = (device("a"), device("b", numa_nodes=(1,)), device("c", numa_nodes=(0, 1)))
    seen = shown(node(resource(*devices, device("d", numa_nodes=(0,)))))
    assert titles(seen) == ["NUMA node 0", "NUMA node 1", "NUMA nodes 0 and 1", "No NUMA node"]
    assert [tile["id"] for tile in tiles(seen)] == ["d", "b", "c", "a"]


def test_devices_stand_in_the_order_that_people_count_in() -> None:
    seen = shown(node(resource(device("tty10"), device("tty9"))))
    assert [tile["id"] for tile in tiles(seen)] == ["tty9", "tty10"]


def test_on_its_board_an_unhealthy_device_and_its_resource_stand_before_the_others() -> None:
    first = resource(held("a1"), device("a2"), name="example.com/a")
    second = resource(device("z1"), device("z2"), sick("z10"), sick("z9"), name="example.com/z")
    seen = shown(node(first, second))
    assert [tile["id"] for tile in tiles(seen)] == ["z9", "z10", "z1", "z2", "a1", "a2"]


def test_a_tile_says_who_holds_the_device_and_since_when_it_is_how_it_is() -> None:
    many = [Holder("lab", f"pod-{n}", "main") for n in range(5)]
    one = held("x", *many, since=NOW - 5, device_nodes=("/dev/ttyUSB0",), leaves_at=NOW + 9)
    (tile,) = tiles(shown(node(resource(one))))
    assert tile["holders"] == ["lab/pod-0 (main)", "lab/pod-1 (main)", "lab/pod-2 (main)"]
    assert (tile["more_holders"], tile["files"]) == (2, ["/dev/ttyUSB0"])
    assert (tile["since"], tile["leaves_at"]) == (NOW - 5, NOW + 9)


def test_replicas_are_one_tile_with_a_fill() -> None:
    (tile,) = tiles(shown(node(resource(held("kvm::0"), device("kvm::1"), device("kvm::2"), replicas=3))))
    assert (tile["id"], tile["held"], tile["replicas"]) == ("kvm", 1, 3)


def test_the_numbers_are_those_of_the_kubelet_with_replicas_counted() -> None:
    (seen,) = shown(node(resource(held("a::0"), device("a::1"), sick("b::0"), sick("b::1"), replicas=2)))[
        "nodes"
    ]
    (row,) = seen["resources"]
    assert (row["capacity"], row["found"], row["allocatable"], row["held"]) == (4, 2, 2, 1)
    assert (seen["healthy"], seen["unhealthy"], seen["held"]) == (2, 2, 1)


def test_a_daemon_that_is_away_is_one_problem_and_its_devices_are_not_known() -> None:
    away = [
        resource(
            held("x", health="Unknown"),
            name=f"example.com/{n}",
            fault=UNANSWERED,
            is_registered=None,
            process=None,
        )
        for n in "abcd"
    ]
    (seen,) = shown(node(*away))["nodes"]
    assert (seen["healthy"], seen["unhealthy"], seen["not_known"]) == (0, 0, 4)
    (problem,) = seen["problems"]
    assert problem.startswith(
        "No devplug daemon answers for example.com/a, example.com/b, example.com/c and 1 more: "
    )
    assert "kubectl -n devplug get pods" in problem
    assert {row["fault"] for row in seen["resources"]} == {"not known"}


def test_what_is_wrong_with_a_node_is_told() -> None:
    faulty = resource(fault="no kubelet yet", is_registered=False)
    config = ConfigStatus(file="/etc/d.yaml", applied_at=NOW, problems=("line 4: no",))
    faults = (f"{RESOURCE}: no kubelet yet",)
    process = ProcessStatus(process=7, version="1", python="3", started_at=NOW, faults=faults, config=config)
    trouble = PodResourcesStatus(trouble="no answer")
    (seen,) = shown(node(faulty, processes=(process,), pod_resources=trouble, problems=("run as root",)))[
        "nodes"
    ]
    (told,) = seen["processes"]
    assert told["faults"] == [f"{RESOURCE}: no kubelet yet"]
    assert told["problems"] == ["/etc/d.yaml: line 4: no"]
    assert (seen["kubelet_trouble"], seen["problems"]) == ("no answer", ["run as root"])


def test_another_plugin_of_a_name_is_told_once() -> None:
    takeover = Takeover(signs=("cut",), since=NOW, reason="another plugin")
    for fault, problems in (("", [f"{RESOURCE}: another plugin"]), ("another plugin", [])):
        (seen,) = shown(node(resource(takeover=takeover, fault=fault)))["nodes"]
        assert seen["problems"] == problems


def test_a_node_that_has_not_answered_yet_is_waited_for() -> None:
    seen = state(["a", "b"], History().after(node(name="b")), NOW, began_at=NOW)
    assert (seen["waiting"], [one["name"] for one in seen["nodes"]]) == (["a"], ["b"])


def test_a_change_of_many_devices_at_once_is_one_line() -> None:
    names = [f"x{n}" for n in range(5)]
    before, after = resource(*map(device, names)), resource(*map(sick, names))
    (line,) = shown(node(before), node(after, at=NOW + 1))["changes"]
    assert (line["kind"], line["device"], line["more_devices"], line["times"]) == ("unhealthy", "x4", 4, 1)


def test_a_device_that_flaps_has_one_line_for_each_direction() -> None:
    statuses = [node(resource(one), at=NOW + at) for at, one in enumerate([device("x"), sick("x")] * 10)]
    lines = shown(*statuses)["changes"]
    assert [(one["kind"], one["times"], one["more_devices"]) for one in lines] == [
        ("unhealthy", 10, 0),
        ("healthy", 9, 0),
    ]


def test_the_newest_change_is_the_first() -> None:
    history = History().after(node(resource(device("x"))))
    for at, now in ((1, sick("x")), (2, device("x"))):
        history = history.after(node(resource(now), at=NOW + at))
    seen = state(["worker-0"], history, NOW + 2, began_at=NOW)
    assert [(change["kind"], change["at"] - NOW) for change in seen["changes"]] == [
        ("healthy", 2),
        ("unhealthy", 1),
    ]


# ── what cannot all be drawn ──


def test_unhealthy_devices_are_drawn_first_then_held_ones_and_the_rest_is_counted() -> None:
    free = [device(f"free-{n}") for n in range(500)]
    seen = shown(node(resource(*free, held("held"), sick("sick"))), tiles_limit=30)
    ids = [tile["id"] for tile in tiles(seen)]
    assert len(ids) == 30
    assert {"held", "sick"} <= {*ids}
    assert seen["nodes"][0]["hidden"] == 502 - 30
    (group,) = seen["nodes"][0]["boards"][0]["groups"]
    assert group["hidden"] == 502 - 30


def test_each_resource_has_its_turn() -> None:
    many = resource(*(sick(f"a{n}") for n in range(100)), name="example.com/a")
    few = resource(*(sick(f"b{n}") for n in range(5)), name="example.com/b")
    ids = {tile["id"] for tile in tiles(shown(node(many, few), tiles_limit=30))}
    assert {f"b{n}" for n in range(5)} <= ids


def test_the_filter_finds_what_is_not_drawn() -> None:
    devices = [device(f"port-{n}") for n in range(5000)]
    seen = shown(node(resource(*devices)), wanted="PORT-4999")
    assert [tile["id"] for tile in tiles(seen)] == ["port-4999"]
    assert (seen["nodes"][0]["hidden"], seen["nodes"][0]["healthy"]) == (0, 5000)


def test_the_filter_looks_at_holders_reasons_and_files() -> None:
    devices = (held("a"), sick("b", "too hot"), device("c", device_nodes=("/dev/ttyUSB7",)))
    for wanted, found in (("meter-0", "a"), ("HOT", "b"), ("ttyusb7", "c")):
        assert [tile["id"] for tile in tiles(shown(node(resource(*devices)), wanted=wanted))] == [found]


def test_ten_thousand_devices_on_each_of_three_nodes_are_an_event_of_bounded_size() -> None:
    devices = tuple(
        sick(f"device-with-a-name-of-sixty-three-bytes-as-the-longest-are-{n:05}", "r" * 1000)
        for n in range(10_000)
    )
    nodes = [node(resource(*devices), name=f"worker-{n}") for n in range(3)]
    seen = shown(*nodes)
    assert len(tiles(seen)) <= 600
    assert len(json.dumps(seen)) < EVENT_LIMIT_BYTES


@given(
    st.lists(
        st.tuples(
            st.integers(0, 30),
            st.sampled_from(["Healthy", "Unhealthy", "Unknown"]),
            st.booleans(),
            st.sampled_from([(), (0,), (1,), (1, 0)]),
        ),
        max_size=60,
        unique_by=lambda one: one[0],
    ),
    st.integers(1, 40),
)
def test_every_device_is_drawn_once_or_counted_as_hidden(
    made: list[tuple[int, str, bool, tuple[int, ...]]], limit: int
) -> None:
    devices = tuple(
        device(f"d{n}", health=health, is_held=is_held, numa_nodes=numa) for n, health, is_held, numa in made
    )
    seen = shown(node(resource(*devices)), tiles_limit=limit)
    (one,) = seen["nodes"]
    ids = [tile["id"] for tile in tiles(seen)]
    assert len(ids) == len({*ids}) == min(len(devices), max(limit, 24))
    assert one["hidden"] == len(devices) - len(ids)
    hidden = sum(group["hidden"] for board in one["boards"] for group in board["groups"])
    assert hidden == one["hidden"]
    json.dumps(seen, allow_nan=False)


@given(st.lists(st.text(alphabet="a0129٣²", max_size=8)))
def test_any_ids_can_be_put_in_order(texts: list[str]) -> None:
    keys = [natural(text) for text in texts]
    assert len({*keys}) == len({*texts})
    assert len(sorted(keys)) == len(texts)


# ── details ──


def test_details_have_all_there_is() -> None:
    one = held("x::0", attributes={"serial": "A1"}, device_nodes=("/dev/a", "/dev/b"), numa_nodes=(1,))
    history = History().after(node(resource(one, device("x::1"), replicas=2)))
    told = details(history, "worker-0", RESOURCE, "x")
    assert told is not None
    assert (told["attributes"], told["files"], told["numa_nodes"]) == (
        {"serial": "A1"},
        ["/dev/a", "/dev/b"],
        [1],
    )
    assert [(member["id"], member["holders"]) for member in told["members"]] == [
        ("x::0", ["lab/meter-0 (reader)"]),
        ("x::1", []),
    ]


def test_a_device_that_has_left_keeps_its_history() -> None:
    history = History().after(node(resource(sick("x")))).after(node(resource(), at=NOW + 1))
    told = details(history, "worker-0", RESOURCE, "x")
    assert told is not None
    assert (told["is_listed"], told["health"]) == (False, "Gone")
    assert [one["health"] for one in told["segments"]] == ["Gone", "Unhealthy"]


def test_a_device_that_never_was_has_no_details() -> None:
    assert details(History().after(node()), "worker-0", RESOURCE, "x") is None
    assert details(History(), "nowhere", RESOURCE, "x") is None


# ── claims ──

CLAIM = DeviceClaim(namespace="lab", name="port", request="r", device="x-1", since=NOW - 9)


def test_a_tile_names_the_claim_where_the_kubelet_names_no_container() -> None:
    both = held("x", claims=(CLAIM,)), device("y", claims=(CLAIM,), is_held=True)
    first, second = tiles(shown(node(resource(*both))))
    assert (first["holders"], second["holders"]) == (["lab/meter-0 (reader)"], ["claim lab/port"])


def test_a_claim_is_found_by_its_name() -> None:
    devices = held("x", claims=(CLAIM,)), held("y")
    assert [one["id"] for one in tiles(shown(node(resource(*devices)), wanted="LAB/PORT"))] == ["x"]


def test_details_name_the_claims_of_a_device_and_since_when() -> None:
    known = DeviceClaim(namespace="lab", name="other", device="x")  # of another driver: from the kubelet
    history = History().after(node(resource(held("x", claims=(CLAIM, known)))))
    told = details(history, "worker-0", RESOURCE, "x")
    assert told is not None
    assert told["members"][0]["claims"] == [
        {"text": "claim lab/port, request r, device x-1", "since": NOW - 9},
        {"text": "claim lab/other", "since": None},
    ]


def test_a_driver_is_told_of_as_status_tells_of_it() -> None:
    driver = DriverStatus(name="d.example.com", is_registered=True, slices=1, devices=2, claims=1)
    stale = replace(driver, name="e.example.com", stale_since=NOW - 41)
    away = replace(driver, name="f.example.com", is_registered=False, fault="no\nkubelet")
    process = ProcessStatus(process=1, version="1", python="3", started_at=NOW, drivers=(driver, stale, away))
    (seen,) = shown(node(processes=(process,)))["nodes"]
    assert seen["drivers"] == [
        {"text": "DRA driver d.example.com registered; 2 devices in 1 slice; 1 claim", "is_well": True},
        {
            "text": "DRA driver e.example.com registered; 2 devices in 1 slice, STALE for 41s; 1 claim",
            "is_well": False,
        },
        {
            "text": "DRA driver f.example.com NOT registered; 2 devices in 1 slice; 1 claim: no kubelet",
            "is_well": False,
        },
    ]


def test_a_resource_for_claims_names_its_driver() -> None:
    (seen,) = shown(node(resource(device("x"), driver="devices.example.com")))["nodes"]
    assert seen["resources"][0]["driver"] == "devices.example.com"
