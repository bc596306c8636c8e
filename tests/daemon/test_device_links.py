"""Preferred allocation against all that could be chosen, and beyond the sizes where that is tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devplug.daemon.preference import Candidate, Weights, heaviest, preferred
from tests.daemon.choices import chosen, indexes, linked, on_nodes

BATCHES = range(10)
PER_BATCH = 200
"""Random machines: 2,000 of them for each policy that goes by where devices are."""

# ── against all that could be chosen ──────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a device of a random machine is; each field counts within the one before."""

    node: int
    bridge: int
    port: int
    switch: int
    """0 is on the port itself, 1 on the switch below it, 2 and 3 on switches below that one."""
    slot: int

    def hardware(self, function: int) -> str:
        bridge = f"pci00{self.node:x}{self.bridge:x}:00"
        ports = [f"0000:0{self.node:x}:{self.bridge * 8 + self.port:02x}.0"]
        if self.switch:
            ports += ["0000:10:00.0", f"0000:11:{self.slot if self.switch == 1 else self.switch:02x}.0"]
        if self.switch > 1:
            ports += ["0000:12:00.0", f"0000:13:{self.slot:02x}.0"]
        return "/".join(("/sys/devices", bridge, *ports, f"0000:20:00.{function}"))

    def score(self, other: Spot) -> int:
        if self.node != other.node:
            return 10
        if self.bridge != other.bridge:
            return 20
        if self.port != other.port:
            return 30
        if self.switch != other.switch or not self.switch:
            return 60 if self.switch == other.switch else 40
        return 60 if self.slot == other.slot else 50


@dataclass(frozen=True, slots=True)
class Machine:
    """A random machine, and a question that is asked on it."""

    devices: list[Candidate]
    spots: list[Spot]
    links: dict[tuple[int, int], int]
    must: list[str]
    size: int

    def split(self) -> tuple[list[int], list[int], int]:
        """Which devices must be included, which can be chosen, and how many of those."""
        held = [index for index, one in enumerate(self.devices) if one.id in self.must]
        free = [index for index, one in enumerate(self.devices) if one.id not in self.must]
        return held, free, self.size - len(held)

    def score(self, one: int, other: int) -> int:
        pair = min(one, other), max(one, other)
        return self.spots[one].score(self.spots[other]) + 100 * self.links.get(pair, 0)


def machine(seed: int) -> Machine:
    rng = Random(seed)
    count = min(rng.randint(1, 16), rng.randint(6, 16))
    ranges = [rng.randint(1, most) for most in (3, 2, 3)]
    spots = []
    for _ in range(count):
        place = [rng.randrange(limit) for limit in ranges]
        # What hangs on a port is either a device or a switch.
        switch = rng.randint(1, 3) if (sum(place) + seed) % 2 else 0
        node, bridge, port = place
        spots.append(Spot(node, bridge, port, switch, rng.randrange(2) + 4))
    chance = rng.choice((0, 0.2, 0.5, 1))
    strongest = rng.choice((1, 2, 12))
    links = {
        pair: rng.randint(1, strongest) for pair in combinations(range(count), 2) if rng.random() < chance
    }
    tables: list[dict[str, int]] = [{} for _ in range(count)]
    for (one, other), strength in links.items():
        tables[one][f"g{other}"] = tables[other][f"g{one}"] = strength
    devices = [
        Candidate(f"g{index}", f"g{index}", (spot.node,), spot.hardware(index % 8), tables[index])
        for index, spot in enumerate(spots)
    ]
    size = rng.randint(1, count)
    must = [f"g{index}" for index in rng.sample(range(count), rng.choice((0, 0, 0, min(2, size))))]
    return Machine(devices, spots, links, must, size)


@pytest.mark.parametrize("batch", BATCHES)
def test_no_set_is_connected_better_or_leaves_more_than_the_one_that_linked_takes(batch: int) -> None:
    for seed in range(batch * PER_BATCH, (batch + 1) * PER_BATCH):
        case = machine(seed)
        held, free, count = case.split()
        scores = {pair: case.score(*pair) for pair in combinations(range(len(case.devices)), 2)}

        def points(members: Iterable[int], scores: dict[tuple[int, int], int] = scores) -> int:
            return sum(map(scores.__getitem__, combinations(sorted(members), 2)))

        worth = [(points((*held, *more)), more) for more in combinations(free, count)]
        most = max(worth)[0]
        left = max(points({*free}.difference(more)) for score, more in worth if score == most)
        answer = indexes(preferred("linked", case.devices, case.must, case.size, all_devices=case.devices))
        assert (points(answer), points({*free} - answer)) == (most, left), f"machine {seed}"


