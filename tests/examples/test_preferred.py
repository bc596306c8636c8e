"""The example of a preference keeps the chips of a container on one board, and whole boards whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from devplug import Device
from devplug.testing import SyncKubelet
from examples.preferred import Chips
from tests.examples.beds import command, nodes

NAME = "example.com/chip"


def chip(board: int, number: int) -> Device:
    return Device(f"chip{board}.{number}", attributes={"board": f"chip{board}"})


def boards(chips: Sequence[Device]) -> int:
    return len({one.attributes["board"] for one in chips})


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[Device], list[Device], int]:
    """A request as the kubelet makes it: what must be included is available too."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    every = [chip(board, number) for board, count in enumerate(sizes) for number in range(count)]
    available = draw(st.permutations(every))
    must_include = available[: draw(st.integers(0, min(2, len(available))))]
    return available, must_include, draw(st.integers(max(1, len(must_include)), len(available)))


def answer(available: list[Device], must_include: list[Device], size: int) -> list[Device]:
    """Return what becomes of the ranking: what must be included first, then cut."""
    ranked = asyncio.run(Chips().prefer(available, must_include, size))
    return list(dict.fromkeys([*must_include, *ranked]))[:size]


@given(requests())
def test_no_other_choice_is_on_fewer_boards(request: tuple[list[Device], list[Device], int]) -> None:
    available, must_include, size = request
    rest = [one for one in available if one not in must_include]
    fewest = min(boards([*must_include, *more]) for more in combinations(rest, size - len(must_include)))
    given_out = answer(*request)
    assert len(given_out) == size
    assert boards(given_out) == fewest


def test_a_board_that_just_suffices_is_taken_before_a_whole_one() -> None:
    available = [*(chip(0, n) for n in range(4)), *(chip(1, n) for n in range(2))]
    assert [one.id for one in answer(available, [], 2)] == ["chip1.0", "chip1.1"]


def test_what_is_left_on_the_begun_board_counts() -> None:
    available = [chip(0, 0), chip(0, 1), *(chip(1, n) for n in range(4)), *(chip(2, n) for n in range(3))]
    given_out = answer(available, [chip(0, 0)], 5)
    assert {one.attributes["board"] for one in given_out} == {"chip0", "chip2"}


def test_the_chips_of_a_container_are_on_one_board(kubelet: SyncKubelet, tmp_path: Path) -> None:
    names = [f"chip{board}.{number}" for board in range(3) for number in range(4)]
    kubelet.start(Chips(str(nodes(tmp_path, *names))))
    first = kubelet.admit({NAME: 1}).container.device_ids[0].partition(".")[0]
    three = kubelet.admit({NAME: 3}).container.device_ids
    assert {id_.partition(".")[0] for id_ in three} == {first}
    four = kubelet.admit({NAME: 4}).container.device_ids
    assert len({id_.partition(".")[0] for id_ in four}) == 1


def test_the_program_finds_the_chips_of_a_folder(kubelet: SyncKubelet, tmp_path: Path) -> None:
    program = kubelet.run(
        command("preferred.py", nodes(tmp_path, "chip0.0", "chip0.1", "chip1.0", "chip1.1"))
    )
    assert kubelet.allocatable == {NAME: 4}
    kubelet.admit({NAME: 1})
    pair = kubelet.admit({NAME: 2}).container.device_ids
    assert pair == ("chip1.0", "chip1.1")
    assert program.stop() == 0
