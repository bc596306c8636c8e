"""Preferred allocation: each policy by example, and what holds for any question."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from devplug.daemon.preference import Candidate, closeness, preferred, spot_of
from devplug.holds.decide import steered
from tests.daemon.choices import chosen, linked, on_nodes, replicas

POLICIES = ("auto", "packed", "spread", "aligned", "leastShared", "linked", "none")

# ── the policies, by example ──────────────────────────────────────────────────────────────────────


def test_packed_fills_up_what_is_most_in_use() -> None:
    everything = replicas(a="0123", b="0123", c="0123")
    free = replicas(a="0123", b="3", c="23")
    assert chosen("packed", free, 2, of=everything) == "b::3 c::2"
    assert chosen("packed", free, 4, of=everything) == "a::0 b::3 c::2 c::3"


def test_spread_takes_another_found_device_each_time_though_it_is_in_use() -> None:
    everything = replicas(a="0123", b="0123", c="0123")
    free = replicas(a="0123", b="3", c="23")
    assert chosen("spread", free, 2, of=everything) == "a::0 c::2"
    assert chosen("spread", free, 3, of=everything) == "a::0 b::3 c::2"
    assert chosen("spread", free, 4, of=everything) == "a::0 a::1 b::3 c::2"


def test_least_shared_takes_the_replica_that_fewest_share() -> None:
    everything = replicas(a="0123", b="0123", c="0123")
    free = replicas(a="0123", b="3", c="23")
    assert chosen("leastShared", free, 1, of=everything) == "a::0"
    assert chosen("leastShared", free, 3, of=everything) == "a::0 a::1 c::2"


def test_aligned_goes_to_the_nearest_nodes_where_it_must() -> None:
    devices = on_nodes(0, 1, 2, 3)
    assert (
        chosen("aligned", devices, 2, n0_n1=32, n0_n2=32, n0_n3=32, n1_n3=21, n1_n2=32, n2_n3=32) == "d1 d3"
    )
    assert chosen("aligned", devices, 2, n2_n3=12) == "d2 d3"


def test_aligned_keeps_the_fuller_node_for_who_needs_more() -> None:
    assert chosen("aligned", on_nodes(0, 0, 0, 0, 1, 1), 2) == "d4 d5"


def test_a_device_without_a_numa_node_is_farthest_away() -> None:
    assert chosen("aligned", on_nodes((), 0, (), 1, ()), 2, n0_n1=200) == "d0 d2"
    assert chosen("aligned", on_nodes((), 0, 1), 2, n0_n1=200) == "d1 d2"


def test_linked_counts_a_link_that_one_end_tells_of() -> None:
    one_sided = [Candidate("a", "a"), Candidate("b", "b"), Candidate("c", "c", links={"b": 1})]
    assert chosen("linked", one_sided, 2) == "b c"


def test_linked_takes_the_least_shared_of_equals() -> None:
    links = {found: dict.fromkeys({*"abc"} - {found}, 4) for found in "abc"}
    gpus = [
        Candidate(f"{found}::{number}", found, links=links[found]) for found in links for number in range(2)
    ]
    assert chosen("linked", gpus[1:], 1, of=gpus) == "b::0"
    assert chosen("linked", gpus[1:], 2, of=gpus) == "b::0 c::0"


@pytest.mark.parametrize(
    ("one", "other", "score"),
    [
        ("pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:00/0000:00:01.0/0000:01:00.1", 60),
        (
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0",
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:08.0/0000:04:00.0",
            50,
        ),
        (
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0",
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:08.0/0000:04:00.0/0000:05:00.0/0000:06:00.0",
            40,
        ),
        ("pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:00/0000:00:02.0/0000:02:00.0", 30),
        ("pci0000:00/0000:00:02.0", "pci0000:00/0000:00:03.0", 30),
        (
            "pci0000:00/0000:00:01.0/0000:01:00.0/nvme/nvme0",
            "pci0000:00/0000:00:01.0/0000:01:00.1/drm/renderD128",
            60,
        ),
        (
            "platform/soc/40000000.pcie/pci0001:00/0001:00:00.0/0001:01:00.0",
            "platform/soc/40000000.pcie/pci0001:00/0001:00:01.0/0001:02:00.0",
            30,
        ),
        ("pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:80/0000:80:01.0/0000:81:00.0", 10),
        ("pci0000:00/0000:00:01.0/0000:01:00.0", "virtual/block/loop0", 10),
    ],
)
def test_the_nearest_shared_part_of_pcie_counts(one: str, other: str, score: int) -> None:
    first, second = (Candidate(path, path, hardware=f"/sys/devices/{path}") for path in (one, other))
    assert closeness(spot_of(first), spot_of(second)) == closeness(spot_of(second), spot_of(first)) == score
    near = [replace(device, numa_nodes=(3,)) for device in (first, second)]
    assert closeness(*map(spot_of, near)) == max(score, 20)


def test_none_is_the_order_people_sort_ids_in() -> None:
    devices = [Candidate(f"fpga{number}", f"fpga{number}") for number in (10, 9, 2, 1)]
    assert chosen("none", devices, 3) == "fpga1 fpga2 fpga9"


def test_auto_suits_the_devices() -> None:
    links = linked(3, {(1, 2): 1})
    assert chosen("auto", links, 2) == "g1 g2"
    everything = replicas(a="01", b="01")
    assert chosen("auto", everything[1:], 1, of=everything) == "b::0"
    assert chosen("auto", on_nodes(0, 1, 1), 2) == "d1 d2"


# ── whatever is asked ─────────────────────────────────────────────────────────────────────────────

words = st.text(max_size=6) | st.sampled_from(["a", "b", "c", "a::0", "a::1", "gpu2", "gpu10", "1²", "٣"])
paths = st.lists(st.sampled_from(["pci0000:00", "0000:00:01.0", "0000:01:00.0", "usb1", "", "x"]), max_size=5)
anything = st.tuples(
    words,
    words,
    st.lists(st.integers(-1, 5) | st.integers(), max_size=3).map(tuple),
    paths.map(lambda parts: "/sys/devices/" + "/".join(parts)) | words,
    st.dictionaries(words, st.integers(-2, 20) | st.integers(-(10**400), 10**400), max_size=3),
).map(lambda fields: Candidate(*fields))
policies = st.sampled_from(POLICIES) | words
nodes = st.integers(-1, 5)


@given(
    st.data(),
    policies,
    st.lists(anything, max_size=12, unique_by=lambda one: one.id),
    st.lists(anything, max_size=6),
    st.lists(words, max_size=3),
    st.integers(-2, 14) | st.integers(),
    st.dictionaries(st.tuples(nodes, nodes), st.integers(-5, 300), max_size=4),
)
def test_an_answer_is_right_whatever_is_asked(
    data: st.DataObject,
    policy: str,
    candidates: list[Candidate],
    others: list[Candidate],
    unknown: list[str],
    size: int,
    distances: dict[tuple[int, int], int],
) -> None:
    ids = {one.id for one in candidates}
    must = unknown + data.draw(st.lists(st.sampled_from(sorted(ids)), max_size=4) if ids else st.just([]))

    def ask(asked: list[Candidate], required: list[str], known: list[Candidate]) -> list[str]:
        return preferred(policy, asked, required, size, all_devices=known, numa_distances=distances)

    answer = ask(candidates, must, candidates + others)
    known = ids.intersection(must)
    assert len(answer) == len({*answer}) == min(max(0, size), len(ids))
    assert ids.issuperset(answer)
    assert known.issuperset(answer[: len(known)])
    assert known.issubset(answer) or len(known) > size
    shuffled = data.draw(st.permutations(candidates))
    assert ask(shuffled, [*reversed(must)], data.draw(st.permutations(candidates + others))) == answer


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_devices_are_taken_in_the_order_of_their_ids(policy: str) -> None:
    devices = [Candidate(f"d{index}", f"d{index}", (0,)) for index in range(40)]
    answers = [preferred(policy, devices[::-1], [], size, all_devices=devices) for size in (1, 5, 20, 39)]
    assert [answer[-1] for answer in answers] == ["d0", "d4", "d19", "d38"]
    assert all(short == more[: len(short)] for short, more in pairwise(answers))


# ── doubtful devices ──────────────────────────────────────────────────────────────────────────────


@given(
    doubtful=st.sets(st.sampled_from("abcdefgh")),
    must=st.sets(st.sampled_from("abcdefgh"), max_size=3),
    size=st.integers(0, 9),
)
def test_doubtful_devices_are_chosen_only_when_others_run_out(
    doubtful: set[str], must: set[str], size: int
) -> None:
    allowed, certain = steered("abcdefgh", must, size, doubtful)
    assert len(allowed) == len({*allowed})
    assert len(allowed) >= min(size, 8)
    others = {*"abcdefgh"} - must - doubtful
    if len(must) + len(others) >= size:
        assert ({*allowed}, {*certain}) == (must | others, must)
    else:
        assert ({*allowed}, {*certain}) == ({*"abcdefgh"}, must | others)