@pytest.mark.parametrize("batch", BATCHES)
def test_no_set_is_on_fewer_or_nearer_numa_nodes_than_the_one_that_aligned_takes(batch: int) -> None:
    for seed in range(batch * PER_BATCH, (batch + 1) * PER_BATCH):
        rng = Random(seed)
        nodes = rng.randint(1, 5)
        distances = {pair: rng.choice((12, 21, 32)) for pair in combinations(range(nodes), 2)}
        places = [
            tuple(rng.sample(range(nodes), min(nodes, rng.choice((1, 1, 1, 1, 2)))))
            for _ in range(rng.randint(1, 16))
        ]
        devices = on_nodes(*places)
        size = rng.randint(1, len(devices))
        must = rng.sample(devices, rng.choice((0, 0, 0, min(2, size))))
        # All sets of nodes, from the best on, each with the devices that are on them.
        reach = sorted(
            (len(some), sum(distances[pair] for pair in combinations(some, 2)), mask)
            for number in range(1, nodes + 1)
            for some in combinations(range(nodes), number)
            if (
                mask := sum(1 << index for index, place in enumerate(places) if not {*place}.isdisjoint(some))
            )
        )

        def cost(members: int, reach: list[tuple[int, int, int]] = reach) -> tuple[int, int]:
            return next((number, span) for number, span, mask in reach if not members & ~mask)

        bits = [1 << index for index, one in enumerate(devices) if one not in must]
        base = sum(1 << devices.index(one) for one in must)
        least = min(cost(base | sum(more)) for more in combinations(bits, size - len(must)))
        given_distances = {**distances, **{(other, one): far for (one, other), far in distances.items()}}
        answer = preferred(
            "aligned",
            devices,
            [one.id for one in must],
            size,
            all_devices=devices,
            numa_distances=given_distances,
        )
        assert cost(sum(1 << index for index in indexes(answer))) == least, f"machine {seed}"


def load(taken: Counter[str], before: Counter[str]) -> int:
    """How many replicas are in use beside each one that is taken, when it is taken, in sum."""
    return sum(before[found] + at for found, number in taken.items() for at in range(number))


def packed_worth(taken: Counter[str], others: Counter[str], mine: Counter[str]) -> tuple[int, ...]:
    before = others + mine
    return sum(before[found] * number for found, number in taken.items()), -len(taken | mine)


def spread_worth(taken: Counter[str], others: Counter[str], mine: Counter[str]) -> tuple[int, ...]:
    return len(taken | mine), -load(taken, others + mine)


def least_shared_worth(taken: Counter[str], others: Counter[str], mine: Counter[str]) -> tuple[int, ...]:
    return -load(taken, others + mine), len(taken | mine)


@pytest.mark.parametrize(
    ("policy", "worth"),
    [("packed", packed_worth), ("spread", spread_worth), ("leastShared", least_shared_worth)],
)
def test_no_choice_of_replicas_is_better_than_the_one_that_is_taken(
    policy: str, worth: Callable[[Counter[str], Counter[str], Counter[str]], tuple[int, ...]]
) -> None:
    for seed in range(400):
        rng = Random(seed)
        everything = [
            Candidate(f"{found}::{number}", found)
            for found in "abcdef"[: rng.randint(1, 6)]
            for number in range(rng.randint(1, 4))
        ]
        free = rng.sample(everything, rng.randint(1, min(10, len(everything))))
        size = rng.randint(1, len(free))
        must = rng.sample(free, rng.choice((0, 0, min(2, size))))
        others = Counter(one.found for one in everything if one not in free)
        mine = Counter(one.found for one in must)
        rest = [one.found for one in free if one not in must]
        best = max(worth(Counter(more), others, mine) for more in combinations(rest, size - len(must)))
        answer = preferred(policy, free, [one.id for one in must], size, all_devices=everything)
        taken = Counter(one.partition("::")[0] for one in answer) - mine
        assert worth(taken, others, mine) == best, f"machine {seed}"


def test_no_choice_of_linked_replicas_is_better_than_the_one_that_is_taken() -> None:
    for seed in range(300):
        rng = Random(seed)
        names = "abcdef"[: rng.randint(1, 6)]
        links = {pair: rng.randint(0, 3) for pair in combinations(names, 2)}
        tables = {
            one: {other: links[min(one, other), max(one, other)] for other in names if other != one}
            for one in names
        }
        everything = [
            Candidate(f"{found}::{number}", found, links=tables[found])
            for found in names
            for number in range(rng.randint(1, 3))
        ]
        free = rng.sample(everything, rng.randint(1, min(10, len(everything))))
        size = rng.randint(1, len(free))
        must = [one.found for one in free[: rng.choice((0, 0, min(2, size)))]]
        rest = [one.found for one in free[len(must) :]]
        others = Counter(one.found for one in everything if one not in free)

        def worth(
            taken: Sequence[str], others: Counter[str] = others, links: Mapping[tuple[str, str], int] = links
        ) -> tuple[int, int, int]:
            pairs = [*combinations(sorted(taken), 2)]
            points = sum(10 + 100 * links[pair] for pair in pairs if pair[0] != pair[1])
            return -sum(one == other for one, other in pairs), points, -sum(others[one] for one in taken)

        best = max(worth([*must, *more]) for more in combinations(rest, size - len(must)))
        held = [one.id for one in free[: len(must)]]
        answer = preferred("linked", free, held, size, all_devices=everything)
        assert worth([one.partition("::")[0] for one in answer]) == best, f"machine {seed}"


@given(st.data(), st.integers(1, 7))
def test_the_heaviest_set_is_the_first_of_all_that_weigh_the_most(data: st.DataObject, total: int) -> None:
    weight = st.integers(-3, 3)
    own = data.draw(st.lists(weight, min_size=total, max_size=total))
    pairs = [[0] * total for _ in range(total)]
    for one, other in combinations(range(total), 2):
        pairs[one][other] = pairs[other][one] = data.draw(weight)

    def weigh(members: Sequence[int]) -> int:
        within = sum(pairs[one][other] for one, other in combinations(members, 2))
        return within + sum(own[one] for one in members)

    for count in range(total + 1):
        assert heaviest(Weights(own, pairs), count) == [*max(combinations(range(total), count), key=weigh)]


# ── beyond what is exact ──────────────────────────────────────────────────────────────────────────


def grid(count: int, island: int) -> list[Candidate]:
    """So many GPUs, each linked with those of its island, which is a switch; 64 are a host bridge."""
    return [
        Candidate(
            f"g{one}",
            f"g{one}",
            (one // 256,),
            f"/sys/devices/pci{one // 64:04x}:00/0000:00:{one // island % 32:02x}.0/0000:01:00.0"
            f"/0000:02:{one % island:02x}.0/0000:03:00.0",
            {
                f"g{other}": 2
                for other in range(one - one % island, one - one % island + island)
                if other != one
            },
        )
        for one in range(count)
    ]


@pytest.mark.parametrize(("count", "island"), [(32, 8), (128, 16)])
def test_a_search_beyond_the_limit_finds_the_one_island_that_is_whole(count: int, island: int) -> None:
    everything = grid(count, island)
    whole = count // island // 2 * island
    free = [one for index, one in enumerate(everything) if index % island or index == whole]
    answer = preferred("linked", free, [], island, all_devices=everything)
    assert answer == [f"g{index}" for index in range(whole, whole + island)]


def test_a_search_beyond_the_limit_begins_where_the_request_has_something() -> None:
    everything = grid(1024, 32)
    answer = preferred("linked", everything, ["g700"], 32, all_devices=everything)
    assert answer[0] == "g700"
    assert indexes(answer) == {*range(672, 704)}


def test_no_exchange_of_one_member_improves_what_a_search_beyond_the_limit_finds() -> None:
    for seed in range(20):
        rng = Random(seed)
        links = {pair: rng.randint(0, 9) for pair in combinations(range(24), 2)}
        gpus = linked(24, links)
        answer = indexes(preferred("linked", gpus, [], 12, all_devices=gpus))

        def points(members: Iterable[int], links: dict[tuple[int, int], int] = links) -> int:
            return sum(map(links.__getitem__, combinations(sorted(members), 2)))

        others = {*range(24)} - answer
        assert points(answer) >= max(points(answer - {gone} | {come}) for gone in answer for come in others)


def test_aligned_goes_on_from_the_fullest_nodes_on_a_machine_of_very_many() -> None:
    devices = on_nodes(*(node for node in range(60) for _ in range(1 + (node % 3 == 2))))
    answer = preferred("aligned", devices, [], 20, all_devices=devices)
    nodes = {device.numa_nodes for device in devices if device.id in answer}
    assert len(answer) == 20
    assert len(nodes) == 10


def test_aligned_goes_on_to_the_nearest_of_nodes_that_are_equally_full() -> None:
    devices = on_nodes(*range(60))
    near = {(one, other): 11 for one in range(40, 60) for other in range(40, 60)}
    answer = preferred("aligned", devices, ["d50"], 20, all_devices=devices, numa_distances=near)
    assert indexes(answer) == {*range(40, 60)}


def test_aligned_finds_the_nearest_of_many_nodes_if_few_are_enough() -> None:
    devices = on_nodes(*(node for node in range(60) for _ in range(2)))
    assert chosen("aligned", devices, 4, n13_n41=11) == "d26 d27 d82 d83"
